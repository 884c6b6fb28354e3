package chat

import (
	"errors"
	"image/color"
	"regexp"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/cmd/agentctl/internal/chat/feed"
	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/internal/source"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// typing is a console without services: commands are made and not run.
func typing(t *testing.T) *console {
	t.Helper()
	m := newConsole(t.Context(), &feed.Source{Agent: "a1", Peer: message.Console}, false)
	m.Init()
	return m
}

// shown is the screen without looks.
func shown(m *console) string { return escapes.ReplaceAllString(m.View().Content, "") }

var escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

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
	press(m, text("/quit")...)
	if !quits(press(m, special(tea.KeyEnter))) {
		t.Error("/quit does not leave")
	}
}

// H2, F4: while the message on the screen waits for its provider, the screen says so and why;
// a message behind it changes nothing.
func TestWaitingIsShown(t *testing.T) {
	m := typing(t)
	press(m, text("go")...)
	press(m, special(tea.KeyEnter))
	m.Update(feed.Accepted{ID: 7})
	waits := &registry.Turn{
		InboxId: 8, State: registry.TurnState_TURN_STATE_WAITING, Error: "provider failed (503): work: overloaded",
		NextAt: timestamppb.New(m.now().Add(12 * time.Second)), Attempts: []*registry.Attempt{{N: 1}},
	}
	m.Update(feed.Changed{Turn: waits})
	if !strings.Contains(shown(m), "is working") {
		t.Errorf("another message's wait is shown:\n%s", shown(m))
	}
	waits.InboxId = 7
	m.Update(feed.Changed{Turn: waits})
	const said = "the model provider work is not available (503): overloaded; next try in 12 s\n"
	if s := shown(m); !strings.Contains(s, said) || !strings.Contains(s, "a1 waits · ") || strings.Contains(s, "is working") {
		t.Errorf("not said:\n%s", s)
	}
	// A long cause has a few lines, and what is left out of it is not the time.
	words := func() string { return strings.Join(strings.Fields(shown(m)), " ") }
	waits.Error = "provider unreachable: openai: " + strings.Repeat("a long cause ", 5)
	m.Update(feed.Changed{Turn: waits})
	if s := words(); strings.Count(s, "a long cause") != 5 || strings.Contains(s, "…") || !strings.Contains(s, "; next try in 12 s") {
		t.Errorf("it is cut:\n%s", shown(m))
	}
	waits.Error = "provider unreachable: openai: " + strings.Repeat("x", 30)
	m.Update(feed.Changed{Turn: waits})
	if s := shown(m); !strings.Contains(s, strings.Repeat("x", 30)+"\nnext try in 12 s\n") {
		t.Errorf("the time is broken:\n%s", s)
	}
	waits.Error = "provider unreachable: openai: " + strings.Repeat("a long cause ", 25)
	m.Update(feed.Changed{Turn: waits})
	if s := words(); !strings.Contains(s, "… next try in 12 s ⠋ a1 waits") {
		t.Errorf("the time is cut:\n%s", shown(m))
	}
	m.Update(tea.WindowSizeMsg{Width: 80, Height: minBanner - 1})
	if s := shown(m); !strings.Contains(s, "…; next try in 12 s\n") {
		t.Errorf("more than one line in a low window:\n%s", s)
	}
	m.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	// A message of another window stands before it.
	queued := &registry.Turn{InboxId: 7, State: registry.TurnState_TURN_STATE_QUEUED}
	waits.InboxId, waits.Error = 6, "provider failed (503): work: overloaded"
	m.Update(feed.Changed{Turn: queued, Ahead: waits})
	if s := words(); !strings.Contains(s, "message 6 of the same conversation comes first: the model") || !strings.Contains(s, "; next try in 12 s ") {
		t.Errorf("what is ahead is not said:\n%s", s)
	}
	m.Update(feed.Changed{Turn: queued})
	if s := shown(m); !strings.Contains(s, "queued, a1 has not begun yet · ") {
		t.Errorf("that it is queued is not said:\n%s", s)
	}
	m.Update(feed.Changed{Turn: &registry.Turn{InboxId: 7, State: registry.TurnState_TURN_STATE_CLAIMED}})
	if !strings.Contains(shown(m), "is working") {
		t.Errorf("still said:\n%s", shown(m))
	}
}

