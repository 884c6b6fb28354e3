package unit

import (
	"testing"
	"unicode/utf8"
)

// Any bytes come back as they were, from a form that PostgreSQL takes.
func FuzzText(f *testing.F) {
	for _, s := range []string{"", "plain", "a\x00b", "\x01", "\x0100", "\xff\xfe", "é\x80é", "\x00\x01\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := escape(s)
		for i := range len(got) {
			if got[i] == 0 {
				t.Fatalf("%q is stored as %q: it has a NUL", s, got)
			}
		}
		if !utf8.ValidString(got) {
			t.Fatalf("%q is stored as %q: it is no UTF-8", s, got)
		}
		if back, err := unescape(got); err != nil || back != s {
			t.Fatalf("%q is stored as %q and read as %q, %v", s, got, back, err)
		}
	})
}

// What is not one of ours is told, not guessed at.
func TestBrokenEscape(t *testing.T) {
	for _, s := range []string{"\x01", "\x010", "\x01zz", "a\x010G"} {
		if got, err := unescape(s); err == nil {
			t.Errorf("%q is read as %q", s, got)
		}
	}
}
