package storetest

import (
	"testing"

	"github.com/theclaw/agents/internal/filter"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

var says = map[string]func(*testing.T, *fixture){
	// S1-47, S1-52: what a step says is there once, with its step and before the reply.
	"a step says something": func(t *testing.T, f *fixture) {
		p, _ := f.claim(t, "1")
		s := step(1, store.StepModel, "model:1", "", store.StepDone)
		rec := store.Record{
			Key: p.Key, Steps: []store.Step{s}, Deliver: true, BootID: "boot",
			Says: []store.Say{{Step: "model:1", Content: "one moment"}},
		}
		for range 2 {
			_, err := f.Record(t.Context(), threadA, runner, rec)
			ok(t, err)
		}
		equal(t, "events", kinds(f.all(t, threadA)), []string{"in", "reply"})
		equal(t, "due", due(f.next(t, store.NextDelivery{})), []any{store.DueSend, 2, 1, false})
		f.sent(t, 2, store.OutcomeSent)
		fin, err := f.Finish(t.Context(), threadA, runner, replied(p))
		ok(t, err)
		equal(t, "reply", []any{fin.ReplyID, fin.OutboxHead}, []any{3, 3})
		rec.Says[0].Step = "model:2"
		_, err = f.Record(t.Context(), threadA, runner, rec)
		ok(t, err)
		equal(t, "a turn that is over says nothing", len(f.all(t, threadA)), 3)
		equal(t, "due", due(f.next(t, store.NextDelivery{})), []any{store.DueSend, 3, 1, false})
	},
	"what nobody delivers is said all the same": func(t *testing.T, f *fixture) {
		p, _ := f.claim(t, "1")
		for i, rec := range []store.Record{{}, {Deliver: true, Console: true}} {
			rec.Key, rec.BootID, rec.Says = p.Key, "boot", []store.Say{{Step: store.StepTool + string(rune('1'+i)), Content: "x"}}
			_, err := f.Record(t.Context(), threadA, runner, rec)
			ok(t, err)
		}
		list, err := f.ListDeliveries(t.Context(), threadA, "", 0, 10)
		ok(t, err)
		equal(t, "states", []any{list[0].State, list[1].State, list[1].Channel}, []any{store.DeliverySkipped, store.DeliverySent, "console"})
	},
	// S4-68: what changes an earlier message is delivered like one, and no model sees it as said.
	"a step changes a message": func(t *testing.T, f *fixture) {
		p, _ := f.claim(t, "1")
		rec := store.Record{
			Key: p.Key, Steps: []store.Step{step(1, store.StepTool, "tool:1:1", store.ClassIdempotent, store.StepDone)}, Deliver: true, BootID: "boot",
			Says: []store.Say{{Step: "tool:1:1", Content: `{"text":"x","action":"edit"}`, Action: true}},
		}
		for range 2 {
			_, err := f.Record(t.Context(), threadA, runner, rec)
			ok(t, err)
		}
		equal(t, "due", due(f.next(t, store.NextDelivery{})), []any{store.DueSend, 2, 1, false})
		f.sent(t, 2, store.OutcomeSent)
		all := f.all(t, threadA)
		equal(t, "events", []any{len(all), *all[1].Subtype, all[1].Shown()}, []any{2, thread.SubtypeAction, false})
		shown, err := filter.Parse(thread.ShownFilter)
		ok(t, err)
		page, err := f.Read(t.Context(), threadA, store.Query{Filter: shown, Limit: 10})
		ok(t, err)
		equal(t, "shown", len(page.Events), 1)
		for key, want := range map[string]int64{rec.Says[0].Key(p.Key): 2, p.Key + ":tool:1:2:say": 0, "": 0} {
			id, err := f.SayID(t.Context(), threadA, key)
			ok(t, err)
			equal(t, "said "+key, id, want)
		}
	},
	// S1-49: what was sent of a message is not sent again, whoever goes on.
	"a message goes in parts": func(t *testing.T, f *fixture) {
		f.reply(t, "1")
		part := func(n int, reach int64) store.Delivery {
			t.Helper()
			d, err := f.FinishDelivery(t.Context(), threadA, sender, store.FinishDelivery{
				EventID: 2, Outcome: store.OutcomePart, Channel: "c", ProviderID: "p", Parts: n, Reach: reach, MaxAttempts: 3,
			})
			ok(t, err)
			return d
		}
		reached := func(d store.DueDelivery) []any { return []any{d.Attempt, d.MaybeDuplicate, d.Parts, d.Reach} }
		equal(t, "begun", reached(f.next(t, store.NextDelivery{})), []any{1, false, 0, 0})
		f.sent(t, 2, store.OutcomeFailed)
		equal(t, "peek", f.next(t, store.NextDelivery{}).Outcome, store.DueWait)
		_, err := f.FinishDelivery(t.Context(), threadA, sender, store.FinishDelivery{EventID: 2, Outcome: store.OutcomePart, Parts: 1, Reach: 10})
		ok(t, err)
		equal(t, "not begun", f.next(t, store.NextDelivery{}).Outcome, store.DueWait) // a part of nothing
		f.pass(t, store.DeliveryWaits[0])
		equal(t, "second try", reached(f.next(t, store.NextDelivery{})), []any{2, false, 0, 0})
		for range 2 {
			d := part(1, 10)
			equal(t, "part", []any{d.State, d.Attempts, d.Parts, d.Reach}, []any{store.DeliverySending, 1, 1, 10})
		}
		part(2, 20)
		part(1, 10) // late news
		equal(t, "killed here", reached(f.next(t, store.NextDelivery{})), []any{1, true, 2, 20})
		f.sent(t, 2, store.OutcomeRejected)
		d, err := f.ResolveDelivery(t.Context(), threadA, 2, "retried")
		ok(t, err)
		equal(t, "retried", []any{d.State, d.Parts, d.Reach}, []any{store.DeliveryPending, 2, 20})
		f.next(t, store.NextDelivery{})
		done := f.sent(t, 2, store.OutcomeSent)
		equal(t, "sent", []any{done.State, done.Parts, done.ProviderID}, []any{store.DeliverySent, 2, "p, p, p"})
		equal(t, "sent before", f.sent(t, 2, store.OutcomeSent), done)
	},
	// A digest that a person asked for has cost something too.
	"a step outside of a turn is counted": func(t *testing.T, f *fixture) {
		f.claim(t, "1")
		c := digest(layerA, 1, 1)
		c.Decision.Step = step(1, store.StepCompaction, "compact:thread:1", "", store.StepDone)
		c.Decision.Step.Usage = store.Usage{Input: 7, Output: 3}
		for range 2 {
			_, err := f.Compact(t.Context(), threadA, runner, c)
			ok(t, err)
		}
		d := store.Decision{Key: "compact:agent:1", Content: "{}", Step: c.Decision.Step}
		for range 2 {
			ok(t, f.Decide(t.Context(), threadA, runner, d))
		}
		sums, err := f.SumUsage(t.Context(), threadA, store.SumUsage{ByRun: true})
		ok(t, err)
		equal(t, "sums", sums, []store.UsageSum{
			{Model: "n", Turn: "compact:agent:1", Answers: 1, Usage: store.Usage{Input: 7, Output: 3}},
			{Model: "n", Turn: c.Decision.Key, Answers: 1, Usage: store.Usage{Input: 7, Output: 3}},
		})
	},
}
