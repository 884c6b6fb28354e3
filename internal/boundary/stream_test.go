package boundary_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/theclaw/agents/internal/boundary"
)

func streamed(pieces ...string) (string, boundary.Change) {
	var s boundary.Stream
	var b strings.Builder
	for _, p := range pieces {
		b.WriteString(s.Add(p))
	}
	b.WriteString(s.End())
	return b.String(), s.Change()
}

// F1: a character that is cut between two pieces stays what it is.
func TestStream(t *testing.T) {
	for _, tt := range []struct {
		pieces []string
		want   string
		runs   int
	}{
		{[]string{"plain", "", " text"}, "plain text", 0},
		{[]string{"a\xe2\x82", "\xacb"}, "a\u20acb", 0},
		{[]string{"\xf0", "\x9f", "\x98", "\x80"}, "\U0001F600", 0},
		{[]string{"a\xff", "\xfeb"}, "a\uFFFDb", 1},
		{[]string{"a\xe2\x82", "b"}, "a\uFFFDb", 1},
		{[]string{"a\xe2\x82"}, "a\uFFFD", 1},
		{[]string{"\xff", "a", "\xff"}, "\uFFFDa\uFFFD", 2},
	} {
		if got, c := streamed(tt.pieces...); got != tt.want || c.Replaced != tt.runs {
			t.Errorf("%q: %q %+v, want %q", tt.pieces, got, c, tt.want)
		}
	}
}

// F1: pieces give the same as the complete text, wherever it is cut.
func FuzzStream(f *testing.F) {
	f.Add("a\xe2\x82\xacb\xff\xfe\u20ac", uint8(1))
	f.Add("\U0001F600\xf0\x9f", uint8(2))
	f.Fuzz(func(t *testing.T, in string, size uint8) {
		var pieces []string
		for rest, n := in, int(size%9)+1; rest != ""; rest = rest[min(n, len(rest)):] {
			pieces = append(pieces, rest[:min(n, len(rest))])
		}
		want, change := boundary.Text(in, 0)
		got, c := streamed(pieces...)
		if got != want || c != change || !utf8.ValidString(got) {
			t.Fatalf("%q in pieces of %d: %q %+v, want %q %+v", in, size%9+1, got, c, want, change)
		}
	})
}
