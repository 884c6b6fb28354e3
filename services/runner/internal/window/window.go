package window

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/thread"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/compact"
	"github.com/theclaw/agents/services/runner/internal/memory"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/offline"
	"github.com/theclaw/agents/services/runner/internal/model/pai"
	"github.com/theclaw/agents/services/runner/internal/modelcall"
	"github.com/theclaw/agents/services/runner/internal/prompt"
	"github.com/theclaw/agents/services/runner/internal/run"
	"github.com/theclaw/agents/services/runner/internal/toolset"
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
	Job  memory.Job
	Emit func(run.Item)
	// Await waits for the digest that follows an earlier turn of the conversation, or also
	// for those of the layers above it (over), and reports whether it is not being made
	// any more; nil: there never is one.
	Await      func(ctx context.Context, over bool) bool
	built      *built                      // what Fit found good, until it is asked for
	first      *compact.Measure            // of the first prompt, which has no results of tools
	older      struct{ known, found bool } // messages in no digest that the claim did not bring
	digested   bool                        // the turn has made, tried or awaited a digest
	waiting    bool                        // for a digest that takes too long
	budget     int64                       // of a prompt
	squeezes   int                         // answers that the prompt is too long
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
	if r.budget = p.Budget; r.first == nil {
		r.first = &compact.Measure{Tokens: p.Wanted, Budget: p.Budget, Turns: p.Turns, Undigested: p.Undigested + 1}
	}
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
		Workdir: toolset.Seen(c), Network: c.GetSandboxNetwork() || m.Program != nil, Walled: c.GetSandboxMode() != "off", Hosts: c.GetNetworkHosts(),
		Digested: memory.Layer(claim.GetMemory(), registrypb.MemoryLayer_MEMORY_LAYER_THREAD).GetDigestedId(),
	}
	s.Turns, s.Owners = int(c.GetHistoryTurns()), c.GetOwners()
	s.Keep = keep(c.GetCompaction(), prompt.Budget(s.ContextWindow, s.MaxOutput))
	for _, file := range claim.GetFiles() {
		s.Files = append(s.Files, prompt.File{Name: file.GetName(), Content: file.GetContent()})
	}
	transcripts := memory.TranscriptsOf(claim.GetTail())
	s.Inbound = event(claim.GetInbound(), transcripts)
	s.Tail = make([]prompt.Event, 0, len(claim.GetTail()))
	for _, e := range claim.GetTail() {
		switch {
		case e.GetType() != thread.TypeRecord:
			s.Tail = append(s.Tail, event(e, transcripts))
		case e.GetSubtype() != thread.SubtypeTranscript:
			s.Context = append(s.Context, event(e, nil))
		}
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

func event(e *registrypb.Event, transcripts map[int64][]thread.Transcript) prompt.Event {
	return prompt.Event{ID: e.GetId(), CreatedAt: e.GetCreatedAt(), Source: e.GetSource(), Content: e.GetContent(), Transcripts: transcripts[e.GetId()]}
}

// Fit has the conversation digested before a call of the model where the prompt would
// lack messages that are in no digest. A digest that is being made is waited for.
func (r *Requests) Fit(ctx context.Context, said []model.Message) error {
	if r.digested || r.Memory == nil || r.Begun.GetConfig().GetCompaction() == nil || !r.digests() {
		return nil
	}
	req, p := r.Request(said)
	r.built = &built{len(said), req, p}
	why, err := r.lacks(ctx, p)
	if err != nil || why == "" {
		return err
	}
	r.digested = true
	if r.Waits() { // none is being made either
		return nil
	}
	r.Emit(run.Item{Kind: run.Compaction, Phase: run.Start, Text: why})
	defer r.Emit(run.Item{Kind: run.Compaction, Phase: run.End, Text: why})
	r.built = nil
	moved, err := r.await(ctx)
	if err != nil {
		return err
	}
	if moved {
		_, p = r.Request(said)
		if why, err := r.lacks(ctx, p); err != nil || why == "" {
			r.digested = false // this turn has cost none
			return err
		}
	}
	if r.waiting || r.Waits() {
		return nil
	}
	return r.digest(ctx, p)
}

// lacks returns why messages that are in no digest are not in a prompt: its budget, or the
// number of messages that are shown; empty when all are.
func (r *Requests) lacks(ctx context.Context, p prompt.Prompt) (why string, err error) {
	recent := int(r.Begun.GetConfig().GetCompaction().GetRecentMessages())
	switch {
	case p.Dropped > 0:
		return "tokens", nil
	case recent <= 0 || p.Undigested < recent || len(r.Begun.GetTail()) == 0:
		return "", nil // the oldest that the claim brought is in a digest, or is the first
	case !r.older.known:
		first := r.Begun.GetTail()[0].GetId()
		if r.older.found, err = r.Memory.Undigested(ctx, r.Job, r.layer().GetDigestedId(), first); err != nil {
			if ctx.Err() != nil {
				return "", context.Cause(ctx)
			}
			r.Job.Logf("WARN", "memory: not known whether messages are left out: %s", err)
		}
		r.older.known = true
	}
	if r.older.found {
		return "window", nil
	}
	return "", nil
}

// layer is how far the conversation is digested.
func (r *Requests) layer() *registrypb.MemoryState {
	return memory.Layer(r.Begun.GetMemory(), registrypb.MemoryLayer_MEMORY_LAYER_THREAD)
}

// await waits for the digest that follows an earlier turn of the conversation. moved: one
// was committed since the claim, and is part of it now. A digest that takes too long sets
// waiting: a second one at the same time would be paid for twice.
func (r *Requests) await(ctx context.Context) (moved bool, err error) {
	if err := r.Trusted(ctx); err != nil {
		return false, err
	}
	r.waiting = r.Await != nil && !r.Await(ctx, false)
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	job := r.Job
	job.Layers, job.EpochFrom = r.Begun.GetMemory(), r.Begun.GetEpochFromId()
	layers, moved, err := r.Memory.Moved(ctx, job)
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case err != nil:
		r.Job.Logf("WARN", "memory: %s", err)
	case moved:
		r.remember(layers)
	}
	return moved, nil
}

