package oracle

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// later is a wait that no test sees the end of.
const later = time.Hour

func ensure() Call {
	return Call{"ensure the thread", func(ctx context.Context, s *Side) (any, error) { return s.Ensure(ctx, s.thread(), "t") }}
}

// push appends to the inbox: messages, or records when they begin with "record".
func push(key string, texts ...string) Call {
	return Call{fmt.Sprint("push ", texts), func(ctx context.Context, s *Side) (any, error) {
		var list []store.NewEvent
		for _, text := range texts {
			e := store.NewEvent{Source: "external:tui:t:dm:c:alice", Type: thread.TypeMessage, Content: text}
			if len(text) > 6 && text[:6] == thread.TypeRecord {
				e.Type = thread.TypeRecord
			}
			list = append(list, e)
		}
		return s.Append(ctx, s.inbox(), list, store.AppendOptions{Key: key})
	}}
}

// pushTo is push with an origin, which names the thread.
func pushTo(to, key string, texts ...string) Call {
	return Call{fmt.Sprint("push to ", to, " ", texts), func(ctx context.Context, s *Side) (any, error) {
		var list []store.NewEvent
		for _, text := range texts {
			e := store.NewEvent{Source: "external:tui:t:dm:c:alice", Type: thread.TypeMessage, Content: text}
			if strings.HasPrefix(text, thread.TypeRecord) {
				e.Type = thread.TypeRecord
			}
			e.Origin = &store.Origin{Thread: to, Key: "agent:" + to, Account: "work", ProviderID: text, Rev: 3, Command: "{}", SentAt: time.UnixMilli(1767225600123), Cause: "c"}
			list = append(list, e)
		}
		return s.Append(ctx, s.inbox(), list, store.AppendOptions{Key: key})
	}}
}

// pushed asks what a push did.
func pushed(key string) Call {
	return Call{"pushed " + key, func(ctx context.Context, s *Side) (any, error) {
		out, found, err := s.Pushed(ctx, s.inbox(), key)
		if !found {
			return nil, err
		}
		return out, err
	}}
}

// The sessions of claims: in inSession no epoch ends; in the others it ends with each event that
// was there before.
var (
	inSession = &store.BeginSession{Key: "agent:a:C:x", Before: time.UnixMilli(1), Idle: 100 * 365 * 24 * time.Hour}
	daily     = &store.BeginSession{Key: "agent:a:C:x", Before: time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)}
	idle      = &store.BeginSession{Key: "agent:a:C:x", Idle: time.Nanosecond}
)

// session claims the subject in a session.
func session(name string, b *store.BeginSession) Call {
	return begin("in a session, "+name, usual, store.Begin{Alone: true, Tail: 10, Subscribe: true, Session: b})
}

func patch(name string, p store.SessionPatch) Call {
	return Call{"patch " + name, func(ctx context.Context, s *Side) (any, error) {
		p := p
		p.Key = "agent:a:C:patched"
		return s.PatchSession(ctx, s.thread(), p)
	}}
}

func ptr[T any](v T) *T { return &v }

var (
	patchTitle   = patch("title and model", store.SessionPatch{Title: ptr("t"), Model: ptr("m"), Thinking: ptr("high")})
	patchPending = patch("pending", store.SessionPatch{Pending: ptr(store.EpochNew), By: "owner"})
	patchArchive = patch("archived", store.SessionPatch{Archived: ptr(true), Pending: ptr(store.EpochArchive), By: "owner"})
)

// said is what another program writes for the agent.
func said() Call {
	return Call{"another program says something", func(ctx context.Context, s *Side) (any, error) {
		return s.Append(ctx, s.thread(), []store.NewEvent{{Source: thread.SourceSelf, Type: thread.TypeMessage, Content: "foreign"}}, store.AppendOptions{})
	}}
}

// noted is what another program writes that is not for delivery.
func noted() Call {
	return Call{"another program writes a record", func(ctx context.Context, s *Side) (any, error) {
		return s.Append(ctx, s.thread(), []store.NewEvent{{Source: thread.SourceSelf, Type: thread.TypeRecord, Content: "foreign"}}, store.AppendOptions{})
	}}
}

// open opens a batch under a mode, while the claimed events have a turn.
func open(mode string, claimed ...int64) Call {
	return batch(fmt.Sprint("open under ", mode, ", claimed ", claimed), usual, store.OpenBatch{Mode: mode, Limit: 100}, claimed...)
}

func batch(name string, token uint64, o store.OpenBatch, claimed ...int64) Call {
	return Call{name, func(ctx context.Context, s *Side) (any, error) {
		o := o
		o.Route = routeOf
		o.Claimed = func(_ context.Context, e thread.Event, _, _ string) (bool, error) {
			if slices.Contains(claimed, -1) {
				return false, store.ErrNoConsumer // any error that is compared
			}
			return slices.Contains(claimed, e.ID), nil
		}
		return s.OpenBatch(ctx, s.Agent, s.runner(token), o)
	}}
}

