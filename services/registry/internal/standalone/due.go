package standalone

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/services/registry/internal/dispatch"
	"github.com/theclaw/agents/services/registry/internal/state"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

const (
	// runLockRetry is when an agent is offered again whose run.lock was held.
	runLockRetry = 100 * time.Millisecond
	// diskRetry is when agents are offered again after the disk was found full.
	diskRetry = time.Second
	// maxDue is the most agents of one answer.
	maxDue = 256
)

// MarkDue puts an agent that has work onto the lists.
func (r *Registry) MarkDue(a *state.Agent) {
	if a.HasWork() {
		r.runs.Mark(a.ID)
	}
	if out := a.Outbox(); len(out) > 0 {
		r.deliveries.Mark(a.ID, out...)
	}
}

// DropDue takes an agent that was stopped off the list.
func (r *Registry) DropDue(id string) { r.runs.Drop(id) }

// ToDeliver makes the replies of a thread due that reach up to head.
func (r *Registry) ToDeliver(a *state.Agent, threadID string, head int64) {
	a.ToDeliver(threadID, head)
	r.deliveries.Mark(a.ID, threadID)
}

// ReplyStored makes a reply due before its message is acknowledged: it is committed, and
// its delivery need not wait.
func (r *Registry) ReplyStored(a *state.Agent, threadID string, head int64) {
	r.ToDeliver(a, threadID, head)
}

// ReplyAcked is called when its message is acknowledged: it is due already.
func (r *Registry) ReplyAcked(*state.Agent, string, int64) {}

// SayStored makes a thread due for what was said in it. Its end finds out how far that is.
func (r *Registry) SayStored(_ context.Context, a *state.Agent, threadID string) {
	r.ToDeliver(a, threadID, 1)
}

// pushed notes the head of an inbox and makes the agent due, unless a batch waits for
// what is new: it is woken, and marks the agent itself when it leaves before it has
// read that.
func (r *Registry) pushed(a *state.Agent, head int64) (news bool) {
	news = a.Pushed(head)
	if news && a.Started() && !a.HasFollower() {
		r.runs.Mark(a.ID)
	}
	return news
}

// found is pushed for events of another program, and wakes who follows the inbox.
func (r *Registry) found(a *state.Agent, head int64) {
	if r.pushed(a, head) {
		r.Wakes.Changed(store.Inbox(a.ID))
	}
}

// Follow waits until the inbox of an agent has an event after one, and reads it then:
// read returns up to where it has read. False when nothing came in time. A batch that
// leaves before it has read what came makes its agent due.
func (r *Registry) Follow(ctx context.Context, a *state.Agent, _ store.Fence, after int64, wait time.Duration, read func() (scanned int64, some bool, err error)) (bool, error) {
	at := after
	a.Follow(1)
	defer func() {
		a.Follow(-1)
		if k := a.Known(); k.Started && k.Head > max(at, k.Acked) {
			r.runs.Mark(a.ID)
		}
	}()
	if news, err := r.news(ctx, a, after, wait); err != nil || !news {
		return false, err
	}
	scanned, _, err := read()
	at = max(at, scanned)
	return true, err
}

// news waits until the inbox of an agent has an event after one, as far as is known
// here; false when none came.
func (r *Registry) news(ctx context.Context, a *state.Agent, after int64, wait time.Duration) (bool, error) {
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	for {
		woken, done := r.Wakes.AwaitEvent(store.Inbox(a.ID)) // before the read, so that nothing is missed
		if a.Known().Head > after {
			done()
			return true, nil
		}
		var over bool
		select {
		case <-woken:
		case <-timeout.C:
			over = true
		case <-rpc.Draining(ctx):
			over = true
		case <-ctx.Done():
			over = true
		}
		done()
		if over {
			return false, ctx.Err()
		}
	}
}

// Next waits for agents with work and leases them to the caller.
func (r *Registry) Next(ctx context.Context, q dispatch.Request) (dispatch.Answer, error) {
	board, key := r.runs, "run/"+q.Holder
	if q.Deliver {
		board, key = r.deliveries, "deliver/"+q.Holder
	}
	if again, ok := r.polls.repeat(key, q.RequestID); ok {
		return again, nil
	}
	timeout := time.NewTimer(q.Wait)
	defer timeout.Stop()
	lapses := r.lapses.Of(q.Holder)
	for {
		if r.lapses.Of(q.Holder) != lapses {
			// A stopped process cannot take back the poll it left here. Given what
			// it has just let run out, it would hold that for one ttl more; one that
			// is only late asks again at once.
			return dispatch.Answer{}, nil
		}
		answer, wake := r.take(ctx, board, q)
		if len(answer.Due) > 0 {
			r.polls.keep(key, q.RequestID, answer)
			return answer, nil
		}
		select {
		case <-wake:
		case <-timeout.C:
			return answer, nil
		case <-rpc.Draining(ctx):
			return answer, nil
		case <-ctx.Done():
			r.Leases.recheck() // the caller may have died while it held leases
			return dispatch.Answer{}, ctx.Err()
		}
	}
}

