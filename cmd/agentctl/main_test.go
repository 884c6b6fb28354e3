package main

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/theclaw/agents/internal/sandbox"
)

// aKey is the key of the first conversation of a1 with the console.
const aKey = "agent:a1:console:cli:dm:cli"

var update = flag.Bool("update", false, "write the golden files of testdata/golden")

// programs is where the real programs are built, once for all scripts.
var programs = struct {
	once sync.Once
	dir  string
	err  error
}{}

func TestMain(m *testing.M) {
	sandbox.Main()
	testscript.Main(cleanUp{m}, map[string]func(){"agentctl": main})
}

// cleanUp removes the built programs after the last test.
type cleanUp struct{ m *testing.M }

func (c cleanUp) Run() int {
	defer func() {
		if programs.dir != "" {
			_ = os.RemoveAll(programs.dir)
		}
	}()
	return c.m.Run()
}

// built is a folder with the programs as a user would have them, of `make build`.
func built(t interface{ Fatalf(string, ...any) }) string {
	programs.once.Do(func() {
		if programs.dir, programs.err = os.MkdirTemp("", "claw"); programs.err != nil {
			return
		}
		if programs.err = programsInto(programs.dir); programs.err != nil {
			return
		}
		programs.err = os.Chmod(programs.dir, 0o755) // other users start them too
	})
	if programs.err != nil {
		t.Fatalf("build the programs: %v", programs.err)
	}
	return programs.dir
}

// programsInto copies what stands in the directory PROGRAMS, or builds it: agentd knows the
// hash of theclaw-sandbox, which starts tools in a tenth of the time that agentd itself takes.
func programsInto(dir string) error {
	from := os.Getenv("PROGRAMS")
	if from == "" {
		if err := runProgram("go", "build", "-o", dir, "../theclaw-sandbox"); err != nil {
			return err
		}
		starter, err := os.ReadFile(filepath.Join(dir, sandbox.ProgramName))
		if err != nil {
			return err
		}
		return runProgram("go", "build", "-ldflags", fmt.Sprintf("-w -X main.sandboxSHA256=%x", sha256.Sum256(starter)), "-o", dir, ".", "../agent", "../agentd", "../thread", "../../examples/botapi")
	}
	if err := runProgram("go", "build", "-o", dir, "../../examples/botapi"); err != nil {
		return err
	}
	for _, name := range []string{"agentctl", "agent", "agentd", "thread", sandbox.ProgramName} {
		if err := runProgram("cp", filepath.Join(from, name), dir); err != nil {
			return err
		}
	}
	return nil
}

func runProgram(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}

// What differs from run to run, and what stands for it in a golden file.
var varying = []struct {
	is *regexp.Regexp
	by string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`), "TIME"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d\b`), "DAY"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\.\d{3}\b`), "CLOCK"},
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`:[0-9a-f]{16}\b`), ":HASH"},
	{regexp.MustCompile(`\b[0-9A-HJKMNP-TV-Z]{26}\b`), "ULID"},
	{regexp.MustCompile(`(less than 1ms|\b\d+(\.\d)?m?s\b)`), "N ms"},
	{regexp.MustCompile(`(runner|deliverer)(-\d)?@[0-9a-z]+`), "$1@HOST"},
	{regexp.MustCompile(`\d+ tokens in, \d+ out`), "N tokens in, N out"},
	{regexp.MustCompile(`"(input_tokens|output_tokens|duration_ms|age_seconds)": \d+`), `"$1": N`},
	{regexp.MustCompile(`\d+ MiB free`), "N MiB free"},
	{regexp.MustCompile(`[0-9a-f]{64}`), "SHA256"},
	{regexp.MustCompile(` +\n`), "\n"},
}

func normal(text, work string) string {
	text = strings.ReplaceAll(text, work, "WORK")
	for _, v := range varying {
		text = v.is.ReplaceAllString(text, v.by)
	}
	return text
}

func goldenDiff(name, got string) string {
	path := filepath.Join(here, "testdata", "golden", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			return err.Error()
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return cmp.Diff(string(want), got)
}

// here is the package's folder: scripts run elsewhere.
var here, _ = os.Getwd()
