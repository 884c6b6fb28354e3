package yamldoc

import (
	"errors"
	"strings"
	"testing"
)

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct {
		name, in, want string
		line, column   int
	}{
		{"duplicate key", "a: 1\nb: 2\na: 3\n", "already defined", 3, 1},
		{"nested duplicate", "a:\n  b: 1\n  b: 2\n", "already defined", 3, 3},
		{"second document", "a: 1\n---\nb: 2\n", "second document", 2, 1},
		{"anchor", "a: &x 1\n", "anchors", 1, 4},
		{"alias", "a: &x 1\nb: *x\n", "anchors", 1, 4},
		{"tag", "a: !!str 1\n", "anchors", 1, 4},
		{"list on top", "- a\n", "key: value", 1, 1},
		{"scalar on top", "hello\n", "key: value", 1, 1},
		{"unclosed", "a: [b\n", "not closed", 1, 4},
		{"not UTF-8", "a: \xff\n", "UTF-8", 0, 0},
		{"control character", "a: b\x1b[2J\n", "U+001B", 1, 5},
		{"deep flow", "a: " + strings.Repeat("[", 5000) + "\n", "deeply", 1, 36},
		{"deep block", "a:\n" + strings.Repeat("- ", 20000) + "x\n", "deeply", 2, 0},
		{"huge", "a: " + strings.Repeat("x", MaxSize) + "\n", "at most", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse([]byte(c.in))
			e, ok := errors.AsType[*SyntaxError](err)
			if !ok {
				t.Fatalf("Parse(%.40q) = %v, want a SyntaxError", c.in, err)
			}
			if !strings.Contains(e.Text, c.want) {
				t.Errorf("text %q does not contain %q", e.Text, c.want)
			}
			if e.Line != c.line || c.column != 0 && e.Column != c.column {
				t.Errorf("at %d:%d, want %d:%d", e.Line, e.Column, c.line, c.column)
			}
		})
	}
}

