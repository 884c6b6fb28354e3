package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

var (
	threads = []string{"threads/mx", "threads/my"}
	states  = []string{store.StepIntent, store.StepDone, store.StepDone, store.StepInDoubt}
	words   = []string{"", "a", "with \x00 in it", "é\u2028\"\\"}
)

func pick[T any](t *rapid.T, name string, of ...T) T { return rapid.SampledFrom(of).Draw(t, name) }

func flip(t *rapid.T, name string) bool { return rapid.Bool().Draw(t, name) }

func (m *pair) Push(t *rapid.T) {
	var list []store.NewEvent
	for i := range pick(t, "n", 1, 1, 2, 3) {
		list = append(list, store.NewEvent{Source: pick(t, "source", "x", "y", "bad"), Type: pick(t, "type", "message", "message", "message", "record"), Content: fmt.Sprint(m.pushed, i, pick(t, "word", words...)), Origin: pick(t, "origin", nil, nil, &somewhere, &store.Origin{Thread: threads[1]})})
	}
	o := store.AppendOptions{Key: pick(t, "key", "", "k1", "k2", fmt.Sprint("push", m.pushed)), MaxPerPeer: pick(t, "most", int64(0), 40)}
	m.both(t, "append", func(s *side) (any, error) {
		out, err := s.Append(ctx, store.Inbox(s.agent), list, o)
		if err == nil {
			m.pushed = max(m.pushed, out.IDs[len(out.IDs)-1])
		}
		return out, err
	})
	m.both(t, "pushed", func(s *side) (any, error) {
		out, found, err := s.Pushed(ctx, store.Inbox(s.agent), o.Key)
		return []any{out, found}, err
	})
}

// somewhere is an origin with all that it may have.
var somewhere = store.Origin{
	Thread: threads[0], Key: "agent:a:Main", Account: words[2], ProviderID: "p1", Rev: 3, Command: words[3], SentAt: time.UnixMilli(1764200000123), Cause: "schedule",
}

func (m *pair) Open(t *rapid.T) {
	o := store.OpenBatch{
		Limit: pick(t, "limit", 1, 3, 50), Mode: pick(t, "mode", "m", "m", "m", "n"),
		Route: func(e thread.Event, mode string) (string, error) {
			if e.Source == "bad" {
				return "", errors.New("no such peer")
			}
			return "threads/m" + e.Source, nil
		},
	}
	m.both(t, "open", func(s *side) (any, error) {
		o.Claimed = func(_ context.Context, e thread.Event, _, _ string) (bool, error) {
			_, ok := m.threads[e.ID]
			return ok, nil
		}
		return s.OpenBatch(ctx, s.agent, s.runner(), o)
	})
	for _, s := range m.sides { // what it showed stands, whoever asked first
		for id := int64(1); id <= m.pushed; id++ {
			ev, key, err := s.InboxEvent(ctx, s.agent, id)
			if err != nil {
				t.Fatal(err)
			}
			s.open[id], s.keys[id] = ev, key
			o, err := s.Origin(ctx, s.agent, id)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case ev.Type != thread.TypeMessage:
			case o != nil:
				m.threads[id] = o.Thread
			case ev.Source != "bad":
				m.threads[id] = "threads/m" + ev.Source
			}
		}
	}
}

// event draws an inbox event that has a thread.
func (m *pair) event(t *rapid.T, name string) (int64, string) {
	id := int64(rapid.IntRange(1, int(m.pushed)).Draw(t, name))
	if m.threads[id] == "" {
		t.Skip("no thread")
	}
	return id, m.threads[id]
}

// begun draws an inbox event that was claimed, mostly.
func (m *pair) begun(t *rapid.T) (int64, string) {
	if len(m.began) == 0 || pick(t, "any", 0, 0, 0, 0, 0, 0, 0, 1) == 1 {
		return m.event(t, "event")
	}
	id := rapid.SampledFrom(m.began).Draw(t, "begun")
	return id, m.threads[id]
}

// followers are later events of the same thread.
func (m *pair) followers(t *rapid.T, id int64) (list []int64) {
	for next := id + 1; next <= m.pushed && len(list) < 3; next++ {
		if m.threads[next] == m.threads[id] && flip(t, "member") {
			list = append(list, next)
		}
	}
	return list
}

func (s *side) members(list []int64) (out []store.Member) {
	for _, id := range list {
		ev, key := s.of(id)
		out = append(out, store.Member{Event: ev, Key: key})
	}
	return out
}

