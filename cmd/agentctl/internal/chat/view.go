package chat

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/theclaw/agents/cmd/agentctl/internal/chat/transcript"
	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// maxQueue is how many of the messages that wait are shown.
const maxQueue = 3

var (
	faint = lipgloss.NewStyle().Faint(true)
	bold  = lipgloss.NewStyle().Bold(true)
)

// View draws the screen: the transcript ends above what is under way.
func (m *console) View() tea.View {
	below := m.below()
	banner := m.banner()
	room := max(1, m.height-len(banner)-len(below)-m.input.Height())
	lines := m.said.View(m.width, room, m.now())
	m.top = len(banner) + room - len(lines)
	var b strings.Builder
	for _, l := range banner {
		b.WriteString(l + "\n")
	}
	b.WriteString(strings.Repeat("\n", room-len(lines)))
	for _, l := range append(lines, below...) {
		b.WriteString(l + "\n")
	}
	b.WriteString(m.input.View())
	v := tea.NewView(b.String())
	v.AltScreen, v.MouseMode, v.WindowTitle = true, tea.MouseModeCellMotion, "agentctl chat "+m.from.Agent
	if c := m.input.Cursor(); c != nil {
		c.Y += len(banner) + room + len(below)
		v.Cursor = c
	}
	return v
}

// minBanner is the height from which on the screen has a banner, and a rule above the input.
const minBanner = 10

// banner is the top line: who answers, with which model, and where that was chosen.
func (m *console) banner() []string {
	if m.height < minBanner {
		return nil
	}
	parts := []string{m.from.Agent}
	if m.model != nil {
		parts = append(parts, cmp.Or(m.model.Title(), "model unknown"))
	}
	switch {
	case m.from.Session != "":
		parts = append(parts, "session "+m.from.Session)
	case m.from.Peer != message.Console:
		parts = append(parts, "conversation "+string(m.from.Peer))
	}
	line := clip(" "+m.said.Line(strings.Join(parts, " · ")), m.width)
	return []string{lipgloss.NewStyle().Reverse(true).Render(line + strings.Repeat(" ", max(m.width-lipgloss.Width(line), 0)))}
}

// clip cuts a line where the screen ends.
func clip(line string, width int) string { return ansi.Truncate(line, width, "…") }

// below are the lines between the transcript and the input.
func (m *console) below() []string {
	var lines []string
	waiting := []string{}
	for i, q := range m.queue {
		if i > 0 {
			waiting = append(waiting, q.text)
		}
	}
	for i, u := range m.unsent {
		if i > 0 || len(m.queue) > 0 {
			waiting = append(waiting, u.Text)
		}
	}
	for i, text := range waiting {
		if i == maxQueue {
			lines = append(lines, fmt.Sprintf("and %d more", len(waiting)-maxQueue))
			break
		}
		lines = append(lines, "waits: "+m.said.Line(text))
	}
	var news []string // what a person must see, among what is faint
	if away := slices.Sorted(maps.Keys(m.away)); len(away) > 0 {
		news = append(news, "no connection to the "+strings.Join(away, " and the ")+"; does agentd run?")
		lines = append(lines, news...)
	}
	if m.busy() {
		if w := m.wait(); w.Cause != "" && !m.aborted {
			w.Cause = m.said.Line(w.Cause)
			news = append(news, m.cause(w)...)
			lines = append(lines, m.cause(w)...)
		}
		lines = append(lines, m.spin.View()+" "+m.doing())
	}
	if n := m.said.Below(); n > 0 {
		lines = append(lines, fmt.Sprintf("%d more lines below (PgDn, Ctrl-End)", n))
	}
	if n := m.input.LineCount(); n > m.input.Height() {
		lines = append(lines, fmt.Sprintf("your text has %d lines: Enter sends it, Ctrl-C clears it", n))
	}
	if names := candidates(m.input.Value()); len(names) > 0 {
		lines = append(lines, "/"+strings.Join(names, " /"))
	}
	lines = lines[:min(len(lines), max(1, m.height/2))]
	if m.height >= minBanner {
		lines = append(lines, strings.Repeat("─", m.width))
	}
	for i, l := range lines {
		if lines[i] = clip(l, m.width); !slices.Contains(news, l) {
			lines[i] = faint.Render(lines[i])
		}
	}
	if len(m.asked) > 0 {
		question := "Run it, once? " + choices(m.asked[0]) + ", then Enter: " + m.said.Line(m.asked[0].GetCommand())
		lines = append(lines, bold.Render(clip(question, m.width)))
	} else if len(m.questions) > 0 {
		q := m.questions[0]
		lines = append(lines, bold.Render(clip("Type "+options(q)+", then Enter: "+m.said.Line(q.GetText()), m.width)))
	}
	return lines
}

// cause is what is waited for, in two lines or a few more where one is too short, since the
// cause is the news. The time of the next try is neither cut nor broken.
func (m *console) cause(w message.Wait) []string {
	if whole := w.String(); m.height < minBanner || lipgloss.Width(whole) <= m.width {
		return []string{w.Fit(m.width)}
	}
	lines := strings.Split(ansi.Wrap(clip(w.Cause, 2*m.width-m.width/5), m.width, " "), "\n")
	if w.Next == "" {
		return lines
	}
	if last := &lines[len(lines)-1]; lipgloss.Width(*last+"; "+w.Next) <= m.width {
		*last += "; " + w.Next
		return lines
	}
	return append(lines, w.Next)
}

// wait is what the message on the screen waits for.
func (m *console) wait() message.Wait {
	if len(m.queue) == 0 {
		return message.Wait{}
	}
	return message.WaitOf(m.waits.Turn, m.waits.Ahead, m.now())
}

func (m *console) doing() string {
	what := m.from.Agent + " is working"
	if m.wait().Cause != "" {
		what = m.from.Agent + " waits"
	} else if m.waits.Turn.GetState() == registry.TurnState_TURN_STATE_QUEUED {
		what = "queued, " + m.from.Agent + " has not begun yet"
	}
	switch {
	case len(m.queue) == 0:
		what = "sending"
	case m.aborted:
		what = "ending the run"
	case len(m.away) > 0:
		what = m.from.Agent + " waits for the services"
	case len(m.asked)+len(m.questions) > 0:
		what = m.from.Agent + " waits for your answer"
	case m.digests:
		what = m.from.Agent + " makes a digest of the conversation"
	}
	hint := "Ctrl-C ends it"
	if m.aborted {
		hint = "Ctrl-C leaves"
	}
	return fmt.Sprintf("%s · %s · %s", what, transcript.Span(m.now().Sub(m.begun).Truncate(100e6)), hint)
}
