package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// begin begins a claimed event again and answers what came of it.
func (f *fixture) begin(t *testing.T, p store.Pending, alone bool) store.Begun {
	t.Helper()
	return f.beginWith(t, p, store.Begin{Alone: alone})
}

// beginWith is begin with what else a caller may say.
func (f *fixture) beginWith(t *testing.T, p store.Pending, more store.Begin) store.Begun {
	t.Helper()
	b := begin(p)
	b.Alone, b.GivenBack = more.Alone, more.GivenBack
	out, err := f.Begin(t.Context(), threadA, runner, b)
	ok(t, err)
	return out
}

func (f *fixture) record(t *testing.T, r store.Record) int {
	t.Helper()
	n, err := f.Record(t.Context(), threadA, runner, r)
	ok(t, err)
	return n
}

func (f *fixture) finish(t *testing.T, fin store.Finish) store.Finished {
	t.Helper()
	out, err := f.Finish(t.Context(), threadA, runner, fin)
	ok(t, err)
	return out
}

var turns = map[string]func(*testing.T, *fixture){
	"the first claim records the event": func(t *testing.T, f *fixture) {
		_, begun := f.claim(t, "1")
		equal(t, "event", kinds(f.all(t, threadA)), []string{"in"})
		equal(t, "inbound", []any{begun.Inbound.Source, begun.Inbound.Content}, []any{alice, "1"})
		equal(t, "tail", begun.Tail, []thread.Event{begun.Inbound})
		equal(t, "attempts, steps", []int{begun.CrashAttempts, begun.ErrorAttempts, len(begun.Steps)}, []int{1, 0, 0})
		in, err := f.Info(t.Context(), threadA)
		ok(t, err)
		if s := in.Subscriptions; len(s) != 1 || s[0].Consumer != thread.Outbound || *s[0].Filter != thread.OutboundFilter || s[0].Handler != "deliver" {
			t.Errorf("subscriptions %+v", s) // S0-120
		}
	},
	// S0-121: a subscription that is gone comes back with the next message.
	"the outbound subscription is kept": func(t *testing.T, f *fixture) {
		f.claim(t, "1")
		ok(t, f.Unsubscribe(t.Context(), threadA, thread.Outbound))
		f.push(t, "2")
		f.begin(t, f.open(t).Events[1], false)
		in, err := f.Info(t.Context(), threadA)
		ok(t, err)
		equal(t, "subscriptions", len(in.Subscriptions), 1)
	},
	"the tail is a cut at the event": func(t *testing.T, f *fixture) {
		f.reply(t, "1")
		f.reply(t, "2")
		p, _ := f.claim(t, "3")
		_, err := f.Append(t.Context(), threadA, []store.NewEvent{msg("later")}, store.AppendOptions{})
		ok(t, err)
		again := f.begin(t, p, true)
		var got []string
		for _, e := range again.Tail {
			got = append(got, e.Content)
		}
		equal(t, "tail", got, []string{"2", "re: 2", "3"})
	},
	"a replay sees the journal": func(t *testing.T, f *fixture) {
		p, _ := f.claim(t, "1")
		s := step(1, store.StepModel, "model:1", "", store.StepDone)
		s.Result, s.Usage, s.Duration, s.Arguments = []byte("answer"), store.Usage{Input: 1, Output: 2, CachedInput: 3, Reasoning: 4}, time.Second, "{}"
		f.record(t, store.Record{Key: p.Key, Steps: []store.Step{s}})
		again := f.begin(t, p, true)
		again.Steps[0].RecordedAt = s.RecordedAt
		equal(t, "steps", again.Steps, []store.Step{s})
		equal(t, "events", kinds(f.all(t, threadA)), []string{"in"})
	},
	// RELIABILITY 5, poison: alone from the second claim, dead after the fifth.
	"crashes are counted": func(t *testing.T, f *fixture) {
		p, _ := f.claim(t, "1")
		for n := 2; n <= store.MaxCrashAttempts; n++ {
			equal(t, "in company", f.begin(t, p, false).Outcome, store.BeginAlone)
			b := f.begin(t, p, true)
			equal(t, "outcome, attempts", []int{int(b.Outcome), b.CrashAttempts}, []int{int(store.BeginGo), n})
		}
		b := f.begin(t, p, true)
		equal(t, "outcome, fate", []any{b.Outcome, b.Finished.Fate}, []any{store.BeginExhausted, store.FateDead})
		equal(t, "after", f.begin(t, p, true).Outcome, store.BeginFinished)
		equal(t, "events", kinds(f.all(t, threadA)), []string{"in", "error"})
	},
	"progress and a clean release forget crashes": func(t *testing.T, f *fixture) {
		p, _ := f.claim(t, "1")
		model := []store.Step{step(1, store.StepModel, "model:1", "", store.StepDone)}
		f.record(t, store.Record{Key: p.Key, Steps: model})
		equal(t, "after progress", f.begin(t, p, false).CrashAttempts, 1)
		f.record(t, store.Record{Key: p.Key, Steps: model})
		equal(t, "a repeated step is no progress", f.begin(t, p, false).Outcome, store.BeginAlone)
		ok(t, f.ResetCrashes(t.Context(), threadA, []string{p.Key, "unknown"}))
		equal(t, "after a release", f.begin(t, p, false).CrashAttempts, 1)
	},
	// S3-48: however often the services end while a person is waited for, no crash is counted.
	"a wait forgets crashes": func(t *testing.T, f *fixture) {
		p, _ := f.claim(t, "1")
		for range 2 * store.MaxCrashAttempts {
			f.record(t, store.Record{Key: p.Key, Waits: true})
			b := f.begin(t, p, false)
			equal(t, "outcome, attempts", []int{int(b.Outcome), b.CrashAttempts}, []int{int(store.BeginGo), 1})
		}
	},
	// F1: an attempt whose process lives is no crash, and what ended it is known.
	"what is given back is no crash": func(t *testing.T, f *fixture) {
		p, _ := f.claim(t, "1")
		back := &store.FailedTry{Class: "internal", Error: "the journal refused it", Counted: true}
		for n := range 7 {
			b := f.beginWith(t, p, store.Begin{GivenBack: back})
			equal(t, "outcome, crashes, tries", []int{int(b.Outcome), b.CrashAttempts, b.ErrorAttempts}, []int{int(store.BeginGo), 1, n + 1})
			equal(t, "error", b.Error, "internal: the journal refused it")
		}
		// From here on the process dies each time.
		for range store.MaxCrashAttempts - 1 {
			equal(t, "outcome", f.begin(t, p, true).Outcome, store.BeginGo)
		}
		b := f.begin(t, p, true)
		const died = "the process died each time this message was worked on; the last error before: internal: the journal refused it"
		equal(t, "outcome, error", []any{b.Outcome, b.Finished.Error}, []any{store.BeginExhausted, died})
		turn := f.turn(t, p)
		equal(t, "fate, error", []any{turn.Fate, turn.Error}, []any{store.FateDead, died})
		var classes []string
		for _, a := range turn.Attempts {
			classes = append(classes, fmt.Sprint(a.N, " ", a.Class))
		}
		equal(t, "attempts", classes, []string{
			"1 internal", "2 internal", "3 internal", "4 internal", "5 internal", "6 internal", "7 internal",
			"8 crash", "9 crash", "10 crash", "11 crash", "12 crash",
		})
	},
	// F1, H2: each attempt is kept with its time, class and error, of many the first two and
	// the newest fourteen; and what was answered has no error.
	"attempts are kept": func(t *testing.T, f *fixture) {
		p, _ := f.claim(t, "1")
		long := strings.Repeat("é", 300)
		for n := 1; n <= 30; n++ {
			f.record(t, store.Record{Key: p.Key, Failed: &store.FailedTry{Class: "rate limited", Error: fmt.Sprint(n, long), Wait: time.Second, Counted: n == 30}})
			f.record(t, store.Record{Key: p.Key, Failed: &store.FailedTry{Class: "rate limited", Error: "held", Wait: time.Second, Held: true}})
		}
		turn := f.turn(t, p)
		equal(t, "state, error", []any{turn.State, turn.Error}, []any{store.TurnWaiting, "rate limited: held"})
		var numbers []int
		for _, a := range turn.Attempts {
			numbers = append(numbers, a.N)
			if a.At.IsZero() || a.Class != "rate limited" || a.Wait != time.Second || a.Counted != (a.N == 30) || len(a.Error) > 256 || !utf8.ValidString(a.Error) || !strings.HasPrefix(a.Error, fmt.Sprint(a.N, "é")) {
				t.Errorf("attempt %+v", a)
			}
		}
		equal(t, "kept", numbers, []int{1, 2, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30})
		f.finish(t, store.Finish{Key: p.Key, Fate: store.FateReplied, Reply: "re"})
		turn = f.turn(t, p)
		equal(t, "after the answer: error, attempts", []any{turn.Error, len(turn.Attempts)}, []any{"", 16})

		p, _ = f.claim(t, "2")
		f.finish(t, store.Finish{Key: p.Key, Fate: store.FateDead, Error: "key refused: no", Record: "{}", Failed: &store.FailedTry{Class: "key refused", Error: "no"}})
		turn = f.turn(t, p)
		equal(t, "the last one: n, class, error", []any{len(turn.Attempts), turn.Attempts[0].Class, turn.Attempts[0].Error, turn.Error}, []any{1, "key refused", "no", "key refused: no"})
	},
	"a failed try waits": func(t *testing.T, f *fixture) {
		p, _ := f.claim(t, "1")
		equal(t, "attempts", f.record(t, store.Record{Key: p.Key, Failed: &store.FailedTry{Error: "e", Wait: time.Hour, Counted: true}}), 1)
		// A program that has tried three times itself has spent three.
		equal(t, "attempts", f.record(t, store.Record{Key: p.Key, Failed: &store.FailedTry{Error: "e", Wait: time.Hour, Counted: true, Tries: 3}}), 4)
		b := f.begin(t, p, false)
		if b.Outcome != store.BeginWait || b.Wait <= 0 || b.Wait > time.Hour {
			t.Errorf("begin: %+v", b)
		}
		turn := f.turn(t, p)
		equal(t, "state, error, attempts", []any{turn.State, turn.Error, turn.ErrorAttempts}, []any{store.TurnWaiting, "e", 4})
		if turn.NextAt.IsZero() {
			t.Error("no time of the next try")
		}
		f.pass(t, b.Wait)
		b = f.begin(t, p, false)
		equal(t, "after the wait", []int{int(b.Outcome), b.ErrorAttempts, b.CrashAttempts}, []int{int(store.BeginGo), 4, 1})
	},
	// P1: the answer to a record or a claim is lost with the registry, and the call is repeated.
	"a failed try is counted once": func(t *testing.T, f *fixture) {
		p, _ := f.claim(t, "1")
		for n := 1; n <= 2; n++ {
			first := store.Record{Key: p.Key, Failed: &store.FailedTry{Class: "c", Error: "e", Counted: true, N: n}}
			equal(t, "tries", []int{f.record(t, first), f.record(t, first)}, []int{n, n})
		}
		for range 2 {
			b := f.beginWith(t, p, store.Begin{GivenBack: &store.FailedTry{Class: "c", Error: "back", Counted: true, N: 3}})
			equal(t, "tries, claims", []int{b.ErrorAttempts, b.CrashAttempts}, []int{3, 1})
		}
		equal(t, "attempts", len(f.turn(t, p).Attempts), 3)
	},
	"an outage spends no attempt": func(t *testing.T, f *fixture) {
		p, _ := f.claim(t, "1")
		outage := store.Record{Key: p.Key, Failed: &store.FailedTry{Error: "down"}}
		for range 4 {
			equal(t, "attempts", f.record(t, outage), 0)
			equal(t, "begin", f.begin(t, p, false).Outcome, store.BeginGo)
		}
		f.pass(t, time.Hour)
		// That a program was called, and had no answer, is no progress.
		called := outage
		called.Steps = []store.Step{step(1, store.StepModel, "pai:1", store.ClassEffect, store.StepIntent)}
		f.record(t, called)
		called.Steps = []store.Step{step(1, store.StepModel, "pai:1", store.ClassEffect, store.StepDone)}
		f.record(t, called)
		f.lasted(t, "waited", f.begin(t, p, true).Waited, time.Hour)
		// Progress ends the outage; the next one counts from its own beginning.
		outage.Steps = []store.Step{step(2, store.StepModel, "model:1", "", store.StepDone)}
		f.record(t, outage)
		f.pass(t, time.Minute)
		f.lasted(t, "waited again", f.begin(t, p, false).Waited, time.Minute)
	},
	// S2-15: a tool that waits for a person has no part in the end of its process, however often
	// that ends; what it does after the answer has.
	"a wait is no crash": func(t *testing.T, f *fixture) {
		p, _ := f.claim(t, "1")
		asks := step(1, store.StepTool, "tool:1", store.ClassEffect, store.StepIntent)
		asks.Asks = true
		f.record(t, store.Record{Key: p.Key, Steps: []store.Step{asks}})
		for range 4 * store.MaxCrashAttempts {
			f.record(t, store.Record{Key: p.Key, Waits: true})
			b := f.begin(t, p, false)
			equal(t, "claim", []any{b.Outcome, b.CrashAttempts, b.Steps[0].Asks}, []any{store.BeginGo, 1, true})
		}
		asks.State, asks.Result = store.StepDone, []byte("{}")
		f.record(t, store.Record{Key: p.Key, Steps: []store.Step{asks}})
		f.begin(t, p, true)
		equal(t, "after it", f.begin(t, p, false).Outcome, store.BeginAlone)
	},
	// S2-50, S2-51: what a call was, and whether its result is an error or external, is known with it. Only the
	// summary is known before there is a result.
	"a step keeps what its call was": func(t *testing.T, f *fixture) {
		p, _ := f.claim(t, "1")
		s := step(1, store.StepTool, "tool:1", store.ClassRead, store.StepIntent)
		s.Summary = "web_fetch https://example.com"
		f.record(t, store.Record{Key: p.Key, Steps: []store.Step{s}})
		got := f.turn(t, p).Steps[0]
		equal(t, "intent", []any{got.Summary, got.IsError, got.External}, []any{s.Summary, false, false})
		s.State, s.Result, s.IsError, s.External = store.StepDone, []byte("{}"), true, true
		f.record(t, store.Record{Key: p.Key, Steps: []store.Step{s}})
		got = f.begin(t, p, false).Steps[0]
		equal(t, "done", []any{got.Summary, got.IsError, got.External}, []any{s.Summary, true, true})
	},
	// I8: a result that stands is never replaced, and told once in the thread.
	"steps are journalled once": func(t *testing.T, f *fixture) {
		p, _ := f.claim(t, "1")
		put := func(state, result, event string) store.Step {
			s := step(1, store.StepTool, "tool:1", store.ClassEffect, state)
			s.Result = []byte(result)
			r := store.Record{Key: p.Key, Steps: []store.Step{s}, Records: map[string]string{}}
			if event != "" {
				r.Records["tool:1"] = event
			}
			f.record(t, r)
			got := f.turn(t, p).Steps
			equal(t, "steps", len(got), 1)
			return got[0]
		}
		equal(t, "state", put(store.StepIntent, "", "").State, store.StepIntent)
		equal(t, "state", put(store.StepIntent, "x", "").State, store.StepIntent)
		for _, again := range []string{store.StepDone, store.StepDone, store.StepInDoubt, store.StepIntent} {
			s := put(again, "of "+again, `{"is":"`+again+`"}`)
			equal(t, "step", []string{s.State, string(s.Result)}, []string{store.StepDone, "of done"})
		}
		doubt := step(2, store.StepTool, "tool:2", store.ClassEffect, store.StepIntent)
		doubt.Asks = true
		f.record(t, store.Record{Key: p.Key, Steps: []store.Step{doubt}})
		doubt.State = store.StepInDoubt
		f.record(t, store.Record{Key: p.Key, Steps: []store.Step{doubt}, Records: map[string]string{"tool:2": `{"is":"unknown"}`}})
		doubted := f.turn(t, p).Steps
		equal(t, "state", []any{doubted[1].State, doubted[1].Asks, doubted[0].Asks}, []any{store.StepInDoubt, true, false})
		list := f.all(t, threadA)
		equal(t, "events", kinds(list), []string{"in", "toolcall", "toolcall"})
		equal(t, "told", list[1].Content, `{"is":"done"}`)
		_, err := f.Record(t.Context(), threadA, runner, store.Record{Key: "unknown"})
		is(t, err, store.ErrNoTurn)
	},
	// S3-103: what was said in a file is an event of the conversation, once, and an answer of its provider.
	"a transcript is recorded once": func(t *testing.T, f *fixture) {
		p, _ := f.claim(t, "1")
		s := step(1, store.StepTranscript, "transcribe:1", "", store.StepIntent)
		s.Name = "p/whisper"
		f.record(t, store.Record{Key: p.Key, Steps: []store.Step{s}})
		equal(t, "begun", kinds(f.all(t, threadA)), []string{"in"})
		s.State, s.Result = store.StepDone, []byte("{}")
		failed := step(2, store.StepTranscript, "transcribe:2", "", store.StepDone)
		failed.Name, failed.IsError = "p/whisper", true
		program := step(3, store.StepTranscript, "transcribe:3", store.ClassIdempotent, store.StepDone)
		for range 2 {
			f.record(t, store.Record{Key: p.Key, Steps: []store.Step{s, failed, program}, Records: map[string]string{"transcribe:1": "one", "transcribe:2": "two", "transcribe:3": "three"}})
		}
		list := f.all(t, threadA)
		equal(t, "events", kinds(list), []string{"in", "transcript", "transcript", "transcript"})
		equal(t, "first", []string{list[1].Content, list[1].Source, list[1].Type}, []string{"one", thread.SourceSelf, thread.TypeRecord})
		sums, err := f.SumUsage(t.Context(), threadA, store.SumUsage{})
		ok(t, err)
		equal(t, "usage", sums, []store.UsageSum{{Model: "p/whisper", Answers: 1}})
	},
	// S0-85, I2, I3: one reply, however often it is given.
	"a reply is given once": func(t *testing.T, f *fixture) {
		p, _ := f.claim(t, "1")
		fin := replied(p)
		fin.Steps = []store.Step{step(1, store.StepModel, "model:1", "", store.StepDone)}
		first := f.finish(t, fin)
		equal(t, "first", first, store.Finished{Fate: store.FateReplied, ReplyID: 2, OutboxHead: 2, InboundID: 1})
		fin.Reply = "another"
		for range 3 {
			want := first
			want.Already = true
			equal(t, "again", f.finish(t, fin), want)
			equal(t, "as dead", f.finish(t, store.Finish{Key: p.Key, Fate: store.FateDead, Record: "{}"}), want)
		}
		b := f.begin(t, p, false)
		equal(t, "begin", []any{b.Outcome, b.Finished.ReplyID, b.Finished.OutboxHead}, []any{store.BeginFinished, 2, 2})
		equal(t, "late record", f.record(t, store.Record{Key: p.Key, Steps: []store.Step{step(2, store.StepModel, "model:2", "", store.StepDone)}}), 0)
		equal(t, "events", kinds(f.all(t, threadA)), []string{"in", "reply"})
		turn := f.turn(t, p)
		equal(t, "turn", []any{turn.State, turn.Fate, turn.ReplyID, len(turn.Steps), turn.Delivery.State}, []any{store.TurnDone, store.FateReplied, 2, 1, store.DeliveryPending})
		_, err := f.Finish(t.Context(), threadA, runner, store.Finish{Key: "unknown"})
		is(t, err, store.ErrNoTurn)
	},
	"the first event of a thread alone tells why it is there": func(t *testing.T, f *fixture) {
		f.push(t, "x")
		f.push(t, "y")
		list := f.open(t).Events
		f.ensure(t)
		for _, p := range []store.Pending{list[0], list[0], list[1]} {
			b := begin(p)
			b.Opening, b.Tail, b.Alone = `{"decision":"route"}`, 9, true
			begun, err := f.Begin(t.Context(), threadA, runner, b)
			ok(t, err)
			equal(t, "inbound and tail", []any{begun.Inbound.Content, len(begun.Tail)}, []any{p.Event.Content, map[bool]int{true: 1, false: 2}[p.Key == list[0].Key]})
		}
		equal(t, "events", kinds(f.all(t, threadA)), []string{"in", "decision", "in"})
	},
	"fates": func(t *testing.T, f *fixture) {
		for _, c := range []struct {
			fin  store.Finish
			want []string
			open int64
		}{
			{store.Finish{Fate: store.FateSilent}, []string{"in"}, 0},
			{store.Finish{Fate: store.FateSilent, Decision: "{}"}, []string{"in", "decision"}, 0},
			{store.Finish{Fate: store.FateMerged}, []string{"in"}, 0},
			{store.Finish{Fate: store.FateAborted, Error: "why"}, []string{"in"}, 0},
			{store.Finish{Fate: store.FateDead, Error: "why", Record: "{}"}, []string{"in", "error"}, 0},
			{store.Finish{Fate: store.FateReplied, Reply: "{}", Deliver: true, Console: true}, []string{"in", "reply"}, 0},
			{store.Finish{Fate: store.FateReplied, Reply: "{}"}, []string{"in", "reply"}, 0},
			{store.Finish{Fate: store.FateDead, Error: "why", Record: "{}", Apology: "{}", Deliver: true}, []string{"in", "error", "reply"}, 1},
		} {
			before := len(f.all(t, threadAOrNone(t, f)))
			p, _ := f.claim(t, "x")
			c.fin.Key = p.Key
			out := f.finish(t, c.fin)
			f.finish(t, c.fin)
			list := f.all(t, threadA)
			equal(t, "events of "+string(c.fin.Fate), kinds(list[before:]), c.want)
			if (out.ReplyID != 0) != (c.fin.Fate == store.FateReplied) || (out.ErrorEventID != 0) != (c.fin.Fate == store.FateDead) || (out.OutboxHead != 0) != (c.open != 0) {
				t.Errorf("%+v: finished %+v", c.fin, out)
			}
			turn := f.turn(t, p)
			equal(t, "turn", []any{turn.State, turn.Fate, turn.Error}, []any{store.TurnDone, c.fin.Fate, c.fin.Error})
		}
		// What a client watched and what had no channel is not sent later.
		d, err := f.NextDelivery(t.Context(), threadA, sender, store.NextDelivery{BootID: "boot"})
		ok(t, err)
		list := f.all(t, threadA)
		equal(t, "the apology alone is due", d.Event.ID, list[len(list)-1].ID)
	},
}

func threadAOrNone(t *testing.T, f *fixture) store.Ref {
	t.Helper()
	f.ensure(t)
	return threadA
}

func (f *fixture) turn(t *testing.T, p store.Pending) store.Turn {
	t.Helper()
	out, err := f.Turn(t.Context(), "a", store.TurnQuery{InboxID: p.Event.ID, Key: p.Key, Route: batch("").Route})
	ok(t, err)
	return out
}
