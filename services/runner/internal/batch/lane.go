package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/chatcommand"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/pause"
	"github.com/theclaw/agents/internal/source"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/fairqueue"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

// backoff is before work that failed for a reason of ours is begun again.
var backoff = pause.Backoff{First: 100 * time.Millisecond, Last: 30 * time.Second}

// costUnit is how much content counts as one more message of its peer.
const costUnit = 64 << 10

// open reads the inbox, and again until it can be read.
func (b *Batch) open(ctx context.Context, after int64, limit int32, logs []*registrypb.LogLine) (*registrypb.OpenBatchResponse, error) {
	for failures := 0; ; failures++ {
		r, err := b.deps.Inbox.OpenBatch(ctx, &registrypb.OpenBatchRequest{AgentId: b.cfg.AgentID, AfterId: after, Limit: limit, Logs: logs})
		if err == nil {
			return r, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		f := fault.From(err)
		if f.Reason == fault.LeaseLost {
			return nil, fmt.Errorf("%w: %w", turn.ErrLost, err)
		}
		if f.Code != codes.Unavailable {
			b.deps.Logger.WarnContext(ctx, "inbox not read", "agent_id", b.cfg.AgentID, "error", fault.Chain(err))
		}
		if err := b.sleep(ctx, failures); err != nil {
			return nil, err
		}
	}
}

// sleep waits after failures earlier ones. The end of the batch is no reason to wait on.
func (b *Batch) sleep(ctx context.Context, failures int) error {
	timer := time.NewTimer(backoff.Wait(failures))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-b.stop.Done():
		return turn.ErrYield
	case <-timer.C:
		return nil
	}
}

// take puts what was read into lanes and returns how many were new.
func (b *Batch) take(ctx context.Context, r *registrypb.OpenBatchResponse, lost context.CancelCauseFunc) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.agent == nil {
		n := int64(r.GetConcurrency())
		if n <= 0 {
			n = int64(config.Default().Run.Concurrency)
		}
		b.concurrency = n
		if b.cfg.Probe {
			n = 1
		}
		b.agent = fairqueue.New(n)
	}
	b.queue = readQueue(r)
	fresh, now := 0, time.Now()
	for _, e := range r.GetEvents() {
		id := e.GetEvent().GetId()
		if b.pending[id] {
			continue
		}
		fresh++
		b.pending[id] = true
		b.order = append(b.order, id)
		lane, runs := b.lanes[e.GetThreadId()]
		b.lanes[e.GetThreadId()] = append(lane, &entry{event: e, read: now})
		if !runs {
			b.run(func() { b.lane(ctx, e.GetThreadId(), lost) })
		}
	}
	for _, e := range r.GetEvents() {
		if chatcommand.IsCut(e.GetCommand().GetName()) {
			b.cut(e)
		}
		b.interrupt(e.GetThreadId())
	}
	slices.Sort(b.order) // a second reading may bring an earlier id
	b.scanned = max(b.scanned, r.GetScannedId())
	b.notify()
	return fresh
}

// cut ends what the conversation of a command has before it. The caller holds mu, so that no lane begins any of it
// meanwhile.
func (b *Batch) cut(stop *registrypb.PendingEvent) {
	fault.Point("C1")
	for _, w := range b.lanes[stop.GetThreadId()] {
		if w.cut != nil || !cuts(stop, w.event) {
			continue
		}
		w.cut = b.deps.Abort(w.event.GetKey(), stop)
		if !w.begun && w.gone == nil {
			b.withdraw(w)
		}
	}
}

// cuts reports whether a command ends another event of its conversation: one before it, and of its sender unless
// that is an owner. A cut is ended by none, so that each is answered.
func cuts(stop, other *registrypb.PendingEvent) bool {
	return other.GetEvent().GetId() < stop.GetEvent().GetId() && !chatcommand.IsCut(other.GetCommand().GetName()) &&
		(stop.GetFromOwner() || source.PeerOf(stop.GetEvent().GetSource()) == source.PeerOf(other.GetEvent().GetSource()))
}

// withoutModel reports whether the turn of an event is short: a command that asks no model, and needs no slot.
func withoutModel(e *registrypb.PendingEvent) bool {
	c := e.GetCommand()
	return c != nil && !chatcommand.AsksModel(c.GetName(), c.GetArgs())
}

