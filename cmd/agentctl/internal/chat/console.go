package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"charm.land/bubbles/v2/spinner"
	"charm.land/bubbles/v2/textarea"
	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/theclaw/agents/cmd/agentctl/internal/chat/feed"
	"github.com/theclaw/agents/cmd/agentctl/internal/chat/transcript"
	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// console is the screen: the transcript, and below it what is under way and the
// lines being typed.
type console struct {
	talk
	now    func() time.Time
	start  func(thread string, after int64) // begins to watch
	said   *transcript.Transcript
	color  bool
	width  int
	height int
	top    int // lines above the transcript

	resizes int

	input   textarea.Model
	spin    spinner.Model
	history []string
	recall  int // index into history; len(history): the new text
	draft   string

	unsent  []feed.Message // not in the inbox yet; the first is under way
	queue   []sent         // in the inbox and without a fate, oldest first
	aborted bool           // the oldest one was asked to end
	digests bool           // its run makes a digest first
	begun   time.Time      // when the oldest one became it
	waits   feed.Changed   // what the oldest one waits for

	asked     []*registry.Approval // commands that wait for a yes or no, oldest first
	questions asking               // that wait for an answer, oldest first
	askedBy   map[string]int       // questions that were shown, by the turn that asked
	own       map[string]bool      // keys of our messages
	shown     map[int64]bool       // events of the conversation
	later     []*registry.Event
	heard     int // messages of our last run, behind heardFrom, that its stream has shown
	heardFrom int64
	watching  bool
	away      map[string]bool // services
	model     *feed.Model     // nil until it is known
	opened    bool            // the past is on the screen
	advised   bool            // what is to be known of the model stands below it
}

// resized reports that the window kept its size for the time settle. It is drawn once more: a
// terminal such as tmux reports a size late, and not again, when it changes several times in a
// quarter of a second, so that the first drawing may have met another size.
type resized int

const settle = 500 * time.Millisecond

// redraw draws all of the screen: what the terminal made of the old lines is not known. A frame
// for the old size that was on its way may have left a region that scrolls alone; the lines
// below it would be drawn at wrong places.
func redraw() tea.Cmd {
	return tea.Sequence(tea.Raw(ansi.SetTopBottomMargins(0, 0)), tea.ClearScreen)
}

// sent is a message of ours that waits for its fate.
type sent struct {
	id   int64
	text string
}

// converse runs the screen. Everything it has started has ended when it returns,
// and what was said stands in the terminal.
func converse(ctx context.Context, from *feed.Source, in, out *os.File) error {
	e := from.Env
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	m := newConsole(ctx, from, e.Color())
	p := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler(), tea.WithEnvironment(environ(e)))
	from.Send = p.Send
	m.start = func(thread string, after int64) {
		work.Go(func() { from.Watch(ctx, thread, after) })
	}
	for _, service := range []string{command.Registry, command.Runner} {
		work.Go(func() { from.Links(ctx, service) })
	}
	work.Go(func() { from.Asks(ctx) })
	work.Go(func() { from.Questions(ctx) })
	_, err := p.Run()
	fmt.Fprint(out, m.said.Remaining(m.now()))
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

func newConsole(ctx context.Context, from *feed.Source, color bool) *console {
	m := &console{
		talk: talk{ctx: ctx, from: from}, now: time.Now, width: 80, height: 24, input: newInput(from.Agent),
		spin: spinner.New(spinner.WithSpinner(spinner.MiniDot)), said: transcript.New(from.Agent, color), color: color,
		own: map[string]bool{}, askedBy: map[string]int{}, shown: map[int64]bool{}, away: map[string]bool{},
	}
	m.said.Apart(true) // unless the terminal reports that it joins them
	return m
}

// Init shows the end of the conversation and who answers, and begins to watch.
func (m *console) Init() tea.Cmd {
	return tea.Batch(m.input.Focus(), m.from.Past(m.ctx), m.from.Describe(m.ctx, m.at), m.background)
}

// background asks whether the terminal is dark or light. One that does not answer is taken for
// dark. The console of Linux has no answer and may show the question.
func (m *console) background() tea.Msg {
	if !m.color || m.from.Env == nil || m.from.Env.Getenv("TERM") == "linux" {
		return nil
	}
	return tea.RequestBackgroundColor()
}

