package window

import (
	"context"
	"slices"
	"strings"
	"time"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/compact"
	"github.com/theclaw/agents/services/runner/internal/memory"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/offline"
	"github.com/theclaw/agents/services/runner/internal/model/pai"
	"github.com/theclaw/agents/services/runner/internal/modelcall"
	"github.com/theclaw/agents/services/runner/internal/prompt"
	"github.com/theclaw/agents/services/runner/internal/run"
)

// Requests makes the requests of one claimed turn. It belongs to one goroutine.
type Requests struct {
	// Begun is the claim; digests made here become part of it.
	Begun *registrypb.BeginTurnResponse
	Model modelcall.Model
	// Sources make the prompt.
	Sources prompt.Sources
	// Tools are offered in every request.
	Tools []model.Tool
	Meter modelcall.Meter
	// Trusted returns nil while the lease is.
	Trusted func(context.Context) error
	// Memory digests; nil: the oldest messages are cut.
	Memory *memory.Registry
	// Job is the turn's part of a digest: who, where, and how it is committed.
	Job        memory.Job
	Emit       func(run.Item)
	built      *built // what Due found good, until it is asked for
	digested   bool   // a digest was made, or tried
	squeezes   int    // answers that the prompt is too long
	most, room int64
}

type built struct {
	said    int
	request model.Request
	prompt  prompt.Prompt
}

// Request is the prompt of a round: what the claim brought, and what was said
// and done since.
func (r *Requests) Request(said []model.Message) (model.Request, prompt.Prompt) {
	if b := r.built; b != nil && b.said == len(said) {
		r.built = nil
		return b.request, b.prompt
	}
	s := r.scope(said)
	p := r.Sources.Build(s)
	return model.Request{
		Model: r.Model.Name, System: p.System, Messages: p.Messages, Tools: s.Tools,
		MaxOutputTokens: int(r.Begun.GetConfig().GetMaxOutputTokens()),
	}, p
}

func (r *Requests) scope(said []model.Message) prompt.Scope {
	s := Scope(r.Begun, r.Model, r.Tools)
	s.Turn, s.Most, s.MaxPrompt = said, r.most, r.room
	return s
}

// Scope is what the prompt of a claim is made of, for one model and the tools it is
// offered.
func Scope(claim *registrypb.BeginTurnResponse, m modelcall.Model, tools []model.Tool) prompt.Scope {
	c := claim.GetConfig()
	s := prompt.Scope{
		ReplyContext: claim.GetReplyContext(), Tools: tools,
		ContextWindow: ContextWindow(c.GetContextWindow(), m), MaxOutput: c.GetMaxOutputTokens(),
		Workdir: c.GetWorkdir(), Network: c.GetSandboxNetwork() || m.Program != nil, Walled: c.GetSandboxMode() != "off",
		Inbound:  event(claim.GetInbound()),
		Digested: memory.Layer(claim.GetMemory(), registrypb.MemoryLayer_MEMORY_LAYER_THREAD).GetDigestedId(),
	}
	s.Keep = keep(c.GetCompaction(), prompt.Budget(s.ContextWindow, s.MaxOutput))
	for _, file := range claim.GetFiles() {
		s.Files = append(s.Files, prompt.File{Name: file.GetName(), Content: file.GetContent()})
	}
	s.Tail = make([]prompt.Event, 0, len(claim.GetTail()))
	for _, e := range claim.GetTail() {
		s.Tail = append(s.Tail, event(e))
	}
	for _, u := range claim.GetUnanswered() {
		if i := slices.IndexFunc(s.Tail, func(e prompt.Event) bool { return e.ID == u.GetEventId() }); i >= 0 {
			s.Tail[i].Unanswered, s.Tail[i].Refused = true, u.GetRefused()
			s.Tail[i].Class = u.GetClass()
		}
	}
	for _, a := range claim.GetAgents() {
		s.Agents = append(s.Agents, prompt.Agent{ID: a.GetAgentId(), Usage: a.GetUsage()})
	}
	return s
}