// take takes what the asker may have: agents whose lease it holds, and free
// ones up to its bound. Work of agents held by others stays on the board.
func (r *Registry) take(ctx context.Context, board *dispatch.Board, q dispatch.Request) (dispatch.Answer, <-chan struct{}) {
	var out dispatch.Answer
	fresh := 0
	full := sync.OnceValue(func() bool { return r.full(q.Deliver) })
	granted := map[string]dispatch.Due{}
	items, wake := board.Take(func(id string) (accept, stop bool) {
		a, err := r.Get(id)
		if err != nil {
			return true, false // gone: off the board
		}
		if !q.Deliver && !a.HasWork() {
			return true, false // stopped, or settled meanwhile
		}
		resource := lease.AgentResource(id)
		if q.Deliver {
			resource = lease.DeliverResource(id)
		}
		due := dispatch.Due{Agent: id, Head: a.Known().Head}
		if rec, live, _ := r.Table.Get(ctx, resource); live {
			if rec.Holder != q.Holder {
				return false, false
			}
			due.Lease = rec
			granted[id] = due
			return true, len(granted) >= maxDue
		}
		if full() {
			return false, false
		}
		if fresh >= q.MaxNew {
			out.Waiting++
			return false, false
		}
		rec, err := r.Leases.Acquire(ctx, lease.AcquireRequest{
			Resource: resource, Holder: q.Holder, Address: q.Address, RequestID: q.RequestID + "/" + id, TTL: q.TTL, Floor: a.Fence(resource),
		})
		if _, held := errors.AsType[*lease.HeldError](err); held {
			return false, false // another was faster, or run.lock is held
		}
		if err != nil {
			r.log.Warn("due agent not leased", "agent_id", id, "error", r.Fault(id, "", err))
			return false, false // the sweep marks it again
		}
		fresh++
		due.Lease, due.Fresh = rec, true
		granted[id] = due
		return true, len(granted) >= maxDue
	})
	for _, it := range items {
		if due, ok := granted[it.Agent]; ok {
			due.Threads = it.Threads
			r.metrics.DispatchLatency.Observe(time.Since(it.Since).Seconds())
			out.Due = append(out.Due, due)
		}
	}
	return out, wake
}

// Ended makes the work of an agent due whose lease has ended.
func (r *Registry) Ended(ctx context.Context, id string) {
	r.Leases.dropRunLock(ctx, id)
	if a, err := r.Get(id); err == nil {
		r.MarkDue(a)
	}
}

// full reports that no agent is leased to a runner now: without space nothing new is
// begun, while replies are still delivered.
func (r *Registry) full(deliver bool) bool {
	if deliver || r.Space() == nil {
		return false
	}
	r.Leases.offerAgain(diskRetry)
	return true
}

// freeDisk returns the bytes that may still be written below the home.
func (r *Registry) freeDisk() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(r.home.Path(), &st); err != nil {
		return 0, agentdir.Fault(err)
	}
	return int64(st.Bavail) * int64(st.Bsize), nil //nolint:unconvert // another type on other systems
}

// Space refuses new messages and new claims while there is little disk space, so that what is
// under way can still finish.
func (r *Registry) Space() error {
	free, err := r.freeDisk()
	if err != nil {
		return err
	}
	if free >= r.minFree {
		return nil
	}
	f := fault.New(codes.ResourceExhausted, fault.DiskFull, "the disk has too little free space for new work", "free some space, 'agentctl prune' shows what can be removed; nothing was stored and nothing is lost")
	f.RetryAfter = wire.RetryFull
	return f
}

// polls keeps the last answer to each holder's long poll, so that a repeat of a
// call whose answer was lost gets the same leases.
type polls struct {
	mu   sync.Mutex
	last map[string]poll // by kind and holder
}

type poll struct {
	requestID string
	answer    dispatch.Answer
}

func (p *polls) repeat(key, requestID string) (dispatch.Answer, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, ok := p.last[key]
	return l.answer, ok && l.requestID == requestID
}

func (p *polls) keep(key, requestID string, answer dispatch.Answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.last) > 4096 { // a forgotten response costs one ttl
		clear(p.last)
	}
	p.last[key] = poll{requestID, answer}
}
