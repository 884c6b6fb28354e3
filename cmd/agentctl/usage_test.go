package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/internal/command"
)

// outcome is what one command line did.
type outcome struct {
	code     int
	out, err string
}

// call runs a command line in this process, in a home without services.
func call(t *testing.T, in string, args ...string) outcome {
	t.Helper()
	home := filepath.Join(t.TempDir(), "h")
	var out, errs bytes.Buffer
	code := Main(args, strings.NewReader(in), &out, &errs, func(name string) string {
		return map[string]string{"THECLAW_HOME": home}[name]
	})
	return outcome{code, out.String(), errs.String()}
}

// errorLine is the form of every error for people (S0-137).
var errorLine = regexp.MustCompile(`^Error: [^\n]+ - [^\n]+\n$`)

// failsWith checks one error in both forms: the line on stderr and nothing on
// stdout; with --json one object on stdout and nothing on stderr (S0-134, S0-137,
// S0-138).
func failsWith(t *testing.T, code int, in string, args ...string) (stderr string) {
	t.Helper()
	o := call(t, in, args...)
	stderr = o.err
	line := o.err
	if i := strings.LastIndex(strings.TrimSuffix(line, "\n"), "\n"); i >= 0 && (strings.Contains(line, "Usage:") || len(args) == 0) {
		line = line[i+1:] // help for "no command", and then the line
	}
	if o.code != code || o.out != "" || !errorLine.MatchString(line) {
		t.Errorf("agentctl %q: exit %d, want %d\nstdout: %s\nstderr: %s", args, o.code, code, o.out, o.err)
	}
	o = call(t, in, append([]string{"--json"}, args...)...)
	var body map[string]string
	if err := json.Unmarshal([]byte(o.out), &body); err != nil || len(body) != 2 || body["error"] == "" || body["suggestion"] == "" || o.err != "" || o.code != code {
		t.Errorf("agentctl --json %q: exit %d, want %d\nstdout: %s\nstderr: %s", args, o.code, code, o.out, o.err)
	}
	return stderr
}

func tree() *cobra.Command {
	root := newRoot(command.New(nil, nil, nil, func(string) string { return "" }, "test"))
	root.InitDefaultHelpCmd()
	return root
}

// words are the command line of c without arguments.
func words(c *cobra.Command) []string { return strings.Fields(c.CommandPath())[1:] }

// TestUsageErrors are the ways to get a command line wrong that are not the same
// for all commands (S0-03, S0-136).
func TestUsageErrors(t *testing.T) {
	for _, line := range []string{
		"", "nosuch", "run a1", "ack", "dlq", "dlq nosuch", "config", "config nosuch", "file", "errors", "context", "lease",
		"help nosuch", "help dlq nosuch", "--no-such-flag", "completion tcsh",
		"init a1 --kind foo", "init a1 --kind", "list --timeout x", "list --timeout 0s", "list --home=", "list --registry=", "list --registry foo", "list --runner host:1", "doctor --deliverer /x.sock", "version --registry http://h:1",
		"certs", "certs init --domain A_B", "certs init --days 0", "certs issue", "certs issue nobody", "certs issue ../x", "certs rotate --retire runner",
		"approvals", "approvals approve", "approvals list --agent ../x", "questions", "questions answer", "questions answer x 1 2", "questions list --agent ../x", "audit", "audit show -n -1", "token",
		"send a1", "send a1 --source s", "send a1 --source s --type t", "send a1 --type message --content {}",
		"send a1 --source external:telegram:main --type message --content {}", "send a1 --source external:tui:m:dm:u:u --type gossip --content {}",
		"agent a1 --message x --thinking much", "run wait a1 xyz", "run stream a1 xyz", "run abort a1 xyz", "migrate a1 --skip-before soon", "migrate a1 --undo --skip-before all",
		"send a1 x --content {}", "send a1 x --idempotency-key=", "send a1 --source= --type t --content {}",
		"events a1 nosuch", "events a1 ../x", "events a1 --after -1", "events a1 --limit -1", "events a1 --filter x", "events a1 --after x",
		"explain a1 x", "explain a1 0", "explain a1 -1", "turns a1 --fate x", "turns a1 --limit 0",
		"dlq retry a1", "dlq retry a1 t:1 --all", "dlq retry a1 x", "dlq drop a1 t:0", "dlq drop a1 d:threads/main", "dlq drop a1 d:../x:1",
		"thread", "thread ack", "thread init", "thread push --thread t --batch --source s", "--timeout 1s thread info",
		"agent", "agent rm", "agent rm a1", "rm", "rm a1", "rm ../x --yes", "agent a1", "agent --message x", "agent a1 --agent a1 --message x", "agent a1 --message x --thread a/b", "agent a1 --message x --verbose",
		"agent a1 --message x --idempotency-key=", "agent a1 --message x --timeout 48h", "agent --agent ../x --message x", "chat a1 --thread A",
		"chat a1 --session plans", "chat a1 --session agent:A/B:main", "chat a1 --session agent:a2:main", "chat a1 --thread x --session agent:a1:main",
		"agent a1 --message x --session A", "agent a1 --message x --session agent:a2:main", "agent a1 --message x --session x --thread y",
		"sessions", "sessions nosuch", "sessions list", "sessions list a1 --kind x", "sessions list a1 --since soon", "sessions list a1 --limit 0",
		"sessions show", "sessions show plans", "sessions history agent:a1:main --limit 0", "sessions reset main", "sessions archive agent:",
		"sessions patch agent:a1:main", "sessions patch agent:a1:main --thinking much", "sessions patch agent:a1:main --verbose maybe", "sessions patch agent:a1:main --queue-mode x",
		"bindings", "bindings add a1", "bindings add --channel telegram", "bindings add a1 --channel Telegram", "bindings add a1 --channel dm", "bindings add a1 --channel telegram --peer 1207",
		"bindings add a1 --channel telegram --peer all:1207", "bindings add a1 --channel telegram --peer dm:", "bindings add a1 --channel telegram --at 0", "bindings add a1 --channel telegram --account A",
		"pair", "pair approve", "pair approve x", "pair approve QX4T7MH1", "pair approve tg:", "pair block A:7", "pair list --account A",
		"bindings remove", "bindings remove 0", "bindings remove x", "bindings test", "bindings test --channel telegram --account *", "bindings test --channel telegram --parent 7",
		"run", "run wait", "run wait a1", "run wait a1 u:1:f --timeout 48h", "run stream a1 u:1:f --after x", "cancel a1", "cancel a1 x", "cancel a1 0", "top --every 10ms",
		"backup", "backup x.tar --agent ../x", "restore", "restore x.tar --agent=", "restore x.tar --as ../x", "restore x.tar --as=",
		"cmds", "cmds find", "cmds find x --limit 0", "cmds scan", "migrate", "migrate a1 --all",
		"migrate-store", "migrate-store a1", "migrate-store a1 --to x --dsn y", "migrate-store a1 --to home", "migrate-store a1 --all --to home --dsn y", "migrate-store ../x --to home --dsn y",
		"drill --kills 0", "drill --kills x", "drill --seed -1",
		"dlq list a1 --all", "errors list --limit 0", "errors list --agent ../x", "context show a1 x", "context show a1 threads/main --at -1",
		"usage --by x", "usage a1 --since x", "usage --since 0d", "providers", "providers test",
	} {
		failsWith(t, 2, "", strings.Fields(line)...)
	}
	failsWith(t, 2, "", "send", "a1", "")
	failsWith(t, 2, "", "send", "a1", "caf\xe9")
	failsWith(t, 2, " \n", "send", "a1", "-")
}

