// Package overlay runs tests of the repository with additional files in it, to prove what an
// extension takes: which files it adds, and which lines it adds to the files that are there.
//
// It changes nothing on disk outside the temporary directory of the test, and reads the
// examples from CONTRIBUTING.md, where they stand behind a comment that names their file. An
// [Overlay] adds source files and shares the directories of the repository; a [Copy] takes
// every change, and runs the generators. It does not check
// what the additional tests do, only that each passes.
package overlay

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Overlay is the repository with files in place of others. Paths are relative to the
// directory of the test.
type Overlay struct {
	t       testing.TB
	Replace map[string]string // path in the repository -> file, as the go command reads it
}

// New starts with the repository as it is.
func New(t testing.TB) *Overlay { return &Overlay{t: t, Replace: map[string]string{}} }

func (o *Overlay) abs(path string) string {
	o.t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		o.t.Fatal(err)
	}
	return path
}

// Add puts a file at a path.
func (o *Overlay) Add(path, file string) {
	o.t.Helper()
	o.Replace[o.abs(path)] = o.abs(file)
}

// Page is CONTRIBUTING.md, whose examples are built.
type Page struct {
	o    *Overlay
	path string
	text string
}

// Page reads the page at a path.
func (o *Overlay) Page(path string) Page {
	o.t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		o.t.Fatal(err)
	}
	return Page{o, path, string(b)}
}

// Add puts the file that the page shows under a name at a path.
func (p Page) Add(path, name string) {
	p.o.t.Helper()
	to := filepath.Join(p.o.t.TempDir(), filepath.Base(name))
	if err := os.WriteFile(to, []byte(p.block("file", "go", name)), 0o600); err != nil {
		p.o.t.Fatal(err)
	}
	p.o.Replace[p.o.abs(path)] = to
}

// Line adds the line that the page shows for a file, which is at a path; see [Overlay.Line].
func (p Page) Line(path, name, before, imported string) {
	p.o.t.Helper()
	p.o.Line(path, before, strings.TrimSuffix(p.block("line", "go", name), "\n"), imported)
}

// block is the code behind a comment of the page, in a language.
func (p Page) block(kind, language, name string) string {
	p.o.t.Helper()
	_, rest, ok := strings.Cut(p.text, "<!-- "+kind+": "+name+" -->\n```"+language+"\n")
	code, _, closed := strings.Cut(rest, "```\n")
	if !ok || !closed {
		p.o.t.Fatalf("%s shows no %s %s", p.path, kind, name)
	}
	return code
}

// Line adds a line before the first one that begins with before, and the import that it
// needs.
func (o *Overlay) Line(path, before, line, imported string) {
	o.t.Helper()
	src, err := os.ReadFile(path)
	if err != nil {
		o.t.Fatal(err)
	}
	text := strings.Replace(string(src), before, line+"\n"+before, 1)
	if text == string(src) {
		o.t.Fatalf("%s has no line %q", path, before)
	}
	text = strings.Replace(text, "import ", "import \"github.com/theclaw/agents/"+imported+"\"\nimport ", 1)
	to := filepath.Join(o.t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
		o.t.Fatal(err)
	}
	o.Replace[o.abs(path)] = to
}

// Test runs the tests of a package whose names begin with TestToy; there must be as many as
// said, and each must pass.
func (o *Overlay) Test(dir string, tests int) {
	o.t.Helper()
	data, err := json.Marshal(o)
	file := filepath.Join(o.t.TempDir(), "overlay.json")
	if err == nil {
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		o.t.Fatal(err)
	}
	cmd := exec.CommandContext(o.t.Context(), "go", "test", "-v", "-vet=off", "-count=1", "-tags", "proof,grpcnotrace", "-overlay", file, "-run", "^TestToy", ".")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), "\n--- PASS: TestToy") != tests {
		o.t.Errorf("go test in %s: %v\n%s", dir, err, out)
	}
}
