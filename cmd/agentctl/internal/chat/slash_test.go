package chat

import (
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"github.com/theclaw/agents/cmd/agentctl/internal/chat/feed"
	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/cmd/internal/command"
)

// lines is a conversation of lines without services.
func lines(t *testing.T) (p *plain, notes *strings.Builder) {
	t.Helper()
	notes = &strings.Builder{}
	e := command.New(strings.NewReader(""), &strings.Builder{}, notes, func(string) string { return "" }, "test")
	return &plain{
		talk:  talk{ctx: t.Context(), from: &feed.Source{Env: e, Agent: "a1", Send: func(tea.Msg) {}}, peer: message.Console},
		calls: t.Context(), e: e, tools: map[string]string{},
	}, notes
}

// Every command of the help is known on the screen and in --plain, and one that is not there
// has the same answer in both.
func TestCommandsAreTheSame(t *testing.T) {
	for _, c := range commands {
		m := typing(t)
		m.said.Reply("copied")
		if m.command(c.name, ""); strings.Contains(shown(m), "there is no command") {
			t.Errorf("the screen does not know /%s", c.name)
		}
		p, notes := lines(t)
		if cmd, ok := p.asks(c.name, ""); ok != (cmd != nil) {
			t.Errorf("/%s asks %v, but has a call: %v", c.name, ok, cmd != nil)
		} else if ok {
			continue // a service is needed
		}
		stay := p.command(c.name, "")
		if stay == (c.name == "quit") || stay && notes.Len() == 0 || strings.Contains(notes.String(), "there is no command") {
			t.Errorf("/%s with --plain: stays %v, %q", c.name, stay, notes)
		}
	}
	m := typing(t)
	p, notes := lines(t)
	for _, name := range []string{"nosuch", "mod", ""} {
		notes.Reset()
		m.command(name, "")
		p.command(name, "")
		if s := strings.TrimSpace(notes.String()); !strings.HasPrefix(s, "there is no command /"+name+";") || !strings.Contains(shown(m), "! "+s) {
			t.Errorf("/%s: %q with --plain, on the screen:\n%s", name, s, shown(m))
		}
	}
	notes.Reset()
	p.command("help", "")
	for _, c := range commands {
		if !strings.Contains(notes.String(), "/"+c.name) || !strings.Contains(notes.String(), c.what) {
			t.Errorf("/%s is not in the help of --plain", c.name)
		}
	}
}

// /new goes to a conversation of its own, but not in the middle of a run.
func TestNewWithPlain(t *testing.T) {
	p, notes := lines(t)
	p.busy = true
	if p.command("new", "plans"); p.peer != message.Console || !strings.Contains(notes.String(), aRun) {
		t.Errorf("in a run: %s, %q", p.peer, notes)
	}
	p.busy = false
	if p.command("new", "plans"); p.peer != "plans" || p.thread != "threads/peers/cli-plans" || !strings.Contains(notes.String(), "--- conversation plans") {
		t.Errorf("%s, %s, %q", p.peer, p.thread, notes)
	}
	if p.command("new", "not a/name"); p.peer != "plans" || !strings.Contains(notes.String(), "Error: ") {
		t.Errorf("a bad name: %s, %q", p.peer, notes)
	}
}
