package chat

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/thread"
)

func TestRead(t *testing.T) {
	lines := make(chan inputLine)
	go readLines(t.Context(), strings.NewReader("one\r\n\ntwo\n"+strings.Repeat("x", 3*thread.MaxEvent)+"\nend"), lines)
	var got []inputLine
	for {
		l := <-lines
		got = append(got, l)
		if l.err != nil {
			break
		}
	}
	if len(got) < 5 || got[0].text != "one" || got[1].text != "" || got[2].text != "two" || got[4].text != "end" {
		t.Fatalf("%d lines", len(got))
	}
	if n := len(got[3].text); n <= thread.MaxEvent || n > thread.MaxEvent+128<<10 {
		t.Errorf("of a line that is too long %d bytes are kept", n)
	}
	if last := got[len(got)-1]; !errors.Is(last.err, io.EOF) {
		t.Errorf("ended with %v", last.err)
	}
}
