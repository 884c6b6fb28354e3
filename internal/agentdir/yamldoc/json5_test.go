package yamldoc

import (
	"errors"
	"maps"
	"os"
	"path"
	"strings"
	"testing"
)

// S4-12: the public tests of JSON5: what is valid is read, what is not is refused with a
// place. A value that is no object is read as the value of a key.
func TestPublicJSON5(t *testing.T) {
	archive, err := os.ReadFile("testdata/json5.txt")
	if err != nil {
		t.Fatal(err)
	}
	files := strings.Split(string(archive), "\n-- ")[1:]
	// The library takes a point alone for a number; package layer refuses it as any number that
	// is not whole.
	lenient := map[string]bool{"numbers/lone-decimal-point.txt": true}
	for _, f := range files {
		name, text, _ := strings.Cut(f, " --\n")
		_, err := ParseJSON5([]byte("{a:\n" + text + "\n}"))
		ext := path.Ext(name)
		if valid := ext == ".json" || ext == ".json5" || lenient[name]; valid != (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
		if se, ok := errors.AsType[*SyntaxError](err); err != nil && (!ok || se.Line == 0) {
			t.Errorf("%s: no place: %v", name, err)
		}
	}
	if len(files) < 60 {
		t.Errorf("only %d files", len(files))
	}
}

// The tree is the same as for that document in YAML.
func TestJSON5IsYAML(t *testing.T) {
	for five, yaml := range map[string]string{
		"{a: 1, b: 'x', c: [true, null, 1.5], d: {e: \"\\u00e4\"}}": "a: 1\nb: x\nc: [true, null, 1.5]\nd: {e: ä}\n",
		"// c\n{ /* d */ a: [], 'b-c': {}, d: 'a\\\nb', }":          "a: []\nb-c: {}\nd: ab\n",
		"{a: {b: {c: [[1], [2, {d: false}]]}}}":                     "a:\n  b:\n    c:\n    - - 1\n    - - 2\n      - d: false\n",
		"\n":                                                        "# nothing\n",
		"{a: '// no comment', b: \"/* none */\"}":                   "a: '// no comment'\nb: '/* none */'\n",
	} {
		got, err1 := ParseJSON5([]byte(five))
		want, err2 := Parse([]byte(yaml))
		if err1 != nil || err2 != nil {
			t.Errorf("%q: %v, %v", five, err1, err2)
			continue
		}
		if (got.Root() == nil) != (want.Root() == nil) || !maps.Equal(flatten(got.Root()), flatten(want.Root())) {
			t.Errorf("%q: %q, want %q", five, flatten(got.Root()), flatten(want.Root()))
		}
	}
}

// Whatever is in a file, the answer is a tree or an error, and soon.
func FuzzParseJSON5(f *testing.F) {
	for _, s := range []string{"{a:1}", "{a:[/*]*/[//]\n]}", strings.Repeat("{a:", 40), "{'a\\u0000':1}", "{a:-}", "{a:0x}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseJSON5([]byte(s))
		if _, ok := errors.AsType[*SyntaxError](err); err != nil && !ok {
			t.Fatalf("%q: %v", s, err)
		}
		if err == nil && d.Root() != nil {
			flatten(d.Root())
		}
	})
}