func (m *pair) Begin(t *rapid.T) {
	id, th := m.event(t, "event")
	b := store.Begin{
		Alone: pick(t, "alone", true, true, false), Tail: pick(t, "tail", 0, 1, 3, 50), Subscribe: flip(t, "subscribe"), Handler: pick(t, "handler", "h", "h", "g"),
		Tuple: pick(t, "tuple", "", "t1"), Opening: pick(t, "opening", "", `{"decision":"route"}`), ReplyContext: "{}", Layers: []string{"memory/b", "memory/a"},
		Session: pick(t, "session", nil, &store.BeginSession{Key: "agent:a:" + th}, &store.BeginSession{Key: "other", Idle: time.Nanosecond}, &store.BeginSession{Before: time.Now().Add(time.Hour)}, &store.BeginSession{Key: "agent:a:" + th, Reason: store.EpochNew, By: "command"},
			&store.BeginSession{Key: "agent:a:" + th, Patch: store.SessionPatch{Thinking: new("off")}}),
	}
	followers := m.followers(t, id)
	m.both(t, "ensure", func(s *side) (any, error) { return s.Ensure(ctx, s.ref(th), "") })
	m.both(t, "begin", func(s *side) (any, error) {
		b.Event, b.Key = s.of(id)
		b.Members = s.members(followers)
		return s.Begin(ctx, s.ref(th), s.runner(), b)
	})
	m.began = append(m.began, id)
}

// Patch changes a session, or makes one.
func (m *pair) Patch(t *rapid.T) {
	th, set := pick(t, "thread", thread.Inbox, threads[0], threads[1]), pick(t, "set", words...)
	p := store.SessionPatch{Key: "agent:a:" + th}
	switch pick(t, "what", 0, 1, 2, 3) {
	case 1:
		p.Pending, p.By = pick(t, "pending", new(string), new(store.EpochReset)), "owner"
	case 2:
		p.Archived, p.Title = new(flip(t, "archived")), &set
	case 3:
		p.Model, p.Thinking, p.Verbose, p.Reasoning, p.QueueMode, p.UsageFooter, p.Elevated = &set, new("t"), new("v"), new("r"), new("q"), new("u"), new("e")
	}
	m.both(t, "patch session", func(s *side) (any, error) { return s.PatchSession(ctx, s.ref(th), p) })
}

func (m *pair) steps(t *rapid.T) (list []store.Step, toolcalls map[string]string) {
	toolcalls = map[string]string{}
	for range pick(t, "steps", 0, 1, 1, 2) {
		n := rapid.IntRange(1, 4).Draw(t, "step")
		kind := pick(t, "kind", store.StepModel, store.StepTool)
		s := store.Step{
			Seq: n, Kind: kind, Key: fmt.Sprint(kind, ":", n), State: pick(t, "state", states...), Class: pick(t, "class", "", store.ClassEffect), Name: "p/m",
			CallID: "c", Arguments: pick(t, "arguments", words...), Result: []byte(pick(t, "result", words...)), RequestSHA256: []byte{1}, Usage: store.Usage{Input: int64(n), Output: 1, CacheWrite: 2},
		}
		list = append(list, s)
		if kind == store.StepTool && s.State != store.StepIntent {
			toolcalls[s.Key] = fmt.Sprintf(`{"call":%q}`, s.Result)
		}
	}
	return list, toolcalls
}

func (m *pair) Record(t *rapid.T) {
	id, th := m.begun(t)
	var rec store.Record
	rec.Steps, rec.Records = m.steps(t)
	rec.Deliver, rec.Console, rec.BootID = pick(t, "deliver", true, true, false), pick(t, "console", false, false, true), pick(t, "boot", "b1", "b1", "b2")
	for range pick(t, "says", 0, 0, 1, 2) {
		rec.Says = append(rec.Says, store.Say{Step: fmt.Sprint("model:", pick(t, "at", 1, 2, 3)), Content: "one moment"})
	}
	rec.Waits = pick(t, "waits", false, false, true)
	if pick(t, "failed", 0, 0, 1) == 1 {
		rec.Failed = &store.FailedTry{Error: pick(t, "why", words...), Counted: flip(t, "counted"), Tries: pick(t, "tries", 0, 2), Wait: pick(t, "wait", 0, 0, 0, time.Hour)}
	}
	m.both(t, "record", func(s *side) (any, error) {
		_, rec.Key = s.of(id)
		return s.Record(ctx, s.ref(th), s.runner(), rec)
	})
}

