package example

import (
	"strings"
	"testing"
)

func TestEdited(t *testing.T) {
	const text = "a\nb\n\nc\nb\nd\n"
	for name, c := range map[string]struct{ diff, want, fails string }{
		"added":          {" c\n+x\n", "a\nb\n\nc\nx\nb\nd\n", ""},
		"at the start":   {"+x\n a\n", "x\na\nb\n\nc\nb\nd\n", ""},
		"replaced":       {" b\n-d\n+x\n", "a\nb\n\nc\nb\nx\n", ""},
		"two places":     {"@@ first\n-a\n@@ second\n c\n-b\n", "b\n\nc\nd\n", ""},
		"in two places":  {" b\n+x\n", "", "one place"},
		"in no place":    {" y\n+x\n", "", "one place"},
		"part of a line": {"+x\n  b\n", "", "one place"},
		"nowhere":        {"+x\n", "", "one place"},
		"nothing":        {" a\n", "", "changes nothing"},
		"second nothing": {"+x\n a\n@@\n", "", "changes nothing"},
		"no diff":        {"a\n", "", "no line of a diff"},
	} {
		got, err := edited(text, c.diff)
		if c.fails == "" && (err != nil || got != c.want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
