package chat

import (
	"strings"

	"charm.land/bubbles/v2/key"
	"charm.land/bubbles/v2/textarea"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
)

// maxInput is how many lines of the input are shown at once.
const maxInput = 8

func newInput(agent string) textarea.Model {
	in := textarea.New()
	in.Prompt = "> "
	in.SetPromptFunc(2, func(i textarea.PromptInfo) string {
		if i.LineNumber == 0 {
			return "> "
		}
		return "  "
	})
	in.Placeholder = "Say something to " + agent + " (/help; Ctrl-D leaves)"
	in.ShowLineNumbers = false
	in.CharLimit = 0
	in.DynamicHeight, in.MinHeight, in.MaxHeight, in.MaxContentHeight = true, 1, maxInput, 10_000
	in.KeyMap.InsertNewline = key.NewBinding(key.WithKeys("alt+enter", "shift+enter", "ctrl+j"))
	plain := textarea.StyleState{Placeholder: lipgloss.NewStyle().Faint(true), Selection: lipgloss.NewStyle().Reverse(true)}
	in.SetStyles(textarea.Styles{Focused: plain, Blurred: plain})
	in.SetVirtualCursor(false)
	return in
}

// key takes one key press. What is not ours is the editor's.
func (m *console) key(msg tea.KeyPressMsg) tea.Cmd {
	switch msg.String() {
	case "ctrl+c":
		return m.interrupt()
	case "ctrl+d":
		if m.input.Value() == "" {
			return tea.Quit
		}
	case "ctrl+l":
		return redraw()
	case "ctrl+o":
		m.said.FoldAll()
		return nil
	case "enter":
		return m.enter()
	case "tab":
		m.complete()
		return nil
	case "up", "ctrl+p":
		if m.input.Line() == 0 {
			m.older()
			return nil
		}
	case "down", "ctrl+n":
		if m.input.Line() == m.input.LineCount()-1 {
			m.newer()
			return nil
		}
	case "pgup":
		m.said.Scroll(m.said.Page())
		return nil
	case "pgdown":
		m.said.Scroll(-m.said.Page())
		return nil
	case "ctrl+home":
		m.said.Top()
		return nil
	case "ctrl+end":
		m.said.Bottom()
		return nil
	}
	var cmd tea.Cmd
	m.input, cmd = m.input.Update(msg)
	m.fit()
	return cmd
}

// interrupt ends the run first, then clears what is typed, then leaves. A run
// that was asked to end already holds nobody up.
func (m *console) interrupt() tea.Cmd {
	switch {
	case len(m.queue) > 0 && !m.aborted:
		return m.abort()
	case m.input.Value() != "":
		m.set("")
		m.recall = len(m.history)
		return nil
	}
	return tea.Quit
}

func (m *console) wheel(msg tea.MouseWheelMsg) {
	switch msg.Button {
	case tea.MouseWheelUp:
		m.said.Scroll(3)
	case tea.MouseWheelDown:
		m.said.Scroll(-3)
	default:
	}
}

func (m *console) set(text string) {
	m.input.SetValue(text)
	m.input.MoveToEnd()
	m.fit()
}

// fit gives the input its width; its height follows its content.
func (m *console) fit() {
	m.input.MaxHeight = max(1, min(maxInput, m.height/2))
	m.input.SetWidth(m.width)
}

func (m *console) enter() tea.Cmd {
	text := m.input.Value()
	if strings.TrimSpace(text) == "" {
		return nil
	}
	if line, more := strings.CutSuffix(text, `\`); more { // as in a shell: the text goes on
		m.set(line + "\n")
		return nil
	}
	if d, ok := decision(text); ok && len(m.asked) > 0 {
		m.set("")
		return m.answer(d)
	}
	if n := len(m.history); n == 0 || m.history[n-1] != text {
		m.history = append(m.history, text)
	}
	m.recall, m.draft = len(m.history), ""
	m.set("")
	if name, rest, ok := slash(text); ok {
		return m.command(name, rest)
	}
	if len(m.questions) > 0 && len(m.asked) == 0 {
		return m.from.Reply(m.ctx, m.questions[0].GetQuestionId(), literal(text))
	}
	return m.say(literal(text))
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