// begin claims the subject; the members are so many events behind it.
func begin(name string, token uint64, b store.Begin, members ...int64) Call {
	return Call{"begin " + name, func(ctx context.Context, s *Side) (any, error) {
		p, err := s.event(ctx, s.Subject)
		if err != nil {
			return nil, err
		}
		b := b
		b.Event, b.Key, b.ReplyContext, b.Handler, b.Tuple = p.Event, p.Key, "{}", "deliver", "t"
		if b.Members, err = s.members(ctx, members); err != nil {
			return nil, err
		}
		return s.Begin(ctx, s.thread(), s.runner(token), b)
	}}
}

func (s *Side) members(ctx context.Context, behind []int64) (out []store.Member, err error) {
	for _, n := range behind {
		p, err := s.event(ctx, s.Subject+n)
		if err != nil {
			return nil, err
		}
		out = append(out, store.Member{Event: p.Event, Key: p.Key})
	}
	return out, nil
}

var (
	claim = begin("", usual, store.Begin{Subscribe: true, Tail: 3})
	alone = begin("alone", usual, store.Begin{Subscribe: true, Tail: 3, Alone: true})
	lead  = begin("with a member", usual, store.Begin{Subscribe: true, Tail: 3}, 1)
)

// on makes a call about another event: so many behind the subject.
func on(behind int64, c Call) Call {
	return Call{fmt.Sprintf("%s (event %+d)", c.Name, behind), func(ctx context.Context, s *Side) (any, error) {
		s.Subject += behind
		defer func() { s.Subject -= behind }()
		return c.Make(ctx, s)
	}}
}

func step(n int, kind, class, state string) store.Step {
	s := store.Step{
		Seq: n, Kind: kind, Key: fmt.Sprint(kind, ":", n), Class: class, State: state, Name: "p/m", CallID: fmt.Sprint("c", n), Arguments: "{}", RequestSHA256: []byte{1},
		Summary: fmt.Sprint("read ", n), External: n == 1,
	}
	if state != store.StepIntent {
		s.Result, s.Duration, s.Usage = []byte("of "+state), time.Second, store.Usage{Input: 5, Output: 2, CachedInput: 3, Reasoning: 1, CacheWrite: 1}
		s.IsError = n == 1
	}
	return s
}

// asks is the intent of a tool that asks a person first.
var asks = func() store.Step {
	s := step(1, store.StepTool, store.ClassEffect, store.StepIntent)
	s.Asks = true
	return s
}()

// toolcalls are the events of tool steps that are done or in doubt.
func toolcalls(steps []store.Step) map[string]string {
	out := map[string]string{}
	for _, s := range steps {
		if s.Kind == store.StepTool && s.State != store.StepIntent {
			out[s.Key] = fmt.Sprintf(`{"call":%q}`, s.State)
		}
	}
	return out
}

// record journals; unless it names another key, for the subject.
func record(name string, token uint64, rec store.Record) Call {
	return Call{"record " + name, func(ctx context.Context, s *Side) (any, error) {
		r := rec
		r.Records, r.BootID = toolcalls(r.Steps), "boot"
		if r.Key == "" {
			p, err := s.event(ctx, s.Subject)
			if err != nil {
				return nil, err
			}
			r.Key = p.Key
		}
		return s.Record(ctx, s.thread(), s.runner(token), r)
	}}
}

// put journals steps.
func put(name string, steps ...store.Step) Call {
	return record(name, usual, store.Record{Steps: steps})
}

// fail journals a try without an answer.
func fail(name string, f store.FailedTry, steps ...store.Step) Call {
	f.Error = "why"
	return record(name, usual, store.Record{Failed: &f, Steps: steps})
}

func steer(name string, token uint64, st store.Steer, members ...int64) Call {
	return Call{"steer " + name, func(ctx context.Context, s *Side) (any, error) {
		o := st
		p, err := s.event(ctx, s.Subject)
		if err != nil {
			return nil, err
		}
		if o.Key == "" {
			o.Key = p.Key
		}
		if o.Members, err = s.members(ctx, members); err != nil {
			return nil, err
		}
		return s.Steer(ctx, s.thread(), s.runner(token), o)
	}}
}

// finish gives the subject a fate. With an InboxID it settles too, by a second call where
// the engine has not done it in the first.
func finish(name string, token uint64, fin store.Finish) Call {
	return Call{"finish " + name, func(ctx context.Context, s *Side) (any, error) {
		o := fin
		p, err := s.event(ctx, s.Subject)
		if err != nil {
			return nil, err
		}
		if o.Key == "" {
			o.Key = p.Key
		}
		o.BootID, o.Records = "boot", toolcalls(o.Steps)
		settle := o.InboxID != 0
		if settle {
			o.InboxID = s.Subject
		}
		out, err := s.Finish(ctx, s.thread(), s.runner(token), o)
		if err != nil || !settle || out.Settled {
			out.Settled = settle
			return out, err
		}
		out.Settled = true
		out.Acked, err = s.Settle(ctx, s.Agent, s.runner(token), store.Settlement{
			InboxID: s.Subject, Key: o.Key, Thread: ThreadID, Fate: out.Fate, Error: o.Error, OutboxHead: out.OutboxHead, Merged: out.Merged,
		})
		return out, err
	}}
}

