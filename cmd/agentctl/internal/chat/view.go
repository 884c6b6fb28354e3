package chat

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/theclaw/agents/cmd/agentctl/internal/chat/transcript"
	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
)

// maxQueue is how many of the messages that wait are shown.
const maxQueue = 3

var faint = lipgloss.NewStyle().Faint(true)

// View draws the screen: the transcript ends above what is under way.
func (m *console) View() tea.View {
	below := m.below()
	room := max(1, m.height-len(below)-m.input.Height())
	lines := m.said.View(m.width, room, m.now())
	m.pad = room - len(lines)
	var b strings.Builder
	b.WriteString(strings.Repeat("\n", m.pad))
	for _, l := range append(lines, below...) {
		b.WriteString(l + "\n")
	}
	b.WriteString(m.input.View())
	v := tea.NewView(b.String())
	v.AltScreen, v.MouseMode, v.WindowTitle = true, tea.MouseModeCellMotion, "agentctl chat "+m.from.Agent
	if c := m.input.Cursor(); c != nil {
		c.Y += room + len(below)
		v.Cursor = c
	}
	return v
}

// room is how many lines the transcript has.
func (m *console) room() int { return max(1, m.height-len(m.below())-m.input.Height()) }

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
		lines = append(lines, "waits: "+screen.Line(text))
	}
	if m.busy() {
		if w := m.wait(); w.Cause != "" && !m.aborted {
			w.Cause = screen.Line(w.Cause)
			lines = append(lines, w.Fit(m.width))
		}
		lines = append(lines, m.spin.View()+" "+m.doing())
	}
	for _, service := range slices.Sorted(maps.Keys(m.away)) {
		lines = append(lines, "no connection to the "+service)
	}
	if n := m.said.Below(); n > 0 {
		lines = append(lines, fmt.Sprintf("%d more lines below (PgDn, Ctrl-End)", n))
	}
	if names := candidates(m.input.Value()); len(names) > 0 {
		lines = append(lines, "/"+strings.Join(names, " /"))
	}
	for i, l := range lines {
		lines[i] = faint.Render(lipgloss.NewStyle().MaxWidth(m.width).Render(l))
	}
	return lines[:min(len(lines), max(1, m.height/2))]
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
	}
	switch {
	case len(m.queue) == 0:
		what = "sending"
	case m.aborted:
		what = "ending the run"
	}
	hint := "Ctrl-C ends it"
	if m.aborted {
		hint = "Ctrl-C leaves"
	}
	return fmt.Sprintf("%s · %s · %s", what, transcript.Span(m.now().Sub(m.begun).Truncate(100e6)), hint)
}
