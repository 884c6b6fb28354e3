// Package voice owns what a turn lets be heard while it works: pieces of answers
// and thoughts, tools and what they print, the start and the end.
//
// It promises: the word of silence is not heard; what a tool prints is text
// without pictures in it, and at most so much of it; a tool's end is told when the
// journal has it. It keeps a little of an unfinished answer for the case that
// nothing more comes. It decides nothing and journals nothing.
package voice

import (
	"strings"
	"sync"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/hush"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/run"
	"github.com/theclaw/agents/services/runner/internal/step"
	"github.com/theclaw/agents/services/runner/internal/told"
)

// maxPartial is how much of an unfinished answer is kept, in bytes.
const maxPartial = 2048

// Stream is where it is heard; [run.Stream] is one. It never blocks.
type Stream interface {
	Seed(items []run.Item, tools uint64)
	Call()
	Publish(i run.Item)
	Span() run.Span
	Settle()
}

// Voice is that of one turn.
type Voice struct {
	to      Stream
	quiet   hush.Filter
	partial strings.Builder
}

// New makes the voice of a turn.
func New(to Stream) *Voice { return &Voice{to: to} }

// Begin tells that the turn is claimed, after what its journal tells.
func (v *Voice) Begin(steps []*registrypb.Step) {
	if t := told.Of(steps); t.Exact && len(t.Items) > 1 {
		v.to.Seed(t.Items, t.Tools)
	}
	v.to.Publish(run.Item{Kind: run.Lifecycle, Phase: run.Start})
}

// Call begins a try of the model.
func (v *Voice) Call() {
	v.quiet = hush.Filter{}
	v.partial.Reset()
	v.to.Call()
}

// Delta is a piece of an answer.
func (v *Voice) Delta(d model.Delta) {
	if d.Reasoning != "" {
		v.to.Publish(run.Item{Kind: run.Reasoning, Phase: run.Delta, Text: d.Reasoning})
	}
	if d.Text != "" {
		v.say(v.quiet.Add(d.Text))
	}
}

func (v *Voice) say(text string) {
	if text == "" {
		return
	}
	if v.partial.Len() < maxPartial {
		v.partial.WriteString(text)
	}
	v.to.Publish(run.Item{Kind: run.Assistant, Phase: run.Delta, Text: text})
}

// Said is the beginning of the answer under way.
func (v *Voice) Said() string { return strings.TrimSpace(v.partial.String()) }

// Answered ends an answer and tells where it stands.
func (v *Voice) Answered() *run.Span {
	v.say(v.quiet.Rest())
	s := v.to.Span()
	return &s
}

// Settled says that the journal has the answer.
func (v *Voice) Settled() { v.to.Settle() }

// ToolStart tells that a tool begins; n is its place in its answer.
func (v *Voice) ToolStart(n int, c model.ToolCall) {
	v.to.Publish(item(n, c, run.Start, string(c.Arguments)))
}

// ToolEnd tells its result, which the journal has.
func (v *Voice) ToolEnd(n int, c model.ToolCall, result []byte) {
	v.to.Publish(item(n, c, run.End, string(result)))
}

// Progress passes on what a tool prints, up to a bound. It may be called from any
// goroutine.
func (v *Voice) Progress(n int, c model.ToolCall) func(string) {
	var mu sync.Mutex
	left := run.MaxUpdates
	return func(text string) {
		mu.Lock()
		defer mu.Unlock()
		if left == 0 {
			return
		}
		text = step.Clip(text, left)
		if left -= len(text); text != "" {
			v.to.Publish(item(n, c, run.Update, text))
		}
	}
}

// End tells the end of the run; why is empty when it is a good one.
func (v *Voice) End(why string) {
	i := run.Item{Kind: run.Lifecycle, Phase: run.End}
	if why != "" {
		i.Phase, i.Text = run.Error, why
	}
	v.to.Publish(i)
}

func item(n int, c model.ToolCall, phase, text string) run.Item {
	return run.Item{Kind: run.Tool, Phase: phase, Tool: c.Name, CallID: c.ID, Text: text, N: n}
}
