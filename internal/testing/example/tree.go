// Package example applies the examples of CONTRIBUTING.md to a copy of the repository and runs
// tests there, to prove what an extension takes: which files it adds, and which lines of the
// files that are there it changes.
//
// An example stands in the page behind a comment that says what it is, <!-- file: PATH -->,
// <!-- line: PATH --> or <!-- edit: PATH -->, as a block of Go, or of a diff for an edit.
//
// It changes nothing on disk outside the temporary directory of the test, and installs
// nothing. It does not check what the tests do, only that each passes.
package example

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/testing/need"
)

// Tree is a copy of the repository. Paths are relative to its root, with slashes.
type Tree struct {
	t          testing.TB
	root, from string // directories of the copy and of the repository
	page       string // the text of CONTRIBUTING.md
}

// NewTree copies the files that git knows, or could add, of the repository at a path.
func NewTree(t testing.TB, path string) *Tree {
	t.Helper()
	git := need.Program(t, "git", "git")
	from, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	r := &Tree{t: t, root: t.TempDir(), from: from}
	// A machine may have checked the repository out as another user.
	cmd := exec.CommandContext(t.Context(), git, "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = from
	list, err := cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		if err := r.take(name); err != nil && !errors.Is(err, fs.ErrNotExist) { // removed, and git not told
			t.Fatal(err)
		}
	}
	r.page = r.read("CONTRIBUTING.md")
	return r
}

// take copies a file with its mode and its time.
func (r *Tree) take(name string) error {
	from, to := filepath.Join(r.from, name), r.Path(name)
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.WriteFile(to, data, info.Mode().Perm()|0o200); err != nil {
		return err
	}
	return os.Chtimes(to, info.ModTime(), info.ModTime())
}

// Original is the repository that was copied.
func (r *Tree) Original() string { return r.from }

func (r *Tree) read(name string) string {
	r.t.Helper()
	data, err := os.ReadFile(r.Path(name))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(data)
}

// block is the code behind a comment of the page, in a language.
func (r *Tree) block(kind, language, name string) string {
	r.t.Helper()
	_, rest, ok := strings.Cut(r.page, "<!-- "+kind+": "+name+" -->\n```"+language+"\n")
	code, _, closed := strings.Cut(rest, "```\n")
	if !ok || !closed {
		r.t.Fatalf("CONTRIBUTING.md shows no %s %s", kind, name)
	}
	return code
}

// Path is a file of the copy.
func (r *Tree) Path(name string) string { return filepath.Join(r.root, name) }

// Write writes a file of the copy.
func (r *Tree) Write(name, text string) {
	r.t.Helper()
	to := r.Path(name)
	err := os.MkdirAll(filepath.Dir(to), 0o700)
	if err == nil {
		err = os.WriteFile(to, []byte(text), 0o600)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// Copy writes a file of the copy that is a file of the test: a test of the example.
func (r *Tree) Copy(name, path string) {
	r.t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		r.t.Fatal(err)
	}
	r.Write(name, string(data))
}

// Add writes the file that the page shows under its name.
func (r *Tree) Add(name string) {
	r.t.Helper()
	r.Write(name, r.block("file", "go", name))
}

// Line adds the line that the page shows for a file before the first one that begins with
// before, and the import that it needs.
func (r *Tree) Line(name, before, imported string) {
	r.t.Helper()
	text := r.read(name)
	added := strings.Replace(text, "\n"+before, "\n"+r.block("line", "go", name)+before, 1)
	if added == text {
		r.t.Fatalf("%s has no line %q", name, before)
	}
	r.Write(name, strings.Replace(added, "import ", "import \"github.com/theclaw/agents/"+imported+"\"\nimport ", 1))
}

// Edit makes the changes that the page shows for a file as a diff: lines that begin with a
// blank stand in the file, in one place, and say where; those with + are added, those with -
// removed. A line that begins with @@ begins another place.
func (r *Tree) Edit(name string) {
	r.t.Helper()
	text, err := edited(r.read(name), r.block("edit", "diff", name))
	if err != nil {
		r.t.Fatalf("CONTRIBUTING.md: %s: %v", name, err)
	}
	r.Write(name, text)
}

// edited is a text after the changes of a diff.
func edited(text, diff string) (string, error) {
	var before, after strings.Builder
	change := func() error {
		defer before.Reset()
		defer after.Reset()
		if before.String() == after.String() {
			return errors.New("a part of the diff changes nothing")
		}
		// Whole lines: the first one is behind a newline, or at the beginning of the file.
		where := "\n" + before.String()
		if before.Len() == 0 || strings.Count("\n"+text, where) != 1 {
			return errors.New("these lines do not stand in one place:\n" + before.String())
		}
		text = strings.Replace("\n"+text, where, "\n"+after.String(), 1)[1:]
		return nil
	}
	for line := range strings.Lines(diff) {
		switch line[0] {
		case '@':
			if before.Len()+after.Len() == 0 {
				continue
			}
			if err := change(); err != nil {
				return "", err
			}
		case '+':
			after.WriteString(line[1:])
		case '-':
			before.WriteString(line[1:])
		case ' ':
			before.WriteString(line[1:])
			after.WriteString(line[1:])
		default:
			return "", errors.New("no line of a diff: " + line)
		}
	}
	return text, change()
}

// Buf is the generator of the contract as `make tools` has installed it in the repository,
// with what it starts in the copy.
func (r *Tree) Buf() string {
	r.t.Helper()
	for _, name := range []string{"buf", "protoc-gen-go", "protoc-gen-go-grpc"} {
		if _, err := os.Stat(filepath.Join(r.from, ".bin", name)); err != nil {
			need.Missing(r.t, "the generator .bin/"+name, "run 'make tools'")
		}
	}
	if err := os.Symlink(filepath.Join(r.from, ".bin"), r.Path(".bin")); err != nil {
		r.t.Fatal(err)
	}
	return r.Path(".bin/buf")
}

// Run runs a command in a directory of the copy; it must succeed. It answers the output.
func (r *Tree) Run(dir, name string, args ...string) string {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), name, args...)
	cmd.Dir = r.Path(dir)
	start := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("%s %s in %s: %v\n%s", name, strings.Join(args, " "), dir, err, out)
	}
	r.t.Logf("%s %s took %s", name, strings.Join(args[:min(len(args), 2)], " "), time.Since(start).Round(time.Millisecond))
	return string(out)
}

// Test runs tests of packages of the copy, which are named as the go command wants them,
// with -args and what follows: the tests whose names match run. There must be as many as
// said, and each must pass.
func (r *Tree) Test(run string, tests int, packages ...string) {
	r.t.Helper()
	// What is compiled with trimpath is the same in every directory, and is not compiled again.
	args := append([]string{"test", "-v", "-vet=off", "-count=1", "-trimpath", "-tags", "grpcnotrace", "-run", run}, packages...)
	out := r.Run(".", "go", args...)
	if n := strings.Count("\n"+out, "\n--- PASS: "); n != tests {
		r.t.Errorf("go test -run %s %v: %d tests passed, want %d\n%s", run, packages, n, tests, out)
	}
}
