package output

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"":                          "",
		"plain\n\ttext":             "plain\n\ttext",
		"a\x00b\x07c\x7fd":          "abcd",
		"a\r\nb\rc":                 "a\nb\nc",
		"end\r":                     "end\n",
		"\xff\xfeok":                "\ufffd\ufffdok",
		"gr\u00fc\u00df dich":       "gr\u00fc\u00df dich",
		"\x1b[31mred\x1b[0m":        "red",
		"\x1b]0;title\x07text":      "text",
		"\x1b]8;;http://x\x1b\\l":   "l",
		"\x1b(Bx\x1b=y\x1b7z":       "xyz",
		"\x1b[":                     "",
		"\x1b":                      "",
		"\x1b[12\nx":                "\nx",
		"\x1b]no end\nnext":         "\nnext",
		"\u0085\u009bx":             "x",
		"a\u202eb\u2066c\u200fd":    "abcd",
		"\u200bzero":                "\u200bzero",
		"\x1bP1;2|data\x1b\\after":  "after",
		"\x1b[38;5;1mx\x1b[Ky\x1b[": "xy",
	} {
		if got := Text([]byte(in)); got != want {
			t.Errorf("Text(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzText(f *testing.F) {
	for _, s := range []string{"plain", "\x1b[31mred\x1b[0m", "\x1b]0;t\x07", "\xff\r\n\u202e", "\x1b[\x1b[\x1b]"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got := Text(b)
		if !utf8.ValidString(got) {
			t.Errorf("Text(%q) = %q is not UTF-8", b, got)
		}
		if strings.ContainsFunc(got, func(r rune) bool { return r != '\n' && r != '\t' && unicode.IsControl(r) }) {
			t.Errorf("Text(%q) = %q has control characters", b, got)
		}
		if again := Text([]byte(got)); again != got {
			t.Errorf("Text(%q) = %q is not stable: %q", b, got, again)
		}
	})
}
