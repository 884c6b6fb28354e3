package turn

import (
	"strings"
	"sync"
	"sync/atomic"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/replay"
	"github.com/theclaw/agents/services/runner/internal/run"
	"github.com/theclaw/agents/services/runner/internal/silence"
	"github.com/theclaw/agents/services/runner/internal/step"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// maxPartial is how much of an unfinished answer is kept, in bytes.
const maxPartial = 2048

// maxPrompt is how much of what a person is asked is published, in bytes.
const maxPrompt = 4096

// Stream takes what a turn publishes while it works; [run.Stream] does. It never blocks.
type Stream interface {
	Seed(items []run.Item, tools uint64)
	Call()
	Publish(i run.Item)
	Span() run.Span
	Settle()
}

// publisher publishes what one turn does: pieces of answers and thoughts, tools and what
// they print, the start and the end. The word of package silence is left out; what a tool prints is
// text without pictures, up to a bound; a tool's end is published when the journal has it.
// It keeps the beginning of an unfinished answer for the case that nothing more comes.
type publisher struct {
	to      Stream
	quiet   silence.Filter
	partial strings.Builder
	blocks  *blocks // of the answer under way; nil: it has none
	prompts atomic.Int32
	// hides: the clients that watch are not shown what the model thinks.
	hides bool
}

// Begin reports that the turn is claimed, after the items of its journal.
func (p *publisher) Begin(steps []*registrypb.Step) {
	if t := replay.Of(steps); t.Exact && len(t.Items) > 1 {
		p.to.Seed(t.Items, t.Tools)
	}
	p.to.Publish(run.Item{Kind: run.Lifecycle, Phase: run.Start})
}

// Call begins a try of the model, whose answer begins with what was sent of it before. The blocks
// get what is written behind that.
func (p *publisher) Call(written string, blocks *blocks) {
	p.quiet, p.blocks = silence.Filter{}, nil // also behind what was sent: the word says that nothing is missing
	p.partial.Reset()
	p.to.Call()
	p.say(written)
	p.blocks = blocks
}

// Delta is a piece of an answer.
func (p *publisher) Delta(d model.Delta) {
	if d.Reasoning != "" && !p.hides {
		p.to.Publish(run.Item{Kind: run.Reasoning, Phase: run.Delta, Text: d.Reasoning})
	}
	if d.Text != "" {
		p.say(p.quiet.Add(d.Text))
	}
}

func (p *publisher) say(text string) {
	if text == "" {
		return
	}
	if p.partial.Len() < maxPartial {
		p.partial.WriteString(text)
	}
	p.to.Publish(run.Item{Kind: run.Assistant, Phase: run.Delta, Text: text})
	if p.blocks != nil {
		p.blocks.add(text)
	}
}

// Partial is the beginning of the answer under way.
func (p *publisher) Partial() string { return strings.TrimSpace(p.partial.String()) }

// EndAnswer ends an answer and returns where it is in the stream.
func (p *publisher) EndAnswer() *run.Span {
	p.say(p.quiet.Flush())
	s := p.to.Span()
	return &s
}

// ToolStart reports that a tool begins.
func (p *publisher) ToolStart(s toolset.Shown) { p.to.Publish(replay.ToolStart(s)) }

// ToolEnd publishes its result, which the journal has.
func (p *publisher) ToolEnd(s toolset.Shown) { p.to.Publish(replay.ToolEnd(s)) }

// maxPrompts bounds the prompts of one turn that are published: their numbers are among those of its tools.
const maxPrompts = 1000

// Prompt publishes that a tool waits for a person, and that it waits no more. It may be called from any goroutine.
func (p *publisher) Prompt(s toolset.Shown, asked toolset.Prompt) func() {
	if p.prompts.Add(1) > maxPrompts {
		return func() {}
	}
	i := toolItem(s, asked.Kind, step.Clip(asked.Text, maxPrompt))
	i.Kind, i.PromptID = run.Prompt, asked.ID
	p.to.Publish(i)
	return func() {
		i.Kind, i.Text = run.Closed, ""
		p.to.Publish(i)
	}
}

// Progress passes on what a tool prints, up to a bound. It may be called from any
// goroutine.
func (p *publisher) Progress(s toolset.Shown) func(string) {
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
			p.to.Publish(toolItem(s, run.Update, text))
		}
	}
}

// End publishes the end of the run; why is empty when it succeeded.
func (p *publisher) End(why string) {
	i := run.Item{Kind: run.Lifecycle, Phase: run.End}
	if why != "" {
		i.Phase, i.Text = run.Error, why
	}
	p.to.Publish(i)
}

func toolItem(s toolset.Shown, phase, text string) run.Item {
	return run.Item{Kind: run.Tool, Phase: phase, Tool: s.Step.GetName(), CallID: s.Step.GetCallId(), Text: text, N: s.N}
}
