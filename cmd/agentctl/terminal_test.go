package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// tmux is one terminal of 100 columns, with a server of its own.
type tmux struct {
	t      *testing.T
	socket string
}

func (m tmux) do(args ...string) string {
	m.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", m.socket, "-f", "/dev/null"}, args...)...).CombinedOutput()
	if err != nil {
		m.t.Fatalf("tmux %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// shows waits until the screen has every text, in this order.
func (m tmux) shows(texts ...string) {
	m.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	screen := ""
	for range 1000 {
		screen = m.do("capture-pane", "-p")
		rest, all := screen, true
		for _, text := range texts {
			i := strings.Index(rest, text)
			if all = i >= 0; !all {
				break
			}
			rest = rest[i+len(text):]
		}
		if all {
			return
		}
		<-tick.C
	}
	m.t.Fatalf("the screen does not show %q:\n%s", texts, screen)
}

// TestChatAtATerminal talks to an agent in a real terminal: S0-17.
func TestChatAtATerminal(t *testing.T) {
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is not installed: chat at a terminal was not tried")
	}
	dir, home := built(t), filepath.Join(t.TempDir(), "h")
	services(t, home)
	e := owner(t, home)
	if _, err := e.Agents().CreateAgent(t.Context(), &registry.CreateAgentRequest{AgentId: "a1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Agents().StartAgent(t.Context(), &registry.StartAgentRequest{AgentId: "a1"}); err != nil {
		t.Fatal(err)
	}

	m := tmux{t, filepath.Join(t.TempDir(), "s")}
	shell := "THECLAW_HOME='" + home + "' '" + filepath.Join(dir, "agentctl") + "' chat a1; echo exit=$?; exec cat"
	m.do("new-session", "-d", "-x", "100", "-y", "30", shell)
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", m.socket, "kill-server").Run() })

	m.shows("> Say something to a1")
	m.do("send-keys", "hello", "Enter")
	m.shows("you: hello", "a1: offline: hello", "> ")
	// Three at once are answered in the order of typing.
	m.do("send-keys", "one", "Enter", "two", "Enter", "three", "Enter")
	m.shows("you: three", "a1: offline: one", "a1: offline: two", "a1: offline: three", "> ")
	// Ctrl-C clears the line; Up recalls the last one; Ctrl-D leaves it alone.
	m.do("send-keys", "nonsense", "C-c", "Up")
	m.shows("a1: offline: three", "> three")
	m.do("send-keys", "C-d")
	m.do("send-keys", "C-c")
	m.shows("> Say something to a1")
	m.do("send-keys", "C-d")
	m.shows("exit=0")

	// The next one begins with what was said.
	m.do("respawn-pane", "-k", shell)
	m.shows("you: three", "a1: offline: three", "> Say something")
	m.do("send-keys", "C-c")
	m.shows("exit=0")
}