// ContextWindow is the configured context window in tokens, or that of the model where
// it is smaller or none is configured.
func ContextWindow(configured int64, m modelcall.Model) int64 {
	if m.Window > 0 && (configured <= 0 || m.Window < configured) {
		return m.Window
	}
	return configured
}

// keep is how many tokens of the newest messages stay raw: as configured, but never
// so many that a digest could not bring a prompt below its limit.
func keep(c *registrypb.CompactionConfig, budget int64) int64 {
	tokens := c.GetKeepTokens()
	if budget > 0 && c.GetAtPercent() > 0 {
		tokens = min(tokens, budget*int64(c.GetAtPercent())/200)
	}
	return tokens
}

func event(e *registrypb.Event) prompt.Event {
	return prompt.Event{ID: e.GetId(), CreatedAt: e.GetCreatedAt(), Source: e.GetSource(), Content: e.GetContent()}
}

// Due digests the conversation before a call of the model, when it is
// time (S0-113).
func (r *Requests) Due(ctx context.Context, said []model.Message) error {
	c := r.Begun.GetConfig().GetCompaction()
	if r.digested || r.Memory == nil || c == nil {
		return nil
	}
	req, p := r.Request(said)
	r.built = &built{len(said), req, p}
	recent := int(c.GetRecentMessages())
	why := compact.Due(compact.Measure{
		Tokens: p.Wanted, Budget: p.Budget, Turns: p.Turns, Undigested: p.Undigested, Leaving: recent > 0 && p.Undigested >= recent,
	}, compact.Limits{AtPercent: int(c.GetAtPercent()), AfterTurns: int(c.GetAfterTurns())})
	if why == "" || r.strategy(p) == nil {
		return nil
	}
	if r.waits() {
		r.digested = true // this turn asks for none
		return nil
	}
	r.Emit(run.Item{Kind: run.Compaction, Phase: run.Start, Text: why})
	defer r.Emit(run.Item{Kind: run.Compaction, Phase: run.End, Text: why})
	r.built = nil
	return r.digest(ctx, p)
}

// Squeeze makes the prompt smaller after the provider refused it for its length:
// first by a digest of all that came before, then by half. It reports whether
// there is something new to try; if not, the refusal stands.
func (r *Requests) Squeeze(ctx context.Context, said []model.Message, refused prompt.Prompt) (again bool, err error) {
	r.Emit(run.Item{Kind: run.Compaction, Phase: run.Start, Text: "refused"})
	defer func() {
		r.Emit(run.Item{Kind: run.Compaction, Phase: run.End, Text: "refused", WillRetry: again && err == nil})
	}()
	for r.squeezes < 2 {
		r.squeezes++
		keep := max(r.scope(said).Keep, 1)
		if r.squeezes == 1 {
			r.most = keep
			if !r.digested && r.Memory != nil && refused.Undigested > 0 && !r.waits() {
				if err := r.digest(ctx, refused); err != nil {
					return false, err
				}
			}
		} else {
			r.most, r.room = max(keep/2, 1), max(refused.Tokens/2, 1)
		}
		if _, p := r.Request(said); p.Tokens < refused.Tokens {
			r.Job.Logf("WARN", "model: prompt of about %d tokens refused as too long, trying about %d", refused.Tokens, p.Tokens)
			return true, nil
		}
	}
	return false, nil
}

// waits reports whether the last digests of this conversation failed, so that this turn
// asks for none.
func (r *Requests) waits() bool {
	job := r.Job
	job.Model = r.Model.Provider + "/" + r.Model.Name
	return r.Memory.Waits(job, memory.Layer(r.Begun.GetMemory(), registrypb.MemoryLayer_MEMORY_LAYER_THREAD))
}

