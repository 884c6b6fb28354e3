package postgres_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/theclaw/agents/internal/filter"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// Said is a message of the agent by another program, and who listens for it.
func (m *pair) Said(t *rapid.T) {
	th, typ := pick(t, "thread", threads...), pick(t, "type", thread.TypeMessage, thread.TypeRecord)
	m.both(t, "said", func(s *side) (any, error) {
		return s.Append(ctx, s.ref(th), []store.NewEvent{{Source: thread.SourceSelf, Type: typ, Content: "from elsewhere"}}, store.AppendOptions{})
	})
}

func (m *pair) Consumer(t *rapid.T) {
	th, name := pick(t, "thread", thread.Inbox, threads[0], threads[1]), pick(t, "consumer", thread.Outbound, thread.Inbox, "other")
	what, id, forward := pick(t, "what", "on", "off", "ack", "ack"), int64(rapid.IntRange(0, 9).Draw(t, "id")), flip(t, "forward")
	m.both(t, what, func(s *side) (any, error) {
		switch what {
		case "on":
			return nil, s.Subscribe(ctx, s.ref(th), store.Subscription{Consumer: name, Handler: "h"})
		case "off":
			return nil, s.Unsubscribe(ctx, s.ref(th), name)
		}
		return s.Ack(ctx, s.ref(th), name, id, forward)
	})
}

func (m *pair) Started(t *rapid.T) {
	on := pick(t, "on", true, true, false)
	m.both(t, "set started", func(s *side) (any, error) { return s.SetStarted(ctx, s.agent, on, "h") })
}

func (m *pair) Mark(t *rapid.T) {
	mark := store.OutboxMark{Thread: pick(t, "thread", threads...), Acked: int64(rapid.IntRange(0, 9).Draw(t, "acked")), Dead: pick(t, "dead", int64(0), 1), Reopen: flip(t, "reopen")}
	m.both(t, "mark outbox", func(s *side) (any, error) { return nil, s.MarkOutbox(ctx, s.agent, mark) })
}

func (m *pair) Resolve(t *rapid.T) {
	id, how := int64(rapid.IntRange(1, int(m.pushed)+1).Draw(t, "id")), pick(t, "how", "retried", "dropped")
	m.both(t, "resolve turn", func(s *side) (any, error) {
		ev, key, err := s.ResolveTurn(ctx, s.agent, id, how)
		return []any{ev, key}, err
	})
}

// Compact commits digests, some of them twice or too late.
func (m *pair) Compact(t *rapid.T) {
	th, layer := pick(t, "thread", thread.Inbox, threads[0], threads[1]), pick(t, "layer", "memory/a", "memory/agent.md")
	after := max(m.compact[th+layer]+pick(t, "after", int64(0), 0, 0, -1, 1), 0)
	c := store.Compaction{After: after, Mark: store.MemoryMark{Layer: layer, Digested: pick(t, "upto", int64(1), 5, 9), Base: "b", Text: pick(t, "text", words...), Thread: "x"}}
	if th != thread.Inbox {
		c.Decision = store.Decision{Key: fmt.Sprint("compact:", layer, after), Content: pick(t, "decision", "", "{}")}
	} else {
		c.Threads = []store.MemoryMark{{Layer: threads[0], N: 2, Digested: 3}}
	}
	way := pick(t, "step", 0, 1, 2)
	id := int64(0)
	if way == 2 {
		id, th = m.begun(t)
	}
	m.both(t, "compact", func(s *side) (any, error) {
		if way > 0 {
			c.Decision.Step = store.Step{Seq: 9, Kind: store.StepCompaction, Key: "compact:1", State: store.StepDone, Name: "p/m", Usage: store.Usage{Input: 3}}
			c.Decision.Turn = s.keys[id]
		}
		out, err := s.Compact(ctx, s.ref(th), s.runner(), c)
		if err == nil {
			m.compact[th+layer] = out.N
		}
		return out, err
	})
}