var (
	reply  = finish("replied", usual, store.Finish{Fate: store.FateReplied, Reply: "re", Deliver: true})
	die    = finish("dead", usual, store.Finish{Fate: store.FateDead, Error: "why", Record: "{}"})
	silent = finish("silent", usual, store.Finish{Fate: store.FateSilent})
)

func settle(name string, token uint64, set store.Settlement, merged ...int64) Call {
	return Call{"settle " + name, func(ctx context.Context, s *Side) (any, error) {
		o := set
		p, err := s.event(ctx, s.Subject)
		if err != nil {
			return nil, err
		}
		o.InboxID, o.Key, o.Thread = s.Subject, p.Key, ThreadID
		members, err := s.members(ctx, merged)
		if err != nil {
			return nil, err
		}
		for _, m := range members {
			o.Merged = append(o.Merged, store.MergedMember{InboxID: m.Event.ID, Key: m.Key})
		}
		return s.Settle(ctx, s.Agent, s.runner(token), o)
	}}
}

var (
	settleReplied = settle("replied", usual, store.Settlement{Fate: store.FateReplied, OutboxHead: 2})
	settleDead    = settle("dead", usual, store.Settlement{Fate: store.FateDead, Error: "why"})
	settleSilent  = settle("silent", usual, store.Settlement{Fate: store.FateSilent})
)

var reset = Call{"release cleanly", func(ctx context.Context, s *Side) (any, error) {
	p, err := s.event(ctx, s.Subject)
	if err != nil {
		return nil, err
	}
	return nil, s.ResetCrashes(ctx, s.thread(), []string{p.Key, "unknown"})
}}

func resolveTurn(how string) Call {
	return Call{how + " turn", func(ctx context.Context, s *Side) (any, error) {
		e, key, err := s.ResolveTurn(ctx, s.Agent, s.Subject, how)
		return []any{e, key}, err
	}}
}

func mark(name string, m store.OutboxMark) Call {
	return Call{"mark " + name, func(ctx context.Context, s *Side) (any, error) {
		m := m
		m.Thread = ThreadID
		return nil, s.MarkOutbox(ctx, s.Agent, m)
	}}
}

func next(name string, token uint64, n store.NextDelivery) Call {
	return Call{"next " + name, func(ctx context.Context, s *Side) (any, error) {
		o := n
		if o.BootID == "" {
			o.BootID = "boot"
		}
		return s.NextDelivery(ctx, s.thread(), s.sender(token), o)
	}}
}

var due = next("", usual, store.NextDelivery{WithRun: true})

// delivery is the subject of calls about a delivery: the first row for event 1, the second
// for event 2, and so on; event 1, which has none, where there is no row.
func (s *Side) delivery(ctx context.Context) (int64, error) {
	list, err := s.ListDeliveries(ctx, s.thread(), "", 0, int(s.Subject))
	if err != nil || len(list) == 0 {
		return 1, err
	}
	return list[len(list)-1].EventID, nil
}

// send ends a send.
func send(name string, token uint64, fin store.FinishDelivery) Call {
	return Call{"delivery " + name, func(ctx context.Context, s *Side) (any, error) {
		o := fin
		id, err := s.delivery(ctx)
		if err != nil {
			return nil, err
		}
		o.EventID, o.Channel = id, "c"
		switch o.Outcome {
		case store.OutcomeSent, store.OutcomePart:
			o.ProviderID = "p"
		case store.OutcomeFailed, store.OutcomeUnavailable, store.OutcomeRejected:
			o.Error = "why"
		}
		return s.FinishDelivery(ctx, s.thread(), s.sender(token), o)
	}}
}

var (
	sent     = send("sent", usual, store.FinishDelivery{Outcome: store.OutcomeSent})
	rejected = send("rejected", usual, store.FinishDelivery{Outcome: store.OutcomeRejected})
	failNow  = send("failed, due at once", usual, store.FinishDelivery{Outcome: store.OutcomeFailed, MaxAttempts: 3, Waits: []time.Duration{0}})
	failWait = send("failed, due later", usual, store.FinishDelivery{Outcome: store.OutcomeFailed, MaxAttempts: 3, Waits: []time.Duration{later}})
)

func part(n int) Call {
	return send(fmt.Sprint("part ", n), usual, store.FinishDelivery{Outcome: store.OutcomePart, Parts: n, Reach: int64(10 * n), MaxAttempts: 3})
}

func resolveDelivery(how string) Call {
	return Call{how + " delivery", func(ctx context.Context, s *Side) (any, error) {
		id, err := s.delivery(ctx)
		if err != nil {
			return nil, err
		}
		return s.ResolveDelivery(ctx, s.thread(), id, how)
	}}
}

// times repeats calls.
func times(n int, calls ...Call) (out []Call) {
	for range n {
		out = append(out, calls...)
	}
	return out
}
