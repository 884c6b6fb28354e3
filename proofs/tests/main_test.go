package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestAlternatives(t *testing.T) {
	for pattern, want := range map[string][]string{
		"":                      nil,
		"TestA":                 {"TestA"},
		"TestA|TestB.*":         {"TestA", "TestB.*"},
		"^(TestA|TestB)$":       {"^(TestA)$", "^(TestB)$"},
		"/proofs/(live|sim)":    {"/proofs/(live)", "/proofs/(sim)"},
		"Test(A|B)(C|D)":        {"Test(A)(C)", "Test(A)(D)", "Test(B)(C)", "Test(B)(D)"},
		"Test(A|B)*|C":          {"Test(A|B)*", "C"},
		`Test[|(]A|B\|C|D\(E\)`: {"Test[|(]A", `B\|C`, `D\(E\)`},
	} {
		if got := alternatives(pattern); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", pattern, got, want)
		}
	}
}

// module is a small module with two packages: one passes, one skips.
var module = map[string]string{
	"go.mod": "module example\n\ngo 1.24\n",
	"a/a.go": "package a\n",
	"a/a_test.go": `package a
import "testing"
func TestOne(t *testing.T) { t.Logf("figures: n=%d", 3) }
func TestTwo(t *testing.T) { t.Run("sub", func(t *testing.T) {}) }
func TestBad(t *testing.T) { t.Error("it is bad") }
`,
	"b/b.go": "package b\n",
	"b/b_test.go": `package b
import "testing"
func TestSkips(t *testing.T) { t.Skip("no root") }
`,
}

func TestCommands(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("GOWORK", "off")
	for name, text := range module {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{"no command", nil, 2, "", "name a command"},
		{"all pass", []string{"run", "x", "TestOne|TestTwo", "a"}, 0, "x tests=2 skipped=0 n=3 violations=0\n", ""},
		{"a pattern", []string{"run", "x", "TestO.*", "a"}, 0, "x tests=1 skipped=0 n=3 violations=0\n", ""},
		{"a name that matches nothing", []string{"run", "x", "TestOne|TestGone", "a"}, 1, "", "x: no test passed of: ^(TestGone)$ -"},
		{"a test that is skipped did not pass", []string{"run", "x", "TestOne|TestSkips", "a", "b"}, 1, "", "no test passed of: ^(TestSkips)$, example/b -"},
		{"a package without such a test", []string{"run", "x", "TestOne", "a", "b"}, 1, "", "no test passed of: example/b -"},
		{"a test fails", []string{"run", "x", "TestOne|TestBad", "a"}, 1, "", "it is bad"},
		{"packages", []string{"list", "./..."}, 0, "example/a\nexample/b\n", ""},
		{"packages left out", []string{"list", "-but", "/(b|c)$", "./..."}, 1, "example/a\n", "BUT matches nothing with: /(c)$ -"},
		{"tests that are gone", []string{"list", "-skip", "TestOne|TestTwo/sub|TestSkip", "./..."}, 0, "example/a\nexample/b\n", ""},
		{"tests of packages left out", []string{"list", "-but", "/b$", "-skip", "^(TestOne|TestSkips)$", "./..."}, 1, "example/a\n", "SKIP matches nothing with: ^(TestSkips)$ -"},
		{"a bad pattern", []string{"list", "-skip", "TestOne(", "./..."}, 2, "example/a\nexample/b\n", "missing closing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			if code := Main(c.args, &out, &errs); code != c.code {
				t.Errorf("exit code %d, want %d\n%s", code, c.code, &errs)
			}
			if out.String() != c.stdout || !strings.Contains(errs.String(), c.stderr) {
				t.Errorf("stdout %q, want %q; stderr %q, want %q", &out, c.stdout, &errs, c.stderr)
			}
		})
	}
}
