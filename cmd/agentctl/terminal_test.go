//go:build proof

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/need"
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

// until waits for a condition; the test fails with what problem says when it does not come.
func (m tmux) until(ok func() bool, problem func() string) {
	m.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 3000 {
		if ok() {
			return
		}
		<-tick.C
	}
	m.t.Fatal(problem())
}

// shows waits until the screen has every text, in this order, and answers the screen.
func (m tmux) shows(texts ...string) (screen string) {
	m.t.Helper()
	m.until(func() bool {
		screen = m.do("capture-pane", "-p")
		rest := screen
		for _, text := range texts {
			_, after, found := strings.Cut(rest, text)
			if !found {
				return false
			}
			rest = after
		}
		return true
	}, func() string { return fmt.Sprintf("the screen does not show %q:\n%s", texts, screen) })
	return screen
}

// hides waits until the screen has none of the texts.
func (m tmux) hides(texts ...string) {
	m.t.Helper()
	screen := ""
	m.until(func() bool {
		screen = m.do("capture-pane", "-p")
		return !slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(screen, text) })
	}, func() string { return fmt.Sprintf("the screen still shows one of %q:\n%s", texts, screen) })
}

// terminal runs a shell line in a terminal of its own.
func terminal(t *testing.T, shell string) tmux {
	t.Helper()
	need.Tmux(t)
	m := tmux{t, filepath.Join(t.TempDir(), "s")}
	m.do("new-session", "-d", "-x", "100", "-y", "30", shell)
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", m.socket, "kill-server").Run() })
	return m
}