// Ctrl-C ends the run under way first, and holds nobody who has asked for it.
func TestInterrupt(t *testing.T) {
	m := typing(t)
	press(m, text("go")...)
	press(m, special(tea.KeyEnter))
	m.Update(feed.Accepted{ID: 7})
	press(m, text("next")...)
	if press(m, ctrl('c')); !m.aborted || m.input.Value() != "next" {
		t.Error("Ctrl-C does not end the run, or clears what is typed")
	}
	if !strings.Contains(shown(m), "ending the run") {
		t.Errorf("not said:\n%s", shown(m))
	}
	m.Update(feed.AbortResult{ID: 7, Err: errors.New("no runner")})
	if m.aborted || !strings.Contains(shown(m), "no runner") {
		t.Errorf("a failed abort is not said:\n%s", shown(m))
	}
	press(m, ctrl('c'))
	m.Update(feed.Finished{ID: 7, Turn: &registry.Turn{Fate: registry.Fate_FATE_ABORTED}, Err: errors.New("x")})
	if m.busy() || !strings.Contains(shown(m), "! aborted") {
		t.Errorf("after the abort:\n%s", shown(m))
	}
	press(m, ctrl('c'))
	if !quits(press(m, ctrl('c'))) {
		t.Error("then it does not leave")
	}
}

func TestHistory(t *testing.T) {
	m := typing(t)
	m.Update(feed.Opened{Thread: message.Console.Conversation(), Head: 2, Events: []*registry.Event{
		{Id: 1, Source: source.Console, Content: `{"text":"before"}`}, {Id: 2, Source: "self", Content: `{"text":"yes"}`},
	}})
	for _, line := range []string{"one", "two", "two"} {
		press(m, text(line)...)
		press(m, special(tea.KeyEnter))
	}
	press(m, text("draft")...)
	for i, want := range []string{"two", "one", "before", "before"} {
		if press(m, special(tea.KeyUp)); m.input.Value() != want {
			t.Errorf("up %d: %q, want %q", i, m.input.Value(), want)
		}
	}
	for i, want := range []string{"one", "two", "draft", "draft"} {
		if press(m, special(tea.KeyDown)); m.input.Value() != want {
			t.Errorf("down %d: %q, want %q", i, m.input.Value(), want)
		}
	}
	if len(m.unsent) != 3 || m.unsent[0].Text != "one" {
		t.Errorf("unsent %+v", m.unsent)
	}
}

// An aborted message of the past has its outcome.
func TestHistoryOfAnAbortedMessage(t *testing.T) {
	m := typing(t)
	m.Update(feed.Opened{Thread: message.Console.Conversation(), Head: 2, Aborted: map[int64]int64{1: 7}, Events: []*registry.Event{
		{Id: 1, Source: source.Console, Content: `{"text":"before"}`}, {Id: 2, Source: source.Console, Content: `{"text":"after"}`},
	}})
	if s := shown(m); strings.Count(s, "! aborted") != 1 || strings.Index(s, "before") > strings.Index(s, "! aborted") || strings.Index(s, "! aborted") > strings.Index(s, "after") {
		t.Errorf("%s", s)
	}
}

