package chat

import (
	"errors"
	"io"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"github.com/theclaw/agents/internal/thread"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// typing is a console without services: commands are made and not run.
func typing(t *testing.T) *console {
	t.Helper()
	return newConsole(t.Context(), &source{agent: "a1"}, false)
}

func press(m *console, keys ...tea.KeyPressMsg) (last tea.Cmd) {
	for _, k := range keys {
		_, last = m.Update(k)
	}
	return last
}

func text(s string) (keys []tea.KeyPressMsg) {
	for _, r := range s {
		keys = append(keys, tea.KeyPressMsg{Code: r, Text: string(r)})
	}
	return keys
}

func ctrl(r rune) tea.KeyPressMsg    { return tea.KeyPressMsg{Code: r, Mod: tea.ModCtrl} }
func special(r rune) tea.KeyPressMsg { return tea.KeyPressMsg{Code: r} }

func quits(c tea.Cmd) bool {
	if c == nil {
		return false
	}
	_, ok := c().(tea.QuitMsg)
	return ok
}

// S0-17: Ctrl-D leaves, but never with a line half typed; Ctrl-C clears first.
func TestLeaving(t *testing.T) {
	if m := typing(t); !quits(press(m, ctrl('d'))) || !quits(press(m, ctrl('c'))) {
		t.Error("an empty line is not left")
	}
	m := typing(t)
	press(m, text("abc")...)
	if quits(press(m, ctrl('d'))) || m.input.Value() != "abc" {
		t.Error("Ctrl-D leaves with a line half typed")
	}
	if quits(press(m, ctrl('c'))) || m.input.Value() != "" {
		t.Error("Ctrl-C does not clear the line")
	}
}

func TestHistory(t *testing.T) {
	m := typing(t)
	for _, line := range []string{"one", "two", "two"} {
		press(m, text(line)...)
		press(m, special(tea.KeyEnter))
	}
	press(m, text("draft")...)
	for i, want := range []string{"two", "one", "one"} {
		if press(m, special(tea.KeyUp)); m.input.Value() != want {
			t.Errorf("up %d: %q, want %q", i, m.input.Value(), want)
		}
	}
	for i, want := range []string{"two", "draft", "draft"} {
		if press(m, special(tea.KeyDown)); m.input.Value() != want {
			t.Errorf("down %d: %q, want %q", i, m.input.Value(), want)
		}
	}
	if len(m.unsent) != 3 || m.unsent[0].text != "one" {
		t.Errorf("unsent %+v", m.unsent)
	}
}

// Messages are pushed one at a time and waited for in their order; a failed one
// does not hold up the next.
func TestOrder(t *testing.T) {
	m := typing(t)
	for _, line := range []string{"one", "two", "three", " "} {
		press(m, text(line)...)
		press(m, special(tea.KeyEnter))
	}
	m.Update(accepted{id: 11})
	m.Update(accepted{err: errors.New("the inbox is full")})
	m.Update(accepted{id: 12})
	if len(m.unsent) != 0 || len(m.waiting) != 2 || m.waiting[0] != 11 {
		t.Fatalf("unsent %v, waiting %v", m.unsent, m.waiting)
	}
	m.Update(piece{id: 11, text: "so "})
	m.Update(piece{id: 12, text: "not yet"})
	m.Update(piece{id: 11, text: "far"})
	if !strings.Contains(m.View().Content, "so far") || strings.Contains(m.View().Content, "not yet") {
		t.Errorf("view: %s", m.View().Content)
	}
	m.Update(piece{id: 11, tool: "bash_exec"})
	if !strings.Contains(m.View().Content, "a1 runs bash_exec") {
		t.Errorf("view: %s", m.View().Content)
	}
	reply := &registry.Turn{Fate: registry.Fate_FATE_REPLIED, ReplyEventId: 5}
	m.Update(finished{id: 11, turn: reply, reply: "so far so good", ok: true})
	if !m.shown[5] || m.partial != "" || len(m.waiting) != 1 {
		t.Errorf("after the reply: %+v", m.waiting)
	}
	m.Update(finished{id: 12, err: errors.New("it died")})
	if m.busy() || strings.Contains(m.View().Content, "thinking") {
		t.Errorf("still busy: %s", m.View().Content)
	}
}

// An event is shown once, whoever brings it, and our own words are not repeated.
func TestEventsAreShownOnce(t *testing.T) {
	m := typing(t)
	press(m, text("hi")...)
	press(m, special(tea.KeyEnter))
	mine := &registry.Event{Id: 1, Source: "external:console:cli:dm:cli:cli", Content: `{"id":"` + m.unsent[0].key + `","text":"hi"}`}
	reply := &registry.Event{Id: 2, Source: "self", Content: `{"text":"hello"}`}
	if m.show([]*registry.Event{mine}) != nil {
		t.Error("our own words are repeated")
	}
	if m.show([]*registry.Event{reply}) == nil || m.show([]*registry.Event{reply}) != nil {
		t.Error("a reply is not shown once")
	}
	started := 0
	m.start = func(string, int64) { started++ }
	m.Update(opened{head: 2})
	m.Update(finished{id: 9, turn: &registry.Turn{ThreadId: "threads/main"}})
	if started != 1 {
		t.Errorf("watched %d times", started)
	}
}

// What an agent says cannot touch the terminal and fits it.
func TestParagraph(t *testing.T) {
	m := typing(t)
	m.Update(tea.WindowSizeMsg{Width: 30, Height: 10})
	got := m.paragraph(m.it, "a1", "\x1b[2Jone\ntwo "+strings.Repeat("word ", 20)+"\n\n")
	if strings.Contains(got, "\x1b") || strings.HasSuffix(got, "\n") {
		t.Errorf("%q", got)
	}
	for l := range strings.Lines(got) {
		if len(strings.TrimSuffix(l, "\n")) > 29 {
			t.Errorf("too wide: %q", l)
		}
	}
}

func TestRead(t *testing.T) {
	lines := make(chan line)
	go read(t.Context(), strings.NewReader("one\r\n\ntwo\n"+strings.Repeat("x", 3*thread.MaxEvent)+"\nend"), lines)
	var got []line
	for {
		l := <-lines
		got = append(got, l)
		if l.err != nil {
			break
		}
	}
	if len(got) < 5 || got[0].text != "one" || got[1].text != "" || got[2].text != "two" || got[4].text != "end" {
		t.Fatalf("%d lines", len(got))
	}
	if n := len(got[3].text); n <= thread.MaxEvent || n > thread.MaxEvent+128<<10 {
		t.Errorf("of a line that is too long %d bytes are kept", n)
	}
	if last := got[len(got)-1]; !errors.Is(last.err, io.EOF) {
		t.Errorf("ended with %v", last.err)
	}
}
