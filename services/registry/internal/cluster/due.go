package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/services/registry/internal/dispatch"
	"github.com/theclaw/agents/services/registry/internal/state"
)

// MarkDue announces that an agent may be free or have work now.
func (r *Registry) MarkDue(a *state.Agent) { r.markDue(a.ID) }

func (r *Registry) markDue(id string) {
	r.runs.Mark(id)
	r.deliveries.Mark(id)
	r.notify(store.NoticeWork, id)
}

// DropDue does nothing for an agent that was stopped: its row shows that.
func (r *Registry) DropDue(string) {}

// ToDeliver announces that an agent has something to send.
func (r *Registry) ToDeliver(a *state.Agent, _ string, _ int64) {
	r.deliveries.Mark(a.ID)
	r.notify(store.NoticeReplies, a.ID)
}

// ReplyStored is called before the message of a reply is acknowledged: nobody can find it
// yet.
func (r *Registry) ReplyStored(*state.Agent, string, int64) {}

// ReplyAcked announces that there is something to send: the acknowledgment has put it on the
// list.
func (r *Registry) ReplyAcked(a *state.Agent, threadID string, head int64) {
	r.ToDeliver(a, threadID, head)
}

// SayStored makes a thread due for what was said in it. After a crash of ours the next claim of
// the turn, or its end, asks again.
func (r *Registry) SayStored(ctx context.Context, a *state.Agent, threadID string) {
	if err := r.table.Reopen(ctx, a.ID, threadID); err != nil {
		r.log.WarnContext(ctx, "message sent only at the end of the turn", "agent_id", a.ID, "thread_id", threadID, "error", err)
	}
	r.ToDeliver(a, threadID, 1)
}

// Follow reads the inbox of an agent for the holder of its lease, at first and whenever
// something was stored here, until read has read some; false when nothing came in time.
// Of what is stored at other registries the holder learns through its poll for work.
func (r *Registry) Follow(ctx context.Context, a *state.Agent, f store.Fence, after int64, wait time.Duration, read func() (scanned int64, some bool, err error)) (answered bool, err error) {
	_, _, holder, _ := rpc.FenceFrom(ctx)
	err = r.follows.Read(ctx, rpc.Draining(ctx), a.ID, holder, fmt.Sprint(f.Token, " ", after), wait, func() (bool, error) {
		_, some, err := read()
		answered = err == nil && some
		return answered, err
	})
	return answered, err
}

// Next waits for agents with work and leases them to the caller. It queries all of the list
// first, unless its holder has polled here just before, then the agents that hints name,
// and all again after a while, because a hint may be lost. The repeat of a request at
// another registry gets the same leases: they carry its request id.
func (r *Registry) Next(ctx context.Context, q dispatch.Request) (dispatch.Answer, error) {
	timeout := time.NewTimer(q.Wait)
	defer timeout.Stop()
	lapses := r.lapses.Of(q.Holder)
	ask := store.DueQuery{Deliver: q.Deliver, Holder: q.Holder, Address: q.Address, RequestID: q.RequestID, TTL: q.TTL, MaxNew: q.MaxNew}
	hints := &r.runs
	if q.Deliver {
		hints = &r.deliveries
	}
	listener := hints.Listen(dispatch.Ask{Holder: q.Holder, ID: q.RequestID, MaxNew: q.MaxNew})
	defer listener.Close()
	again := r.Wakes.Again()
	for {
		var out dispatch.Answer
		if r.lapses.Of(q.Holder) != lapses {
			// A stopped process cannot take back the poll it left here. Given what
			// it has just let run out, it would hold that for one ttl more; one that
			// is only late asks again at once.
			return out, nil
		}
		if news, any := listener.Take(); any {
			ask.All, ask.Mine, ask.Free = news.All, news.Mine, news.Free
			if q.News && !q.Deliver && !ask.All {
				ask.Mine, out.News = nil, news.Mine // the holder knows its agents: no query is needed
			}
			found, waiting, err := r.table.Find(ctx, ask)
			if err != nil {
				listener.ScanAll()
				return out, r.Fault("", "", err)
			}
			out.Waiting = waiting
			free := q.MaxNew
			for _, f := range found {
				out.Due = append(out.Due, dispatch.Due{Agent: f.Agent, Head: f.Head, Threads: f.Threads, Lease: f.Lease, Fresh: f.Fresh})
				if f.Fresh {
					free--
					r.Wakes.Granted(f.Agent)
					r.metrics.DispatchLatency.Observe(max(time.Since(f.Since), 0).Seconds())
				}
			}
			if free <= 0 || waiting > 0 { // there may be more than it could have
				listener.ScanAll()
			}
			if len(out.Due)+len(out.News) > 0 {
				return out, nil
			}
		}
		select {
		case <-listener.Wake():
		case <-again:
			again = r.Wakes.Again()
			listener.ScanAll()
		case <-timeout.C:
			return out, nil
		case <-rpc.Draining(ctx):
			return out, nil
		case <-ctx.Done():
			r.Leases.recheck() // the caller may have died while it held leases
			return out, ctx.Err()
		}
	}
}

// Ended announces that an agent whose lease has ended may be free.
func (r *Registry) Ended(_ context.Context, id string) {
	if _, err := r.Get(id); err == nil {
		r.markDue(id)
	}
}

// Begin begins a turn, and makes its thread only when it turns out to be missing: that
// saves a round trip.
func (r *Registry) Begin(ctx context.Context, ref store.Ref, tuple string, f store.Fence, b store.Begin) (store.Begun, error) {
	begun, err := r.Engine.Begin(ctx, ref, f, b)
	if !errors.Is(err, store.ErrNotFound) {
		return begun, err
	}
	if _, err := r.Engine.Ensure(ctx, ref, tuple); err != nil {
		return begun, err
	}
	return r.Engine.Begin(ctx, ref, f, b)
}

// Space returns nil: nothing grows here, and the database reports a full disk.
func (r *Registry) Space() error { return nil }
