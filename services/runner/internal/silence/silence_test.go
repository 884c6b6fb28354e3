package silence_test

import (
	"strings"
	"testing"

	"github.com/theclaw/agents/services/runner/internal/silence"
)

// S1-54: the word alone is silence, in a text it is not shown, and no piece shows
// a part of it; anything else comes through, byte for byte, however it is cut.
func TestWord(t *testing.T) {
	for in, want := range map[string]string{
		strings.Repeat(" ", 99) + "NO_REPLY": strings.Repeat(" ", 99) + "NO_REPLY",
		"NO_REPLY":                           "",
		"  NO_REPLY\n":                       "",
		"NO_REPLY\nNO_REPLY":                 "",
		"NO":                                 "NO",
		"NO_REPLIES":                         "NO_REPLIES",
		"Done.\nNO_REPLY":                    "Done.\n",
		"a\n NO_REPLY \nb":                   "a\nb",
		"say NO_REPLY to be silent":          "say NO_REPLY to be silent",
		"\n\n  x\n  NO_\n":                   "\n\n  x\n  NO_\n",
		"NO_REPLY, he said\nNO_REPLYx":       "NO_REPLY, he said\nNO_REPLYx",
		"":                                   "",
		" ":                                  " ",
	} {
		if got := silence.Text(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
		for cut := 1; cut <= 3; cut++ {
			var f silence.Filter
			got := ""
			for i := 0; i < len(in); i += cut {
				got += f.Add(in[i:min(i+cut, len(in))])
			}
			if got += f.Flush(); got != want {
				t.Errorf("%q in pieces of %d became %q, want %q", in, cut, got, want)
			}
		}
	}
	var f silence.Filter
	for _, piece := range []string{"N", "O_", "REP", "LY"} {
		if got := f.Add(piece); got != "" {
			t.Errorf("%q was shown", got)
		}
	}
}