func TestSetKeepsEverythingElse(t *testing.T) {
	for _, c := range []struct{ name, in, path, value, want string }{
		{"scalar", "# head\n\na: 1 # one\n\n# tail\nb: x\n", "a", "2", "# head\n\na: 2 # one\n\n# tail\nb: x\n"},
		{"quoted", "a: 'it''s' # c\n", "a", "x", "a: x # c\n"},
		{"double quoted", `a: "x \" # y" # c` + "\n", "a", "z", "a: z # c\n"},
		{"nested", "r:\n    # why\n    m: 3\n    n: 4\nb: 1\n", "r.m", "5", "r:\n    # why\n    m: 5\n    n: 4\nb: 1\n"},
		{"missing in group", "r:\n    m: 3 # c\n\n# b\nb: 1\n", "r.n", "5", "r:\n    m: 3 # c\n    n: 5\n\n# b\nb: 1\n"},
		{"missing group", "a: 1\n", "r.n", "5", "a: 1\nr:\n  n: 5\n"},
		{"no final newline", "a: 1", "r.n", "5", "a: 1\nr:\n  n: 5"},
		{"empty group", "r:\n  # nothing\nb: 1\n", "r.n", "5", "r:\n  n: 5\n  # nothing\nb: 1\n"},
		{"empty group with comment", "r: # later\nb: 1\n", "r.n", "5", "r: # later\n  n: 5\nb: 1\n"},
		{"no value", "a:  # why\nb: 1\n", "a", "5", "a: 5  # why\nb: 1\n"},
		{"null", "a: ~ # why\n", "a", "5", "a: 5 # why\n"},
		{"flow parent", "r: {m: 3, n: 4} # c\n", "r.n", "5", "r: {m: 3, n: 5} # c\n"},
		{"missing in flow parent", "r: {m: 3} # c\n", "r.n", "5", "r: {m: 3, n: 5} # c\n"},
		{"empty flow parent", "r: {}\nb: 1\n", "r.n", "5", "r: {n: 5}\nb: 1\n"},
		{"JSON", `{"a": 1, "b": {"c": 2}}`, "b.c", "3", `{"a": 1, "b": {"c": 3}}`},
		{"flow list", "o: [1,\n  2] # c\nb: 1\n", "o", "[]", "o: [] # c\nb: 1\n"},
		{"block list", "o: # c\n  - a: 1\n    b: 2\n  - a: 3\n# next\nb: 1\n", "o", "[]", "o: [] # c\n# next\nb: 1\n"},
		{"block list at the margin", "o:\n- 1\n- 2\nb: 1\n", "o", "[3]", "o: [3]\nb: 1\n"},
		{"deep", "c:\n  h:\n    t: w\n    u: x\nz: 1\n", "c.h.u", "y", "c:\n  h:\n    t: w\n    u: y\nz: 1\n"},
		{"deep missing", "c:\n  h:\n    t: w\nz: 1\n", "c.i", "{t: x}", "c:\n  h:\n    t: w\n  i: {t: x}\nz: 1\n"},
		{"wide characters", "ä: {ü: é, b: 1} # ö\n", "ä.b", "2", "ä: {ü: é, b: 2} # ö\n"},
		{"CRLF", "a: 1\r\nr:\r\n  m: 3 # c\r\nb: 1\r\n", "r.n", "5", "a: 1\r\nr:\r\n  m: 3 # c\r\n  n: 5\r\nb: 1\r\n"},
		{"CRLF scalar", "a: 1\r\nb: 1\r\n", "a", "5", "a: 5\r\nb: 1\r\n"},
		{"after a long text", "r:\n  m: |\n    x\n\n    # y\n# b\nb: 1\n", "r.n", "5", "r:\n  m: |\n    x\n\n    # y\n  n: 5\n# b\nb: 1\n"},
		{"empty file", "", "a", "1", "a: 1\n"},
		{"only comments", "# hi\n", "a", "1", "# hi\na: 1\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := Parse([]byte(c.in))
			if err != nil {
				t.Fatal(err)
			}
			got, err := d.Set(strings.Split(c.path, "."), c.value)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestSetRefusesWhatItWouldDamage(t *testing.T) {
	for _, c := range []struct{ name, in, path, value string }{
		{"literal", "a: |\n  x\n  y\nb: 1\n", "a", "1"},
		{"folded plain", "a: x\n  y\nb: 1\n", "a", "1"},
		{"value breaks out", "{a: 1, b: 2}\n", "a", "1, c: 3"},
		{"line break", "a: 1\n", "a", "1\nc: 3"},
		{"comment as value", "a: 1\nb: 2\n", "a", "# gone"},
		{"through a scalar", "a: 1\n", "a.b", "1"},
		{"no path", "a: 1\n", "", "1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := Parse([]byte(c.in))
			if err != nil {
				t.Fatal(err)
			}
			var path []string
			if c.path != "" {
				path = strings.Split(c.path, ".")
			}
			if got, err := d.Set(path, c.value); err == nil {
				t.Errorf("got %q, want ErrInPlace", got)
			} else if !errors.Is(err, ErrInPlace) {
				t.Errorf("error %v, want ErrInPlace", err)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"a: 1\n", "a: {b: [1, x]}\n", "o:\n- a\n", "a: 'x'\r\nb:\r\n", "? a\n: b\n", "a: |\n x\n", "\t", "{a: 1}", "%YAML 1.2\n---\na: b\n...\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Parse(data)
		if err != nil {
			if _, ok := errors.AsType[*SyntaxError](err); !ok {
				t.Fatalf("not a SyntaxError: %v", err)
			}
			return
		}
		out, err := d.Set([]string{"zz", "y"}, "'v'")
		if err != nil {
			return
		}
		after, err := Parse(out)
		if err != nil {
			t.Fatalf("Set made %q unreadable: %v", data, err)
		}
		if !sameBut(flatten(d.root), flatten(after.root), []string{"zz", "y"}, map[string]string{"\x00v": "Stringv"}) {
			t.Fatalf("Set changed more than its path: %q -> %q", data, out)
		}
	})
}

func TestRemoveKeepsEverythingElse(t *testing.T) {
	for _, c := range []struct{ name, in, path, want string }{
		{"scalar", "# head\na: 1 # one\n\n# b\nb: x\n", "a", "# head\n\n# b\nb: x\n"},
		{"last", "a: 1\nb: x\n", "b", "a: 1\n"},
		{"no final newline", "a: 1\nb: x", "b", "a: 1\n"},
		{"nested", "r:\n  m: 3 # c\n  # n\n  n: 4\nb: 1\n", "r.m", "r:\n  # n\n  n: 4\nb: 1\n"},
		{"group", "r:\n  m:\n    - 1\n    - 2\n  n: 4\nb: 1\n", "r.m", "r:\n  n: 4\nb: 1\n"},
		{"comments inside", "r:\n  m:\n    # x\n    y: 1\n    # z\n  n: 4\n", "r.m", "r:\n  n: 4\n"},
		{"list at the indent of its key", "a:\n- 1\n- 2\nb: 1\n", "a", "b: 1\n"},
		{"text over many lines", "a: |\n  x\n\n  y\nb: 1\n", "a", "b: 1\n"},
		{"the only one of its group", "r:\n  m:\n    x: 1\nb: 1\n", "r.m.x", "b: 1\n"},
		{"the only one of the file", "# head\nr:\n  m: 1\n", "r.m", "# head\n"},
		{"flow value", "r:\n  m: {x: 1, y: [2]} # c\n  n: 1\n", "r.m", "r:\n  n: 1\n"},
		{"flow group on its own", "r: {m: {x: 1}}\nb: 1\n", "r.m.x", "b: 1\n"},
		{"flow over lines", "r:\n  m: {\n    x: 1,\n  }\n  n: 1\n", "r.m", "r:\n  n: 1\n"},
		{"other line ends", "a: 1\r\nb: 2\r\n", "a", "b: 2\r\n"},
		{"null", "a:\nb: 2\n", "a", "b: 2\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := Parse([]byte(c.in))
			if err != nil {
				t.Fatal(err)
			}
			path := strings.Split(c.path, ".")
			got, err := d.Remove(path)
			if err != nil || string(got) != c.want || !d.Has(path) {
				t.Errorf("%v\n got %q\nwant %q", err, got, c.want)
			}
		})
	}
	for _, c := range []struct{ in, path string }{
		{"r: {m: 1, n: 2}\n", "r.m"}, {"a: 1\n", "b"}, {"a: 1\n", "a.b"}, {"", "a"}, {"a: [1]\n", "a.0"},
	} {
		d, err := Parse([]byte(c.in))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := d.Remove(strings.Split(c.path, ".")); !errors.Is(err, ErrInPlace) {
			t.Errorf("%q without %s: %q %v", c.in, c.path, got, err)
		}
	}
}
