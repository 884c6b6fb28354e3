package oracle

import (
	"slices"

	"github.com/theclaw/agents/internal/store"
)

// A State is made by calls of the contract.
type State struct {
	Name    string
	Subject int64
	Calls   []Call
}

// inboxed is what every state of a turn begins with: three messages, the thread.
var inboxed = []Call{push("", "1", "2", "3"), open("x"), ensure()}

func at(name string, calls ...Call) State {
	return State{name, 1, slices.Concat(inboxed, calls)}
}

// of is a state of the event behind the first one.
func of(name string, calls ...Call) State {
	s := at(name, calls...)
	s.Subject = 2
	return s
}

func back(calls ...Call) (out []Call) {
	for _, c := range calls {
		out = append(out, on(-1, c))
	}
	return out
}

// turns are the states of a turn.
func turns() []State {
	model, tool := store.StepModel, store.StepTool
	out := []State{
		{"no thread", 1, inboxed[:2]},
		at("queued"),
		at("released cleanly", claim, reset),
	}
	for n := 1; n <= store.MaxCrashAttempts; n++ {
		out = append(out, at("claimed, crash attempts "+string(rune('0'+n)), append([]Call{claim}, times(n-1, alone)...)...))
	}
	return append(out,
		at("waiting, before its time", claim, fail("", store.FailedTry{Wait: later, Counted: true})),
		at("waiting, after its time", claim, fail("", store.FailedTry{Counted: true})),
		at("waiting, three tries", claim, fail("", store.FailedTry{Counted: true, Tries: 3})),
		at("waiting for an outage, before its time", claim, fail("", store.FailedTry{Wait: later})),
		at("waiting for an outage, after its time", claim, fail("", store.FailedTry{})),
		at("waiting after an outage", claim, fail("", store.FailedTry{}), fail("", store.FailedTry{Counted: true})),
		at("waiting after a crash", claim, alone, fail("", store.FailedTry{Counted: true})),
		at("claimed again after a wait", claim, fail("", store.FailedTry{Counted: true}), alone),
		at("replied", claim, reply),
		at("replied and settled", claim, reply, settleReplied),
		at("replied to a console", claim, finish("", usual, store.Finish{Fate: store.FateReplied, Reply: "re", Deliver: true, Console: true})),
		at("replied to nobody", claim, finish("", usual, store.Finish{Fate: store.FateReplied, Reply: "re"})),
		at("replied and delivered", claim, reply, due, sent),
		at("silent", claim, silent),
		at("silent and settled", claim, silent, settleSilent),
		at("aborted", claim, finish("", usual, store.Finish{Fate: store.FateAborted, Error: "why", Decision: "{}"})),
		at("merged by itself", claim, finish("", usual, store.Finish{Fate: store.FateMerged})),
		at("dead", claim, die),
		at("dead with an apology", claim, finish("", usual, store.Finish{Fate: store.FateDead, Error: "why", Record: "{}", Apology: "sorry", Deliver: true})),
		at("dead of crashes", slices.Concat([]Call{claim}, times(store.MaxCrashAttempts, alone))...),
		at("dead and settled", claim, die, settleDead),
		at("dead and retried", claim, die, settleDead, resolveTurn("retried")),
		at("dead and dropped", claim, die, settleDead, resolveTurn("dropped")),
		at("leader from its claim", lead),
		at("leader from a steer", claim, steer("", usual, store.Steer{Step: "steer:2", Seq: 2}, 1)),
		at("leader, crash attempts 3", lead, alone, alone),
		at("leader that goes on alone", lead, alone, alone, alone),
		at("leader with an answer, crash attempts 3", lead, put("", step(2, model, "", store.StepDone)), claim, alone, alone),
		at("leader that its member has left", lead, on(1, claim)),
		at("queued before one that is claimed", on(1, claim)),
		at("leader that waits", lead, fail("", store.FailedTry{Wait: later, Counted: true})),
		at("leader that has replied", lead, reply),
		at("leader that is aborted", lead, finish("", usual, store.Finish{Fate: store.FateAborted, Error: "why"})),
		at("leader that is dead", lead, die),
		of("member from a claim", back(lead)...),
		of("member from a steer", back(claim, steer("", usual, store.Steer{Step: "steer:2", Seq: 2}, 1))...),
		of("member of one that waits", back(lead, fail("", store.FailedTry{Wait: later, Counted: true}))...),
		of("member that is claimed", append(back(lead), claim)...),
		of("member that is merged", back(lead, reply)...),
		of("member that is merged and settled", back(lead, reply, settle("", usual, store.Settlement{Fate: store.FateReplied, OutboxHead: 3}, 1))...),
		of("member of a dead leader", back(lead, die)...),
		of("member of one that goes on alone", back(lead, alone, alone, alone)...),
		at("model intent", claim, put("", step(1, model, "", store.StepIntent))),
		at("model done", claim, put("", step(1, model, "", store.StepDone))),
		at("model done, then a crash", claim, put("", step(1, model, "", store.StepDone)), claim, alone),
		at("tool intent, read", claim, put("", step(1, tool, store.ClassRead, store.StepIntent))),
		at("tool intent, idempotent", claim, put("", step(1, tool, store.ClassIdempotent, store.StepIntent))),
		at("tool intent, effect", claim, put("", step(1, tool, store.ClassEffect, store.StepIntent))),
		at("tool intent, asks, then a crash", claim, put("", asks), alone),
		at("tool done", claim, put("", step(1, tool, store.ClassEffect, store.StepDone))),
		at("tool in doubt", claim, put("", step(1, tool, store.ClassEffect, store.StepIntent)), put("", step(1, tool, store.ClassEffect, store.StepInDoubt))),
		at("a session without a message", patchTitle),
		at("an epoch asked for before a message", patchPending),
		at("in a session", session("", inSession)),
		at("in a session, replied", session("", inSession), reply),
		at("in a conversation older than sessions", on(1, claim), session("", inSession)),
		at("in a second epoch", on(1, session("", inSession)), on(1, reply), session("", daily)),
		at("in a second epoch, replied", on(1, session("", inSession)), on(1, reply), session("", daily), reply),
		at("an epoch asked for in a turn", session("", inSession), patchPending),
		at("archived", session("", inSession), reply, patchArchive),
		of("before an epoch that has begun", session("", inSession), on(-1, session("", daily))),
		at("said something", claim, record("", usual, store.Record{Steps: []store.Step{step(1, model, "", store.StepDone)}, Says: []store.Say{{Step: "model:1", Content: "one moment"}}, Deliver: true})),
	)
}

