package chat

import (
	"errors"
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
		talk:  talk{ctx: t.Context(), from: &feed.Source{Env: e, Agent: "a1", Peer: message.Console, Send: func(tea.Msg) {}}},
		calls: t.Context(), e: e, tools: map[string]string{},
	}, notes
}

// Every command of the help is known on the screen and in --plain, and one that is not there
// has the same answer in both.
func TestCommandsAreTheSame(t *testing.T) {
	for _, name := range names() {
		m := typing(t)
		m.said.Reply("copied")
		if m.command(name, ""); strings.Contains(shown(m), "there is no command") {
			t.Errorf("the screen does not know /%s", name)
		}
		p, notes := lines(t)
		if cmd, ok := p.asks(name, ""); ok != (cmd != nil) {
			t.Errorf("/%s asks %v, but has a call: %v", name, ok, cmd != nil)
		} else if ok {
			continue // a service is needed
		}
		p.busy = true // what begins a session needs a service otherwise
		stay := p.command(name, "")
		if stay == (name == "quit" || name == "exit") || stay && notes.Len() == 0 || strings.Contains(notes.String(), "there is no command") {
			t.Errorf("/%s with --plain: stays %v, %q", name, stay, notes)
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
	var out strings.Builder
	p.e.Out = &out
	for range 2 {
		p.piece(feed.Item{What: feed.Began, CallID: "c1", Tool: "ask_user", Summary: "ask_user Which day?"})
	}
	if got := out.String(); got != "a1 runs ask_user: Which day?\n" {
		t.Errorf("a call that the run shows again: %q", got)
	}
	if got := unknown("explan"); got != "there is no command /explan; did you mean /explain?" {
		t.Error(got)
	}
	notes.Reset()
	p.command("help", "")
	for _, name := range names() {
		if !strings.Contains(notes.String(), "/"+name) {
			t.Errorf("/%s is not in the help of --plain", name)
		}
	}
	for _, c := range commands {
		if !strings.Contains(notes.String(), c.what) {
			t.Errorf("%q is not in the help of --plain", c.what)
		}
	}
}

// S3-76: exit and quit leave without a slash, blanks around them or not; with two slashes they are
// sent, as are texts that only hold them.
func TestExitAndQuit(t *testing.T) {
	for text, want := range map[string]string{"exit": "exit", "quit": "quit", " quit ": "quit", "/exit": "exit", "/quit": "quit"} {
		m := typing(t)
		m.set(text)
		cmd := m.enter()
		if cmd == nil || len(m.unsent) > 0 {
			t.Errorf("%q is sent", text)
		} else if _, ok := cmd().(tea.QuitMsg); !ok {
			t.Errorf("%q does not leave the screen", text)
		}
		p, _ := lines(t)
		if name, rest, ok := slash(text); !ok || name != want || p.command(name, rest) {
			t.Errorf("%q with --plain: %q, %v", text, name, ok)
		}
	}
	for text, sent := range map[string]string{"quit it": "quit it", "Exit": "Exit", "exit\nquit": "exit\nquit", "//quit": "quit", escaped("exit"): "exit", "//new": "/new"} {
		m := typing(t)
		m.set(text)
		if m.enter(); len(m.unsent) != 1 || m.unsent[0].Text != sent {
			t.Errorf("%q: %v, want %q", text, m.unsent, sent)
		}
	}
}

// /new and /reset say what becomes of the next message and of the earlier ones;
// in the middle of a run they wait for its end. A text of /new is sent in the new session.
func TestNewSession(t *testing.T) {
	const note = "New session: the next message begins it. Earlier messages stay in `agentctl sessions history agent:a1:console:cli:dm:cli --all`."
	m := typing(t)
	if cmd := m.command("new", "first words"); cmd == nil || !strings.Contains(shown(m), "/new first words") {
		t.Errorf("nothing is asked:\n%s", shown(m))
	}
	m.Update(feed.ResetResult{Note: note, Text: "/first words"})
	if s := strings.Join(strings.Fields(shown(m)), " "); !strings.Contains(s, note) || len(m.unsent) != 1 || m.unsent[0].Text != "/first words" {
		t.Errorf("unsent %+v:\n%s", m.unsent, shown(m))
	}
	for _, name := range []string{"new", "reset"} { // the text is under way
		if cmd := m.command(name, ""); cmd != nil || !strings.Contains(shown(m), "! "+aRun) {
			t.Errorf("/%s in a run:\n%s", name, shown(m))
		}
	}
	m = typing(t)
	m.Update(feed.ResetResult{Err: errors.New("no such luck"), Text: "lost?"})
	if s := shown(m); !strings.Contains(s, "! no such luck") || len(m.unsent) != 0 {
		t.Errorf("unsent %+v:\n%s", m.unsent, s)
	}

	p, notes := lines(t)
	p.show(feed.ResetResult{Note: note, Text: "/first words"})
	if notes.String() != note+"\n" || len(p.later) != 1 || p.later[0] != "//first words" {
		t.Errorf("%q, later %q", notes, p.later)
	}
	if _, _, command := slash(p.later[0]); command || literal(p.later[0]) != "/first words" {
		t.Errorf("%q is not sent as it was given", p.later[0])
	}
	p.show(feed.ResetResult{Err: errors.New("no such luck"), Text: "lost?"})
	if !strings.Contains(notes.String(), "Error: no such luck") || len(p.later) != 1 || !p.failed {
		t.Errorf("%q, later %q", notes, p.later)
	}
}

// The banner names a conversation that is not the first one of the console.
func TestBannerNamesTheSession(t *testing.T) {
	const key = "agent:a1:telegram:group:-100"
	m := newConsole(t.Context(), &feed.Source{Agent: "a1", Peer: message.Console, Session: key}, false)
	if s := shown(m); !strings.HasPrefix(s, " a1 · session "+key+" ") {
		t.Errorf("banner:\n%s", s)
	}
}
