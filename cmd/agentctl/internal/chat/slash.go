package chat

import (
	"context"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/theclaw/agents/cmd/agentctl/internal/chat/feed"
	"github.com/theclaw/agents/internal/agentdir/config"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// commands are what can be typed after a slash, in the order of the help: one, or two that go
// together. The screen and --plain have the same.
var commands = []struct{ names, args, what string }{
	{"help", "", "this text"},
	{"status usage", "", "the agent and this session; its tokens and their cost"},
	{"stop abort", "", "stop the current run"},
	{"approve deny", "", "answer the command that waits for you; also y, n, always"},
	{"explain memory", "", "the last message, step by step; what the agent wrote down"},
	{"compact", "", "digest this conversation into the memory now"},
	{"model", "[NAME]", "which model answers here; with a name, another one"},
	{"think", "[LEVEL]", "how it thinks: off, minimal to xhigh, adaptive, or tokens"},
	{"reasoning", "[MODE]", "whether its thoughts are shown: stream, or off"},
	{"elevated", "[MODE]", "commands outside of the sandbox here: off, on, ask or full"},
	{"new reset", "", "a new session, without what was said; /new TEXT begins it"},
	{"copy fold", "", "copy the last reply; show or hide thoughts and tool output"},
	{"quit exit", "", "leave, also without the slash; the current run continues"},
}

// names are all commands.
func names() (all []string) {
	for _, c := range commands {
		all = append(all, strings.Fields(c.names)...)
	}
	return all
}

// The keys, below the commands; each line fits 80 columns.
const (
	screenKeys = `Enter              send; Alt-Enter, Ctrl-J, or \ and Enter: another line
Up, Down           earlier messages; Tab completes a command
Ctrl-C             end the run, then clear the line, then leave; Ctrl-D leaves
Ctrl-O             open or fold all thoughts and tools; a click, one
PgUp, PgDn         scroll, as the wheel does; Ctrl-Home, Ctrl-End: to the ends
Shift and mouse    select text
//TEXT             send /TEXT to the agent; //quit sends quit`
	plainKeys = `Enter              send; y or n answers a question of the agent
Ctrl-C             abort the run and exit; Ctrl-D exits
//TEXT             send /TEXT to the agent; //quit sends quit`
)

func help(keys string) string {
	var b strings.Builder
	for _, c := range commands {
		name := "/" + strings.ReplaceAll(c.names, " ", ", /")
		fmt.Fprintf(&b, "%-19s%s\n", strings.TrimSpace(name+" "+c.args), c.what)
	}
	return b.String() + "\n" + keys
}

// leaves reports whether a line ends the conversation without a slash.
func leaves(text string) bool {
	text = strings.TrimSpace(text)
	return text == "exit" || text == "quit"
}

// slash reads a command. A text that begins with two slashes, or with a path, is
// none.
func slash(text string) (name, rest string, ok bool) {
	if leaves(text) {
		return strings.TrimSpace(text), "", true
	}
	word, found := strings.CutPrefix(text, "/")
	if !found || strings.HasPrefix(word, "/") || strings.Contains(text, "\n") {
		return "", "", false
	}
	name, rest, _ = strings.Cut(word, " ")
	return name, strings.TrimSpace(rest), !strings.Contains(name, "/")
}

// literal is the text to send when it is no command: of two slashes one is sent, and none before
// a word that leaves.
func literal(text string) string {
	if word, ok := strings.CutPrefix(text, "//"); ok && leaves(word) {
		return word
	}
	if strings.HasPrefix(text, "//") {
		return text[1:]
	}
	return text
}

// escaped is the text that is typed to send text, and not carry it out.
func escaped(text string) string {
	if leaves(text) {
		return "//" + text
	}
	if strings.HasPrefix(text, "/") {
		return "/" + text
	}
	return text
}

// candidates are the commands that begin with what is typed.
func candidates(typed string) (found []string) {
	word, ok := strings.CutPrefix(typed, "/")
	if !ok || strings.ContainsAny(word, " \n/") {
		return nil
	}
	for _, name := range names() {
		if strings.HasPrefix(name, word) {
			found = append(found, name)
		}
	}
	return found
}

// talk is the conversation that the screen, or --plain, holds.
type talk struct {
	ctx    context.Context // of the program; bubbletea hands its commands none
	from   *feed.Source
	at     feed.Place // what is known of where the conversation is
	newest int64      // message that was last answered
}

// locate takes from a turn where the conversation is.
func (t *talk) locate(of *registry.Turn) {
	if of.GetThreadId() != "" && of.GetThreadId() != t.at.Thread {
		t.at = feed.Place{Thread: of.GetThreadId()}
	}
	if of.GetSessionKey() != "" {
		t.at.Key = of.GetSessionKey()
	}
}

// The answers to commands that cannot be carried out now.
const (
	noAnswer   = "no message was answered yet"
	noQuestion = "no command waits for an answer"
	noReply    = "there is no reply to copy"
	noRun      = "nothing is under way"
	aRun       = "a run is under way; wait for it, or /stop it first"
)

// asks carries out the commands that ask the services only; ok is false for all others.
func (t *talk) asks(name, rest string) (cmd tea.Cmd, ok bool) {
	switch name {
	case "status":
		return t.from.Status(t.ctx, t.at), true
	case "usage":
		return t.from.Usage(t.ctx, t.at), true
	case "explain":
		if t.newest == 0 {
			return func() tea.Msg { return feed.CommandResult{Text: noAnswer} }, true
		}
		return t.from.Explain(t.ctx, t.newest), true
	case "memory":
		return t.from.Memory(t.ctx, t.at), true
	case "compact":
		return t.from.Compact(t.ctx, t.at), true
	case "model":
		return t.from.Model(t.ctx, t.at, rest), true
	case "think":
		return t.from.Thinking(t.ctx, t.at, rest), true
	case "reasoning":
		return t.from.Reasoning(t.ctx, t.at, rest), true
	case "elevated":
		return t.from.Elevated(t.ctx, t.at, rest), true
	}
	return nil, false
}

// renew lets the next message begin a new session: text, if there is one.
func (t *talk) renew(name, text string) tea.Cmd {
	if name != "new" {
		text = ""
	}
	return t.from.Reset(t.ctx, t.at, name, text)
}

// ended is said of a message whose run was aborted.
func (t *talk) ended(id int64) string {
	return fmt.Sprintf("aborted; what was done until then stands in 'agentctl explain %s %d'", t.from.Agent, id)
}

// unknown is the answer to a command that there is not.
func unknown(name string) string {
	near := candidates("/" + name)
	if one := config.Nearest(name, names()); len(near) == 0 && one != "" {
		near = []string{one}
	}
	if len(near) == 0 || name == "" {
		return fmt.Sprintf("there is no command /%s; /help lists them", name)
	}
	return fmt.Sprintf("there is no command /%s; did you mean /%s?", name, strings.Join(near, ", /"))
}

// complete adds what all candidates have in common.
func (m *console) complete() {
	found := candidates(m.input.Value())
	if len(found) == 0 {
		return
	}
	common := found[0]
	for _, n := range found[1:] {
		for !strings.HasPrefix(n, common) {
			common = common[:len(common)-1]
		}
	}
	if len(found) == 1 {
		common += " "
	}
	m.set("/" + common)
}

// command carries out one; unknown ones name those there are.
func (m *console) command(name, rest string) tea.Cmd {
	if cmd, ok := m.asks(name, rest); ok {
		m.said.Note("\n" + strings.TrimSpace("/"+name+" "+rest))
		if name == "model" {
			return tea.Sequence(cmd, m.from.Describe(m.ctx, m.at))
		}
		return cmd
	}
	switch name {
	case "help":
		m.said.Quote("\n" + help(screenKeys))
	case "stop", "abort":
		return m.abort()
	case "approve", "deny":
		d, ok := commanded(name, rest)
		if !ok {
			m.said.Problem(howToAnswer)
			return nil
		}
		return m.answer(d)
	case "new", "reset":
		if m.busy() {
			m.said.Problem(aRun)
			return nil
		}
		m.said.Note("\n" + strings.TrimSpace("/"+name+" "+rest))
		return m.renew(name, rest)
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

// renewed shows that the next message begins a new session, and sends it where it was given.
func (m *console) renewed(r feed.ResetResult) tea.Cmd {
	if r.Err != nil {
		m.problem(r.Err)
		return nil
	}
	m.said.Note(r.Note)
	if r.Text == "" {
		return nil
	}
	return m.say(r.Text)
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
	case "stop", "abort":
		if p.id == 0 {
			p.note(noRun)
			return true
		}
		p.show(p.from.Abort(p.ctx, p.id)())
	case "approve", "deny":
		if d, ok := commanded(name, rest); !ok {
			p.note(howToAnswer)
		} else if !p.answer(d) {
			p.note(noQuestion)
		}
	case "new", "reset":
		if p.busy {
			p.note(aRun)
			return true
		}
		p.show(p.renew(name, rest)())
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
