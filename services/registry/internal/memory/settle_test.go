package memory

import "testing"

// A committed digest reaches its file once, whatever was there; a person who
// changed the file after the digest was made loses nothing.
func TestWriteDigest(t *testing.T) {
	for _, c := range []struct{ what, there, base, want string }{
		{"the base", "old\n", "old\n", "digest\n"},
		{"itself", "digest\n", "old\n", "digest\n"},
		{"a person's change", "old, and mine\n", "old\n", "old, and mine\n\ndigest\n"},
		{"a file that a person has emptied", "", "old\n", "digest\n"},
	} {
		p := newPlace(t)
		p.write(c.base)
		m := p.digest(1, 2, "digest\n")
		p.write(c.there)
		p.settle(m)
		p.want("over "+c.what, map[string]string{layer: c.want})
	}
	p := newPlace(t)
	p.settle(p.digest(1, 2, "first\n"))
	p.want("the first one", map[string]string{layer: "first\n"})
}

func TestFirstLines(t *testing.T) {
	if got := firstLines("# Usage\n\n  Ask me.\n\n## More\nOr not.\n1\n2\n3\n"); got != "Ask me.\nOr not.\n1\n2" {
		t.Errorf("%q", got)
	}
}
