package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/testing/world"
)

// A5: an argument that this program or a service refuses is exit code 2, what it names
// and what is not there is 1, and so is data that was read from a file or standard input.
func TestArguments(t *testing.T) {
	w := world.Start(t, world.Options{})
	w.Create(t, "a1", "outbound: []")
	done := w.Say(t, "a1", world.Peer("bob"), "say: hi").GetKey()
	never := strings.Replace(done, ":1:", ":77:", 1)
	for _, c := range []struct {
		line string
		in   string
		want int
	}{
		{line: "send a1 --source external:x:main:dm:u:u --type gossip --content {}", want: 2},
		{line: "send a1 --source external:telegram:main --type message --content {}", want: 2},
		{line: "send a1 --source external::main:dm:u:u --type message --content {}", want: 2},
		{line: "send a1 --source external:Telegram:main:dm:u:u --type message --content {}", want: 2},
		{line: "send a1 --source external:telegram:main:dm:u:u:u --type message --content {}", want: 2},
		{line: "send a1 --source internal:dm --type message --content {}", want: 2},
		{line: "send a1 --source external:telegram:main:dm:u:u --type record --content {}", want: 0},
		{line: "send a1 --source self --type message --content {}", want: 1}, // a right that the caller lacks
		{line: "send a1 -", in: "\xff", want: 1},
		{line: "send nobody hello", want: 1},
		{line: "agent a1 --message x --thinking much", want: 2},
		{line: "agent a1 --message x --thinking -1", want: 2},
		{line: "agent a1 --message hello --thinking off", want: 0},
		{line: "config set a1 run.concurrency -1", want: 2},
		{line: "config set a1 run.concurrency x", want: 2},
		{line: "config set a1 no.such.key 1", want: 2},
		{line: "config set a1 run.concurrency 3", want: 0},
		{line: "config set nobody run.concurrency 3", want: 1},
		{line: "config get a1 no.such.key", want: 2},
		{line: "run wait a1 xyz", want: 2},
		{line: "run stream a1 xyz", want: 2},
		{line: "run abort a1 xyz", want: 2},
		{line: "run wait a1 " + done, want: 0},
		{line: "run wait a1 " + never, want: 1},
		{line: "events a1 threads/peers/main-bob --filter nonsense==", want: 2},
		{line: "events a1 threads/peers/main-nobody", want: 1},
		{line: "explain a1 xyz", want: 2},
		{line: "explain a1 99", want: 1},
		{line: "cancel a1 -1", want: 2},
		{line: "cancel a1 99", want: 1},
		{line: "file get a1 no-such-file", want: 2},
		{line: "file put a1 config.yaml", in: "kind: [\n", want: 1},
		{line: "context show a1 inbox", want: 2},
		{line: "memory compact a1 inbox", want: 2},
		{line: "dlq drop a1 t:99", want: 1},
		{line: "init a1", want: 1},
		{line: "init a2 --kind robot", want: 2},
		{line: "migrate a1 --skip-before soon", want: 2},
		{line: "usage --since soon", want: 2},
		{line: "turns a1 --fate lost", want: 2},
	} {
		var out, errs bytes.Buffer
		args := append([]string{"--runner", "unix://" + filepath.Join(w.Home, "run/runner0.sock")}, strings.Fields(c.line)...)
		code := Main(args, strings.NewReader(c.in), &out, &errs, func(name string) string {
			return map[string]string{"THECLAW_HOME": w.Home}[name]
		})
		if code != c.want || code != 0 && !errorLine.MatchString(errs.String()) {
			t.Errorf("agentctl %s: exit code %d, want %d\n%s%s", c.line, code, c.want, &out, &errs)
		}
		for _, riddle := range []string{"shorthand", "is not one\n", "is not one -"} {
			if strings.Contains(errs.String(), riddle) {
				t.Errorf("agentctl %s says %s", c.line, &errs)
			}
		}
	}
}
