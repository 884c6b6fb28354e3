package sqlite

import (
	"fmt"
	"testing"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// The allocations of the storage part of a message are counted in a short thread
// and in a long one. They are the same: what a claim reads to build a context is
// the tail that was asked for, and an append looks at nothing but the head.
func TestCostOfAUnit(t *testing.T) {
	short, long := unit(t, 60), unit(t, 6000)
	for op, most := range map[string]float64{"push": 55, "begin": 220, "finish": 40, "settle": 40, "open": 70, "next": 75, "sent": 65} {
		t.Logf("%s: %.0f allocations in a short thread, %.0f in a long one", op, short[op], long[op])
		if short[op] > most {
			t.Errorf("%s: %.0f allocations, want at most %.0f", op, short[op], most)
		}
		if long[op] > 1.1*short[op]+4 {
			t.Errorf("%s: %.0f allocations in a short thread, %.0f in a long one", op, short[op], long[op])
		}
	}
}

// unit answers the allocations of each step in a thread and an inbox of n events.
func unit(t *testing.T, n int) map[string]float64 {
	t.Helper()
	e, ctx := engine(t, home(t, "a")), t.Context()
	in, th := store.Inbox("a"), store.Ref{Agent: "a", Thread: "threads/x"}
	run, send := store.Fence{Resource: "agent/a", Token: 1}, store.Fence{Resource: "deliver/a", Token: 1}
	try := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := e.Ensure(ctx, th, "")
	try(err)
	message := store.NewEvent{Source: "s", Type: thread.TypeMessage, Content: "hello"}
	fill := make([]store.NewEvent, n)
	for i := range fill {
		fill[i] = message
	}
	_, err = e.Append(ctx, th, fill, store.AppendOptions{})
	try(err)
	route := func(thread.Event, string) (string, error) { return th.Thread, nil }
	sum, rounds := map[string]float64{}, 20
	count := func(op string, fn func() error) {
		var err error
		sum[op] += testing.AllocsPerRun(1, func() {
			if e := fn(); e != nil {
				err = e
			}
		}) / float64(rounds)
		try(err)
	}
	// AllocsPerRun calls each step once more, to warm it; all but the push may be
	// repeated, and a repetition is a step that finds its work done.
	for i := range rounds {
		id := int64(0)
		count("push", func() error {
			out, err := e.Append(ctx, in, []store.NewEvent{message}, store.AppendOptions{Key: fmt.Sprint(i, id), MaxPending: 100, MaxPerPeer: 100})
			if err == nil {
				id = out.IDs[0]
			}
			return err
		})
		var batch store.Batch
		count("open", func() error {
			var err error
			batch, err = e.OpenBatch(ctx, "a", run, store.OpenBatch{Limit: 2, Mode: "m", Route: route})
			return err
		})
		for _, p := range batch.Events {
			count("begin", func() error {
				_, err := e.Begin(ctx, th, run, store.Begin{Event: p.Event, Key: p.Key, Tail: 20, Subscribe: true, Alone: true})
				return err
			})
			var fin store.Finished
			finish := func() error {
				var err error
				fin, err = e.Finish(ctx, th, run, store.Finish{Key: p.Key, Fate: store.FateReplied, Reply: "hi", Deliver: true})
				return err
			}
			count("finish", finish)
			count("settle", func() error {
				_, err := e.Settle(ctx, "a", run, store.Settlement{InboxID: p.Event.ID, Key: p.Key, Thread: th.Thread, Fate: store.FateReplied, OutboxHead: fin.ReplyID})
				return err
			})
			count("next", func() error {
				_, err := e.NextDelivery(ctx, th, send, store.NextDelivery{BootID: "b"})
				return err
			})
			count("sent", func() error {
				_, err := e.FinishDelivery(ctx, th, send, store.FinishDelivery{EventID: fin.ReplyID, Outcome: store.OutcomeSent})
				return err
			})
		}
	}
	for _, op := range []string{"begin", "finish", "settle", "next", "sent"} {
		sum[op] /= 2 // two pushes a round
	}
	return sum
}