func (m *pair) Digests(t *rapid.T) {
	th, n, layer := pick(t, "thread", threads...), int64(rapid.IntRange(1, 4).Draw(t, "n")), pick(t, "layer", "memory/a", "memory/agent.md")
	m.both(t, "count", func(s *side) (any, error) { return nil, s.CountCompaction(ctx, s.agent, s.runner(), th, n) })
	m.both(t, "written", func(s *side) (any, error) { return nil, s.MemoryWritten(ctx, s.ref(th), layer, n) })
	limit := pick(t, "limit", 1, 5)
	m.both(t, "unseen", func(s *side) (any, error) {
		list, total, err := s.UnseenThreads(ctx, s.agent, limit)
		return []any{list, total}, err
	})
}

func (m *pair) Decision(t *rapid.T) {
	id, th := m.begun(t)
	d := store.Decision{Key: fmt.Sprint("d", pick(t, "key", 1, 2)), Content: "{}"}
	way := pick(t, "way", 0, 1, 2)
	m.both(t, "decide", func(s *side) (any, error) {
		if way > 0 {
			d.Step = store.Step{Seq: 7, Kind: store.StepTool, Key: "tool:7", State: store.StepDone, Name: "n"}
		}
		if way == 2 {
			d.Turn = s.keys[id]
		}
		return nil, s.Decide(ctx, s.ref(th), s.runner(), d)
	})
}

func (m *pair) Prune(t *rapid.T) {
	p := store.Prune{Before: time.Now().Add(pick(t, "old", time.Hour, -time.Hour)), Apply: pick(t, "apply", false, false, true)}
	th := pick(t, "thread", thread.Inbox, threads[0], threads[1])
	m.both(t, "prune", func(s *side) (any, error) {
		out, err := s.Prune(ctx, s.ref(th), p)
		out.Keys.Bytes, out.Results.Bytes = 0, 0 // of texts that name uuids
		return out, err
	})
}

// Check asks everything that can be asked, after each step.
func (m *pair) Check(t *rapid.T) {
	m.both(t, "state", func(s *side) (any, error) { return s.State(ctx, s.agent) })
	list := store.ListTurns{Limit: 20}
	m.both(t, "turns", func(s *side) (any, error) { return s.ListTurns(ctx, s.agent, list) })
	m.both(t, "dead turns", func(s *side) (any, error) {
		return s.ListTurns(ctx, s.agent, store.ListTurns{Limit: 20, Fate: store.FateDead, Unresolved: true})
	})
	f, err := filter.Parse("type = 'message' AND source != 'x'")
	if err != nil {
		t.Fatal(err)
	}
	for _, th := range append([]string{thread.Inbox}, threads...) {
		m.both(t, "info of "+th, func(s *side) (any, error) { return s.Info(ctx, s.ref(th)) })
		m.both(t, "events of "+th, func(s *side) (any, error) { return s.Read(ctx, s.ref(th), store.Query{Limit: 1000}) })
		m.both(t, "some events of "+th, func(s *side) (any, error) {
			return s.Read(ctx, s.ref(th), store.Query{Limit: 2, Filter: f, Tail: true, MaxBytes: 90})
		})
		m.both(t, "memory of "+th, func(s *side) (any, error) { return s.Memory(ctx, s.ref(th), "memory/a", "memory/agent.md", threads[0]) })
	}
	for _, th := range threads {
		m.both(t, "deliveries of "+th, func(s *side) (any, error) { return s.ListDeliveries(ctx, s.ref(th), "", 0, 100) })
		m.both(t, "usage of "+th, func(s *side) (any, error) {
			out, err := s.SumUsage(ctx, s.ref(th), store.SumUsage{ByDay: true, ByRun: true})
			slices.SortFunc(out, func(x, y store.UsageSum) int { // keys begin with what is random
				return strings.Compare(uuid.ReplaceAllString(x.Turn, "U"), uuid.ReplaceAllString(y.Turn, "U"))
			})
			return out, err
		})
		m.both(t, "session of "+th, func(s *side) (any, error) { return s.Session(ctx, s.ref(th)) })
		m.both(t, "tuple of "+th, func(s *side) (any, error) { return s.Tuple(ctx, s.ref(th)) })
	}
	for id := int64(1); id <= m.pushed; id++ {
		m.both(t, fmt.Sprint("turn ", id), func(s *side) (any, error) {
			return s.Turn(ctx, s.agent, store.TurnQuery{InboxID: id, Route: func(e thread.Event, mode string) (string, error) { return "threads/m" + e.Source, nil }})
		})
	}
}