// Due reports whether the conversation is to be digested after the turn (S0-113): the
// message that it answers, and its reply, go into that digest.
func (r *Requests) Due() bool {
	c := r.Begun.GetConfig().GetCompaction()
	if r.digested || r.Memory == nil || c == nil || r.first == nil {
		return false
	}
	recent := int(c.GetRecentMessages())
	m := *r.first
	turns := int(r.Begun.GetConfig().GetHistoryTurns())
	m.Leaving = recent > 0 && m.Undigested+1 >= recent || turns > 0 && m.Turns > turns // the reply is one more
	return compact.Due(m, compact.Limits{AtPercent: int(c.GetAtPercent()), AfterTurns: int(c.GetAfterTurns())}) != "" && r.digests()
}

// Later is the digest of the conversation after the turn, but for where it ends and how it
// is committed. It keeps nothing of the claim but what it needs.
func (r *Requests) Later(trusted func(context.Context) error) memory.Job {
	job := r.job(trusted)
	job.Seq, job.Commit, job.Fatal, job.Logf = nil, nil, nil, nil
	return job
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
			if err := r.digestRefused(ctx, refused); err != nil {
				return false, err
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

// digestRefused digests what came before, unless the turn had it digested already or an
// earlier turn's digest does it.
func (r *Requests) digestRefused(ctx context.Context, refused prompt.Prompt) error {
	if r.digested || r.Memory == nil || refused.Undigested == 0 || !r.digests() {
		return nil
	}
	r.digested = true
	moved, err := r.await(ctx)
	if err != nil || moved || r.waiting || r.Waits() {
		return err
	}
	return r.digest(ctx, refused)
}

// Waits reports whether the last digests of this conversation failed, so that this turn
// asks for none, and counts the turn.
func (r *Requests) Waits() bool {
	job := r.Job
	job.Model = r.Model.Provider + "/" + r.Model.Name
	return r.Memory.Waits(job, r.layer())
}

// digest digests everything before the inbound message, once in a turn.
func (r *Requests) digest(ctx context.Context, p prompt.Prompt) error {
	if r.Await != nil && !r.Await(ctx, true) && ctx.Err() == nil {
		return nil
	}
	if err := r.Trusted(ctx); err != nil {
		return err
	}
	job := r.job(r.Trusted)
	job.Upto = p.Upto
	out, err := r.Memory.Thread(ctx, job)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if out.Name != "" { // it stands, whatever came after it
		r.remember(out.Layers)
	}
	return err
}

// job is a digest of the conversation as the claim knows it.
func (r *Requests) job(trusted func(context.Context) error) memory.Job {
	in, job, c := r.Begun.GetInbound(), r.Job, r.Begun.GetConfig()
	job.Source, job.Content = in.GetSource(), in.GetContent()
	job.Config, job.Layers, job.EpochFrom = c.GetCompaction(), r.Begun.GetMemory(), r.Begun.GetEpochFromId()
	job.Strategy, job.Model = strategy(c, r.Model, r.Meter, trusted, job, r.budget), r.Model.Provider+"/"+r.Model.Name
	return job
}

// Place is where a program that runs tools itself runs, for this agent.
func Place(c *registrypb.TurnConfig, agentID, threadID string) pai.Place {
	mode := c.GetSandboxMode()
	if c.GetAskApproval() {
		mode += " with a policy for commands" // it could not be asked for each, so the program is refused
	}
	return pai.Place{AgentID: agentID, ThreadID: threadID, SandboxMode: mode, Workdir: c.GetWorkdir(), Sessions: c.GetSessionsDir()}
}

// digests reports whether this agent can digest: its model cannot when it is the built-in
// one, which answers with what it was asked.
func (r *Requests) digests() bool {
	truncates := r.Begun.GetConfig().GetCompaction().GetStrategy() == (compact.Truncate{}).Name()
	return truncates || r.Model.Program != nil || r.Model.Provider != offline.Name && r.Model.Try != nil
}

// strategy is how an agent digests that can. A program that runs tools itself is asked
// aside, without them: a digest has no effect and may be made again.
func strategy(c *registrypb.TurnConfig, m modelcall.Model, meter modelcall.Meter, trusted func(context.Context) error, job memory.Job, budget int64) compact.Strategy {
	if c.GetCompaction().GetStrategy() == (compact.Truncate{}).Name() {
		return compact.Truncate{}
	}
	if m.Program != nil {
		at := Place(c, job.AgentID, job.ThreadID)
		at.Aside, at.Spare = true, true
		m.Try = m.Program(at)
	}
	return NewSummarise(m, budget, c.GetMaxOutputTokens(), func(ctx context.Context, took time.Duration, u model.Usage) error {
		meter.ObserveStep("compaction", took)
		m.Count(meter, m.Name, u)
		return trusted(ctx)
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

// remember takes the memory after a digest over into what the claim brought, in the order
// in which a claim brings it. The digest may have followed the turn of another peer in the
// same conversation: that peer's layer is left out (I14).
func (r *Requests) remember(layers []*registrypb.MemoryState) {
	const ofPeer = registrypb.MemoryLayer_MEMORY_LAYER_PEER
	mine := memory.Layer(r.Begun.GetMemory(), ofPeer)
	files := r.Begun.GetFiles()
	r.Begun.Memory, r.Begun.Files = nil, nil
	for _, f := range files {
		if !strings.HasPrefix(f.GetName(), "memory/") {
			r.Begun.Files = append(r.Begun.Files, f)
		}
	}
	for _, l := range []registrypb.MemoryLayer{registrypb.MemoryLayer_MEMORY_LAYER_AGENT, ofPeer, registrypb.MemoryLayer_MEMORY_LAYER_THREAD} {
		s := memory.Layer(layers, l)
		if l == ofPeer && s.GetName() != mine.GetName() {
			if s = mine; s != nil {
				r.keepFile(files, s)
			}
		} else if s.GetContent() != "" {
			r.Begun.Files = append(r.Begun.Files, &registrypb.ContextFile{Name: s.GetName(), Content: s.GetContent()})
		}
		if s != nil {
			r.Begun.Memory = append(r.Begun.Memory, s)
		}
	}
	r.older.known, r.first = false, nil
}

// keepFile leaves the file of a layer as the claim brought it.
func (r *Requests) keepFile(files []*registrypb.ContextFile, s *registrypb.MemoryState) {
	if i := slices.IndexFunc(files, func(f *registrypb.ContextFile) bool { return f.GetName() == s.GetName() }); i >= 0 {
		r.Begun.Files = append(r.Begun.Files, files[i])
	}
}
