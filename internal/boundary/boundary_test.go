package boundary_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/theclaw/agents/internal/boundary"
)

func TestText(t *testing.T) {
	for _, tt := range []struct {
		in    string
		limit int
		out   string
		want  boundary.Change
	}{
		{"", 0, "", boundary.Change{}},
		{"plain", 0, "plain", boundary.Change{}},
		{"a\xffb", 0, "a\uFFFDb", boundary.Change{Replaced: 1}},
		{"a\xff\xfeb\xc3", 0, "a\uFFFDb\uFFFD", boundary.Change{Replaced: 2}},
		{"\uFFFD", 0, "\uFFFD", boundary.Change{}},
		{"abcdef", 3, "abc", boundary.Change{Cut: 3}},
		{"ab\u00e9", 3, "ab", boundary.Change{Cut: 2}},
		{"\U0001F600x", 3, "", boundary.Change{Cut: 5}},
		{"ab\xff", 3, "ab", boundary.Change{Replaced: 1, Cut: 3}},
	} {
		out, c := boundary.Text(tt.in, tt.limit)
		if out != tt.out || c != tt.want {
			t.Errorf("Text(%q, %d) = %q %+v, want %q %+v", tt.in, tt.limit, out, c, tt.out, tt.want)
		}
		if (c.Note() == "") != (c == boundary.Change{}) {
			t.Errorf("Text(%q, %d): note %q for %+v", tt.in, tt.limit, c.Note(), c)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("a\xffb\xc3\xa9", 4)
	f.Add("\U0001F600\xf0\x9f", 5)
	f.Fuzz(func(t *testing.T, in string, limit int) {
		out, c := boundary.Text(in, limit)
		if !utf8.ValidString(out) || limit > 0 && len(out) > limit {
			t.Fatalf("Text(%q, %d) = %q", in, limit, out)
		}
		if (c == boundary.Change{}) != (out == in) {
			t.Fatalf("Text(%q, %d) = %q reports %+v", in, limit, out, c)
		}
		if again, c := boundary.Text(out, limit); again != out || c != (boundary.Change{}) {
			t.Fatalf("a second pass of %q: %q %+v", out, again, c)
		}
	})
}

func TestName(t *testing.T) {
	for in, want := range map[string]string{
		"notes.md": "notes.md", "a b": "a b", "": `""`, "a\nb": `"a\nb"`, "a\xffb": `"a\xffb"`, "\u202egpj": `"\u202egpj"`, "\u00e9": "\u00e9",
	} {
		if got := boundary.Name(in); got != want {
			t.Errorf("Name(%q) = %s, want %s", in, got, want)
		}
	}
	if got := boundary.Name(strings.Repeat("d/", 3000)); len(got) > 310 || !strings.Contains(got, "...") {
		t.Errorf("a long name: %s", got)
	}
}

func FuzzName(f *testing.F) {
	f.Add("a\xff\n")
	f.Fuzz(func(t *testing.T, in string) {
		if got := boundary.Name(in); !utf8.ValidString(got) || strings.ContainsAny(got, "\n\r\x1b") || got == "" {
			t.Fatalf("Name(%q) = %q", in, got)
		}
	})
}

func TestBody(t *testing.T) {
	if b, err := boundary.Body(strings.NewReader("four"), 4); err != nil || string(b) != "four" {
		t.Errorf("at the limit: %q %v", b, err)
	}
	r := bytes.NewReader(make([]byte, 100))
	if b, err := boundary.Body(r, 10); !errors.Is(err, boundary.ErrTooLarge) || len(b) != 10 || r.Len() < 80 {
		t.Errorf("over the limit: %d bytes, %v, %d left", len(b), err, r.Len())
	}
}
