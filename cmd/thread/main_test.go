package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/cmd/internal/threadtool"
)

var update = flag.Bool("update", false, "write the golden files of testdata")

// program is the folder with the real program, built once.
var program struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if program.dir != "" {
		_ = os.RemoveAll(program.dir)
	}
	os.Exit(code)
}

// built is the folder with the program.
func built(t testing.TB) string {
	t.Helper()
	program.once.Do(func() {
		if program.dir, program.err = os.MkdirTemp("", "thread"); program.err != nil {
			return
		}
		if out, err := exec.Command("go", "build", "-o", program.dir+string(filepath.Separator), ".").CombinedOutput(); err != nil {
			program.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	if program.err != nil {
		t.Fatal(program.err)
	}
	return program.dir
}

// outcome is what one command line did.
type outcome struct {
	code     int
	out, err string
}

// errorLine is the form of every error (S0-137).
var errorLine = regexp.MustCompile(`^Error: [^\n]+ - [^\n]+\n$`)

// What differs from run to run: times.
var varying = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`)

func normal(text, work string) string {
	return varying.ReplaceAllString(strings.ReplaceAll(text, work, "WORK"), "TIME")
}

func tree() *cobra.Command {
	root := threadtool.New(command.New(nil, nil, nil, func(string) string { return "" }, "test"))
	root.InitDefaultHelpCmd()
	return root
}

// words are the command line of c without arguments.
func words(c *cobra.Command) []string { return strings.Fields(c.CommandPath())[1:] }

// good are arguments with which each command gets as far as the directory, which
// is none. The keys are checked against the command tree: a new command needs a row.
var good = map[string][]string{
	"dispatch": {"--thread", "/no/such"}, "info": {"--thread", "/no/such"}, "init": {"/dev/null/x"},
	"peek": {"--thread", "/no/such", "--last-event-id", "0"}, "pop": {"--thread", "/no/such", "--consumer", "c", "--last-event-id", "0"},
	"push":      {"--thread", "/no/such", "--source", "s", "--type", "message", "--content", "x"},
	"subscribe": {"--thread", "/no/such", "--consumer", "c", "--handler", "true"}, "unsubscribe": {"--thread", "/no/such", "--consumer", "c"},
}

// S0-136: 1 for what fails, 2 for a wrong command line.
func TestExitCodes(t *testing.T) {
	n := 0
	for _, c := range tree().Commands() {
		args, ok := good[c.Name()]
		if !ok {
			if c.Name() != "help" {
				t.Errorf("no row for %q in the table", c.Name())
			}
			continue
		}
		n++
		line := append(words(c), args...)
		fails(t, 1, line...)
		fails(t, 2, append(line, "--no-such-flag")...)
		fails(t, 2, append(line, "x", "y")...)
	}
	if n != len(good) {
		t.Errorf("%d commands, %d rows", n, len(good))
	}
	for _, line := range []string{
		"", "ack", "help nosuch", "--no-such-flag", "init", "push", "push --thread t", "push --thread t --source s --content x",
		"push --thread t --source s --type other --content x", "push --thread t --batch --source s",
		"peek --thread t", "peek --last-event-id 0", "peek --thread t --last-event-id x", "peek --thread t --last-event-id=-1",
		"peek --thread t --last-event-id 0 --limit 0", "peek --thread t --last-event-id 0x1", "peek --thread t --last-event-id 0 --filter x",
		"pop --thread t --last-event-id 0", "pop --thread t --consumer c", "subscribe --thread t --consumer c",
		"subscribe --thread t --handler h", "subscribe --thread t --consumer a/b --handler h",
		"subscribe --thread t --consumer c --handler h --filter x", "unsubscribe --thread t", "info", "info --json", "dispatch",
	} {
		fails(t, 2, strings.Fields(line)...)
	}
}

// fails checks an error: one line on standard error, after the help where there is
// no command, and nothing on standard output.
func fails(t *testing.T, code int, args ...string) {
	t.Helper()
	o := tool(t, "", args...)
	line := o.err
	if i := strings.LastIndex(strings.TrimSuffix(line, "\n"), "\n"); i >= 0 && strings.Contains(line, "Usage:") {
		line = line[i+1:]
	}
	if o.code != code || o.out != "" || !errorLine.MatchString(line) {
		t.Errorf("thread %q: exit %d, want %d\nstdout: %s\nstderr: %s", args, o.code, code, o.out, o.err)
	}
}

// TestHelp: every command has a line, an example, fits 80 columns, and its text is
// the golden one.
func TestHelp(t *testing.T) {
	var all strings.Builder
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Short == "" || !strings.Contains(c.Example, "thread ") {
			t.Errorf("%s: no short text or no example", c.CommandPath())
		}
		text := succeeds(t, "", append(words(c), "--help")...)
		same(t, "help "+c.CommandPath(), text, succeeds(t, "", append([]string{"help"}, words(c)...)...))
		for l := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimRight(l, "\n")); n > command.Columns && !strings.Contains(c.Example, strings.TrimSpace(l)) {
				t.Errorf("%s --help: %d columns: %s", c.CommandPath(), n, l)
			}
		}
		all.WriteString("$ " + c.CommandPath() + " --help\n" + text + "\n")
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(tree())
	if *update {
		if err := os.WriteFile("testdata/help.txt", []byte(all.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	same(t, "help", file(t, "testdata/help.txt"), all.String())
	if out := succeeds(t, "", "--version"); out != threadtool.Version+"\n" || out != succeeds(t, "", "-V") {
		t.Errorf("version %q", out)
	}
}