func (m *pair) Steer(t *rapid.T) {
	id, th := m.begun(t)
	followers := m.followers(t, id)
	st := store.Steer{Step: fmt.Sprint("steer:", pick(t, "steer", 1, 2, 3)), Seq: pick(t, "seq", 1, 2, 5)}
	m.both(t, "steer", func(s *side) (any, error) {
		_, st.Key = s.of(id)
		st.Members = s.members(followers)
		return s.Steer(ctx, s.ref(th), s.runner(), st)
	})
}

func (m *pair) Finish(t *rapid.T) {
	id, th := m.begun(t)
	fin := store.Finish{
		Fate:  pick(t, "fate", store.FateReplied, store.FateReplied, store.FateReplied, store.FateSilent, store.FateDead, store.FateAborted),
		Reply: pick(t, "reply", words...), Apology: pick(t, "apology", "", "sorry"), Error: pick(t, "error", words...), Record: "{}",
		Decision: pick(t, "decision", "", `{"decision":"skip"}`), Command: pick(t, "command", false, false, true),
		Deliver: pick(t, "deliver", true, true, false), Console: pick(t, "console", false, false, true), BootID: "b1",
	}
	fin.Steps, fin.Records = m.steps(t)
	settle := flip(t, "settle")
	m.both(t, "finish", func(s *side) (any, error) {
		_, fin.Key = s.of(id)
		out, err := s.Finish(ctx, s.ref(th), s.runner(), fin)
		if err != nil || !settle {
			return out, err
		}
		acked, err := s.Settle(ctx, s.agent, s.runner(), store.Settlement{
			InboxID: id, Key: fin.Key, Thread: th, Fate: out.Fate, Error: fin.Error, OutboxHead: out.OutboxHead, Merged: out.Merged,
		})
		return []any{out, acked}, err
	})
}

func (m *pair) Release(t *rapid.T) {
	id, th := m.begun(t)
	m.both(t, "reset crashes", func(s *side) (any, error) { return nil, s.ResetCrashes(ctx, s.ref(th), []string{s.keys[id], "none"}) })
}

func (m *pair) Next(t *rapid.T) {
	th := pick(t, "thread", threads...)
	n := store.NextDelivery{BootID: pick(t, "boot", "b1", "b1", "b2"), Peek: pick(t, "peek", false, false, true), WithRun: flip(t, "with run"), MaxAttempts: pick(t, "most", 0, 0, 0, 1), MaxAge: pick(t, "age", 0, 0, 0, 0, 0, time.Nanosecond)}
	m.both(t, "next", func(s *side) (any, error) { return s.NextDelivery(ctx, s.ref(th), s.sender(), n) })
}

func (m *pair) Sent(t *rapid.T) {
	th := pick(t, "thread", threads...)
	fin := store.FinishDelivery{
		EventID: int64(rapid.IntRange(1, 12).Draw(t, "id")), Channel: "c", ProviderID: "p", Error: pick(t, "error", words...), MaxAttempts: 3, Waits: []time.Duration{pick(t, "wait", 0, 0, time.Hour)},
		Outcome: pick(t, "outcome", store.OutcomeSent, store.OutcomeFailed, store.OutcomeUnavailable, store.OutcomeRejected, store.OutcomeSkipped, store.OutcomePart),
		Parts:   pick(t, "parts", 1, 2), Reach: 10,
	}
	asked := flip(t, "as asked")
	m.both(t, "finish delivery", func(s *side) (any, error) {
		if asked {
			d, err := s.NextDelivery(ctx, s.ref(th), s.sender(), store.NextDelivery{BootID: "b1"})
			if err != nil || d.Outcome != store.DueSend {
				return d, err
			}
			fin.EventID = d.Event.ID
		}
		return s.FinishDelivery(ctx, s.ref(th), s.sender(), fin)
	})
}

func (m *pair) Dead(t *rapid.T) {
	th, how, n := pick(t, "thread", threads...), pick(t, "how", "retried", "dropped"), rapid.IntRange(0, 3).Draw(t, "nth")
	m.both(t, "resolve", func(s *side) (any, error) {
		list, err := s.ListDeliveries(ctx, s.ref(th), store.DeliveryDead, 0, 5)
		if err != nil || n >= len(list) {
			return list, err
		}
		return s.ResolveDelivery(ctx, s.ref(th), list[n].EventID, how)
	})
}
