package transcript

import (
	"strings"
	"time"

	"github.com/theclaw/agents/cmd/agentctl/internal/markdown"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
)

// MaxEntries is how much is kept; 'agentctl events' has all of it.
const MaxEntries = 500

// maxOutput is how much of the output of a running tool is kept, in bytes.
const maxOutput = 64 << 10

// Transcript is the screen of one conversation. It is not safe for use by more
// than one goroutine.
type Transcript struct {
	agent   string
	color   bool
	light   bool // the background
	look    look
	entries []*entry
	all     bool   // new thoughts and tools come unfolded
	up      int    // lines scrolled up from the end; 0 follows it
	height  int    // of the last look
	width   int    // of the last look
	lines   int    // there were at the last look
	first   int    // index of the first entry that is not the past
	last    string // the newest reply
}

// New is an empty screen of a conversation with an agent.
func New(agent string, color bool) *Transcript {
	return &Transcript{agent: agent, color: color, look: newLook(color, false), width: 80, height: 20}
}

// Light has colors for a light background; without it they are for a dark one.
func (t *Transcript) Light(light bool) {
	t.light = light
	t.restyle()
}

// Apart shows joined emoji as their parts, for a terminal that counts columns by characters.
func (t *Transcript) Apart(apart bool) {
	t.look.apart = apart
	t.restyle()
}

// Line is a text of others in one line, as this terminal shows it.
func (t *Transcript) Line(text string) string { return t.look.line(text) }

func (t *Transcript) restyle() {
	apart := t.look.apart
	t.look = newLook(t.color, t.light)
	t.look.apart = apart
	for _, e := range t.entries {
		e.lines = nil
		if e.body != nil {
			text := e.body.Text()
			e.body = markdown.New(t.style(e.kind))
			e.body.Write(text)
		}
	}
}

// style is how the text of an entry is laid out.
func (t *Transcript) style(k kind) markdown.Style {
	s := markdown.Style{Color: t.color, Light: t.light, Apart: t.look.apart, Plain: k != reply}
	switch k {
	case you:
		s.Lead = t.look.you.Render("you:") + " "
	case reply:
		s.Lead = t.look.it.Render(t.agent+":") + " "
	case thought:
		s.Faint, s.Edge = true, "  ┆ "
	case note:
		s.Faint, s.Edge = true, "  "
	case problem:
		s.Lead = t.look.bad.Render("!") + " "
	case quoted:
		s.Edge = "  "
	case tool:
	}
	return s
}

func (t *Transcript) add(e *entry) *entry {
	t.entries = append(t.entries, e)
	if over := len(t.entries) - MaxEntries; over > 0 {
		for _, old := range t.entries[:over] {
			t.lines -= t.linesOf(old, time.Time{})
		}
		t.entries = append([]*entry{}, t.entries[over:]...)
		t.first = max(t.first-over, 0)
	}
	return e
}

func (t *Transcript) text(k kind, text string) *entry {
	e := &entry{kind: k, body: markdown.New(t.style(k))}
	e.body.Write(strings.TrimRight(screen.Clean(text), "\n"))
	return t.add(e)
}

// You adds what the person said, as it was typed.
func (t *Transcript) You(text string) {
	t.text(you, text)
	t.up = 0
}

// Reply adds the complete answer of the agent.
func (t *Transcript) Reply(text string) {
	t.text(reply, text)
	t.last = text
}

// Note adds words of the program.
func (t *Transcript) Note(text string) { t.text(note, text) }

// Problem adds what went wrong.
func (t *Transcript) Problem(text string) {
	t.text(problem, text)
}

// Quote adds a text that the person has to read line by line, such as a command to be approved
// or what a command of the person answers.
func (t *Transcript) Quote(text string) { t.text(quoted, text) }

// Mark says that what is there now is the past.
func (t *Transcript) Mark() { t.first = len(t.entries) }

// Last is the newest reply.
func (t *Transcript) Last() string { return t.last }

// live is the newest entry of a kind that is not whole yet.
func (t *Transcript) live(k kind) *entry {
	for i := len(t.entries) - 1; i >= 0 && i >= len(t.entries)-50; i-- {
		if e := t.entries[i]; e.live && e.kind == k {
			return e
		}
	}
	return nil
}

// Think adds a piece of reasoning.
func (t *Transcript) Think(piece string, now time.Time) {
	e := t.live(thought)
	if e == nil {
		held := t.live(reply)
		if held != nil && held.held != "" {
			t.drop(held)
		}
		t.whole(now)
		e = t.text(thought, "")
		e.live, e.run, e.from, e.open = true, true, now, t.all
		if held != nil && held.held != "" {
			t.add(held) // what is said comes after what is thought
		}
	}
	e.body.Write(screen.Clean(piece))
}

