package storetest

import (
	"testing"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// writes are all operations under a lease.
var writes = map[string]func(t *testing.T, f *fixture, fence store.Fence, p store.Pending) error{
	"append": func(t *testing.T, f *fixture, fence store.Fence, _ store.Pending) error {
		_, err := f.Append(t.Context(), threadA, []store.NewEvent{said("x")}, store.AppendOptions{Fence: &fence})
		return err
	},
	"open": func(t *testing.T, f *fixture, fence store.Fence, _ store.Pending) error {
		_, err := f.OpenBatch(t.Context(), "a", fence, batch("m2"))
		return err
	},
	"begin": func(t *testing.T, f *fixture, fence store.Fence, p store.Pending) error {
		_, err := f.Begin(t.Context(), threadA, fence, begin(p))
		return err
	},
	"record": func(t *testing.T, f *fixture, fence store.Fence, p store.Pending) error {
		_, err := f.Record(t.Context(), threadA, fence, store.Record{Key: p.Key, Steps: []store.Step{step(9, store.StepModel, "model:9", "", store.StepDone)}})
		return err
	},
	"finish": func(t *testing.T, f *fixture, fence store.Fence, p store.Pending) error {
		_, err := f.Finish(t.Context(), threadA, fence, replied(p))
		return err
	},
	"settle": func(t *testing.T, f *fixture, fence store.Fence, p store.Pending) error {
		_, err := f.Settle(t.Context(), "a", fence, store.Settlement{InboxID: p.Event.ID, Key: p.Key, Fate: store.FateSilent})
		return err
	},
	"next delivery": func(t *testing.T, f *fixture, fence store.Fence, _ store.Pending) error {
		_, err := f.NextDelivery(t.Context(), threadA, fence, store.NextDelivery{BootID: "boot"})
		return err
	},
	"finish delivery": func(t *testing.T, f *fixture, fence store.Fence, _ store.Pending) error {
		_, err := f.FinishDelivery(t.Context(), threadA, fence, store.FinishDelivery{EventID: 2, Outcome: store.OutcomeSent})
		return err
	},
}

// seen is all that a refused write could have changed.
func (f *fixture) seen(t *testing.T) []any {
	t.Helper()
	s, err := f.State(t.Context(), "a")
	ok(t, err)
	s.Fences = nil
	list, err := f.ListTurns(t.Context(), "a", store.ListTurns{Limit: 100})
	ok(t, err)
	out := []any{s, list, f.all(t, inboxA), f.all(t, threadA)}
	for _, l := range list {
		turn, err := f.Turn(t.Context(), "a", store.TurnQuery{InboxID: l.InboxID, Route: batch("").Route})
		ok(t, err)
		out = append(out, turn)
	}
	d, err := f.ListDeliveries(t.Context(), threadA, "", 0, 100)
	ok(t, err)
	return append(out, d)
}

// S0-84, I5: a write by who holds no lease changes nothing.
func refused(t *testing.T, f *fixture, spoil func(resource string)) {
	f.reply(t, "1")
	_, err := f.NextDelivery(t.Context(), threadA, sender, store.NextDelivery{BootID: "boot"})
	ok(t, err)
	p, _ := f.claim(t, "2")
	spoil(runner.Resource)
	before := f.seen(t)
	for name, write := range writes {
		is(t, write(t, f, runner, p), store.ErrLeaseLost)
		equal(t, "after a refused "+name, f.seen(t), before)
	}
}

var fences = map[string]func(*testing.T, *fixture){
	"a lost lease refuses every write": func(t *testing.T, f *fixture) {
		refused(t, f, func(resource string) { f.revoke(resource, runner.Token) })
	},
	// The lease table may not know yet: the seal decides.
	"a seal refuses older tokens": func(t *testing.T, f *fixture) {
		refused(t, f, func(resource string) {
			newer := store.Fence{Resource: resource, Token: runner.Token + 1}
			_, err := f.OpenBatch(t.Context(), "a", newer, batch("m1"))
			ok(t, err)
			_, err = f.NextDelivery(t.Context(), threadA, newer, store.NextDelivery{BootID: "boot", Peek: true})
			ok(t, err)
		})
	},
	"resources are apart": func(t *testing.T, f *fixture) {
		p, _ := f.claim(t, "1")
		f.revoke(sender.Resource, 9)
		_, err := f.NextDelivery(t.Context(), threadA, store.Fence{Resource: sender.Resource, Token: 10}, store.NextDelivery{})
		ok(t, err)
		_, err = f.Finish(t.Context(), threadA, runner, replied(p))
		ok(t, err)
		s, err := f.State(t.Context(), "a")
		ok(t, err)
		equal(t, "seals of the inbox", s.Fences, map[string]uint64{runner.Resource: 1})
	},
	// What an account receives is stored while its lease is current, and no inbox is sealed: the next holder's
	// messages may go elsewhere.
	"a late reader stores nothing": func(t *testing.T, f *fixture) {
		reader := store.Fence{Resource: "channel/tg", Token: 1}
		push := func(key string) error {
			_, err := f.Append(t.Context(), inboxA, []store.NewEvent{said(key)}, store.AppendOptions{Key: key, Reader: &reader})
			return err
		}
		ok(t, push("1"))
		f.revoke(reader.Resource, reader.Token)
		is(t, push("1"), store.ErrLeaseLost)
		is(t, push("2"), store.ErrLeaseLost)
		equal(t, "events", len(f.all(t, inboxA)), 1)
		reader.Token = 2
		ok(t, push("1"))
		ok(t, push("2"))
		equal(t, "events", len(f.all(t, inboxA)), 2)
		s, err := f.State(t.Context(), "a")
		ok(t, err)
		equal(t, "seals of the inbox", s.Fences, map[string]uint64{})
	},
	"pushes carry no lease": func(t *testing.T, f *fixture) {
		f.open(t)
		f.revoke(runner.Resource, 99)
		equal(t, "id", f.push(t, "1")[0].ID, 1)
		_, err := f.Append(t.Context(), inboxA, []store.NewEvent{said("x")}, store.AppendOptions{Fence: &store.Fence{Resource: runner.Resource, Token: 100}})
		ok(t, err)
		equal(t, "types", f.all(t, inboxA)[1].Source, thread.SourceSelf)
	},
}
