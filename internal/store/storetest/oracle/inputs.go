package oracle

import (
	"time"

	"github.com/theclaw/agents/internal/store"
)

// A Kind is the states of one thing, and the calls that it can get.
type Kind struct {
	Name   string
	States []State
	Inputs []Call
}

// Kinds are those of the matrix.
func Kinds() []Kind {
	return []Kind{
		{"turn", turns(), turnInputs()},
		{"delivery", deliveries(), deliveryInputs()},
		{"inbox", inboxes(), inboxInputs()},
	}
}

// turnInputs are the calls that a turn can get.
func turnInputs() []Call {
	model, tool := store.StepModel, store.StepTool
	say := func(name string, deliver, console bool) Call {
		return record(name, usual, store.Record{
			Steps: []store.Step{step(2, model, "", store.StepDone)}, Says: []store.Say{{Step: "model:2", Content: "one moment"}}, Deliver: deliver, Console: console,
		})
	}
	return []Call{
		claim, alone, lead,
		record("a wait for a person", usual, store.Record{Waits: true}),
		begin("alone with a member", usual, store.Begin{Alone: true, Tail: 10}, 1),
		begin("alone, given back before", usual, store.Begin{Alone: true, GivenBack: &store.FailedTry{Class: "internal", Error: "back", Counted: true}}),
		begin("given back before", usual, store.Begin{Subscribe: true, GivenBack: &store.FailedTry{Class: "internal", Error: "back"}}),
		begin("with an opening", usual, store.Begin{Opening: "{}", Tail: 1, Alone: true}),
		begin("under a lower token", lower, store.Begin{Alone: true}),
		begin("under a higher token", higher, store.Begin{Alone: true}),
		on(1, claim), on(1, alone),
		put("model intent", step(1, model, "", store.StepIntent)),
		put("model done", step(1, model, "", store.StepDone)),
		put("next model done", step(3, model, "", store.StepDone)),
		put("call of a program", step(1, model, store.ClassEffect, store.StepIntent)),
		put("tool intent, read", step(1, tool, store.ClassRead, store.StepIntent)),
		put("tool intent, effect", step(1, tool, store.ClassEffect, store.StepIntent)),
		put("tool done", step(1, tool, store.ClassEffect, store.StepDone)),
		put("tool in doubt", step(1, tool, store.ClassEffect, store.StepInDoubt)),
		put("two tools done", step(1, tool, store.ClassRead, store.StepDone), step(2, tool, store.ClassRead, store.StepDone)),
		fail("a failure, counted", store.FailedTry{Counted: true}),
		fail("a failure, counted, waits", store.FailedTry{Counted: true, Wait: later}),
		fail("three failures", store.FailedTry{Counted: true, Tries: 3}),
		fail("an outage", store.FailedTry{}),
		fail("an outage, waits", store.FailedTry{Wait: later}),
		fail("an outage, no call was made", store.FailedTry{Wait: later, Held: true}),
		fail("an outage after an answer", store.FailedTry{}, step(1, model, "", store.StepDone)),
		fail("an outage after the call of a program", store.FailedTry{}, step(1, model, store.ClassEffect, store.StepIntent)),
		say("what it says", true, false),
		say("what it says to a console", true, true),
		say("what it says to nobody", false, false),
		record("under a lower token", lower, store.Record{Steps: []store.Step{step(1, model, "", store.StepDone)}}),
		record("of no turn", usual, store.Record{Key: "u:9:0"}),
		steer("a member", usual, store.Steer{Step: "steer:3", Seq: 5}, 1),
		begin("with two members", usual, store.Begin{Subscribe: true}, 1, 2),
		steer("two members", usual, store.Steer{Step: "steer:4", Seq: 6}, 1, 2),
		steer("a member under the step of the claim", usual, store.Steer{Step: store.StepCollect, Seq: 5}, 1),
		steer("no turn", usual, store.Steer{Key: "u:9:0", Step: "steer:3"}, 1),
		steer("under a lower token", lower, store.Steer{Step: "steer:3", Seq: 5}, 1),
		reply, silent, die,
		finish("replied with steps", usual, store.Finish{Fate: store.FateReplied, Reply: "re", Deliver: true, Steps: []store.Step{step(1, tool, store.ClassEffect, store.StepDone), step(3, model, "", store.StepDone)}}),
		finish("a command answered", usual, store.Finish{Fate: store.FateReplied, Reply: "re", Deliver: true, Command: true}),
		finish("replied to a console", usual, store.Finish{Fate: store.FateReplied, Reply: "re", Deliver: true, Console: true}),
		finish("replied and settled", usual, store.Finish{Fate: store.FateReplied, Reply: "re", Deliver: true, InboxID: 1}),
		finish("silent with a decision", usual, store.Finish{Fate: store.FateSilent, Decision: "{}"}),
		finish("merged", usual, store.Finish{Fate: store.FateMerged}),
		finish("aborted", usual, store.Finish{Fate: store.FateAborted, Error: "why"}),
		finish("aborted with a decision", usual, store.Finish{Fate: store.FateAborted, Error: "why", Decision: "{}"}),
		finish("dead with an apology", usual, store.Finish{Fate: store.FateDead, Error: "why", Record: "{}", Apology: "sorry", Deliver: true}),
		finish("dead and settled", usual, store.Finish{Fate: store.FateDead, Error: "why", Record: "{}", InboxID: 1}),
		finish("under a lower token", lower, store.Finish{Fate: store.FateSilent}),
		finish("no turn", usual, store.Finish{Key: "u:9:0", Fate: store.FateSilent}),
		settleReplied,
		settle("with a member", usual, store.Settlement{Fate: store.FateReplied, OutboxHead: 3}, 1),
		reset,
		open("x"), open("y", 1),
		session("by a command", &store.BeginSession{Key: "agent:a:C:patched", Reason: store.EpochNew, By: "command"}),
		session("with a change", &store.BeginSession{Key: "agent:a:C:patched", Patch: store.SessionPatch{Model: ptr("x/y"), Elevated: ptr("on")}}),
		session("the same epoch", inSession), session("daily", daily), session("idle", idle),
		on(1, session("the same epoch", inSession)), on(1, session("daily", daily)),
		patchTitle, patchPending, patchArchive,
	}
}