// lane works on the events of one thread, in order, until there are none.
func (b *Batch) lane(ctx context.Context, threadID string, lost context.CancelCauseFunc) {
	for {
		b.mu.Lock()
		queue := b.lanes[threadID]
		if len(queue) == 0 {
			delete(b.lanes, threadID)
			delete(b.modes, threadID)
			b.mu.Unlock()
			return
		}
		w := queue[0]
		gone := w.gone
		b.mu.Unlock()
		if gone != nil { // withdrawn: see what becomes of that
			select {
			case <-gone:
				continue
			case <-b.stop.Done():
			case <-ctx.Done():
			}
			return
		}

		e := w.event
		err := b.quiet(ctx, w)
		if err == nil {
			err = b.work(ctx, w)
		}
		switch {
		case errors.Is(err, errWithdrawn):
		case err == nil, errors.Is(err, turn.ErrStale):
			b.finished(threadID, e.GetEvent().GetId(), err != nil)
		default:
			if errors.Is(err, turn.ErrLost) {
				lost(err)
			}
			return // the batch is at its end; the queue is the next holder's
		}
	}
}

// work runs a turn, and again when something of ours failed: the event keeps
// its place in its lane, other lanes go on. The next claim reports how the one before was
// given back.
func (b *Batch) work(ctx context.Context, w *entry) error {
	e := w.event
	defer b.release(e.GetThreadId())
	for failures := 0; ; failures++ {
		s := &slot{
			agentID: b.cfg.AgentID, peer: source.PeerOf(e.GetEvent().GetSource()), agent: b.agent, all: b.deps.Slots,
			weight: 1, cost: 1 + int64(len(e.GetEvent().GetContent()))/costUnit, stop: b.stop,
			batch: b, entry: w,
		}
		err := b.enter(ctx, w, s)
		if err == nil {
			err = b.deps.Turn(ctx, e, s)
			s.give()
		}
		if g, ok := errors.AsType[*turn.GivenBack](err); ok {
			w.givenBack = g.Attempt
		}
		switch {
		case err == nil, ctx.Err() != nil, errors.Is(err, errWithdrawn), errors.Is(err, turn.ErrLost), errors.Is(err, turn.ErrYield):
			return err
		case fault.Is(err, fault.AgentStopped):
			b.Stop() // the rest waits for its start
			return turn.ErrYield
		case errors.Is(err, turn.ErrStale):
			if ended := b.sleep(ctx, 0); ended != nil {
				return ended
			}
			return err
		}
		b.deps.Logger.WarnContext(ctx, "turn not finished", "agent_id", b.cfg.AgentID, "thread_id", e.GetThreadId(),
			"event_id", e.GetEvent().GetId(), "error", fault.Chain(err))
		if err := b.sleep(ctx, failures); err != nil {
			return err
		}
	}
}

func (b *Batch) finished(threadID string, id int64, stale bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lanes[threadID] = slices.DeleteFunc(slices.Clone(b.lanes[threadID]), func(w *entry) bool {
		done := w.event.GetEvent().GetId() == id
		if done && w.cut != nil {
			w.cut()
		}
		return done
	})
	delete(b.pending, id)
	if stale {
		b.rescan = true
		b.scanned = min(b.scanned, id-1)
	} else {
		b.done++
		if b.done == 1 && b.cfg.Probe {
			b.agent.Resize(b.concurrency)
		}
	}
	b.notify()
}

// prefix is the last id up to which everything has its fate. The caller holds mu.
func (b *Batch) prefix() int64 {
	for len(b.order) > 0 && !b.pending[b.order[0]] {
		b.order = b.order[1:]
	}
	if len(b.order) > 0 {
		return min(b.order[0]-1, b.scanned)
	}
	return b.scanned
}

// room is where to read on, and how many events.
func (b *Batch) room() (after int64, limit int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := Window - (b.scanned - b.prefix())
	return b.scanned, int32(min(page, max(left, 0)))
}

// again reports, once, that the inbox has to be read again.
func (b *Batch) again() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	again := b.rescan
	b.rescan = false
	return again
}

func (b *Batch) busy() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.pending) > 0 || b.background > 0
}

// Share is what a batch has used of its share when other agents wait for its place.
type Share int

// A batch that works on less than its share keeps its lease; one that had it, or
// has nothing in hand, gives it back.
const (
	Working Share = iota
	ShareUsed
	Idle
)

// Share is what the batch has used of its share while others wait.
func (b *Batch) Share() Share {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.agent != nil && len(b.pending) == 0 && b.background == 0 && len(b.poke) == 0 && !b.rescan:
		return Idle
	case b.held == 0 && (b.done >= shareEvents || time.Since(b.began) >= shareTime):
		return ShareUsed
	}
	return Working
}

func (b *Batch) count() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.done
}

func (b *Batch) changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.progress
}

// notify wakes who waits for a change. The caller holds mu.
func (b *Batch) notify() {
	close(b.progress)
	b.progress = make(chan struct{})
}

func (b *Batch) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	b.notify()
}
