package storetest

import (
	"testing"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

func (f *fixture) next(t *testing.T, n store.NextDelivery) store.DueDelivery {
	t.Helper()
	if n.BootID == "" {
		n.BootID = "boot"
	}
	out, err := f.NextDelivery(t.Context(), threadA, sender, n)
	ok(t, err)
	return out
}

func (f *fixture) sent(t *testing.T, id int64, outcome string) store.Delivery {
	t.Helper()
	out, err := f.FinishDelivery(t.Context(), threadA, sender, store.FinishDelivery{
		EventID: id, Outcome: outcome, Channel: "c", ProviderID: "p", Error: "e", MaxAttempts: 3,
	})
	ok(t, err)
	return out
}

// due is a delivery in words a table can hold.
func due(d store.DueDelivery) []any {
	return []any{d.Outcome, d.Event.ID, d.Attempt, d.MaybeDuplicate}
}

var idle = []any{store.DueIdle, 0, 0, false}

var sends = map[string]func(*testing.T, *fixture){
	// S0-129, I11: in the order of the events, one at a time.
	"replies leave in order": func(t *testing.T, f *fixture) {
		f.ensure(t)
		equal(t, "nothing", due(f.next(t, store.NextDelivery{})), idle)
		first, _ := f.reply(t, "1")
		second, _ := f.reply(t, "2")
		key, runs := "", map[int64]string{2: first.Key, 4: second.Key}
		for _, id := range []int64{2, 4} {
			acked := map[int64]int64{2: 3, 4: 4}[id] // what is not for delivery is passed
			equal(t, "peek", due(f.next(t, store.NextDelivery{Peek: true})), []any{store.DueSend, id, 1, false})
			d := f.next(t, store.NextDelivery{})
			equal(t, "due", due(d), []any{store.DueSend, id, 1, false})
			if d.Key == "" || d.Key == key {
				t.Errorf("key %q after %q", d.Key, key)
			}
			again := f.next(t, store.NextDelivery{WithRun: true})
			equal(t, "run", []any{d.Run, again.Run, again.Key}, []any{"", runs[id], d.Key})
			key = d.Key
			got := f.sent(t, id, store.OutcomeSent)
			equal(t, "sent", []any{got.State, got.ProviderID, got.Channel, got.Attempts, got.Acked}, []any{store.DeliverySent, "p", "c", 1, acked})
			equal(t, "late news", f.sent(t, id, store.OutcomeFailed).State, store.DeliverySent)
		}
		equal(t, "all sent", due(f.next(t, store.NextDelivery{})), idle)
		in, err := f.Info(t.Context(), threadA)
		ok(t, err)
		equal(t, "mirror", in.Subscriptions[0].Acked, 4)
		_, err = f.FinishDelivery(t.Context(), threadA, sender, store.FinishDelivery{EventID: 1, Outcome: store.OutcomeSent})
		is(t, err, store.ErrNoDelivery)
	},
	// S0-127, S0-128: waits of 5 s and 60 s, dead after the third failure.
	"failures wait and end": func(t *testing.T, f *fixture) {
		f.reply(t, "1")
		f.reply(t, "2")
		for i, wait := range append(store.DeliveryWaits, 0) {
			equal(t, "due", due(f.next(t, store.NextDelivery{})), []any{store.DueSend, 2, i + 1, false})
			d := f.sent(t, 2, store.OutcomeFailed)
			if wait == 0 {
				equal(t, "dead", []any{d.State, d.Attempts, d.Error, d.Dead, d.Channel}, []any{store.DeliveryDead, 3, "e", 1, "c"})
				break
			}
			equal(t, "state", []any{d.State, d.Attempts}, []any{store.DeliveryPending, i + 1})
			n := f.next(t, store.NextDelivery{})
			if n.Outcome != store.DueWait || n.Wait > wait || n.Wait < wait-time.Second && f.Bubble {
				t.Errorf("try %d: %+v, want a wait of %v", i+1, n, wait)
			}
			f.pass(t, wait)
		}
		list := f.all(t, threadA)
		equal(t, "told", kinds(list), []string{"in", "reply", "in", "reply", "error"})
		equal(t, "the next goes on", due(f.next(t, store.NextDelivery{})), []any{store.DueSend, 4, 1, false})
	},
	"a channel that is down spends no attempt": func(t *testing.T, f *fixture) {
		f.reply(t, "1")
		for range 5 {
			equal(t, "due", due(f.next(t, store.NextDelivery{})), []any{store.DueSend, 2, 1, false})
			equal(t, "attempts", f.sent(t, 2, store.OutcomeUnavailable).Attempts, 0)
		}
		f.next(t, store.NextDelivery{})
		_, err := f.FinishDelivery(t.Context(), threadA, sender, store.FinishDelivery{EventID: 2, Outcome: store.OutcomeUnavailable, RetryAfter: 30 * time.Second})
		ok(t, err)
		if n := f.next(t, store.NextDelivery{}); n.Outcome != store.DueWait || n.Wait > 30*time.Second {
			t.Errorf("next: %+v", n)
		}
	},
	"rejected and skipped end at once": func(t *testing.T, f *fixture) {
		f.reply(t, "1")
		f.reply(t, "2")
		f.next(t, store.NextDelivery{})
		equal(t, "rejected", f.sent(t, 2, store.OutcomeRejected).State, store.DeliveryDead)
		f.next(t, store.NextDelivery{})
		d := f.sent(t, 4, store.OutcomeSkipped) // S0-126
		equal(t, "skipped", []any{d.State, d.Acked, d.Dead}, []any{store.DeliverySkipped, 5, 1})
		equal(t, "then", due(f.next(t, store.NextDelivery{})), idle)
	},
	// Window B, I10: the same key, flagged, and no attempt spent.
	"a crash in a send": func(t *testing.T, f *fixture) {
		f.reply(t, "1")
		first := f.next(t, store.NextDelivery{})
		for range 4 {
			again := f.next(t, store.NextDelivery{})
			equal(t, "due", due(again), []any{store.DueSend, 2, 1, true})
			equal(t, "key", again.Key, first.Key)
		}
		d := f.sent(t, 2, store.OutcomeFailed)
		equal(t, "attempts", []any{d.State, d.Attempts, d.MaybeDuplicate}, []any{store.DeliveryPending, 1, true})
	},
	// R1: what may have left although its send failed is flagged at the next send.
	"a send in doubt": func(t *testing.T, f *fixture) {
		f.reply(t, "1")
		for i, outcome := range []string{store.OutcomeUnavailable, store.OutcomeFailed} {
			equal(t, "due", due(f.next(t, store.NextDelivery{})), []any{store.DueSend, 2, 1, i > 0})
			d, err := f.FinishDelivery(t.Context(), threadA, sender, store.FinishDelivery{EventID: 2, Outcome: outcome, MaxAttempts: 3, InDoubt: true})
			ok(t, err)
			equal(t, "flagged", []any{d.State, d.MaybeDuplicate}, []any{store.DeliveryPending, true})
		}
		f.pass(t, store.DeliveryWaits[0])
		equal(t, "due", due(f.next(t, store.NextDelivery{})), []any{store.DueSend, 2, 2, true})
	},
	"a send that always kills its process ends": func(t *testing.T, f *fixture) {
		f.reply(t, "1")
		n := 0
		for f.next(t, store.NextDelivery{}).Outcome == store.DueSend {
			if n++; n > 100 {
				t.Fatal("no end")
			}
		}
		got, err := f.ListDeliveries(t.Context(), threadA, store.DeliveryDead, 0, 10)
		ok(t, err)
		equal(t, "dead", len(got), 1)
	},
	// F15: the record of a send may have been lost with the boot, the process or the file
	// system.
	"another generation may have sent it": func(t *testing.T, f *fixture) {
		f.reply(t, "1")
		equal(t, "due", due(f.next(t, store.NextDelivery{BootID: "later"})), []any{store.DueSend, 2, 1, true})
	},
	// F16: how old a message is decides about its repeats. A first try is always made: the
	// time that has passed may be an error of the clock.
	"too old is dead after a try": func(t *testing.T, f *fixture) {
		f.reply(t, "1")
		f.reply(t, "2")
		f.pass(t, 25*time.Hour)
		age := store.NextDelivery{MaxAge: 24 * time.Hour}
		equal(t, "a first try", due(f.next(t, age)), []any{store.DueSend, 2, 1, false})
		f.sent(t, 2, store.OutcomeUnavailable)
		peek := age
		peek.Peek = true
		d := f.next(t, peek)
		equal(t, "due", []any{d.Outcome, d.Event.Content, d.Attempt, d.Dead}, []any{store.DueSend, "re: 2", 1, 1})
		equal(t, "dead", f.sent(t, 2, store.OutcomeSent).State, store.DeliveryDead)
		f.next(t, age)
		f.sent(t, 4, store.OutcomeSent)
		equal(t, "then", f.next(t, age).Outcome, store.DueIdle)
	},
	// F16: what came in this generation is not older than the generation is, whatever the
	// wall clock says.
	"the wall clock was set forward": func(t *testing.T, f *fixture) {
		since := time.Now().Add(-26 * time.Hour) // an engine whose clock cannot be set is given older rows
		f.reply(t, "1")
		f.next(t, store.NextDelivery{})
		f.sent(t, 2, store.OutcomeUnavailable)
		f.pass(t, 25*time.Hour)
		n := store.NextDelivery{MaxAge: 24 * time.Hour, Since: since, Elapsed: time.Minute}
		equal(t, "due", due(f.next(t, n)), []any{store.DueSend, 2, 1, false})
		f.sent(t, 2, store.OutcomeUnavailable)
		n.Since = time.Now() // it is of an earlier one: only the wall clock knows its age
		equal(t, "due", f.next(t, n).Outcome, store.DueIdle)
	},
	"a lowered limit ends what waits": func(t *testing.T, f *fixture) {
		f.reply(t, "1")
		f.next(t, store.NextDelivery{})
		f.sent(t, 2, store.OutcomeFailed)
		equal(t, "next", f.next(t, store.NextDelivery{MaxAttempts: 1}).Outcome, store.DueIdle)
	},
	"a peek writes no row": func(t *testing.T, f *fixture) {
		f.ensure(t)
		filter := thread.OutboundFilter
		ok(t, f.Subscribe(t.Context(), threadA, store.Subscription{Consumer: thread.Outbound, Handler: "deliver", Filter: &filter}))
		_, err := f.Append(t.Context(), threadA, []store.NewEvent{said("hello")}, store.AppendOptions{})
		ok(t, err)
		equal(t, "peek", due(f.next(t, store.NextDelivery{Peek: true})), []any{store.DueSend, 1, 1, false})
		list, err := f.ListDeliveries(t.Context(), threadA, "", 0, 10)
		ok(t, err)
		equal(t, "rows", len(list), 0)
	},
	"dead letters": func(t *testing.T, f *fixture) {
		f.reply(t, "1")
		f.reply(t, "2")
		for _, id := range []int64{2, 4} {
			f.next(t, store.NextDelivery{})
			f.sent(t, id, store.OutcomeRejected)
		}
		dead := func(want ...int64) {
			t.Helper()
			got, err := f.ListDeliveries(t.Context(), threadA, store.DeliveryDead, 0, 10)
			ok(t, err)
			list := []int64{}
			for _, d := range got {
				list = append(list, d.EventID)
				equal(t, "thread", d.Thread, threadA.Thread)
			}
			equal(t, "dead", list, want)
		}
		dead(2, 4)
		d, err := f.ResolveDelivery(t.Context(), threadA, 4, "dropped")
		ok(t, err)
		equal(t, "dropped", []any{d.Resolved, d.Dead}, []any{"dropped", 1})
		for _, how := range []string{"dropped", "retried"} { // as with a turn
			_, err = f.ResolveDelivery(t.Context(), threadA, 4, how)
			is(t, err, store.ErrNotDead)
		}
		d, err = f.ResolveDelivery(t.Context(), threadA, 2, "retried")
		ok(t, err)
		equal(t, "retried", []any{d.State, d.Attempts, d.Dead}, []any{store.DeliveryPending, 0, 0})
		dead([]int64{}...)
		_, err = f.ResolveDelivery(t.Context(), threadA, 2, "retried")
		is(t, err, store.ErrNotDead)
		_, err = f.ResolveDelivery(t.Context(), threadA, 1, "retried")
		is(t, err, store.ErrNoDelivery)
		// Below the ack, and still sent, once.
		equal(t, "due", due(f.next(t, store.NextDelivery{})), []any{store.DueSend, 2, 1, false})
		f.next(t, store.NextDelivery{})
		f.sent(t, 2, store.OutcomeRejected)
		dead(2)
		equal(t, "told once each", kinds(f.all(t, threadA)), []string{"in", "reply", "in", "reply", "error", "error"})
	},
	// S0-96, S0-120: what the agent said is delivered, whoever wrote it down, where
	// there is an outbound consumer.
	"a message of the agent by another program": func(t *testing.T, f *fixture) {
		f.ensure(t)
		sub := thread.SubtypeDecision
		_, err := f.Append(t.Context(), threadA, []store.NewEvent{
			msg("in"), said("hello"), {Source: thread.SourceSelf, Type: thread.TypeRecord, Subtype: &sub, Content: "x"},
		}, store.AppendOptions{})
		ok(t, err)
		equal(t, "due to nobody", f.next(t, store.NextDelivery{}).Outcome, store.DueIdle)
		filter := thread.OutboundFilter
		ok(t, f.Subscribe(t.Context(), threadA, store.Subscription{Consumer: thread.Outbound, Handler: "deliver", Filter: &filter}))
		_, err = f.Append(t.Context(), threadA, []store.NewEvent{said("and this")}, store.AppendOptions{})
		ok(t, err)
		d := f.next(t, store.NextDelivery{})
		equal(t, "due", due(d), []any{store.DueSend, 4, 1, false})
		equal(t, "acked", f.sent(t, 4, store.OutcomeSent).Acked, 4)
		// F15: its row is on disk only later: one that is older than this generation may
		// have been sent before.
		_, err = f.Append(t.Context(), threadA, []store.NewEvent{said("older")}, store.AppendOptions{})
		ok(t, err)
		equal(t, "due", due(f.next(t, store.NextDelivery{Since: time.Now().Add(time.Hour)})), []any{store.DueSend, 5, 1, true})
	},
}
