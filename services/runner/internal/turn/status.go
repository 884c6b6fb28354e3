package turn

import (
	"strings"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/modelcall"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/window"
)

// sent is the size of a prompt.
type sent struct {
	messages int
	tokens   int64 // an estimate
}

// report is what a tool can report of the turn. It is computed when a tool asks, as most turns have none that does; the
// journal does not grow while a call of class read runs.
func (t *turn) report() toolset.Status {
	c, in := t.begun.GetConfig(), t.begun.GetInbound()
	out := toolset.Status{
		Provider: c.GetProvider(), Model: c.GetModel(), Thinking: modelcall.Thinking(in.GetSource(), in.GetContent(), c.GetThinking()),
		Session: t.begun.GetSessionKey(), Epoch: t.begun.GetSessionId(), EpochFromID: t.begun.GetEpochFromId(),
		Messages: t.sent.messages, Tokens: t.sent.tokens,
	}
	if m, err := t.Models.Find(c.GetProvider(), c.GetModel()); err == nil {
		out.Provider, out.Model = m.Provider, m.Name
	}
	if t.sent.messages > 0 {
		out.Window = window.ContextWindow(c.GetContextWindow(), t.model)
	}
	for _, s := range t.steps.Answers() {
		if s.GetState() != stepDone {
			continue
		}
		u := s.GetUsage()
		out.Answers++
		out.Input += u.GetInput()
		out.Output += u.GetOutput()
		provider, name, _ := strings.Cut(s.GetName(), "/") // of this answer: the settings may have changed since
		m, err := t.Models.Find(provider, name)
		cost, priced := m.Cost(model.Usage{Input: u.GetInput(), Output: u.GetOutput(), CachedInput: u.GetCachedInput(), CacheWrite: u.GetCacheWrite()})
		out.Cost += cost
		out.Unpriced = out.Unpriced || err != nil || !priced
	}
	return out
}
