package chat

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/theclaw/agents/cmd/agentctl/internal/message"
)

// commands are what can be typed after a slash, in the order of the help.
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

const keysHelp = `Enter sends; Alt-Enter, Ctrl-J or \ and Enter begin another line. Up and Down recall.
Ctrl-C ends a run, then clears the line, then leaves; Ctrl-D leaves an empty line.
Ctrl-O opens and folds; a click does it for one line. PgUp, PgDn and the wheel
scroll; with Shift the mouse selects. Tab completes a command.
A text that begins with a slash is sent with two of them.`

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
	switch name {
	case "help":
		m.help()
	case "status":
		return m.from.Status(m.ctx)
	case "abort":
		return m.abort()
	case "approve", "deny":
		return m.answer(name == "approve")
	case "explain":
		if m.newest == 0 {
			m.said.Note("no message was answered yet")
			return nil
		}
		return m.from.Explain(m.ctx, m.newest)
	case "memory":
		return m.from.Memory(m.ctx, m.peer, m.thread)
	case "model":
		return tea.Sequence(m.from.Model(m.ctx, rest), m.from.Describe(m.ctx))
	case "new":
		return m.another(rest)
	case "copy":
		if m.said.Last() == "" {
			m.said.Note("there is no reply to copy")
			return nil
		}
		m.said.Note("copied, if the terminal allows it")
		return tea.SetClipboard(m.said.Last())
	case "fold":
		m.said.FoldAll()
	case "quit", "exit":
		return tea.Quit
	default:
		m.said.Problem(fmt.Sprintf("there is no command /%s; /help lists them", name))
	}
	return nil
}

func (m *console) help() {
	var b strings.Builder
	for _, c := range commands {
		fmt.Fprintf(&b, "/%-16s %s\n", strings.TrimSpace(c.name+" "+c.args), c.what)
	}
	m.said.Note(b.String() + "\n" + keysHelp)
}

// another goes to another conversation with the agent; the one so far stays.
func (m *console) another(name string) tea.Cmd {
	if m.busy() {
		m.said.Problem("a run is under way; wait for it, or /abort it first")
		return nil
	}
	if name == "" {
		name = "c" + m.now().UTC().Format("20060102.150405")
	}
	peer, err := message.ParsePeer(name)
	if err != nil {
		m.problem(err)
		return nil
	}
	m.turnTo(peer)
	m.said.Note(fmt.Sprintf("--- conversation %s (/new cli is the first one; from the shell: agentctl chat %s --thread %s)", peer, m.from.Agent, peer))
	return m.from.Past(m.ctx, peer)
}