// Say adds a piece of the reply.
func (t *Transcript) Say(piece string, now time.Time) {
	e := t.live(reply)
	if e == nil {
		t.whole(now)
		t.Reply("")
		e = t.entries[len(t.entries)-1]
		e.live, e.run = true, true
	}
	piece = screen.Clean(piece)
	if e.held == "" {
		e.body.Write(piece)
		return
	}
	e.said += piece
	if strings.HasPrefix(e.held, e.said) {
		return // it stands there
	}
	t.drop(e)
	t.add(e)
	t.goOn(e)
}

// goOn makes a reply that was held show what is said now.
func (t *Transcript) goOn(e *entry) {
	if more, same := strings.CutPrefix(e.said, e.held); same {
		e.body.Write(more)
	} else {
		e.body = markdown.New(e.body.Style())
		e.body.Write(e.said)
	}
	e.held, e.said = "", ""
}

// whole ends what is being thought and said: something else begins.
func (t *Transcript) whole(now time.Time) {
	for _, k := range []kind{thought, reply} {
		e := t.live(k)
		switch {
		case e == nil:
			continue
		case e.held != "" && e.said == "": // it was not said again
			t.drop(e)
			continue
		case e.held != "":
			t.goOn(e)
		}
		e.live, e.lines = false, nil
		e.took = now.Sub(e.from)
	}
}

func (t *Transcript) call(id string) *entry {
	for i := len(t.entries) - 1; i >= 0; i-- {
		if e := t.entries[i]; e.kind == tool && e.live && e.call.ID == id {
			return e
		}
	}
	return nil
}

// Start adds a tool that begins. The summary of its call may be empty.
func (t *Transcript) Start(id, name, arguments, summary string, now time.Time) {
	if e := t.call(id); e != nil { // said twice
		return
	}
	t.whole(now)
	t.add(&entry{kind: tool, live: true, open: t.all, call: Call{ID: id, Name: name, Arguments: arguments, Summary: summary, From: now}})
}

// Update adds output of a tool that runs.
func (t *Transcript) Update(id, output string) {
	if e := t.call(id); e != nil && len(e.call.Output) < maxOutput {
		e.call.Output += output
	}
}

// End has the result of a tool.
func (t *Transcript) End(id, result string, now time.Time) {
	if e := t.call(id); e != nil {
		e.live, e.lines = false, nil
		e.call.Done, e.call.Took, e.call.Result = true, now.Sub(e.call.From), ReadResult(result)
	}
}

// Again expects what was said and thought since the last tool or message once more: the
// run was interrupted. The thoughts go, and a tool that had not ended. The text stays until
// another one takes its place, so that a model which says the same goes on where it was.
func (t *Transcript) Again() {
	e := t.live(reply)
	t.Void()
	if e == nil {
		return
	}
	if e.held == "" {
		e.held = e.body.Text()
	}
	if e.said = ""; e.held != "" {
		t.add(e)
	}
}

// Void takes away what was said and thought since the last tool or message, and a tool
// that had not ended.
func (t *Transcript) Void() {
	from := len(t.entries)
	for from > 0 {
		e := t.entries[from-1]
		if e.kind == you || e.kind == tool && !e.live || (e.kind == reply || e.kind == thought) && !e.run {
			break
		}
		from--
	}
	kept := t.entries[:from:from]
	for _, e := range t.entries[from:] {
		if e.kind == note || e.kind == problem || e.kind == quoted {
			kept = append(kept, e)
		}
	}
	t.entries = kept
}

// Stop ends what a run left open: it was aborted, or failed.
func (t *Transcript) Stop(now time.Time) {
	if e := t.live(reply); e != nil { // what was said stays
		e.held, e.said = "", ""
	}
	t.whole(now)
	for _, e := range t.entries {
		e.run = false
		if e.live {
			e.live, e.lines = false, nil
			e.call.Done, e.call.Took, e.call.Result.Fail = true, now.Sub(e.call.From), "ended"
			e.call.Result.Text = e.call.Output
		}
	}
}

// Finish sets the reply of a run: what was streamed last becomes it, or it is
// added. took has the durations of its tools by call id, as they were measured
// where they ran.
func (t *Transcript) Finish(text string, took map[string]time.Duration, now time.Time) {
	text = strings.TrimRight(screen.Clean(text), "\n")
	if e := t.live(reply); e == nil || strings.TrimSpace(e.body.Text()) != strings.TrimSpace(text) {
		if e != nil {
			t.drop(e)
		}
		t.Reply(text)
	}
	t.last = text
	t.Stop(now)
	for _, e := range t.entries {
		if d, ok := took[e.call.ID]; ok && e.kind == tool && d > 0 {
			e.call.Took, e.lines = d, nil
		}
	}
}

func (t *Transcript) drop(e *entry) {
	for i, x := range t.entries {
		if x == e {
			t.entries = append(t.entries[:i], t.entries[i+1:]...)
			return
		}
	}
}