// TestRefusedBeforeSending: what no registry would take is refused here, as a
// failure and not as a wrong command line.
func TestRefusedBeforeSending(t *testing.T) {
	big := strings.Repeat("x", 1<<20+1)
	for _, c := range []struct{ in, arg, want string }{
		{big, "-", "more than the limit of 1048576"},
		{"\xff\xfe", "-", "not valid UTF-8"},
		{strings.Repeat("\x01", 300<<10), "-", "with its envelope"}, // six bytes each as JSON
	} {
		failsWith(t, 1, c.in, "send", "a1", c.arg)
		if o := call(t, c.in, "send", "a1", c.arg); !strings.Contains(o.err, c.want) {
			t.Errorf("stderr %q, want %q in it", o.err, c.want)
		}
	}
	failsWith(t, 1, big, "file", "put", "a1", "USAGE.md")
	failsWith(t, 1, "\xff", "file", "put", "a1", "USAGE.md")
	failsWith(t, 1, "", "file", "put", "a1", "USAGE.md", "--from", "/no/such/file")
}

// TestNearVerbs: an unknown verb names near ones, and run is not one of ours.
func TestNearVerbs(t *testing.T) {
	for typed, near := range map[string]string{"statsu": "'status'", "sned": "'send'", "conf": "'config'"} {
		if o := call(t, "", typed); !strings.Contains(o.err, "did you mean "+near) {
			t.Errorf("%s: %s", typed, o.err)
		}
	}
	if o := call(t, "", "run", "a1"); o.code != 2 || strings.Contains(o.err, "did you mean 'run'") {
		t.Errorf("run: exit %d, %s", o.code, o.err)
	}
}

// TestHelp: every command has a line, an example, fits 80 columns, and its text is
// the golden one.
func TestHelp(t *testing.T) {
	var all strings.Builder
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Short == "" || !strings.Contains(c.Example, "agentctl") {
			t.Errorf("%s: no short text or no example", c.CommandPath())
		}
		o := call(t, "", append(words(c), "--help")...)
		if o.code != 0 || o.err != "" {
			t.Errorf("%s --help: exit %d, stderr %s", c.CommandPath(), o.code, o.err)
		}
		if again := call(t, "", append([]string{"help"}, words(c)...)...); again.out != o.out {
			t.Errorf("help %s differs from its --help", c.CommandPath())
		}
		for l := range strings.Lines(o.out) {
			if n := utf8.RuneCountInString(strings.TrimRight(l, "\n")); n > command.Columns && !strings.Contains(c.Example, strings.TrimSpace(l)) {
				t.Errorf("%s --help: %d columns: %s", c.CommandPath(), n, l)
			}
		}
		all.WriteString("$ " + c.CommandPath() + " --help\n" + o.out + "\n")
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(tree())
	if diff := goldenDiff("help.txt", all.String()); diff != "" {
		t.Errorf("help differs (-want +got; go test -update writes it):\n%s", diff)
	}
}

// TestFullOutput: output that cannot be written is a failure.
func TestFullOutput(t *testing.T) {
	var errs bytes.Buffer
	code := Main([]string{"version"}, strings.NewReader(""), full{}, &errs, func(string) string { return "" })
	if code != 1 || !strings.Contains(errs.String(), "no space left") {
		t.Errorf("exit %d, stderr %q", code, errs.String())
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

var errFull = errors.New("no space left on device")
