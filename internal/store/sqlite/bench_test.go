package sqlite

import (
	"context"
	"fmt"
	"testing"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

func BenchmarkAppendFull(b *testing.B) {
	e := engine(b, home(b, "a"))
	list := []store.NewEvent{{Source: "s", Type: thread.TypeMessage, Content: "hello"}}
	for b.Loop() {
		if _, err := e.Append(b.Context(), store.Inbox("a"), list, store.AppendOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// The storage part of a message without tools: claim, reply, ack.
func BenchmarkUnit(b *testing.B) {
	e := engine(b, home(b, "a"))
	th, f := store.Ref{Agent: "a", Thread: "threads/x"}, store.Fence{Resource: "agent/a", Token: 1}
	if _, err := e.Ensure(b.Context(), th, ""); err != nil {
		b.Fatal(err)
	}
	var id int64
	for b.Loop() {
		id++
		b.StopTimer()
		if _, err := e.Append(b.Context(), store.Inbox("a"), []store.NewEvent{{Source: "s", Type: thread.TypeMessage, Content: "hello"}}, store.AppendOptions{}); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		ev := thread.Event{ID: id, Source: "s", Type: thread.TypeMessage, Content: "hello"}
		key := ev.Key("u")
		if _, err := e.Begin(b.Context(), th, f, store.Begin{Event: ev, Key: key, Tail: 20, Subscribe: true}); err != nil {
			b.Fatal(err)
		}
		if _, err := e.Finish(b.Context(), th, f, store.Finish{Key: key, Fate: store.FateReplied, Reply: "hi", Deliver: true}); err != nil {
			b.Fatal(err)
		}
		if _, err := e.Settle(b.Context(), "a", f, store.Settlement{InboxID: id, Key: key, Thread: th.Thread, Fate: store.FateReplied}); err != nil {
			b.Fatal(err)
		}
	}
	s := e.Stats()
	b.ReportMetric(float64(s.Durable)/float64(id), "fsync-commits/op")
}

func BenchmarkTail(b *testing.B) {
	for _, n := range []int{10, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			e := engine(b, home(b, "a"))
			list := make([]store.NewEvent, min(n, 1000))
			for i := range list {
				list[i] = store.NewEvent{Source: "s", Type: thread.TypeMessage, Content: "hello"}
			}
			for range n / len(list) {
				if _, err := e.Append(context.Background(), store.Inbox("a"), list, store.AppendOptions{}); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				if _, err := e.Read(b.Context(), store.Inbox("a"), store.Query{Limit: 10, Tail: true}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