// deliveries are the states of a delivery.
func deliveries() []State {
	replied := []Call{claim, reply}
	d := func(name string, calls ...Call) State { return at(name, slices.Concat(replied, calls)...) }
	lowerBoot := next("under another boot", usual, store.NextDelivery{BootID: "later"})
	return []State{
		{"no thread", 1, inboxed[:2]},
		at("nothing to deliver", claim),
		at("foreign, no consumer", said()),
		at("foreign", claim, said()),
		at("foreign between others", slices.Concat(replied, []Call{noted(), said(), noted()})...),
		d("pending"),
		d("pending, another one behind it", on(1, claim), on(1, reply)),
		d("pending after a failure", due, failNow),
		d("pending later", due, failWait),
		d("pending after two failures", due, failNow, due, failNow),
		d("sending", due),
		d("sending, under another boot", lowerBoot),
		d("sending after a crash", due, due),
		d("sending after nine crashes", times(10, due)...),
		d("sending after ten crashes", times(11, due)...),
		d("sending the last try", due, failNow, due, failNow, due),
		d("sending, another one behind it", on(1, claim), on(1, reply), due),
		d("sent", due, sent),
		d("sent, another one behind it", on(1, claim), on(1, reply), due, sent),
		d("dead", due, rejected),
		d("dead, another one behind it", on(1, claim), on(1, reply), due, rejected),
		d("dead, retried", due, rejected, resolveDelivery("retried")),
		d("dead, dropped", due, rejected, resolveDelivery("dropped")),
		d("dead twice", due, rejected, resolveDelivery("retried"), due, rejected),
		d("skipped", due, send("", usual, store.FinishDelivery{Outcome: store.OutcomeSkipped})),
		d("in parts, sending", due, part(1)),
		d("in parts, after a failure", due, part(1), failNow),
		d("in parts, dead, retried", due, part(1), rejected, resolveDelivery("retried")),
		at("skipped from the beginning", claim, finish("", usual, store.Finish{Fate: store.FateReplied, Reply: "re"})),
		at("sent from the beginning", claim, finish("", usual, store.Finish{Fate: store.FateReplied, Reply: "re", Deliver: true, Console: true})),
		at("said in a turn that goes on", claim, record("", usual, store.Record{Steps: []store.Step{step(1, store.StepModel, "", store.StepDone)}, Says: []store.Say{{Step: "model:1", Content: "one moment"}}, Deliver: true})),
	}
}

