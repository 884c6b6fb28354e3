package chat

import (
	"encoding/json"
	"strings"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
)

// key takes one key press. What is not ours is the line editor's.
func (m *console) key(msg tea.KeyPressMsg) tea.Cmd {
	switch msg.String() {
	case "ctrl+c":
		if m.input.Value() == "" {
			return tea.Quit
		}
		m.set("")
		m.recall = len(m.history)
		return nil
	case "ctrl+d":
		if m.input.Value() == "" {
			return tea.Quit
		}
	case "ctrl+l":
		return tea.ClearScreen
	case "enter":
		return m.enter()
	case "up", "ctrl+p":
		m.older()
		return nil
	case "down", "ctrl+n":
		m.newer()
		return nil
	}
	var cmd tea.Cmd
	m.input, cmd = m.input.Update(msg)
	return cmd
}

func (m *console) set(text string) {
	m.input.SetValue(text)
	m.input.CursorEnd()
}

func (m *console) enter() tea.Cmd {
	text := m.input.Value()
	if strings.TrimSpace(text) == "" {
		return nil
	}
	if n := len(m.history); n == 0 || m.history[n-1] != text {
		m.history = append(m.history, text)
	}
	m.recall, m.draft = len(m.history), ""
	m.set("")
	idle := !m.busy()
	s := said{message.NewKey(), text}
	m.own[s.key] = true
	m.unsent = append(m.unsent, s)
	cmds := []tea.Cmd{m.print(m.you, "you", text)}
	if len(m.unsent) == 1 {
		cmds = []tea.Cmd{tea.Sequence(cmds[0], m.push())}
	}
	if idle {
		cmds = append(cmds, m.spin.Tick)
	}
	return tea.Batch(cmds...)
}

func (m *console) older() {
	if m.recall == 0 {
		return
	}
	if m.recall == len(m.history) {
		m.draft = m.input.Value()
	}
	m.recall--
	m.set(m.history[m.recall])
}

func (m *console) newer() {
	switch {
	case m.recall >= len(m.history):
		return
	case m.recall == len(m.history)-1:
		m.recall++
		m.set(m.draft)
	default:
		m.recall++
		m.set(m.history[m.recall])
	}
}

// partialLines of a reply being written are shown; the whole comes at its end.
const partialLines = 8

// View draws what stands below the transcript.
func (m *console) View() tea.View {
	var b strings.Builder
	if m.busy() {
		if m.partial != "" {
			lines := strings.Split(lipgloss.Wrap(screen.Clean(m.partial), m.width-1, ""), "\n")
			lines = lines[max(0, len(lines)-partialLines):]
			b.WriteString(m.note.Render(strings.Join(lines, "\n")) + "\n")
		}
		doing := m.from.agent + " is thinking"
		if m.tool != "" {
			doing = m.from.agent + " runs " + screen.Line(m.tool)
		}
		b.WriteString(m.spin.View() + " " + m.note.Render(doing) + "\n")
	}
	b.WriteString(m.input.View())
	return tea.NewView(b.String())
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