// deliveryInputs are the calls that a delivery can get.
func deliveryInputs() []Call {
	return []Call{
		due,
		next("without a run", usual, store.NextDelivery{}),
		next("as a peek", usual, store.NextDelivery{Peek: true}),
		next("under another boot", usual, store.NextDelivery{BootID: "later"}),
		next("as a peek under another boot", usual, store.NextDelivery{BootID: "later", Peek: true}),
		next("too old", usual, store.NextDelivery{MaxAge: time.Nanosecond}),
		next("as a peek, too old", usual, store.NextDelivery{MaxAge: time.Nanosecond, Peek: true}),
		next("within the age", usual, store.NextDelivery{MaxAge: 24 * later}),
		next("with a lower limit", usual, store.NextDelivery{MaxAttempts: 1}),
		next("with the same limit", usual, store.NextDelivery{MaxAttempts: 3}),
		next("under a lower token", lower, store.NextDelivery{}),
		next("under a higher token", higher, store.NextDelivery{}),
		sent, rejected, failNow, failWait,
		send("failed, default waits", usual, store.FinishDelivery{Outcome: store.OutcomeFailed, MaxAttempts: 3}),
		send("failed, told when", usual, store.FinishDelivery{Outcome: store.OutcomeFailed, MaxAttempts: 3, Waits: []time.Duration{0}, RetryAfter: later}),
		send("failed for the only time", usual, store.FinishDelivery{Outcome: store.OutcomeFailed, MaxAttempts: 1}),
		send("unavailable", usual, store.FinishDelivery{Outcome: store.OutcomeUnavailable}),
		send("unavailable, told when", usual, store.FinishDelivery{Outcome: store.OutcomeUnavailable, RetryAfter: later}),
		send("failed in doubt", usual, store.FinishDelivery{Outcome: store.OutcomeFailed, MaxAttempts: 3, InDoubt: true}),
		send("unavailable in doubt", usual, store.FinishDelivery{Outcome: store.OutcomeUnavailable, InDoubt: true}),
		send("skipped", usual, store.FinishDelivery{Outcome: store.OutcomeSkipped}),
		part(1), part(2),
		send("under a lower token", lower, store.FinishDelivery{Outcome: store.OutcomeSent}),
		resolveDelivery("retried"), resolveDelivery("dropped"),
		said(), noted(),
		on(2, claim), on(2, reply),
	}
}

// inboxInputs are the calls that an inbox can get.
func inboxInputs() []Call {
	return []Call{
		push("k", "1", "2", "3"), push("k", "1", "2", "4"), push("", "4"),
		pushTo("threads/z", "k", "1", "2", "3"), pushTo("threads/z", "", "4"), pushed("none"),
		open("x"), open("y"), open("y", 2), open("y", 1, 3), open("y", -1),
		batch("open one", usual, store.OpenBatch{Mode: "x", Limit: 1}),
		batch("open after the first", usual, store.OpenBatch{Mode: "x", Limit: 1, After: 1}),
		batch("open after all", usual, store.OpenBatch{Mode: "x", Limit: 1, After: 9}),
		batch("open under a lower token", lower, store.OpenBatch{Mode: "x", Limit: 9}),
		batch("open under a higher token", higher, store.OpenBatch{Mode: "x", Limit: 9}),
		settleReplied, settleDead, settleSilent,
		settle("aborted", usual, store.Settlement{Fate: store.FateAborted, Error: "why"}),
		settle("not a message", usual, store.Settlement{Fate: store.FateNotAMessage}),
		settle("with a member", usual, store.Settlement{Fate: store.FateReplied, OutboxHead: 3}, 1),
		settle("under a lower token", lower, store.Settlement{Fate: store.FateSilent}),
		on(-1, settleSilent), on(1, settleSilent),
		resolveTurn("retried"), resolveTurn("dropped"), on(7, resolveTurn("dropped")),
		mark("acked", store.OutboxMark{Acked: 1}),
		mark("all acked", store.OutboxMark{Acked: 9}),
		mark("dead", store.OutboxMark{Acked: 2, Dead: 2}),
		mark("reopened", store.OutboxMark{Acked: 2, Reopen: true}),
	}
}