// agentOf makes and starts the agent a1.
func agentOf(t *testing.T, home string) {
	t.Helper()
	e := owner(t, home)
	if _, err := e.Agents().CreateAgent(t.Context(), &registry.CreateAgentRequest{AgentId: "a1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Agents().SetAgentConfig(t.Context(), &registry.SetAgentConfigRequest{AgentId: "a1", Key: "reasoning_default", Value: "stream"}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Agents().StartAgent(t.Context(), &registry.StartAgentRequest{AgentId: "a1"}); err != nil {
		t.Fatal(err)
	}
}

// ctl is a shell line that runs agentctl in a home and stays.
func ctl(t *testing.T, home, before, line string) string {
	t.Helper()
	return "THECLAW_HOME='" + home + "' " + before + " '" + filepath.Join(built(t), "agentctl") + "' " + line + "; echo exit=$?; exec cat"
}

// TestChatAtATerminal talks to an agent in a real terminal: S0-17.
func TestChatAtATerminal(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	services(t, home)
	agentOf(t, home)
	shell := ctl(t, home, "", "chat a1")
	m := terminal(t, shell)

	m.shows("> Say something to a1")
	m.do("send-keys", "hello", "Enter")
	m.shows("you: hello", "a1: offline: hello", "tokens in", "> ")
	// Three at once are answered in the order of typing.
	m.do("send-keys", "one", "Enter", "two", "Enter", "three", "Enter")
	m.shows("a1: offline: one", "you: two", "a1: offline: two", "you: three", "a1: offline: three", "> ")
	// Ctrl-C clears the line; Up recalls the last one; Ctrl-D leaves it alone.
	m.do("send-keys", "nonsense", "C-c", "Up")
	m.shows("a1: offline: three", "> three")
	m.do("send-keys", "C-d")
	m.do("send-keys", "C-c")
	m.shows("> Say something to a1")
	m.do("send-keys", "C-d")
	// What was said stays in the terminal.
	m.shows("you: three", "a1: offline: three", "exit=0")

	// The next one begins with what was said, and can recall it.
	m.do("respawn-pane", "-k", shell)
	m.shows("you: three", "a1: offline: three", "> Say something")
	m.do("send-keys", "Up", "Up")
	m.shows("> two")
	m.do("send-keys", "C-c")
	m.shows("> Say something")
	// Commands are completed, and a new session begins empty.
	m.do("send-keys", "/sta", "Tab", "Enter")
	m.shows("a1 is started, 0 waiting in its inbox", "model: none, the offline stand-in answers", "session: agent:a1:console:cli:dm:cli", "epoch: ", "tokens: ", "version: ")
	m.do("send-keys", "/new recall", "Enter")
	m.shows("New session: the next message begins it.", "you: recall", "a1: offline: I see no earlier message of yours.")
	m.do("send-keys", "recall", "Enter")
	m.shows("a1: offline: your earlier messages (1):", "1. recall")
	m.do("send-keys", "C-c")
	m.shows("exit=0")
}

// TestChatStreams shows a reply before it has ended, thoughts and tools that fold,
// the abort of a run, and a restart of the services, with a model on loopback
// (S1-16, S1-46, S1-48, S1-50).
func TestChatStreams(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	model := newLoopback(t)
	stop := services(t, home, model.env()...)
	agentOf(t, home)
	shell := ctl(t, home, "", "chat a1")
	m := terminal(t, shell)

	m.shows("> Say something to a1")
	m.do("send-keys", "stream", "Enter")
	m.shows("you: stream", "a1: Title", "some bold beginning", "a1 is working", "> ")
	m.hides("the end")
	close(model.goOn)
	m.shows("some bold beginning, and", "• the end", "openai/scripted · 21 tokens in, 7 out", "> ")

	m.do("send-keys", "use a tool", "Enter")
	m.shows("▸ thought for ", "▸ exec echo from-the-tool · ok · ", "s\n", "a1: The tool has said it.", "42 tokens in, 14 out", " · 1 tool")
	m.do("send-keys", "C-o")
	m.shows("▾ thought for", "┆ a tool is needed here", "▾ exec", "┆ $ echo from-the-tool", "┆ # to see", "┆ from-the-tool")
	m.do("send-keys", "C-o")
	m.hides("┆", "▾")
	m.do("send-keys", "/reasoning off", "Enter")
	m.shows("reasoning: off, from the next message on, in this conversation")

	m.do("send-keys", "hang", "Enter")
	m.shows("a1: this never ends", "Ctrl-C ends it")
	m.do("send-keys", "C-c")
	m.shows("! aborted")
	select {
	case <-model.ended:
	case <-time.After(30 * time.Second):
		t.Error("the model is still being asked")
	}

	m.do("resize-window", "-x", "44", "-y", "16")
	m.shows("! aborted; what was done until then stands\n", "explain a1 3'", "> Say something") // broken anew
	m.do("resize-window", "-x", "100", "-y", "30")
	m.shows("! aborted; what was done until then stands in 'agentctl explain a1 3'", "> Say something")

	stop()
	m.shows("the registry does not answer; waiting for it")
	m.do("send-keys", "are you there", "Enter")
	m.shows("you: are you there", "no connection to the registry", "sending")
	services(t, home, model.env()...)
	m.shows("a1: heard: are you there")
	m.hides("no connection")
	m.do("send-keys", "C-d")
	m.shows("exit=0")

	// Without colours there is none, and nothing is missing.
	m.do("respawn-pane", "-k", ctl(t, home, "NO_COLOR=1", "chat a1"))
	m.shows("you: are you there", "a1: heard: are you there", "> Say something")
	if colour := colours.FindString(m.do("capture-pane", "-p", "-e")); colour != "" {
		t.Errorf("a colour with NO_COLOR: %q", colour)
	}
	m.do("send-keys", "C-d")
	m.shows("exit=0")
	m.do("respawn-pane", "-k", shell)
	m.shows("a1: heard: are you there", "> Say something")
	if !colours.MatchString(m.do("capture-pane", "-p", "-e")) {
		t.Error("no colour without NO_COLOR, so that the test above shows nothing")
	}
	m.do("send-keys", "C-d")
	m.shows("exit=0")
}

// colours are the escapes that choose one; 39 and 49 choose none.
var colours = regexp.MustCompile(`\x1b\[([0-9;]*;)?(3[0-8]|4[0-8]|9[0-7]|10[0-7])(;[0-9;]*)?m`)

// TestTopAtATerminal: the live view shows an agent's work and leaves with q.
func TestTopAtATerminal(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	services(t, home)
	agentOf(t, home)
	m := terminal(t, ctl(t, home, "", "top --every 1s"))
	m.shows("1 agent, 0 waiting", "AGENT", "a1", "started")
	if _, _, err := message.Say(t.Context(), owner(t, home), "a1", message.Console, "", message.NewKey(), "hello"); err != nil {
		t.Fatal(err)
	}
	m.shows("0.02 turns/s", "a1")
	m.do("send-keys", "q")
	m.shows("exit=0")
}

// TestRemoveAtATerminal: before an agent goes a person types its name; anything else
// leaves it as it is.
func TestRemoveAtATerminal(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	services(t, home)
	e := owner(t, home)
	if _, err := e.Agents().CreateAgent(t.Context(), &registry.CreateAgentRequest{AgentId: "a1"}); err != nil {
		t.Fatal(err)
	}
	shell := ctl(t, home, "", "rm a1")
	m := terminal(t, shell)
	for _, typed := range []string{"y", "a2", ""} {
		m.shows("Remove agent 'a1' with its memory and all conversations? Type its name:")
		m.do("send-keys", typed, "Enter")
		m.shows("Error: nothing was removed", "exit=1")
		if _, err := e.Agents().GetAgent(t.Context(), &registry.GetAgentRequest{AgentId: "a1"}); err != nil {
			t.Fatalf("after %q: %v", typed, err)
		}
		m.do("respawn-pane", "-k", shell)
	}
	m.shows("Type its name:")
	m.do("send-keys", "a1", "Enter")
	m.shows("Agent 'a1' removed", "exit=0")
	if _, err := e.Agents().GetAgent(t.Context(), &registry.GetAgentRequest{AgentId: "a1"}); !fault.Is(err, fault.AgentNotFound) {
		t.Errorf("it is there: %v", err)
	}
	// Of one that is not there nobody is asked.
	m.do("respawn-pane", "-k", shell)
	m.shows("Error: Agent 'a1' not found", "exit=1")
}

// H2, H3: the chat names a provider that cannot be reached, with the cause and the next try,
// in 80 columns; it says at its start that a key is missing, and refuses a model that its
// provider does not have.
func TestChatWithoutAModel(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	const settings = "default: down\nproviders:\n  down: {base_url: 'http://127.0.0.1:9/v1', models: [m1]}\n  keyless: {base_url: 'http://127.0.0.1:9/v1', api_key: 'env:NO_SUCH_KEY', models: [m2]}\n"
	if err := os.WriteFile(filepath.Join(home, "providers.yaml"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	services(t, home)
	agentOf(t, home)
	m := terminal(t, ctl(t, home, "", "chat a1"))
	m.do("resize-window", "-x", "80", "-y", "24")
	m.shows("> Say something to a1")
	m.do("send-keys", "hello", "Enter")
	m.shows("you: hello", "the model provider down cannot be reached: connection refused; next try in", "a1 waits")
	m.do("send-keys", "/status", "Enter")
	m.shows("message 1 waits: the model provider down cannot be reached: connection\n  refused;")
	m.do("send-keys", "C-c")
	m.shows("aborted", "> Say something to a1")
	m.do("send-keys", "/model gpt-nope", "Enter")
	m.shows(`provider "down" has no model "gpt-nope"; providers.yaml lists m1`)
	m.do("send-keys", "/model nosuch/m", "Enter")
	m.shows(`provider "nosuch" is not configured`)
	m.do("send-keys", "/model keyless/m2", "Enter")
	m.shows("model: keyless/m2", "warning: the key of provider", "NO_SUCH_KEY")
	m.do("send-keys", "C-d")
	m.shows("exit=0")
	again := terminal(t, ctl(t, home, "", "chat a1"))
	again.shows("the model of a1 cannot be used", "NO_SUCH_KEY", "> Say something to a1")
}