// inboxes are the states of an inbox.
func inboxes() []State {
	in := func(name string, calls ...Call) State {
		return State{name, 2, slices.Concat([]Call{push("k", "1", "2", "3")}, calls)}
	}
	first, third := on(-1, settleSilent), on(1, settleSilent)
	return []State{
		{"empty", 2, nil},
		in("never opened"),
		in("opened", open("x")),
		in("ack before it", open("x"), first),
		in("a gap at it", open("x"), first, third),
		in("fate replied", open("x"), settleReplied),
		in("fate silent", open("x"), settleSilent),
		in("fate aborted", open("x"), settle("", usual, store.Settlement{Fate: store.FateAborted, Error: "why"})),
		in("fate not a message", open("x"), settle("", usual, store.Settlement{Fate: store.FateNotAMessage})),
		in("fate merged", open("x"), on(-1, settle("", usual, store.Settlement{Fate: store.FateReplied, OutboxHead: 3}, 1))),
		in("fate dead", open("x"), settleDead),
		in("fate dead, retried", open("x"), settleDead, resolveTurn("retried")),
		in("fate dead, dropped", open("x"), settleDead, resolveTurn("dropped")),
		in("ack at it", open("x"), first, settleReplied),
		in("all done", open("x"), first, settleReplied, third),
		in("all done, mode changed", open("x"), first, settleReplied, third, open("y"), push("", "4")),
		in("mode changed, none claimed", open("x"), open("y")),
		in("mode changed, it is claimed", open("x"), open("y", 2)),
		in("mode changed back", open("x"), open("y", 2), open("x", 2)),
		in("mode changed twice", open("x"), open("y", 1), open("z", 1, 2)),
		in("outbox known", open("x"), first, settleReplied, mark("", store.OutboxMark{Acked: 2})),
		in("outbox reopened", open("x"), settleReplied, mark("", store.OutboxMark{Acked: 2, Dead: 1}), mark("", store.OutboxMark{Acked: 2, Reopen: true})),
		{"with origins", 2, []Call{pushTo("threads/z", "k", "1", "2", "3")}},
		{"with origins, opened", 2, []Call{pushTo("threads/z", "k", "1", "2", "3"), open("x")}},
		{"with origins, mode changed", 2, []Call{pushTo("threads/z", "k", "1", "2", "3"), open("x"), open("y", 2)}},
		{"with and without an origin", 2, []Call{push("k", "1"), pushTo("threads/z", "", "2"), push("", "3"), open("x")}},
		{"with and without an origin, mode changed", 2, []Call{push("k", "1"), pushTo("threads/z", "", "2"), push("", "3"), open("x"), open("y", 1)}},
		{"with an origin, fate dead", 2, []Call{pushTo(ThreadID, "k", "1", "2", "3"), open("x"), settleDead}},
		{"a record with an origin", 2, []Call{pushTo("threads/z", "", "1", "record 2", "bad")}},
		{"a record, and one without a thread", 2, []Call{push("", "record 1", "bad", "3")}},
		{"a record, and one without a thread, opened", 2, []Call{push("", "1", "record 2", "bad"), open("x")}},
	}
}