// Update takes what happened.
func (m *console) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = max(20, msg.Width), max(4, msg.Height)
		m.fit()
		m.resizes++
		n := m.resizes
		return m, tea.Batch(redraw(), tea.Tick(settle, func(time.Time) tea.Msg { return resized(n) }))
	case resized:
		if int(msg) == m.resizes {
			return m, redraw()
		}
		return m, nil
	case tea.BackgroundColorMsg:
		m.said.Light(!msg.IsDark())
		return m, nil
	case tea.ModeReportMsg:
		if msg.Mode == ansi.ModeUnicodeCore { // the renderer decides the same
			m.said.Apart(msg.Value != ansi.ModeReset && msg.Value != ansi.ModeSet && msg.Value != ansi.ModePermanentlySet)
		}
		return m, nil
	case tea.KeyPressMsg:
		return m, m.key(msg)
	case tea.MouseWheelMsg:
		m.wheel(msg)
		return m, nil
	case tea.MouseClickMsg:
		if msg.Button == tea.MouseLeft {
			m.said.Click(msg.Y-m.top, m.now())
		}
		return m, nil
	case spinner.TickMsg:
		if !m.busy() {
			return m, nil
		}
		var cmd tea.Cmd
		m.spin, cmd = m.spin.Update(msg)
		return m, cmd
	case feed.Opened:
		m.open(msg)
		return m, nil
	case feed.Model:
		m.model = &msg
		m.advise()
		return m, nil
	case feed.Seen:
		m.see(msg)
		return m, nil
	case feed.Accepted:
		return m, m.accept(msg)
	case feed.Pieces:
		m.happen(msg)
		return m, nil
	case feed.Changed:
		if len(m.queue) > 0 && m.queue[0].id == msg.Turn.GetInboxId() {
			m.waits = msg
		}
		return m, nil
	case feed.Finished:
		return m, m.finish(msg)
	case feed.ApprovalChange:
		m.ask(msg)
		return m, nil
	case feed.QuestionChange:
		m.askPeer(msg.Question)
		return m, nil
	case feed.Link:
		m.link(msg)
		return m, nil
	case feed.CommandResult:
		if msg.Err != nil {
			m.problem(msg.Err)
		} else {
			m.said.Quote(msg.Text)
		}
		return m, nil
	case feed.ResetResult:
		return m, m.renewed(msg)
	case feed.AbortResult:
		if msg.Err != nil {
			m.aborted = false
			m.problem(msg.Err)
		}
		return m, nil
	}
	var cmd tea.Cmd
	m.input, cmd = m.input.Update(msg)
	m.fit()
	return m, cmd
}

func (m *console) busy() bool { return len(m.unsent) > 0 || len(m.queue) > 0 }

func (m *console) problem(err error) {
	if m.ctx.Err() == nil {
		m.said.Problem(strings.TrimPrefix(fault.Line(err), "Error: "))
	}
}

// link tells of a service that went or came back; that it is there at the
// beginning is no news.
func (m *console) link(l feed.Link) {
	switch {
	case !l.Up && !m.away[l.Service]:
		m.away[l.Service] = true
		m.said.Note("the " + l.Service + " does not answer; waiting for it")
	case l.Up && m.away[l.Service]:
		delete(m.away, l.Service)
		m.said.Note("the " + l.Service + " is back")
	}
}

func (m *console) open(o feed.Opened) {
	if m.at.Thread == "" { // no turn has named it meanwhile
		m.at.Thread = o.Thread
	}
	if o.Err != nil && !fault.Is(o.Err, fault.ThreadNotFound) {
		m.problem(o.Err)
	}
	var past []string
	for _, ev := range o.Events {
		if ev.GetSource() == m.from.Peer.Source() {
			past = append(past, message.Text(ev.GetContent()))
		}
	}
	m.history = append(past, m.history...)
	m.recall = len(m.history)
	m.show(o.Events, o.Aborted)
	m.said.Mark()
	m.opened = true
	m.advise()
	if o.Head > 0 {
		m.watch(o.Head)
	}
}

// advise says below the past, once, what is to be known of the model.
func (m *console) advise() {
	if m.opened && !m.advised && m.model != nil {
		m.advised = true
		if text := m.model.Advice(); text != "" {
			m.said.Problem(text)
		}
	}
}

func (m *console) watch(after int64) {
	if !m.watching && m.start != nil && m.at.Thread != "" {
		m.watching = true
		m.start(m.at.Thread, after)
	}
}

// see keeps what others say until our own run is over: it would stand in the
// middle of it.
func (m *console) see(s feed.Seen) {
	switch {
	case m.busy():
		m.later = append(m.later, s.Events...)
	default:
		m.show(s.Events, nil)
	}
}

// show adds events of the conversation that are not on the screen yet.
func (m *console) show(events []*registry.Event, aborted map[int64]int64) {
	for _, ev := range events {
		if m.shown[ev.GetId()] || m.own[messageID(ev.GetContent())] {
			continue
		}
		m.shown[ev.GetId()] = true
		if m.heard > 0 && ev.GetSource() == "self" && ev.GetId() > m.heardFrom {
			m.heard--
			continue
		}
		if text := message.Text(ev.GetContent()); ev.GetSource() == "self" {
			m.said.Reply(text)
		} else {
			m.said.You(text)
		}
		if id := aborted[ev.GetId()]; id > 0 {
			m.said.Problem(m.ended(id))
		}
	}
}

// messageID is the id in a message's content; ours are the keys of our pushes.
func messageID(content string) string {
	var c struct {
		ID string `json:"id"`
	}
	if json.Unmarshal([]byte(content), &c) != nil {
		return ""
	}
	return c.ID
}