// digest digests everything before the inbound message, once in a turn.
func (r *Requests) digest(ctx context.Context, p prompt.Prompt) error {
	r.digested = true
	strategy := r.strategy(p)
	if strategy == nil {
		return nil
	}
	if err := r.Trusted(ctx); err != nil {
		return err
	}
	in, job := r.Begun.GetInbound(), r.Job
	job.Source, job.Content, job.Upto = in.GetSource(), in.GetContent(), p.Upto
	job.Config, job.Layers = r.Begun.GetConfig().GetCompaction(), r.Begun.GetMemory()
	job.Strategy, job.Model = strategy, r.Model.Provider+"/"+r.Model.Name
	out, err := r.Memory.Thread(ctx, job)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if out.Name != "" { // it stands, whatever came after it
		r.remember(out)
	}
	return err
}

// Place is where a program that runs tools itself runs, for this agent.
func Place(c *registrypb.TurnConfig, agentID, threadID string) pai.Place {
	mode := c.GetSandboxMode()
	if c.GetAskApproval() {
		mode += " with approvals: ask" // its commands could not be approved, so it is refused
	}
	return pai.Place{AgentID: agentID, ThreadID: threadID, SandboxMode: mode, Workdir: c.GetWorkdir(), Sessions: c.GetSessionsDir()}
}

// strategy is how this agent digests; nil when its model cannot: the built-in one
// answers with what it was asked. A program that runs tools itself is asked aside,
// without them: a digest has no effect and may be made again.
func (r *Requests) strategy(p prompt.Prompt) compact.Strategy {
	c := r.Begun.GetConfig()
	m := r.Model
	switch {
	case c.GetCompaction().GetStrategy() == (compact.Truncate{}).Name():
		return compact.Truncate{}
	case m.Program != nil:
		at := Place(c, r.Job.AgentID, r.Job.ThreadID)
		at.Aside, at.Spare = true, true
		m.Try = m.Program(at)
	case m.Provider == offline.Name, m.Try == nil:
		return nil
	}
	return NewSummarise(m, p.Budget, c.GetMaxOutputTokens(), func(ctx context.Context, took time.Duration, u model.Usage) error {
		r.Meter.ObserveStep("compaction", took)
		r.Model.Count(r.Meter, r.Model.Name, u)
		return r.Trusted(ctx)
	})
}

// NewSummarise is the strategy that asks a model for digests that leave most of
// the budget free. observe is called for each answer, and ends the digest by an error.
func NewSummarise(m modelcall.Model, budget, maxOutput int64, observe func(context.Context, time.Duration, model.Usage) error) compact.Summarise {
	return compact.Summarise{
		Budget: budget, Limit: min(max(budget/16, 64), 2048), MaxOutput: maxOutput,
		Ask: func(ctx context.Context, req model.Request) (model.Response, *model.Error) {
			req.Model = m.Name
			start := time.Now()
			resp, try := m.Try(ctx, req, func(model.Delta) {})
			if err := observe(ctx, time.Since(start), resp.Usage); err != nil && try.Err == nil {
				return resp, model.Errorf(model.Canceled, "%v", err)
			}
			return resp, try.Err
		},
	}
}

// remember takes the memory after a digest over into what the claim brought, in
// the order in which a claim brings it.
func (r *Requests) remember(out memory.Outcome) {
	r.Begun.Memory = out.Layers
	files := slices.DeleteFunc(r.Begun.GetFiles(), func(f *registrypb.ContextFile) bool { return strings.HasPrefix(f.GetName(), "memory/") })
	for _, l := range []registrypb.MemoryLayer{registrypb.MemoryLayer_MEMORY_LAYER_AGENT, registrypb.MemoryLayer_MEMORY_LAYER_PEER, registrypb.MemoryLayer_MEMORY_LAYER_THREAD} {
		if s := memory.Layer(out.Layers, l); s.GetContent() != "" {
			files = append(files, &registrypb.ContextFile{Name: s.GetName(), Content: s.GetContent()})
		}
	}
	r.Begun.Files = files
}
