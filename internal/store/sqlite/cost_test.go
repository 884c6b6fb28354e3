package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/schema"
	"github.com/theclaw/agents/internal/thread"
)

// The allocations of the storage part of a message are counted in a short thread
// and in a long one. They are the same: what a claim reads to build a context is
// the tail that was asked for, and an append looks at nothing but the head.
func TestCostOfAUnit(t *testing.T) {
	t.Run("plain", func(t *testing.T) { compareUnits(t, nil) })
	t.Run("with origin and session", func(t *testing.T) {
		compareUnits(t, &store.Origin{Thread: "threads/x", Key: "agent:a:main", Account: "work", ProviderID: "17", Rev: 1, SentAt: time.UnixMilli(1)})
	})
}

func compareUnits(t *testing.T, o *store.Origin) {
	t.Helper()
	short, long := unit(t, 60, o), unit(t, 6000, o)
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

// unit answers the allocations of each step in a thread and an inbox of n events. With an origin
// the messages have it, and the conversation has a session.
func unit(t *testing.T, n int, o *store.Origin) map[string]float64 {
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
	message := store.NewEvent{Source: "s", Type: thread.TypeMessage, Content: "hello", Origin: o}
	var session *store.BeginSession
	if o != nil {
		session = &store.BeginSession{Key: o.Key, Idle: time.Hour}
	}
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
			var begun store.Begun
			count("begin", func() error {
				var err error
				begun, err = e.Begin(ctx, th, run, store.Begin{Event: p.Event, Key: p.Key, Tail: 20, Subscribe: true, Alone: true, Session: session})
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
				_, err := e.Settle(ctx, "a", run, store.Settlement{InboxID: p.Event.ID, Key: p.Key, Thread: th.Thread, Fate: store.FateReplied, OutboxHead: fin.ReplyID, Session: begun.Session})
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

// The pages that a message writes into the logs of its inbox and its conversation are counted. A
// message with an origin writes two more in the inbox, one with its push and one with its fate, and
// none in a conversation whose session does not change.
func TestPagesOfAMessage(t *testing.T) {
	plainInbox, plainThread := pages(t, nil)
	inbox, conversation := pages(t, &store.Origin{Thread: "threads/x", Key: "agent:a:telegram:work:dm:17", Account: "work", ProviderID: "1700000017", Rev: 12, SentAt: time.UnixMilli(1764200000123)})
	t.Logf("pages of a message: %.2f in the inbox and %.2f in its conversation; with an origin %.2f and %.2f", plainInbox, plainThread, inbox, conversation)
	if more := inbox - plainInbox; more > 2.5 {
		t.Errorf("an origin costs %.2f pages in the inbox, want at most 2.5", more)
	}
	if more := conversation - plainThread; more > 0.1 {
		t.Errorf("a session that does not change costs %.2f pages in the conversation, want none", more)
	}
}

// pages answers the pages that a message writes in the inbox and in its conversation.
func pages(t *testing.T, o *store.Origin) (inbox, conversation float64) {
	t.Helper()
	root := home(t, "a")
	e, ctx, run := engine(t, root), t.Context(), store.Fence{Resource: "agent/a", Token: 1}
	in, th := store.Inbox("a"), store.Ref{Agent: "a", Thread: "threads/x"}
	_, err := e.Ensure(ctx, th, "")
	must(t, err)
	message := func(i int) {
		_, err := e.Append(ctx, in, []store.NewEvent{{Source: "s", Type: thread.TypeMessage, Content: fmt.Sprint("hello ", i), Origin: o}}, store.AppendOptions{Key: fmt.Sprint("k", i)})
		must(t, err)
		b, err := e.OpenBatch(ctx, "a", run, store.OpenBatch{Limit: 2, Mode: "m", Route: func(thread.Event, string) (string, error) { return th.Thread, nil }})
		must(t, err)
		p := b.Events[0]
		begin := store.Begin{Event: p.Event, Key: p.Key, Tail: 20, Subscribe: true}
		if o != nil {
			begin.Session = &store.BeginSession{Key: o.Key, Idle: time.Hour}
		}
		begun, err := e.Begin(ctx, th, run, begin)
		must(t, err)
		fin, err := e.Finish(ctx, th, run, store.Finish{Key: p.Key, Fate: store.FateReplied, Reply: "hi", Deliver: true})
		must(t, err)
		_, err = e.Settle(ctx, "a", run, store.Settlement{InboxID: p.Event.ID, Key: p.Key, Thread: th.Thread, Fate: store.FateReplied, OutboxHead: fin.ReplyID, Session: begun.Session})
		must(t, err)
	}
	written := func(r store.Ref) int64 {
		info, err := os.Stat(filepath.Join(root, r.Agent, r.Thread, "events.db-wal"))
		must(t, err)
		return info.Size() / (schema.PageSize + 24) // of a frame's header
	}
	const warm, messages = 5, 20 // fewer pages than the log has before it begins anew
	for i := range warm {
		message(i)
	}
	inBefore, thBefore := written(in), written(th)
	for i := range messages {
		message(warm + i)
	}
	return float64(written(in)-inBefore) / messages, float64(written(th)-thBefore) / messages
}
