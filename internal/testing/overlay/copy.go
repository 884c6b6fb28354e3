package overlay

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

// Copy is a copy of the repository, for changes that an [Overlay] cannot hold: generated
// files, and packages whose tests run in a directory of their own. Paths are relative to
// its root. CONTRIBUTING.md is where the changes come from.
type Copy struct {
	t          testing.TB
	root, from string // directories of the copy and of the repository
	page       Page
}

// NewCopy copies the files that git knows, or could add, of the repository at a path.
func NewCopy(t testing.TB, path string) *Copy {
	t.Helper()
	git := need.Program(t, "git", "git")
	from, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	c := &Copy{t: t, root: t.TempDir(), from: from}
	// A machine may have checked the repository out as another user.
	cmd := exec.CommandContext(t.Context(), git, "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = from
	list, err := cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		if err := c.take(name); err != nil && !errors.Is(err, fs.ErrNotExist) { // removed, and git not told
			t.Fatal(err)
		}
	}
	c.page = (&Overlay{t: t}).Page(c.Path("CONTRIBUTING.md"))
	return c
}

// take copies a file with its mode and its time.
func (c *Copy) take(name string) error {
	from, to := filepath.Join(c.from, name), c.Path(name)
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
func (c *Copy) Original() string { return c.from }

// Path is a file of the copy.
func (c *Copy) Path(name string) string { return filepath.Join(c.root, name) }

// Write writes a file of the copy.
func (c *Copy) Write(name string, data []byte) {
	c.t.Helper()
	to := c.Path(name)
	err := os.MkdirAll(filepath.Dir(to), 0o700)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// Add writes the file that the page shows under its name.
func (c *Copy) Add(name string) {
	c.t.Helper()
	c.Write(name, []byte(c.page.block("file", "go", name)))
}

// Line adds the line that the page shows for a file; see [Overlay.Line].
func (c *Copy) Line(name, before, imported string) {
	c.t.Helper()
	o := New(c.t)
	c.page.o = o
	c.page.Line(c.Path(name), name, before, imported)
	data, err := os.ReadFile(o.Replace[c.Path(name)])
	if err != nil {
		c.t.Fatal(err)
	}
	c.Write(name, data)
}

// Edit makes the changes that the page shows for a file as a diff: lines that begin with a
// blank stand in the file, in one place, and say where; those with + are added, those with -
// removed. A line that begins with @@ begins another place.
func (c *Copy) Edit(name string) {
	c.t.Helper()
	data, err := os.ReadFile(c.Path(name))
	if err != nil {
		c.t.Fatal(err)
	}
	text, err := edited(string(data), c.page.block("edit", "diff", name))
	if err != nil {
		c.t.Fatalf("%s: %s: %v", c.page.path, name, err)
	}
	c.Write(name, []byte(text))
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
func (c *Copy) Buf() string {
	c.t.Helper()
	for _, name := range []string{"buf", "protoc-gen-go", "protoc-gen-go-grpc"} {
		if _, err := os.Stat(filepath.Join(c.from, ".bin", name)); err != nil {
			need.Missing(c.t, "the generator .bin/"+name, "run 'make tools'")
		}
	}
	if err := os.Symlink(filepath.Join(c.from, ".bin"), c.Path(".bin")); err != nil {
		c.t.Fatal(err)
	}
	return c.Path(".bin/buf")
}

// Run runs a command in a directory of the copy; it must succeed. It answers the output.
func (c *Copy) Run(dir, name string, args ...string) string {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), name, args...)
	cmd.Dir = c.Path(dir)
	start := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Fatalf("%s %s in %s: %v\n%s", name, strings.Join(args, " "), dir, err, out)
	}
	c.t.Logf("%s %s took %s", name, strings.Join(args[:min(len(args), 2)], " "), time.Since(start).Round(time.Millisecond))
	return string(out)
}

// Test runs tests of packages of the copy, which are named as the go command wants them,
// with -args and what follows: the tests whose names match run. There must be as many as
// said, and each must pass.
func (c *Copy) Test(run string, tests int, packages ...string) {
	c.t.Helper()
	// What is compiled with trimpath is the same in every directory, and is not compiled again.
	args := append([]string{"test", "-v", "-vet=off", "-count=1", "-trimpath", "-tags", "grpcnotrace", "-run", run}, packages...)
	out := c.Run(".", "go", args...)
	if n := strings.Count("\n"+out, "\n--- PASS: "); n != tests {
		c.t.Errorf("go test -run %s %v: %d tests passed, want %d\n%s", run, packages, n, tests, out)
	}
}
