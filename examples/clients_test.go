//go:build proof

// Package examples holds programs that call the services, in three languages. Its test runs
// those that are not Go; examples/ask has a test of its own.
package examples

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/testing/need"
	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/program"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

func TestMain(m *testing.M) { program.Main(m) }

// python is the program that has the package grpc.
func python(t *testing.T) string {
	t.Helper()
	found := need.Program(t, "python3", "python3")
	if p := "/usr/bin/python3"; exec.Command(found, "-c", "import grpc").Run() != nil && exec.Command(p, "-c", "import grpc").Run() == nil {
		return p // Debian's package is for Debian's program
	}
	return found
}

// clients are the command lines of the programs.
func clients(t *testing.T) map[string][]string {
	t.Helper()
	for _, made := range []string{"python/gen/theclaw/runner/v1/runner_pb2.py", "typescript/ask.js", "typescript/services.binpb"} {
		if _, err := os.Stat(made); err != nil {
			need.Missing(t, "examples/"+made, "run 'make examples'")
		}
	}
	return map[string][]string{
		"python":     {python(t), "python/ask.py"},
		"typescript": {need.Program(t, "node", "nodejs"), "typescript/ask.js"},
	}
}

// TestClients: the answer is streamed and read, a repeated call with the same key is answered
// with the same reply and does nothing twice, and a failure is an error with its cause.
func TestClients(t *testing.T) {
	for name, argv := range clients(t) {
		t.Run(name, func(t *testing.T) {
			w := world.NewSite(t, program.Agentd(t))
			w.Start(t, "all")
			w.Create(t, "alice", "")
			ask := func(agent, key, text string) (stdout, stderr string, err error) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				c := exec.CommandContext(ctx, argv[0], append(argv[1:len(argv):len(argv)], agent, key, text)...)
				c.Env = append(os.Environ(), "THECLAW_HOME="+w.Home)
				var out, told bytes.Buffer
				c.Stdout, c.Stderr = &out, &told
				err = c.Run()
				return out.String(), told.String(), err
			}
			for i, want := range []string{"message 1\n", "message 1, as before\n"} {
				out, told, err := ask("alice", "invoice-4711", "say: it is paid")
				if err != nil || out != "it is paid\n" || !strings.HasPrefix(told, want) || !strings.Contains(told, "it is paid") {
					t.Errorf("call %d: %q, %q, %v", i+1, out, told, err)
				}
			}
			if _, told, err := ask("alice", "invoice-4712", "fail: auth"); err == nil || !strings.Contains(told, "no reply: FATE_DEAD key refused (401)") {
				t.Errorf("a message that failed: %q, %v", told, err)
			}
			if _, told, err := ask("nobody", "invoice-4711", "say: x"); err == nil || !strings.Contains(told, "NOT_FOUND: Agent 'nobody' not found") {
				t.Errorf("an agent that is not there: %q, %v", told, err)
			}
			r, err := w.Turns.ListTurns(t.Context(), &registryv1.ListTurnsRequest{AgentId: "alice"})
			if err != nil || len(r.GetTurns()) != 2 {
				t.Errorf("%d messages, want 2; %v", len(r.GetTurns()), err)
			}
		})
	}
}

// TestClientsContinue: agentd is killed while a client streams, and started again. The client
// streams the rest and prints the reply, and the message is stored once.
func TestClientsContinue(t *testing.T) {
	for name, argv := range clients(t) {
		t.Run(name, func(t *testing.T) {
			w := world.NewSite(t, program.Agentd(t))
			agentd := w.Start(t, "all")
			w.Create(t, "alice", "")
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			c := exec.CommandContext(ctx, argv[0], append(argv[1:len(argv):len(argv)], "alice", "invoice-4713", "slow: 4")...)
			c.Env = append(os.Environ(), "THECLAW_HOME="+w.Home)
			var out bytes.Buffer
			c.Stdout = &out
			stderr, err := c.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			var report []string
			again := false
			for lines := bufio.NewScanner(stderr); lines.Scan(); {
				report = append(report, lines.Text())
				switch {
				case lines.Text() == "message 1":
					agentd.Kill()
				case strings.HasPrefix(lines.Text(), "again in ") && !again: // the first call after the kill has failed
					again = true
					w.Start(t, "all")
				}
			}
			err = c.Wait()
			text := strings.Join(report, "\n")
			if err != nil || out.String() != "offline: waited 4 s.\n" || !again || !strings.HasSuffix(text, "offline: waited 4 s.") {
				t.Errorf("%v: printed %q, reported\n%s", err, out.String(), text)
			}
			r, err := w.Turns.ListTurns(t.Context(), &registryv1.ListTurnsRequest{AgentId: "alice"})
			if err != nil || len(r.GetTurns()) != 1 {
				t.Errorf("%d messages, want 1; %v", len(r.GetTurns()), err)
			}
		})
	}
}

// TestClientsInDocs: the page shows the programs as they are.
func TestClientsInDocs(t *testing.T) {
	page, err := os.ReadFile("../docs/calling.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"python/ask.py", "typescript/ask.ts"} {
		b, err := os.ReadFile(filepath.FromSlash(name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(page, append(append([]byte("\n"), b...), "```\n"...)) {
			t.Errorf("docs/calling.md does not show examples/%s as it is", name)
		}
	}
}
