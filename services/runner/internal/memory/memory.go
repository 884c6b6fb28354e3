// Package memory decides what goes into each layer of an agent's memory, and in which order
// the layers are digested.
//
//	layer    file                 holds                          digested
//	thread   thread-<id>.md       one conversation               after the turn in which it is due
//	peer     user-<chan>-<peer>   one peer's words               every 5 of these
//	agent    agent.md             the agent's own records        every 20 of these
//
// It promises I14: a peer's layer is made of that peer's own conversation or, in a thread
// that many share, of that peer's own words alone; the agent's layer, which every peer's
// conversation reads, is made of counts of what was done, never of words or of names,
// unless memory.share is on.
//
// Each digest is one call of a model and one call of the registry. A process that is killed
// before the second has changed nothing, and the next turn of the conversation, under
// whatever lease, finds the digest due again (window C of a model call). The second is idempotent by the number of the digest;
// once it is committed the registry alone finishes it. The cut of a prompt is decided by
// what the claim of the turn read in one transaction, mark and messages together, so that a
// turn that goes on in another process reads the same.
//
// An epoch of a conversation begins behind an event (BeginTurnResponse.epoch_from_id), and
// nothing up to that event enters a prompt of it or a prompt for a digest. A digest of the
// thread is of the epoch only when it reaches further than that event; one of an earlier
// epoch counts as none that ends at the event: see [InEpoch]. The layers of the peer and of
// the agent are those of all epochs.
//
// It decides neither when nor how a digest is made: package compact does. It keeps no state
// but which digests failed, so that they are not asked for at each message: see Failures.
package memory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/thread"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/compact"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/step"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// Threads is the part of the registry's ThreadService that digests need.
type Threads interface {
	PeekEvents(ctx context.Context, in *registrypb.PeekEventsRequest, opts ...grpc.CallOption) (*registrypb.PeekEventsResponse, error)
}

// Files is the part of the registry's AgentService that digests need.
type Files interface {
	ReadAgentFile(ctx context.Context, in *registrypb.ReadAgentFileRequest, opts ...grpc.CallOption) (*registrypb.ReadAgentFileResponse, error)
}

// Journal commits digests.
type Journal interface {
	GetMemory(ctx context.Context, in *registrypb.GetMemoryRequest, opts ...grpc.CallOption) (*registrypb.GetMemoryResponse, error)
	RecordCompaction(ctx context.Context, in *registrypb.RecordCompactionRequest, opts ...grpc.CallOption) (*registrypb.RecordCompactionResponse, error)
}

// Registry is where memory lies.
type Registry struct {
	Threads Threads
	Files   Files
	Journal Journal
	// Tools are those of this runner, whose calls may be named.
	Tools *toolset.Tools
	// Failures are the digests that are not asked for again at once.
	Failures *Failures
}

// Job is a conversation to digest, or with no thread the agent's own layer.
type Job struct {
	AgentID, ThreadID string
	// Key and InboxID of the turn that needs it or was due it; empty: a person asked.
	Key     string
	InboxID int64
	// Source and Content of the message in work, which name its author.
	Source, Content string
	// Upto is the last event to digest.
	Upto int64
	// EpochFrom is the event that begins the epoch of the conversation, of which nothing up to
	// it goes into a digest; 0: the epoch is the whole thread.
	EpochFrom int64

	Config *registrypb.CompactionConfig
	// Layers as they are; see GetMemory and BeginTurn.
	Layers []*registrypb.MemoryState
	// Unseen threads, for the agent's own layer.
	Unseen []*registrypb.ThreadRecords

	Strategy compact.Strategy
	// Model that the strategy asks, for the journal.
	Model string
	// Timeout bounds the calls of the model for one layer; 0: ctx does.
	Timeout time.Duration
	// Seq numbers a step of the turn; nil: the digest is made after the turn, and is no
	// step of it.
	Seq func() int32
	// Commit makes a call of the journal and repeats it as turns do.
	Commit func(context.Context, *registrypb.RecordCompactionRequest) (*registrypb.RecordCompactionResponse, error)
	// Fatal reports whether an error of Commit ends the work; any other costs a digest.
	Fatal func(error) bool
	// Ready is called when the digest of the conversation is committed, before the layers
	// above follow; nil: no message waits for it.
	Ready func()
	Logf  func(level, format string, args ...any)
}

// Outcome is what became of a job.
type Outcome struct {
	// Name of the file that holds the digest; empty when there was nothing new.
	Name string
	// Text of it.
	Text     string
	Messages int
	// Digested is the last event in it.
	Digested int64
	// Layers after it.
	Layers []*registrypb.MemoryState
	// Failed says why there is no digest; the log has it too.
	Failed string
	unseen []*registrypb.ThreadRecords
}

