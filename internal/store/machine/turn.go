package machine

import (
	"slices"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// BeginNeeds are the rows of a claim, as far as they are known before it.
func BeginNeeds(b store.Begin) Needs {
	n := Needs{Turns: []string{b.Key}, Keys: []string{InboundKey(b.Key)}, Session: b.Session != nil}
	n.members(b.Members)
	return n
}

// ReclaimNeeds are the further rows of a claim that is not the first; false when the
// event was never claimed and BeginNeeds was all.
func ReclaimNeeds(t *Thread, b store.Begin) (Needs, bool) {
	if t.turn(b.Key) == nil && t.Used(InboundKey(b.Key)) == 0 {
		return Needs{}, false
	}
	return Needs{Leader: b.Key, Turn: b.Key, AllSteps: true, Keys: []string{b.Key + ":err"}, OpenHead: true}, true
}

// InboundKey is the deduplication key of the event that a turn is for, in its thread.
func InboundKey(turn string) string { return turn + ":in" }

func (n *Needs) members(list []store.Member) {
	for _, m := range list {
		n.Turns, n.Keys = append(n.Turns, m.Key), append(n.Keys, InboundKey(m.Key))
	}
}

// Begin claims an event (T1) and records it (T2); store.ErrStopped. Of a claim that is
// to go on, Inbound, Tail, Memory and Files are the engine's to fill in.
func Begin(t *Thread, b store.Begin) (store.Begun, error) {
	if b.IfStarted && t.Stopped {
		return store.Begun{}, store.ErrStopped
	}
	r := Turn{Key: b.Key}
	if found := t.turn(b.Key); found != nil {
		r = *found
	}
	if r.State == store.TurnDone {
		fin, err := finished(t, r)
		return store.Begun{Outcome: store.BeginFinished, Finished: fin}, err
	}
	if b.GivenBack != nil && r.CrashAttempts > 0 {
		r.CrashAttempts-- // the claim before: its process lives
	}
	if wait := r.NotBefore - t.Now.UnixMilli(); wait > 0 && !r.clockSetBack(t.Now) {
		return store.Begun{Outcome: store.BeginWait, Wait: time.Duration(wait) * time.Millisecond}, nil
	}
	if r.CrashAttempts >= store.AloneAfter && !b.Alone && r.CrashAttempts < store.MaxCrashAttempts {
		return store.Begun{Outcome: store.BeginAlone}, nil
	}
	inbound := recordFirst(t, b)
	if r.CrashAttempts >= store.MaxCrashAttempts {
		t.turn(b.Key).InboundID = inbound
		return exhaust(t, b.Key)
	}
	return claim(t, b, inbound)
}

// clockSetBack reports whether the wall clock was set back since the last try of a turn: the time of its next one, as it is
// stored, means nothing any more.
func (r *Turn) clockSetBack(now time.Time) bool {
	last := r.WaitingSince
	if list := decodeAttempts(r.Attempts); len(list) > 0 {
		last = max(last, list[len(list)-1].At)
	}
	return time.UnixMilli(last).Sub(now) > ClockStep
}

// Recorded reports whether the event is recorded after such an outcome of Begin, and the
// thread must have its outbound subscription.
func Recorded(o store.BeginOutcome) bool { return o == store.BeginGo || o == store.BeginExhausted }

// recordFirst records the event in its epoch, and with the first event of a thread whom it is for.
func recordFirst(t *Thread, b store.Begin) int64 {
	if b.Session != nil && t.Used(InboundKey(b.Key)) == 0 {
		openSession(t, b)
	}
	id, fresh := recordInbound(t, b.Key, b.Event)
	if fresh && b.Tuple != "" && t.Tuple == "" { // missing when the process died after making the thread
		t.Tuple, t.TupleSet = b.Tuple, true
	}
	if fresh && id == 1 && b.Opening != "" {
		t.record(b.Key+":opened", thread.SubtypeDecision, b.Opening)
	}
	return id
}

func recordInbound(t *Thread, key string, e thread.Event) (id int64, fresh bool) {
	return t.once(InboundKey(key), store.NewEvent{Source: e.Source, Type: e.Type, Subtype: e.Subtype, Content: e.Content})
}

// claim counts the claim before any work is done under it.
func claim(t *Thread, b store.Begin, inbound int64) (store.Begun, error) {
	first := t.turn(b.Key) == nil
	if first {
		t.addTurn(Turn{Key: b.Key, InboxID: b.Event.ID, ReplyContext: b.ReplyContext, ClaimedAt: t.Now.UnixMilli()})
	}
	r := t.turn(b.Key)
	r.Leader = "" // its leader would have been claimed first: there is none any more
	ended(t.Now, r, b.GivenBack)
	if r.CrashAttempts >= dissolveAfter {
		if err := dissolve(t, b.Key); err != nil {
			return store.Begun{}, err
		}
	}
	r.State, r.InboundID, r.Token = store.TurnClaimed, inbound, t.Token
	r.CrashAttempts++
	r.touch()
	out := store.Begun{Outcome: store.BeginGo, CrashAttempts: r.CrashAttempts, ErrorAttempts: r.ErrorAttempts, Error: r.Error}
	if r.WaitingSince > 0 {
		out.Waited = t.Now.Sub(time.UnixMilli(r.WaitingSince))
	}
	if first && len(b.Members) > 0 {
		if _, err := addMembers(t, store.Steer{Key: b.Key, Step: store.StepCollect, Seq: 1, Members: b.Members}); err != nil {
			return store.Begun{}, err
		}
	}
	out.Steps, out.Session = t.steps(b.Key), t.Session
	return out, nil
}

// ended records how the claim before this one ended, as far as that is known: it was given
// back, or it is still counted as a crash.
func ended(now time.Time, r *Turn, back *store.FailedTry) {
	switch {
	case back != nil:
		r.CrashAttempts = max(r.CrashAttempts-1, 0)
		if r.has(*back) {
			return
		}
		if back.Counted {
			r.ErrorAttempts += max(back.Tries, 1)
		}
		r.Error = store.Failure(back.Class, back.Error)
		r.add(now, *back)
	case r.State == store.TurnClaimed && r.CrashAttempts > 0:
		r.add(now, store.FailedTry{Class: store.ClassCrash, Error: crashText, Counted: true})
	}
}

// exhaust ends a turn whose claims all ended with the process (T9).
func exhaust(t *Thread, key string) (store.Begun, error) {
	r := t.turn(key)
	ended(t.Now, r, nil)
	why := store.Exhausted(r.Error)
	fin, err := finish(t, store.Finish{Key: key, Fate: store.FateDead, Error: why, Record: thread.Failure{Error: why, Context: "crash attempts used up", Class: store.ClassCrash}.Content()})
	return store.Begun{Outcome: store.BeginExhausted, Finished: fin}, err
}

// RecordNeeds are the rows of a record.
func RecordNeeds(rec store.Record) Needs {
	n := Needs{Turns: []string{rec.Key}, Turn: rec.Key}
	n.journal(rec.Key, rec.Steps, rec.Records)
	for _, s := range rec.Says {
		n.Keys = append(n.Keys, s.Key(rec.Key))
	}
	n.FirstOpen = len(rec.Says) > 0 && (!rec.Deliver || rec.Console)
	return n
}

func (n *Needs) journal(turn string, steps []store.Step, records map[string]string) {
	for _, s := range steps {
		n.Steps = append(n.Steps, s.Key)
		if _, ok := records[s.Key]; ok {
			n.Keys = append(n.Keys, recordKey(turn, s.Key))
		}
	}
}

// DurableRecord reports whether a record must be on disk before it is answered: after an
// intent of class effect the outside world may change, and a message to the peer may be sent.
func DurableRecord(rec store.Record) bool {
	return len(rec.Says) > 0 && rec.Deliver && !rec.Console || slices.ContainsFunc(rec.Steps, func(s store.Step) bool { return s.State == store.StepIntent && s.Class == store.ClassEffect })
}

func recordKey(turn, step string) string { return turn + ":" + step }

// subtypeOf is the subtype of the record event of a step.
func subtypeOf(s store.Step) string {
	if s.Kind == store.StepTranscript {
		return thread.SubtypeTranscript
	}
	return thread.SubtypeToolcall
}

// Record journals steps (T3, T4, T6) and failed tries, and answers how many tries
// failed; store.ErrNoTurn.
func Record(t *Thread, rec store.Record) (errorAttempts int, err error) {
	r := t.turn(rec.Key)
	if r == nil {
		return 0, store.ErrNoTurn
	}
	if r.State == store.TurnDone {
		return r.ErrorAttempts, nil
	}
	progress := journal(t, rec.Key, rec.Steps, rec.Records)
	for _, s := range rec.Says {
		c := channelOf{deliver: rec.Deliver, console: rec.Console, bootID: rec.BootID}
		if s.Action {
			c.subtype = thread.SubtypeAction
		}
		t.say(s.Key(rec.Key), s.Content, c)
	}
	if (progress || rec.Waits) && (r.CrashAttempts > 0 || r.WaitingSince > 0) {
		// What crashed before is not what this message does, and an outage that began
		// earlier is over.
		r.CrashAttempts, r.WaitingSince = 0, 0
		r.touch()
	}
	if rec.Failed != nil && !r.has(*rec.Failed) {
		fail(t, r, *rec.Failed)
	}
	return r.ErrorAttempts, nil
}

// journal puts steps, each with the event that reports it, and reports whether that was
// progress: that a program was called is none, what its tools did is.
func journal(t *Thread, turn string, list []store.Step, records map[string]string) (progress bool) {
	for _, s := range list {
		if t.put(turn, s) {
			progress = progress || s.Kind != store.StepModel || s.Class == ""
		}
		if content, ok := records[s.Key]; ok {
			t.record(recordKey(turn, s.Key), subtypeOf(s), content)
		}
	}
	return progress
}

// has reports whether a try was counted already: the answer that said so was lost, and the call is repeated.
func (r *Turn) has(f store.FailedTry) bool { return f.Counted && f.N > 0 && r.ErrorAttempts >= f.N }

// fail makes a turn wait after a try without an answer.
func fail(t *Thread, r *Turn, f store.FailedTry) {
	if f.Counted {
		r.ErrorAttempts, r.WaitingSince = r.ErrorAttempts+max(f.Tries, 1), 0
	} else if r.WaitingSince == 0 {
		r.WaitingSince = t.Now.UnixMilli()
	}
	r.State, r.Error, r.NotBefore, r.CrashAttempts = store.TurnWaiting, store.Failure(f.Class, f.Error), t.Now.Add(f.Wait).UnixMilli(), 0
	r.touch()
	if !f.Held {
		r.add(t.Now, f)
	}
}

// FinishNeeds are the rows of an end.
func FinishNeeds(fin store.Finish) Needs {
	n := Needs{Turns: []string{fin.Key}, Leader: fin.Key, Turn: fin.Key, Steers: true, OpenHead: true, FirstOpen: !fin.Deliver || fin.Console}
	n.journal(fin.Key, fin.Steps, fin.Records)
	switch fin.Fate { // what may be said
	case store.FateReplied:
		n.Keys = append(n.Keys, fin.Key+":out")
	case store.FateDead:
		n.Keys = append(n.Keys, fin.Key+":err", fin.Key+":apology")
	default:
		n.Keys = append(n.Keys, fin.Key+":decided")
	}
	return n
}

// Finish gives the turn its fate (T7 or T9), with the reply and its delivery; a fate
// that stands is answered. store.ErrNoTurn.
func Finish(t *Thread, fin store.Finish) (store.Finished, error) {
	r := t.turn(fin.Key)
	if r == nil {
		return store.Finished{}, store.ErrNoTurn
	}
	if r.State == store.TurnDone {
		return finished(t, *r)
	}
	return finish(t, fin)
}

// finished is the fate that stands.
func finished(t *Thread, r Turn) (store.Finished, error) {
	members, err := members(t, r.Key)
	members = slices.DeleteFunc(members, func(m store.MergedMember) bool { return t.turn(m.Key).Fate != store.FateMerged })
	return store.Finished{
		Fate: r.Fate, ReplyID: r.ReplyID, InboundID: r.InboundID, ErrorEventID: r.ErrorID, Error: r.Error,
		OutboxHead: t.OpenHead, Merged: members, Already: true,
	}, err
}

func finish(t *Thread, fin store.Finish) (store.Finished, error) {
	r := t.turn(fin.Key)
	journal(t, fin.Key, fin.Steps, fin.Records)
	c := channelOf{deliver: fin.Deliver, console: fin.Console, bootID: fin.BootID}
	switch fin.Fate {
	case store.FateReplied:
		c.run = fin.Key
		if fin.Command {
			c.subtype = thread.SubtypeCommand
		}
		r.ReplyID = t.say(fin.Key+":out", fin.Reply, c)
	case store.FateDead:
		r.ErrorID = t.record(fin.Key+":err", thread.SubtypeError, unanswered(fin.Record, r.InboundID))
		if fin.Apology != "" {
			t.say(fin.Key+":apology", fin.Apology, c)
		}
	default: // the other fates say nothing to anybody
		if fin.Decision != "" {
			t.record(fin.Key+":decided", thread.SubtypeDecision, fin.Decision)
		}
	}
	r.State, r.Fate, r.NotBefore, r.FinishedAt = store.TurnDone, fin.Fate, 0, t.Now.UnixMilli()
	r.Error = fin.Error // what failed before it was answered, its attempts say
	r.touch()
	if fin.Failed != nil {
		r.add(t.Now, *fin.Failed)
	}
	merged, err := endMembers(t, fin.Key, fin.Fate)
	return store.Finished{
		Fate: fin.Fate, ReplyID: r.ReplyID, InboundID: r.InboundID, ErrorEventID: r.ErrorID, Error: r.Error,
		OutboxHead: t.OpenHead, Merged: merged,
	}, err
}

// unanswered is the content of the event that says why a message is dead, with the event of
// that message.
func unanswered(content string, inbound int64) string {
	f, ok := thread.ParseFailure(content)
	if !ok {
		return content
	}
	f.Event = inbound
	return f.Content()
}

// ReleaseNeeds are the rows of turns that are given back.
func ReleaseNeeds(keys []string) Needs { return Needs{Turns: keys} }

// Release forgets the claims of turns that were given back cleanly: no crash ended them.
func Release(t *Thread) {
	for i := range t.Turns {
		if r := &t.Turns[i]; r.State != store.TurnDone && r.CrashAttempts > 0 {
			r.CrashAttempts = 0
			r.touch()
		}
	}
}

// DecideNeeds are the rows of a decision.
func DecideNeeds(d store.Decision) Needs {
	var n Needs
	switch {
	case d.Step.Key != "" && d.Turn != "":
		n = RecordNeeds(inTurn(d))
	case d.Step.Key != "":
		n = Needs{Turn: d.Key, Steps: []string{d.Step.Key}}
	}
	n.Keys = append(n.Keys, d.Key)
	return n
}

func inTurn(d store.Decision) store.Record {
	return store.Record{Key: d.Turn, Steps: []store.Step{d.Step}}
}

// Decide appends a record/decision event once. In a turn its step is journaled too,
// which is progress like any other; outside of one the step has the key of the decision
// as its turn. store.ErrNoTurn.
func Decide(t *Thread, d store.Decision) error {
	t.record(d.Key, thread.SubtypeDecision, d.Content)
	switch {
	case d.Step.Key != "" && d.Turn != "":
		_, err := Record(t, inTurn(d))
		return err
	case d.Step.Key != "":
		t.put(d.Key, d.Step)
	}
	return nil
}
