package chat

import (
	"context"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/theclaw/agents/cmd/agentctl/internal/chat/feed"
	"github.com/theclaw/agents/cmd/agentctl/internal/message"
)

// commands are what can be typed after a slash, in the order of the help. The screen and
// --plain have the same.
var commands = []struct{ name, args, what string }{
	{"help", "", "this text"},
	{"status", "", "the state of the agent"},
	{"abort", "", "stop the current run"},
	{"approve", "", "allow the command that waits for your answer; also y"},
	{"deny", "", "refuse it; also n"},
	{"explain", "", "what happened to the last message, step by step"},
	{"memory", "", "what the agent has written down"},
	{"model", "[NAME]", "which model answers; with a name, another one"},
	{"new", "[NAME]", "start another conversation; a name lets you return to it"},
	{"copy", "", "put the last reply into the clipboard"},
	{"fold", "", "show or hide thoughts and tool output"},
	{"quit", "", "leave; the current run continues"},
}

// The keys, below the commands; each line fits 80 columns.
const (
	screenKeys = `Enter            send; Alt-Enter, Ctrl-J, or \ and Enter: another line
Up, Down         earlier messages; Tab completes a command
Ctrl-C           end the run, then clear the line, then leave; Ctrl-D leaves
Ctrl-O           open or fold all thoughts and tools; a click, one
PgUp, PgDn       scroll, as the wheel does; Ctrl-Home, Ctrl-End: to the ends
Shift and mouse  select text
//TEXT           send /TEXT to the agent`
	plainKeys = `Enter            send; y or n answers a question of the agent
Ctrl-C           abort the run and exit; Ctrl-D exits
//TEXT           send /TEXT to the agent`
)

func help(keys string) string {
	var b strings.Builder
	for _, c := range commands {
		fmt.Fprintf(&b, "/%-16s%s\n", strings.TrimSpace(c.name+" "+c.args), c.what)
	}
	return b.String() + "\n" + keys
}

// slash reads a command. A text that begins with two slashes, or with a path, is
// none.
func slash(text string) (name, rest string, ok bool) {
	word, found := strings.CutPrefix(text, "/")
	if !found || strings.HasPrefix(word, "/") || strings.Contains(text, "\n") {
		return "", "", false
	}
	name, rest, _ = strings.Cut(word, " ")
	return name, strings.TrimSpace(rest), !strings.Contains(name, "/")
}

// literal is the text to send when it is no command: of two slashes one is sent.
func literal(text string) string {
	if strings.HasPrefix(text, "//") {
		return text[1:]
	}
	return text
}

// candidates are the commands that begin with what is typed.
func candidates(typed string) (names []string) {
	word, ok := strings.CutPrefix(typed, "/")
	if !ok || strings.ContainsAny(word, " \n/") {
		return nil
	}
	for _, c := range commands {
		if strings.HasPrefix(c.name, word) {
			names = append(names, c.name)
		}
	}
	return names
}

// talk is the conversation that the screen, or --plain, holds.
type talk struct {
	ctx    context.Context // of the program; bubbletea hands its commands none
	from   *feed.Source
	peer   message.Peer
	thread string // its conversation
	newest int64  // message that was last answered
}

// The answers to commands that cannot be carried out now.
const (
	noAnswer   = "no message was answered yet"
	noQuestion = "no command waits for an answer"
	noReply    = "there is no reply to copy"
	noRun      = "nothing is under way"
	aRun       = "a run is under way; wait for it, or /abort it first"
)

// asks carries out the commands that ask the services only; ok is false for all others.
func (t *talk) asks(name, rest string) (cmd tea.Cmd, ok bool) {
	switch name {
	case "status":
		return t.from.Status(t.ctx), true
	case "explain":
		if t.newest == 0 {
			return func() tea.Msg { return feed.CommandResult{Text: noAnswer} }, true
		}
		return t.from.Explain(t.ctx, t.newest), true
	case "memory":
		return t.from.Memory(t.ctx, t.peer, t.thread), true
	case "model":
		return t.from.Model(t.ctx, rest), true
	}
	return nil, false
}

