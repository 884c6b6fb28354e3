package chat

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"

	"charm.land/bubbles/v2/spinner"
	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/theclaw/agents/cmd/agentctl/internal/command"
	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/internal/fault"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// console is the screen: a transcript that scrolls above, and below it what is
// under way and the line being typed.
type console struct {
	ctx   context.Context // of the program; bubbletea hands its commands none
	from  *source
	start func(conversation string, after int64) // begins to watch
	width int

	input   textinput.Model
	spin    spinner.Model
	history []string
	recall  int // index into history; len(history): the new line
	draft   string

	waiting []int64 // messages without a fate, oldest first
	unsent  []said  // messages not in the inbox yet; the first is under way
	enough  func()  // ends the stream of the oldest one
	partial string  // of the reply being written
	tool    string  // being run

	own      map[string]bool // keys of our messages
	shown    map[int64]bool  // events of the conversation
	watching bool
	you, it  lipgloss.Style
	note     lipgloss.Style
	bad      lipgloss.Style
}

// converse runs the screen. Everything it has started has ended when it returns.
func converse(ctx context.Context, e *command.Env, agent string, in, out *os.File) error {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	from := &source{env: e, agent: agent}
	m := newConsole(ctx, from, e.Color())
	p := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler(), tea.WithEnvironment(environ(e)))
	from.send = p.Send
	m.start = func(conversation string, after int64) { work.Go(func() { from.watch(ctx, conversation, after) }) }
	_, err := p.Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// environ is what the drawing library asks about the terminal.
func environ(e *command.Env) []string {
	var env []string
	for _, name := range []string{"TERM", "COLORTERM", "TERM_PROGRAM", "TMUX", "SSH_TTY", "LANG", "LC_ALL", "LC_CTYPE"} {
		if v := e.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	if !e.Color() {
		env = append(env, "NO_COLOR=1")
	}
	return env
}

func newConsole(ctx context.Context, from *source, color bool) *console {
	m := &console{
		ctx: ctx, from: from, width: 80, input: textinput.New(), spin: spinner.New(spinner.WithSpinner(spinner.MiniDot)),
		enough: func() {}, own: map[string]bool{}, shown: map[int64]bool{},
	}
	m.input.Prompt = "> "
	m.input.Placeholder = "Say something to " + from.agent + " (Ctrl-D leaves)"
	m.input.Focus()
	if color {
		m.you = lipgloss.NewStyle().Foreground(lipgloss.Cyan)
		m.it = lipgloss.NewStyle().Foreground(lipgloss.Green).Bold(true)
		m.note = lipgloss.NewStyle().Faint(true)
		m.bad = lipgloss.NewStyle().Foreground(lipgloss.Red)
	}
	return m
}

// Init shows the end of the conversation and begins to watch it.
func (m *console) Init() tea.Cmd {
	return tea.Batch(textinput.Blink, func() tea.Msg {
		events, head := m.from.past(m.ctx)
		return opened{events, head}
	})
}

// opened: the past of the conversation; head 0 means there is none yet.
type opened struct {
	events []*registry.Event
	head   int64
}

// Update takes what happened.
func (m *console) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width = max(20, msg.Width)
		m.input.SetWidth(m.width - len(m.input.Prompt) - 1)
		return m, nil
	case tea.KeyPressMsg:
		return m, m.key(msg)
	case spinner.TickMsg:
		if !m.busy() {
			return m, nil
		}
		var cmd tea.Cmd
		m.spin, cmd = m.spin.Update(msg)
		return m, cmd
	case opened:
		if msg.head > 0 {
			m.watch(message.Conversation, msg.head)
		}
		return m, m.show(msg.events)
	case seen:
		return m, m.show(msg.events)
	case accepted:
		return m, m.accept(msg)
	case piece:
		if len(m.waiting) > 0 && msg.id == m.waiting[0] {
			m.partial, m.tool = m.partial+msg.text, msg.tool
		}
		return m, nil
	case finished:
		return m, m.finish(msg)
	}
	var cmd tea.Cmd
	m.input, cmd = m.input.Update(msg)
	return m, cmd
}

func (m *console) busy() bool { return len(m.unsent) > 0 || len(m.waiting) > 0 }

func (m *console) watch(conversation string, after int64) {
	if !m.watching && m.start != nil {
		m.watching = true
		m.start(conversation, after)
	}
}

func (m *console) accept(a accepted) tea.Cmd {
	m.unsent = m.unsent[1:]
	push := m.push()
	if a.err != nil {
		return tea.Batch(push, m.print(m.bad, "", fault.Line(a.err)))
	}
	m.waiting = append(m.waiting, a.id)
	if len(m.waiting) > 1 {
		return push
	}
	return tea.Batch(push, m.next())
}

// push sends the oldest message, one at a time: the order of typing is the order
// in the inbox.
func (m *console) push() tea.Cmd {
	if len(m.unsent) == 0 {
		return nil
	}
	return m.from.say(m.ctx, m.unsent[0])
}

// next waits for the oldest message, so that replies are shown in order.
func (m *console) next() tea.Cmd {
	m.partial, m.tool = "", ""
	if len(m.waiting) == 0 {
		return nil
	}
	id := m.waiting[0]
	ctx, cancel := context.WithCancel(m.ctx)
	m.enough = cancel
	return tea.Batch(m.from.await(m.ctx, id), func() tea.Msg {
		m.from.follow(ctx, id)
		return nil
	})
}

func (m *console) finish(f finished) tea.Cmd {
	if len(m.waiting) > 0 && m.waiting[0] == f.id {
		m.waiting = m.waiting[1:]
		m.enough()
	}
	if f.turn != nil {
		m.watch(f.turn.GetThreadId(), max(f.turn.GetReplyEventId(), f.turn.GetInboundEventId()))
	}
	var say tea.Cmd
	switch {
	case m.ctx.Err() != nil:
		return nil
	case f.err != nil:
		say = m.print(m.bad, "", fault.Line(f.err))
	case !f.ok:
		say = m.print(m.note, "", "("+message.FateName(f.turn.GetFate())+")")
	case !m.shown[f.turn.GetReplyEventId()]:
		m.shown[f.turn.GetReplyEventId()] = true
		say = m.print(m.it, m.from.agent, f.reply)
	}
	return tea.Sequence(say, m.next())
}

// show adds events of the conversation that are not on the screen yet.
func (m *console) show(events []*registry.Event) tea.Cmd {
	var lines []string
	for _, ev := range events {
		if m.shown[ev.GetId()] || m.own[messageID(ev.GetContent())] {
			continue
		}
		m.shown[ev.GetId()] = true
		name, style := m.from.agent, m.it
		if ev.GetSource() != "self" {
			name, style = "you", m.you
		}
		lines = append(lines, m.paragraph(style, name, message.Text(ev.GetContent())))
	}
	if len(lines) == 0 {
		return nil
	}
	return tea.Println(strings.Join(lines, "\n")) // at once: the order of commands is not that of their effects
}

// print adds a paragraph to the transcript.
func (m *console) print(style lipgloss.Style, who, text string) tea.Cmd {
	return tea.Println(m.paragraph(style, who, text))
}

// paragraph is what somebody said, made harmless and as wide as the terminal.
func (m *console) paragraph(style lipgloss.Style, who, text string) string {
	text = strings.TrimRight(screen.Clean(text), "\n")
	if who != "" {
		text = style.Render(who+":") + " " + text
	} else {
		text = style.Render(text)
	}
	return lipgloss.Wrap(text, m.width-1, "")
}