// Thread digests a conversation, and then the layers that are due by it. The
// error is one that ends the work; what else fails is logged and costs a digest.
func (r Registry) Thread(ctx context.Context, j Job) (Outcome, error) {
	state := Layer(j.Layers, registrypb.MemoryLayer_MEMORY_LAYER_THREAD)
	lines, upto, err := r.said(ctx, j, state.GetDigestedId(), "")
	if err != nil {
		return r.failed(ctx, j, state, err)
	}
	if len(lines) == 0 {
		return Outcome{Digested: state.GetDigestedId()}, nil
	}
	out, err := r.digest(ctx, j, task{state: state, level: compact.Thread, lines: lines, upto: upto})
	if err != nil || out.Failed != "" {
		return out, err
	}
	if j.Ready != nil {
		j.Ready()
	}
	above := func(l registrypb.MemoryLayer, every int32, digest func() (Outcome, error)) error {
		if s := Layer(out.Layers, l); s == nil || s.GetPending() < int64(every) || r.Waits(j, s) {
			return nil
		}
		j.Layers, j.Unseen = out.Layers, out.unseen
		o, err := digest()
		if o.Name != "" {
			out.Layers, out.unseen = o.Layers, o.unseen
		}
		return err
	}
	err = above(registrypb.MemoryLayer_MEMORY_LAYER_PEER, j.Config.GetPeerEvery(), func() (Outcome, error) { return r.Peer(ctx, j, out) })
	if err == nil {
		err = above(registrypb.MemoryLayer_MEMORY_LAYER_AGENT, j.Config.GetAgentEvery(), func() (Outcome, error) { return r.Agent(ctx, j) })
	}
	return out, err
}

// Peer digests the layer of the peer that wrote, after its conversation was.
func (r Registry) Peer(ctx context.Context, j Job, conversation Outcome) (Outcome, error) {
	state := Layer(j.Layers, registrypb.MemoryLayer_MEMORY_LAYER_PEER)
	lines := []compact.Line{{Who: "the conversation so far", Text: conversation.Text}}
	if !ownThread(j) {
		var err error
		if lines, _, err = r.said(ctx, j, state.GetDigestedId(), state.GetName()); err != nil {
			return r.failed(ctx, j, state, err)
		}
	}
	if len(lines) == 0 || conversation.Text == "" && ownThread(j) {
		return Outcome{}, nil
	}
	return r.digest(ctx, j, task{state: state, level: compact.Peer, lines: lines, upto: conversation.Digested})
}

// Agent digests the agent's own layer.
func (r Registry) Agent(ctx context.Context, j Job) (Outcome, error) {
	state := Layer(j.Layers, registrypb.MemoryLayer_MEMORY_LAYER_AGENT)
	lines, threads, err := r.done(ctx, j)
	if err != nil {
		return r.failed(ctx, j, state, err)
	}
	if len(lines) == 0 {
		return Outcome{}, nil
	}
	return r.digest(ctx, j, task{state: state, level: compact.Agent, lines: lines, threads: threads})
}

// Moved returns the layers of a conversation as they stand, and whether a digest of it
// was committed that the job's layers do not have.
func (r Registry) Moved(ctx context.Context, j Job) (layers []*registrypb.MemoryState, moved bool, err error) {
	now, err := r.Journal.GetMemory(ctx, &registrypb.GetMemoryRequest{AgentId: j.AgentID, ThreadId: j.ThreadID})
	if err != nil {
		return nil, false, fmt.Errorf("read the memory of %s: %w", j.ThreadID, err)
	}
	layers = InEpoch(now.GetMemory(), j.EpochFrom)
	state := Layer(layers, registrypb.MemoryLayer_MEMORY_LAYER_THREAD)
	return layers, state.GetCompactions() != Layer(j.Layers, registrypb.MemoryLayer_MEMORY_LAYER_THREAD).GetCompactions(), nil
}

// Undigested reports whether a conversation has messages between two events.
func (r Registry) Undigested(ctx context.Context, j Job, after, before int64) (bool, error) {
	page, err := r.Threads.PeekEvents(ctx, &registrypb.PeekEventsRequest{
		Thread: &registrypb.ThreadRef{AgentId: j.AgentID, ThreadId: j.ThreadID}, AfterId: after, Limit: 1,
		Filter: fmt.Sprintf(thread.ShownFilter+" AND id <= %d", before-1),
	})
	if err != nil {
		return false, fmt.Errorf("read %s: %w", j.ThreadID, err)
	}
	return len(page.GetEvents()) > 0, nil
}

// Layer finds a layer; nil when the conversation has none.
func Layer(list []*registrypb.MemoryState, l registrypb.MemoryLayer) *registrypb.MemoryState {
	for _, s := range list {
		if s.GetLayer() == l {
			return s
		}
	}
	return nil
}

// task is one digest of one layer.
type task struct {
	state   *registrypb.MemoryState
	level   compact.Level
	lines   []compact.Line
	upto    int64
	threads []*registrypb.ThreadRecords
}