// turnTo begins with another conversation, and says how to return to the first one.
func (t *talk) turnTo(name string, now time.Time) (note string, err error) {
	if name == "" {
		name = "c" + now.UTC().Format("20060102.150405")
	}
	peer, err := message.ParsePeer(name)
	if err != nil {
		return "", err
	}
	t.peer, t.thread = peer, peer.Conversation()
	return fmt.Sprintf("--- conversation %s\nback to the first one: /new cli; from the shell: agentctl chat %s --thread %s", peer, t.from.Agent, peer), nil
}

// ended is said of a message whose run was aborted.
func (t *talk) ended(id int64) string {
	return fmt.Sprintf("aborted; what was done until then stands in 'agentctl explain %s %d'", t.from.Agent, id)
}

// unknown is the answer to a command that there is not.
func unknown(name string) string {
	near := candidates("/" + name)
	if len(near) == 0 || name == "" {
		return fmt.Sprintf("there is no command /%s; /help lists them", name)
	}
	return fmt.Sprintf("there is no command /%s; did you mean /%s?", name, strings.Join(near, ", /"))
}

// complete adds what all candidates have in common.
func (m *console) complete() {
	names := candidates(m.input.Value())
	if len(names) == 0 {
		return
	}
	common := names[0]
	for _, n := range names[1:] {
		for !strings.HasPrefix(n, common) {
			common = common[:len(common)-1]
		}
	}
	if len(names) == 1 {
		common += " "
	}
	m.set("/" + common)
}

// command carries out one; unknown ones name those there are.
func (m *console) command(name, rest string) tea.Cmd {
	if cmd, ok := m.asks(name, rest); ok {
		m.said.Note("\n" + strings.TrimSpace("/"+name+" "+rest))
		if name == "model" {
			return tea.Sequence(cmd, m.from.Describe(m.ctx))
		}
		return cmd
	}
	switch name {
	case "help":
		m.said.Quote("\n" + help(screenKeys))
	case "abort":
		return m.abort()
	case "approve", "deny":
		return m.answer(name == "approve")
	case "new":
		return m.another(rest)
	case "copy":
		if m.said.Last() == "" {
			m.said.Note(noReply)
			return nil
		}
		m.said.Note("copied, if the terminal allows it")
		return tea.SetClipboard(m.said.Last())
	case "fold":
		m.said.FoldAll()
	case "quit", "exit":
		return tea.Quit
	default:
		m.said.Problem(unknown(name))
	}
	return nil
}

// another goes to another conversation with the agent; the one so far stays.
func (m *console) another(name string) tea.Cmd {
	if m.busy() {
		m.said.Problem(aRun)
		return nil
	}
	note, err := m.turnTo(name, m.now())
	if err != nil {
		m.problem(err)
		return nil
	}
	m.begin()
	m.said.Note("\n" + note)
	return m.from.Past(m.ctx, m.peer)
}

// command carries out one in the conversation of lines; false leaves it.
func (p *plain) command(name, rest string) bool {
	if cmd, ok := p.asks(name, rest); ok {
		p.show(cmd())
		return true
	}
	switch name {
	case "help":
		p.note(help(plainKeys))
	case "abort":
		if p.id == 0 {
			p.note(noRun)
			return true
		}
		p.show(p.from.Abort(p.ctx, p.id)())
	case "approve", "deny":
		if !p.answer(name == "approve") {
			p.note(noQuestion)
		}
	case "new":
		p.another(rest)
	case "copy":
		p.note("with --plain the clipboard is left alone: it needs an escape sequence")
	case "fold":
		p.note("with --plain nothing is folded")
	case "quit", "exit":
		return false
	default:
		p.note(unknown(name))
	}
	return true
}

func (p *plain) another(name string) {
	if p.busy {
		p.note(aRun)
		return
	}
	note, err := p.turnTo(name, time.Now())
	if err != nil {
		p.problem(err)
		return
	}
	p.note(note)
}
