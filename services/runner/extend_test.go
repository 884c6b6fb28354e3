//go:build proof

package runner_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// overlay is the repository with files of testdata/toy in it.
type overlay struct {
	t       *testing.T
	Replace map[string]string // path in the repository -> file
}

func newOverlay(t *testing.T) *overlay { return &overlay{t: t, Replace: map[string]string{}} }

func (o *overlay) abs(path string) string {
	o.t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		o.t.Fatal(err)
	}
	return path
}

// add puts a file of testdata/toy at a path.
func (o *overlay) add(path, toy string) {
	o.t.Helper()
	o.Replace[o.abs(path)] = o.abs(filepath.Join("testdata", "toy", toy))
}

// line adds a line before another one of a file, and the import that it needs.
func (o *overlay) line(path, before, line, imported string) {
	o.t.Helper()
	src, err := os.ReadFile(path)
	if err != nil {
		o.t.Fatal(err)
	}
	text := strings.Replace(string(src), before, line+"\n"+before, 1)
	if text == string(src) {
		o.t.Fatalf("%s has no line %q", path, before)
	}
	if imported != "" {
		text = strings.Replace(text, "import ", "import \"github.com/theclaw/agents/services/runner/internal/"+imported+"\"\nimport ", 1)
	}
	to := filepath.Join(o.t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
		o.t.Fatal(err)
	}
	o.Replace[o.abs(path)] = to
}

// test runs the tests of the runner whose names match, as it is with the files.
func (o *overlay) test(pattern string, tests int) {
	o.t.Helper()
	data, err := json.Marshal(o)
	file := filepath.Join(o.t.TempDir(), "overlay.json")
	if err == nil {
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		o.t.Fatal(err)
	}
	out, err := exec.CommandContext(o.t.Context(), "go", "test", "-v", "-vet=off", "-count=1", "-overlay", file, "-run", pattern, ".").CombinedOutput()
	if err != nil || strings.Count(string(out), "\n--- PASS: TestToy") != tests {
		o.t.Errorf("go test -run %s: %v\n%s", pattern, err, out)
	}
}

// What extends a runner is one file, and one line in a list. The examples in testdata/toy
// are built into a runner and answer a message there.
func TestExtensions(t *testing.T) {
	o := newOverlay(t)
	o.add("internal/toolset/reverse/reverse.go", "reverse/reverse.go")
	o.line("tools.go", "\t\tmessage.Tool{},", "\t\treverse.Tool{},", "toolset/reverse")
	o.add("toy_tool_test.go", "reverse/runner_test.txt")
	o.add("internal/motto/motto.go", "motto/motto.go")
	o.line("sources.go", "\t)", "\t\tmotto.Source{},", "motto")
	o.add("toy_source_test.go", "motto/runner_test.txt")
	o.test("^TestToy", 3)
}