func (r Registry) digest(ctx context.Context, j Job, t task) (Outcome, error) {
	out := Outcome{Digested: t.state.GetDigestedId()}
	name := t.state.GetName()
	file, err := r.Files.ReadAgentFile(ctx, &registrypb.ReadAgentFileRequest{AgentId: j.AgentID, Name: name})
	if err != nil {
		return r.failed(ctx, j, t.state, err)
	}
	old, base := string(file.GetContent()), file.GetVersion()
	if base == "" {
		base = absent
	}
	if t.level == compact.Thread && ofEarlier(t.state, j.EpochFrom) {
		old = "" // the file may still hold what the registry is about to move out of it
	}
	call := ctx
	if j.Timeout > 0 {
		var cancel context.CancelFunc
		call, cancel = context.WithTimeout(ctx, j.Timeout)
		defer cancel()
	}
	fault.Point("compaction.before")
	d, err := j.Strategy.Digest(call, compact.Input{Level: t.level, Old: old, Lines: t.lines})
	fault.Point("compaction.after")
	if err != nil {
		return r.failed(ctx, j, t.state, err)
	}
	in := &registrypb.RecordCompactionRequest{
		AgentId: j.AgentID, ThreadId: j.ThreadID, Key: j.Key, InboxId: j.InboxID, Layer: t.state.GetLayer(),
		Compactions: t.state.GetCompactions(), DigestedId: t.upto, BaseVersion: base,
		Strategy: j.Strategy.Name(), Messages: int32(d.Lines), Usage: usage(d.Usage), Duration: durationpb.New(d.Duration), Threads: t.threads,
	}
	if d.Text != old {
		in.Text = d.Text
	}
	if d.Calls > 0 {
		in.Model = j.Model
	}
	if j.Seq != nil {
		in.Seq = j.Seq()
	}
	j.Logf("INFO", "memory: %s digested, %d messages, %d tokens before, %d now, %d model calls", name, d.Lines,
		model.EstimateTokens(old), model.EstimateTokens(d.Text), d.Calls)
	resp, err := j.Commit(ctx, in)
	if err != nil {
		return r.failed(ctx, j, t.state, err)
	}
	r.Failures.Digested(j.AgentID, name)
	out.Name, out.Text, out.Messages, out.Digested = name, d.Text, d.Lines, t.upto
	out.Layers, out.unseen = InEpoch(resp.GetMemory(), j.EpochFrom), resp.GetThreads()
	return out, nil
}

// Waits reports whether a turn goes on without a digest of a layer, because the last ones
// failed, and counts the turn. A digest that a person requests is always made.
func (r Registry) Waits(j Job, state *registrypb.MemoryState) bool {
	return j.Key != "" && r.Failures.Wait(j.AgentID, state.GetName(), state.GetCompactions(), j.Model)
}

// failed is a job without a digest: nothing has changed, and a later turn asks again. The
// first failure is in the log, and the one after which a digest is given up for a while.
func (r Registry) failed(ctx context.Context, j Job, state *registrypb.MemoryState, err error) (Outcome, error) {
	out := Outcome{Digested: state.GetDigestedId(), Failed: err.Error()}
	if f, ok := errors.AsType[*fault.Error](err); ok {
		out.Failed = f.What
	}
	if ctx.Err() != nil {
		return out, context.Cause(ctx)
	}
	if j.Fatal(err) {
		return out, err
	}
	if j.Key == "" {
		return out, nil // the person is told
	}
	switch count, wait := r.Failures.Failed(j.AgentID, state.GetName(), state.GetCompactions(), j.Model, int(j.Config.GetAfterTurns()), step.Clip(out.Failed, 512)); count {
	case 1:
		j.Logf("WARN", "memory: %s not digested, the oldest messages are cut instead: %s", state.GetName(), step.Clip(out.Failed, 512))
	case tries:
		j.Logf("WARN", "memory: %s not digested %d times, asked for again every %d turns: %s", state.GetName(), count, wait+1, step.Clip(out.Failed, 512))
	}
	return out, nil
}

// Panicked notes a digest of a conversation that ended in a panic, as one that failed.
func (r Registry) Panicked(j Job) {
	state := Layer(j.Layers, registrypb.MemoryLayer_MEMORY_LAYER_THREAD)
	r.Failures.Failed(j.AgentID, state.GetName(), state.GetCompactions(), j.Model, int(j.Config.GetAfterTurns()), "a panic: the runner's log says what")
}

// absent is the version of a file that is not there.
const absent = "none"

func usage(u model.Usage) *registrypb.Usage {
	return &registrypb.Usage{Input: u.Input, Output: u.Output, CachedInput: u.CachedInput, CacheWrite: u.CacheWrite, Reasoning: u.Reasoning}
}
