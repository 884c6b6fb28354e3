// Package modelcall defines the model that answers a turn: which one it is, how one try of
// it is made, what a failed try means, and what it costs.
//
// An answer is counted as it arrives, also one that is lost before it is journaled: it was
// paid for. The package starts no call and repeats none: a turn calls Try, and package
// retry decides about the next one.
package modelcall

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/price"
	"github.com/theclaw/agents/internal/thinking"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/openai"
	"github.com/theclaw/agents/services/runner/internal/model/pai"
)

// Models finds the model of an agent.
type Models interface {
	// Find returns the caller for a provider and model; empty names are the
	// defaults. Its error is a *model.Error.
	Find(provider, name string) (Model, error)
}

// Transcribers makes text of speech.
type Transcribers interface {
	// Transcriber returns what asks a provider for the text of what is said in a file; of
	// a request it uses Model, Try and Away. Its error is a *model.Error.
	Transcriber(provider string, a openai.Audio) (TryFunc, error)
}

// Model is a model with its provider, ready to be tried.
type Model struct {
	Provider, Name string
	// Window is the context window of the provider, in tokens; 0: not known.
	Window int64
	// Images: the model takes images.
	Images bool
	// Price is what providers.yaml says; nil: not known.
	Price *price.Price
	// PeersWait is set when no model was chosen and the built-in one is used. That answers
	// the owner, and no peer, whose message is tried again after this: see ForPeers.
	PeersWait time.Duration
	// Try makes at most one call.
	Try TryFunc
	// Program is set, and Try is not, for a program that runs tools itself: what
	// it returns makes at most one call in that place.
	Program func(at pai.Place) TryFunc
}

// TryFunc makes at most one call of a model.
type TryFunc func(ctx context.Context, req model.Request, onDelta func(model.Delta)) (model.Response, Try)

// Try is what a failed try means; Err nil means that it did not fail.
type Try struct {
	Err    *model.Error
	Counts bool // charged to the message
	Again  bool // another try may help
	Wait   time.Duration
	// Held is true when no call was made, because the provider is known to be unavailable.
	Held bool
	// Back, when closed, ends the wait early; it may be nil.
	Back <-chan struct{}
}

// Thinking is how the run of a message thinks: as the message of an owner asks, else as is
// set for its conversation; empty: as the provider is set. What other people write into a
// message asks for nothing, and a setting that cannot be used is as good as none.
func Thinking(source, content, set string) string {
	if asked := AskedThinking(source, content); asked != "" {
		return asked
	}
	if _, ok := thinking.Parse(set); !ok {
		return ""
	}
	return set
}

// AskedThinking is how the message of an owner asks its run to think; empty: it does not say.
func AskedThinking(source, content string) string {
	var c struct {
		Thinking string `json:"thinking"`
	}
	if !strings.HasPrefix(source, consoles) || json.Unmarshal([]byte(content), &c) != nil {
		return ""
	}
	if _, ok := thinking.Parse(c.Thinking); !ok {
		return ""
	}
	return c.Thinking
}

const (
	externals = "external:"
	consoles  = "external:console:"
)

// ForPeers returns nil when the model may answer a message of a source, else the failed try
// that makes the message wait: people behind a channel are not answered by the built-in
// model, which repeats their words, when the provider of their agent is gone.
func (m Model) ForPeers(source string) *Try {
	if m.PeersWait == 0 || !strings.HasPrefix(source, externals) || strings.HasPrefix(source, consoles) {
		return nil
	}
	return &Try{
		Err:   model.Errorf(model.Config, "no model provider is set up, and the built-in offline model does not answer messages from a channel: write providers.yaml or set a key and start agentd again, or choose it with pai.provider: offline, and stop and start the agent"),
		Again: true, Wait: m.PeersWait,
	}
}

// Meter counts; [obs.RunnerMetrics] does.
type Meter interface {
	ObserveStep(kind string, d time.Duration)
	AddTokens(direction, provider, model string, n int64)
	AddCost(provider, model string, cost float64)
	AddRetry(class string)
}

// Count counts what an answer of the model has cost.
func (m Model) Count(to Meter, name string, u model.Usage) {
	for direction, n := range map[string]int64{
		"input": u.Input, "output": u.Output, "cached": u.CachedInput, "cache_write": u.CacheWrite, "reasoning": u.Reasoning,
	} {
		to.AddTokens(direction, m.Provider, name, n)
	}
	if cost, ok := m.Cost(u); ok {
		to.AddCost(m.Provider, name, cost)
	}
}

// Cost is what tokens cost; false when a part of them has no price.
func (m Model) Cost(u model.Usage) (float64, bool) {
	if m.Price == nil {
		return 0, false
	}
	return m.Price.Cost(price.Tokens{Input: u.Input, Output: u.Output, Cached: u.CachedInput, CacheWrite: u.CacheWrite})
}