// A text of more lines is typed, pasted and recalled as one.
func TestLines(t *testing.T) {
	m := typing(t)
	press(m, text("one")...)
	press(m, ctrl('j'))
	press(m, text(`two\`)...)
	press(m, special(tea.KeyEnter))
	m.Update(tea.PasteMsg{Content: "three\nfour"})
	if m.input.Value() != "one\ntwo\nthree\nfour" || m.input.Height() != 4 {
		t.Fatalf("%q in %d lines", m.input.Value(), m.input.Height())
	}
	press(m, special(tea.KeyEnter))
	if len(m.unsent) != 1 || m.unsent[0].Text != "one\ntwo\nthree\nfour" || m.input.Height() != 1 {
		t.Fatalf("unsent %+v", m.unsent)
	}
	press(m, special(tea.KeyUp))
	if m.input.LineCount() != 4 {
		t.Errorf("recalled %q", m.input.Value())
	}
}

// Messages are pushed one at a time and waited for in their order; a failed one
// does not hold up the next.
func TestOrder(t *testing.T) {
	m := typing(t)
	for _, line := range []string{"one", "two", "three", " "} {
		press(m, text(line)...)
		press(m, special(tea.KeyEnter))
		press(m, ctrl('u'))
	}
	if s := shown(m); !strings.Contains(s, "you: one") || !strings.Contains(s, "waits: two\nwaits: three") {
		t.Errorf("view:\n%s", s)
	}
	m.Update(feed.Accepted{ID: 11})
	m.Update(feed.Accepted{Err: errors.New("the inbox is full")})
	m.Update(feed.Accepted{ID: 12})
	if len(m.unsent) != 0 || len(m.queue) != 2 || m.queue[0].id != 11 {
		t.Fatalf("unsent %v, queue %v", m.unsent, m.queue)
	}
	m.Update(feed.Pieces{ID: 11, Items: []feed.Item{{What: feed.Spoke, Text: "so "}}})
	m.Update(feed.Pieces{ID: 12, Items: []feed.Item{{What: feed.Spoke, Text: "not yet"}}})
	m.Update(feed.Pieces{ID: 11, Items: []feed.Item{{What: feed.Spoke, Text: "far"}, {What: feed.Began, CallID: "c", Tool: "bash_exec", Text: `{"command":"ls"}`}}})
	if s := shown(m); !strings.Contains(s, "a1: so far\n▸ bash_exec ls · running") || strings.Contains(s, "not yet") {
		t.Errorf("view:\n%s", s)
	}
	turn := &registry.Turn{
		Fate: registry.Fate_FATE_REPLIED, ReplyEventId: 5, Usage: &registry.Usage{Input: 30, Output: 4},
		Steps: []*registry.Step{
			{Kind: registry.StepKind_STEP_KIND_MODEL, Name: "p/m"},
			{Kind: registry.StepKind_STEP_KIND_TOOL, CallId: "c", Duration: durationpb.New(47 * time.Millisecond)},
		},
	}
	m.Update(feed.Pieces{ID: 11, Items: []feed.Item{{What: feed.Ended, CallID: "c", Text: `{"stdout":"x","exit_code":0}`}}})
	m.Update(feed.Finished{ID: 11, Turn: turn, Reply: "so far so good", OK: true})
	want := "▸ bash_exec ls · ok · 47ms\na1: so far so good\n  p/m · 30 tokens in, 4 out · 1 tool\n\nyou: three"
	if s := shown(m); !strings.Contains(s, want) {
		t.Errorf("after the reply:\n%s\nwant\n%s", s, want)
	}
	m.Update(feed.Finished{ID: 12, Err: errors.New("it died")})
	if m.busy() || strings.Contains(shown(m), "working") {
		t.Errorf("still busy: %s", shown(m))
	}
}

// An event is shown once, whoever brings it, our own words are not repeated, and
// those of another window wait until our run is over.
func TestEventsAreShownOnce(t *testing.T) {
	m := typing(t)
	press(m, text("hi")...)
	press(m, special(tea.KeyEnter))
	mine := &registry.Event{Id: 1, Source: source.Console, Content: `{"id":"` + m.unsent[0].Key + `","text":"hi"}`}
	reply := &registry.Event{Id: 2, Source: "self", Content: `{"text":"hello"}`}
	other := &registry.Event{Id: 3, Source: source.Console, Content: `{"id":"x","text":"from elsewhere"}`}
	started := 0
	m.start = func(string, int64) { started++ }
	m.Update(feed.Accepted{ID: 9})
	m.Update(feed.Seen{Events: []*registry.Event{mine, reply, other}})
	if strings.Contains(shown(m), "elsewhere") {
		t.Errorf("in the middle of a run:\n%s", shown(m))
	}
	m.Update(feed.Finished{ID: 9, Turn: &registry.Turn{ReplyEventId: 2, ThreadId: "threads/main", SessionKey: "agent:a1:main"}, Reply: "hello", OK: true})
	m.Update(feed.Seen{Events: []*registry.Event{mine, reply, other}})
	m.Update(feed.Opened{Thread: message.Console.Conversation(), Head: 2})
	s := shown(m)
	if strings.Count(s, "hi\n") != 1 || strings.Count(s, "hello") != 1 || strings.Count(s, "elsewhere") != 1 {
		t.Errorf("view:\n%s", s)
	}
	if started != 1 || m.at != (feed.Place{Thread: "threads/main", Key: "agent:a1:main"}) {
		t.Errorf("watched %d times, at %+v", started, m.at)
	}
}

// A slash begins a command: what begins it is offered, Tab completes it.
func TestSlash(t *testing.T) {
	m := typing(t)
	press(m, text("/m")...)
	if !strings.Contains(shown(m), "/memory /model") {
		t.Errorf("nothing is offered:\n%s", shown(m))
	}
	press(m, text("o")...)
	if press(m, special(tea.KeyTab)); m.input.Value() != "/model " {
		t.Errorf("completed to %q", m.input.Value())
	}
	m.set("/nosuch")
	press(m, special(tea.KeyEnter))
	m.set("/mod")
	press(m, special(tea.KeyEnter))
	m.Update(tea.WindowSizeMsg{Width: 80, Height: 40})
	m.set("/help")
	press(m, special(tea.KeyEnter))
	if s := shown(m); !strings.Contains(s, "there is no command /nosuch; /help lists them") || !strings.Contains(s, "there is no command /mod; did you mean /model?") || !strings.Contains(s, "/stop, /abort ") || len(m.unsent) != 0 {
		t.Errorf("view:\n%s", s)
	}
	for _, text := range []string{"//etc", "/etc/passwd is what?", "a /b"} {
		m.set(text)
		press(m, special(tea.KeyEnter))
	}
	if len(m.unsent) != 3 || m.unsent[0].Text != "/etc" {
		t.Errorf("unsent %+v", m.unsent)
	}
}

// A service that goes away is spoken of, and so is its return.
func TestLink(t *testing.T) {
	m := typing(t)
	m.Update(feed.Link{Service: "registry", Up: true})
	if s := shown(m); strings.Contains(s, "registry") {
		t.Errorf("news without need:\n%s", s)
	}
	m.Update(feed.Link{Service: "registry"})
	m.Update(feed.Link{Service: "registry"})
	if s := shown(m); strings.Count(s, "the registry does not answer; waiting for it") != 1 || !strings.Contains(s, "no connection to the registry;") {
		t.Errorf("view:\n%s", s)
	}
	m.Update(feed.Link{Service: "runner"})
	if s := shown(m); !strings.Contains(s, "no connection to the registry and the runner; does agentd run?") {
		t.Errorf("two of them:\n%s", s)
	}
	m.Update(feed.Link{Service: "runner", Up: true})
	m.Update(feed.Link{Service: "registry", Up: true})
	if s := shown(m); !strings.Contains(s, "the registry is back") || strings.Contains(s, "no connection") {
		t.Errorf("view:\n%s", s)
	}
}

// After the last of several changes of its size the screen is drawn once more.
func TestResized(t *testing.T) {
	m := typing(t)
	for range 3 {
		m.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	}
	for n, want := range []bool{false, false, false, true} {
		if _, cmd := m.Update(resized(n)); (cmd != nil) != want {
			t.Errorf("resize %d of 3: drawn %v", n, cmd != nil)
		}
	}
}

// Whatever the size of the terminal, what is drawn fits it.
func TestSizes(t *testing.T) {
	m := typing(t)
	m.Update(feed.Opened{Thread: message.Console.Conversation(), Events: []*registry.Event{{Id: 1, Source: "self", Content: `{"text":"\u001b[2J` + strings.Repeat("word ", 200) + `"}`}}})
	for range 8 {
		press(m, text("say ")...)
		press(m, ctrl('j'))
	}
	for _, size := range [][2]int{{80, 24}, {20, 4}, {200, 60}, {31, 9}} {
		m.Update(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
		lines := strings.Split(shown(m), "\n")
		if len(lines) > size[1] {
			t.Errorf("%v: %d lines", size, len(lines))
		}
		for _, l := range lines {
			if strings.Contains(l, "\x1b") || lipgloss.Width(l) > size[0] {
				t.Errorf("%v: %q", size, l)
			}
		}
	}
}

// All of the help is on a small screen, which is no wider than its lines.
func TestHelpFits(t *testing.T) {
	m := typing(t)
	m.said.Note(strings.Repeat("what was there\n", 30))
	m.set("/help")
	press(m, special(tea.KeyEnter))
	s := shown(m)
	for _, c := range commands {
		if name := strings.ReplaceAll(c.names, " ", ", /"); !strings.Contains(s, "\n  /"+name) || !strings.Contains(s, c.what+" ") && !strings.Contains(s, c.what+"\n") {
			t.Errorf("/%s is not in one line of the help:\n%s", name, s)
		}
	}
	for line := range strings.Lines(screenKeys) {
		if !strings.Contains(s, "\n  "+strings.TrimRight(line, "\n")) {
			t.Errorf("%q is not in a line of the help:\n%s", line, s)
		}
	}
}

// A text of more lines than the input shows has their number above it.
func TestLongInput(t *testing.T) {
	m := typing(t)
	m.Update(tea.PasteMsg{Content: strings.Repeat("line\n", 199) + "end"})
	if s := shown(m); !strings.Contains(s, "your text has 200 lines: Enter sends it, Ctrl-C clears it") || len(strings.Split(s, "\n")) != 24 {
		t.Errorf("view:\n%s", s)
	}
	press(m, ctrl('c'))
	if s := shown(m); strings.Contains(s, "your text has") {
		t.Errorf("cleared:\n%s", s)
	}
}

// A terminal that counts columns by characters gets emoji as their parts, until it reports
// mode 2027; its background decides the colors.
func TestTerminalReports(t *testing.T) {
	m := newConsole(t.Context(), &feed.Source{Agent: "a1", Peer: message.Console}, true)
	m.said.Reply("`x` 👩\u200d👧")
	view := func() string { return m.View().Content }
	if s := view(); !strings.Contains(s, "👩👧") || !strings.Contains(s, "\x1b[36mx") {
		t.Errorf("nothing is reported: %q", s)
	}
	m.Update(tea.ModeReportMsg{Mode: ansi.ModeUnicodeCore, Value: ansi.ModeReset})
	m.Update(tea.BackgroundColorMsg{Color: color.White})
	if s := view(); !strings.Contains(s, "👩\u200d👧") || !strings.Contains(s, "\x1b[34mx") {
		t.Errorf("reported: %q", s)
	}
	m.Update(tea.ModeReportMsg{Mode: ansi.ModeUnicodeCore, Value: ansi.ModeNotRecognized})
	m.Update(tea.BackgroundColorMsg{Color: color.Black})
	if s := view(); !strings.Contains(s, "👩👧") || !strings.Contains(s, "\x1b[36mx") {
		t.Errorf("reported otherwise: %q", s)
	}
}
