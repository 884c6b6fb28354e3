package batch

import (
	"context"
	"errors"
	"time"

	"github.com/theclaw/agents/services/runner/internal/turn"
)

// maxFollowing bounds the work of one batch that runs or waits for its place; a turn that
// finds so much of it has none follow.
const maxFollowing = 256

var errTakenOver = errors.New("a turn does it")

// following is the background work that follows a turn of a conversation.
//
//	reserved --Begin--> waiting for a place --> running --> ended
//	    |                   |                      |          ^
//	    +--Cancel-----------+--the next turn       +--stop----+
//	                        |  cannot wait         |          |
//	                        +--stop----------------+----------+
type following struct {
	batch             *Batch
	slots             *Slots
	agentID, threadID string
	// ready is closed when a turn need not wait any more, done when the work is over.
	ready, done chan struct{}

	// Under the batch's mu:
	begun, running, useful, over bool
	cancel                       context.CancelCauseFunc // of what waits or runs
}

var _ turn.Background = (*following)(nil)

// reserve makes the work that follows a turn of a conversation; nil when there is one, or
// there can be none.
func (b *Batch) reserve(agentID, threadID string, slots *Slots) *following {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.noBackground || b.following[threadID] != nil || len(b.following) >= maxFollowing {
		return nil
	}
	if b.stop.Err() != nil {
		return nil
	}
	f := &following{batch: b, slots: slots, agentID: agentID, threadID: threadID, ready: make(chan struct{}), done: make(chan struct{})}
	b.following[threadID] = f
	b.background++
	slots.following.Add(1)
	return f
}

// Begin implements turn.Background. It is called by a lane, for which the batch waits.
func (f *following) Begin(ctx context.Context, work func(ctx context.Context, ready func())) {
	ctx, cancel := context.WithCancelCause(ctx)
	f.batch.mu.Lock()
	f.begun, f.cancel = true, cancel
	f.batch.mu.Unlock()
	f.batch.wg.Go(func() {
		defer f.end()
		defer cancel(nil)
		defer context.AfterFunc(f.batch.stop, func() { cancel(turn.ErrYield) })()
		if f.slots.background.Take(ctx, f.agentID, 1, 1) != nil {
			return
		}
		defer f.slots.background.Give(1)
		if f.start(ctx) {
			work(ctx, f.free)
		}
	})
}

// start notes that the work has its place; false when it was given up before.
func (f *following) start(ctx context.Context) bool {
	f.batch.mu.Lock()
	defer f.batch.mu.Unlock()
	f.running = ctx.Err() == nil
	return f.running
}

// Cancel implements turn.Background.
func (f *following) Cancel() {
	f.batch.mu.Lock()
	begun := f.begun
	f.batch.mu.Unlock()
	if !begun {
		f.end()
	}
}

// free lets the turns go on that wait for what is done already.
func (f *following) free() {
	f.batch.mu.Lock()
	defer f.batch.mu.Unlock()
	f.freeLocked()
}

func (f *following) freeLocked() {
	if !f.useful {
		f.useful = true
		close(f.ready)
	}
}

func (f *following) end() {
	f.batch.mu.Lock()
	defer f.batch.mu.Unlock()
	if f.over {
		return
	}
	f.freeLocked()
	f.over = true
	delete(f.batch.following, f.threadID)
	f.batch.background--
	f.slots.following.Add(-1)
	close(f.done)
	f.batch.notify()
}

// awaitFollowing implements turn.Slot for a conversation.
func (b *Batch) awaitFollowing(ctx context.Context, threadID string, d time.Duration, over bool) bool {
	b.mu.Lock()
	f := b.following[threadID]
	if f != nil && !f.running && f.cancel != nil {
		f.cancel(errTakenOver)
	}
	b.mu.Unlock()
	if f == nil {
		return true
	}
	end := f.ready
	if over {
		end = f.done
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-end:
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	return false
}
