package oracle

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// turn is a row of x_turn with its rows of x_step.
type turn struct {
	key            string
	inboxID        int64
	leader         string // set while another turn answers it too, and after
	state          string
	fate           store.Fate
	crashes, fails int
	notBefore      time.Time
	outage         time.Time // since when no try of the running outage has had an answer
	claimed, done  time.Time
	err            string
	attempts       []store.Attempt
	inbound        int64
	reply          int64
	errorEvent     int64
	steps          []store.Step // by Seq
}

// collectCrashes is from how many crash attempts on a leader that has done nothing yet
// goes on without its members: not in RELIABILITY.
const collectCrashes = 3

// died is the end of an event whose turns crash.
const died = "the process died each time this message was worked on"

// Begin is T1 and T2; past the crash limit it is T9.
func (m *Model) Begin(_ context.Context, _ store.Ref, f store.Fence, b store.Begin) (store.Begun, error) {
	if !m.conv.exists {
		return store.Begun{}, store.ErrNotFound
	}
	if err := m.conv.fence(f); err != nil {
		return store.Begun{}, err
	}
	m.conv.seal(f)
	now, t := m.now(), m.turns[b.Key]
	first := t == nil
	crashes := 0 // without the one that was none
	if t != nil {
		if crashes = t.crashes; b.GivenBack != nil && crashes > 0 {
			crashes--
		}
	}
	switch {
	case first:
		t = &turn{key: b.Key, inboxID: b.Event.ID}
		m.turns[b.Key] = t
	case t.state == store.TurnDone:
		out := store.Begun{Outcome: store.BeginFinished, Finished: m.finished(t)}
		out.Finished.Already = true
		return out, nil
	case t.state == store.TurnWaiting && now.Before(t.notBefore):
		return store.Begun{Outcome: store.BeginWait, Wait: t.notBefore.Sub(now)}, nil
	case crashes >= store.MaxCrashAttempts:
		t.crashed(now)
		died := died
		if t.err != "" {
			died += "; the last error before: " + t.err
		}
		if b.Subscribe {
			m.subscribe(b.Handler) // every time
		}
		m.end(now, t, store.Finish{Fate: store.FateDead, Error: died, Record: thread.Failure{Error: died, Context: "crash attempts used up", Class: "crash"}.Content()})
		return store.Begun{Outcome: store.BeginExhausted, Finished: m.finished(t)}, nil
	case crashes >= store.AloneAfter && !b.Alone:
		return store.Begun{Outcome: store.BeginAlone}, nil
	}
	if first {
		t.claimed = now // for the first time: not in RELIABILITY
	}
	if back := b.GivenBack; back != nil {
		t.crashes = crashes
		t.attempt(now, *back)
		t.err = why(*back)
		if back.Counted {
			t.fails += max(1, back.Tries)
		}
	} else {
		t.crashed(now)
	}
	t.state, t.leader = store.TurnClaimed, "" // a member that is claimed leaves its leader: not in RELIABILITY
	t.crashes++
	if b.Session != nil && m.conv.keys[t.key+":in"] == nil {
		m.openSession(now, t, *b.Session)
	}
	m.record(now, t, b.Event, b.Opening)
	if b.Subscribe {
		m.subscribe(b.Handler)
	}
	if first {
		m.addMembers(now, t, store.StepCollect, 1, b.Members)
	} else if more := slices.DeleteFunc(slices.Clone(t.steps), transcript); t.crashes > collectCrashes && len(more) == 1 && more[0].Key == store.StepCollect {
		m.release(t)
		t.steps = slices.DeleteFunc(t.steps, func(s store.Step) bool { return !transcript(s) })
	}
	out := store.Begun{
		Outcome: store.BeginGo, Inbound: m.conv.events[t.inbound-1], Steps: slices.Clone(t.steps),
		CrashAttempts: t.crashes, ErrorAttempts: t.fails, Error: t.err,
	}
	if b.Session != nil && m.session != nil { // without one in the claim, the conversation has none
		s := *m.session
		out.Session = &s
	}
	out.Tail = m.tail(t, b, out.Session)
	if !t.outage.IsZero() {
		out.Waited = now.Sub(t.outage)
	}
	return out, nil
}

func transcript(s store.Step) bool { return s.Kind == store.StepTranscript }

// record is T2: the inbound message stands in the thread once. Behind the first event of
// a thread follows why the thread is there.
func (m *Model) record(now time.Time, t *turn, e thread.Event, opening string) {
	id, fresh := m.conv.put(now, t.key+":in", store.NewEvent{Source: e.Source, Type: e.Type, Subtype: e.Subtype, Content: e.Content})
	t.inbound = id
	if fresh && id == 1 && opening != "" {
		m.conv.put(now, "", self(thread.TypeRecord, thread.SubtypeDecision, opening))
	}
}

// subscribe upserts the outbound subscription.
func (m *Model) subscribe(handler string) {
	filter := thread.OutboundFilter
	if s := m.conv.sub(thread.Outbound); s != nil {
		s.Handler, s.Filter = handler, &filter
		return
	}
	m.conv.subs = append(m.conv.subs, store.Subscription{Consumer: thread.Outbound, Handler: handler, Filter: &filter, Acked: m.progress, UpdatedAt: m.moved})
}

// tail is the newest message events of the epoch up to the inbound one, which is the last of
// them, unless it is of an earlier epoch.
func (m *Model) tail(t *turn, b store.Begin, s *store.Session) []thread.Event {
	var out []thread.Event
	var asked []int // where the messages of people are
	for _, e := range m.conv.events[:t.inbound] {
		if e.Shown() && (s == nil || e.ID > s.EpochFrom) {
			if e.Source != thread.SourceSelf && e.ID != t.inbound {
				asked = append(asked, len(out))
			}
			out = append(out, e)
		}
	}
	from := max(0, len(out)-b.Tail)
	if n := len(asked) - b.Turns; b.Turns > 0 && n >= 0 {
		from = max(from, asked[n])
	}
	return out[from:]
}

// addMembers adds those members that have no turn yet to the turn of a leader, under one
// steer step; the zero Step when there are none.
func (m *Model) addMembers(now time.Time, t *turn, key string, seq int, members []store.Member) store.Step {
	var added store.MemberMessages
	for _, o := range members {
		if old := m.turns[o.Key]; old != nil && old.leader == t.key {
			continue
		} else if old != nil {
			break // nobody overtakes it: I11
		}
		n := &turn{key: o.Key, inboxID: o.Event.ID, leader: t.key, state: store.TurnClaimed, claimed: now}
		m.turns[o.Key] = n
		m.record(now, n, o.Event, "")
		added.Messages = append(added.Messages, store.MemberMessage{
			Key: o.Key, InboxID: o.Event.ID, EventID: n.inbound, CreatedAt: o.Event.CreatedAt, Source: o.Event.Source, Content: o.Event.Content,
		})
	}
	if added.Messages == nil {
		return store.Step{}
	}
	result, err := json.Marshal(added)
	if err != nil {
		panic(err)
	}
	s := store.Step{Seq: seq, Kind: store.StepSteer, Key: key, State: store.StepDone, Result: result, RecordedAt: now}
	t.put(s) // it forgets no crash: not in RELIABILITY
	s.RecordedAt = time.Time{}
	return s
}

func (t *turn) put(s store.Step) {
	t.steps = append(t.steps, s)
	slices.SortFunc(t.steps, func(a, b store.Step) int { return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Key, b.Key)) })
}

func (t *turn) step(key string) *store.Step {
	for i := range t.steps {
		if t.steps[i].Key == key {
			return &t.steps[i]
		}
	}
	return nil
}

// release makes the members of a turn continue alone, permanently.
func (m *Model) release(t *turn) {
	for _, o := range m.members(t) {
		if o.state != store.TurnDone {
			o.leader, o.state = "", store.TurnWaiting
		}
	}
}

// members are the members of a turn in the order of their events.
func (m *Model) members(t *turn) (out []*turn) {
	for _, o := range m.turns {
		if o.leader == t.key {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b *turn) int { return cmp.Compare(a.inboxID, b.inboxID) })
	return out
}

// IsMember reports whether an event is answered by the turn of another one that goes on.
func (m *Model) IsMember(id int64) bool {
	if id < 1 || id > m.inbox.head() {
		return false
	}
	t := m.turns[m.key(id)]
	return t != nil && t.leader != "" && t.state != store.TurnDone
}

// Steer adds members after the claim.
func (m *Model) Steer(_ context.Context, _ store.Ref, f store.Fence, s store.Steer) (store.Step, error) {
	if !m.conv.exists {
		return store.Step{}, store.ErrNotFound
	}
	if err := m.conv.fence(f); err != nil {
		return store.Step{}, err
	}
	t := m.turns[s.Key]
	if t == nil {
		return store.Step{}, store.ErrNoTurn
	}
	m.conv.seal(f)
	if t.state == store.TurnDone {
		return store.Step{}, nil
	}
	if old := t.step(s.Step); old != nil {
		return *old, nil
	}
	return m.addMembers(m.now(), t, s.Step, s.Seq, s.Members), nil
}

// Record is T3, T4, T6 and a try without an answer.
func (m *Model) Record(_ context.Context, _ store.Ref, f store.Fence, rec store.Record) (int, error) {
	if !m.conv.exists {
		return 0, store.ErrNotFound
	}
	if err := m.conv.fence(f); err != nil {
		return 0, err
	}
	t := m.turns[rec.Key]
	if t == nil {
		return 0, store.ErrNoTurn
	}
	m.conv.seal(f)
	if t.state == store.TurnDone {
		return t.fails, nil
	}
	now := m.now()
	if m.journal(now, t, rec.Steps, rec.Records) || rec.Waits {
		t.crashes, t.outage = 0, time.Time{}
	}
	for _, s := range rec.Says {
		subtype := ""
		if s.Action {
			subtype = thread.SubtypeAction
		}
		if id, fresh := m.conv.put(now, s.Key(t.key), self(thread.TypeMessage, subtype, s.Content)); fresh {
			m.deliver(now, id, rec.Deliver, rec.Console, rec.BootID)
		}
	}
	if rec.Failed != nil {
		m.failed(now, t, *rec.Failed)
	}
	return t.fails, nil
}

// journal writes each step once: a new row is progress, an intent gets its result, and
// what has a result stays as it is.
func (m *Model) journal(now time.Time, t *turn, steps []store.Step, records map[string]string) (progress bool) {
	for _, s := range steps {
		s.RecordedAt = now
		old := t.step(s.Key)
		switch {
		case old == nil:
			t.put(s)
		case old.State == store.StepIntent && s.State != store.StepIntent:
			// What it has cost is that of a new row alone: not in RELIABILITY.
			old.State, old.Result, old.Duration, old.RecordedAt = s.State, s.Result, s.Duration, now
			old.IsError, old.External = s.IsError, s.External
		default:
			continue
		}
		// That a program is called is no progress; a result for an intent is: not in RELIABILITY.
		progress = progress || s.Kind != store.StepModel || s.Class != store.ClassEffect
		if text := records[s.Key]; text != "" && s.State != store.StepIntent {
			subtype := thread.SubtypeToolcall
			if s.Kind == store.StepTranscript {
				subtype = thread.SubtypeTranscript
			}
			m.conv.put(now, t.key+":"+s.Key, self(thread.TypeRecord, subtype, text))
		}
	}
	return progress
}

// crashed notices a claim that ended silently.
func (t *turn) crashed(now time.Time) {
	if t.state == store.TurnClaimed && t.crashes > 0 {
		t.attempt(now, store.FailedTry{Class: "crash", Error: "the process that worked on it ended, or lost its lease, without giving it back", Counted: true})
	}
}

// attempt keeps an attempt, of many the first two and the newest fourteen.
func (t *turn) attempt(now time.Time, f store.FailedTry) {
	a := store.Attempt{N: 1, At: now, Class: f.Class, Error: f.Error, Counted: f.Counted, Wait: f.Wait}
	if n := len(t.attempts); n > 0 {
		a.N = t.attempts[n-1].N + 1
	}
	if t.attempts = append(t.attempts, a); len(t.attempts) > 16 {
		t.attempts = slices.Delete(t.attempts, 2, 3)
	}
}

// why is an error with its class.
func why(f store.FailedTry) string {
	if f.Class == "" {
		return f.Error
	}
	return f.Class + ": " + f.Error
}

func (m *Model) failed(now time.Time, t *turn, f store.FailedTry) {
	if !f.Held {
		t.attempt(now, f)
	}
	t.state, t.err, t.notBefore, t.crashes = store.TurnWaiting, why(f), now.Add(f.Wait), 0 // its process lives
	if f.Counted {
		t.fails += max(1, f.Tries)
		t.outage = time.Time{}
	} else if t.outage.IsZero() {
		t.outage = now
	}
}

// Finish is T7, or T9.
func (m *Model) Finish(_ context.Context, _ store.Ref, f store.Fence, fin store.Finish) (store.Finished, error) {
	if !m.conv.exists {
		return store.Finished{}, store.ErrNotFound
	}
	if err := m.conv.fence(f); err != nil {
		return store.Finished{}, err
	}
	t := m.turns[fin.Key]
	if t == nil {
		return store.Finished{}, store.ErrNoTurn
	}
	m.conv.seal(f)
	if t.state == store.TurnDone {
		out := m.finished(t)
		out.Already = true
		return out, nil
	}
	m.end(m.now(), t, fin)
	return m.finished(t), nil
}

// end gives a turn its fate with all that the fate brings.
func (m *Model) end(now time.Time, t *turn, fin store.Finish) {
	m.journal(now, t, fin.Steps, fin.Records)
	t.state, t.fate, t.done = store.TurnDone, fin.Fate, now
	t.err = fin.Error // that of the last try goes: not in RELIABILITY
	if fin.Failed != nil {
		t.attempt(now, *fin.Failed)
	}
	switch fin.Fate {
	case store.FateReplied:
		subtype := ""
		if fin.Command {
			subtype = thread.SubtypeCommand
		}
		t.reply, _ = m.conv.put(now, t.key+":out", self(thread.TypeMessage, subtype, fin.Reply))
		m.deliver(now, t.reply, fin.Deliver, fin.Console, fin.BootID)
	case store.FateDead:
		record := fin.Record
		if f, ok := thread.ParseFailure(record); ok {
			f.Event = t.inbound
			record = f.Content()
		}
		t.errorEvent, _ = m.conv.put(now, t.key+":err", self(thread.TypeRecord, thread.SubtypeError, record))
		if fin.Apology != "" {
			id, _ := m.conv.put(now, t.key+":apology", self(thread.TypeMessage, "", fin.Apology))
			m.deliver(now, id, fin.Deliver, fin.Console, fin.BootID)
		}
	case store.FateSilent, store.FateAborted:
		if fin.Decision != "" {
			m.conv.put(now, "", self(thread.TypeRecord, thread.SubtypeDecision, fin.Decision))
		}
	case store.FateMerged:
	default:
		panic(unknown("fate", fin.Fate))
	}
	if fin.Fate == store.FateDead || fin.Fate == store.FateAborted {
		m.release(t)
		return
	}
	for _, o := range m.members(t) {
		if o.state != store.TurnDone {
			o.state, o.fate, o.done, o.err = store.TurnDone, store.FateMerged, now, ""
		}
	}
}

// finished is the fate that stands.
func (m *Model) finished(t *turn) store.Finished {
	out := store.Finished{Fate: t.fate, ReplyID: t.reply, InboundID: t.inbound, ErrorEventID: t.errorEvent, Error: t.err}
	for _, o := range m.members(t) {
		out.Merged = append(out.Merged, store.MergedMember{InboxID: o.inboxID, Key: o.key})
	}
	for id, d := range m.deliveries {
		if d.open() {
			out.OutboxHead = max(out.OutboxHead, id)
		}
	}
	return out
}

// ResetCrashes is a clean release.
func (m *Model) ResetCrashes(_ context.Context, _ store.Ref, keys []string) error {
	if !m.conv.exists {
		return store.ErrNotFound
	}
	for _, k := range keys {
		if t := m.turns[k]; t != nil && t.state != store.TurnDone {
			t.crashes = 0
		}
	}
	return nil
}

// Claimed reports whether there is a turn.
func (m *Model) Claimed(_ context.Context, _ store.Ref, key string) (bool, error) {
	return m.turns[key] != nil, nil
}

// Turn answers the account of an inbox event.
func (m *Model) Turn(_ context.Context, _ string, q store.TurnQuery) (store.Turn, error) {
	if q.InboxID < 1 || q.InboxID > m.inbox.head() || q.Key != "" && q.Key != m.key(q.InboxID) {
		return store.Turn{}, store.ErrNoTurn
	}
	out := m.listed(q.InboxID)
	e := m.inbox.events[q.InboxID-1]
	out.Origin = m.origins[e.ID]
	if out.Fate == store.FateNone && e.Type == thread.TypeMessage && out.Origin == nil && m.mode(e.ID) != "" {
		if id, err := q.Route(e, m.mode(e.ID)); err == nil {
			out.Thread = id
		}
	}
	t := m.turns[out.Key]
	if t == nil || out.Thread != ThreadID {
		return out, nil
	}
	if t.state == store.TurnDone || !out.Settled {
		out.State, out.Fate, out.FinishedAt, out.Error = t.state, t.fate, t.done, t.err
	}
	out.CrashAttempts, out.ErrorAttempts, out.Attempts = t.crashes, t.fails, slices.Clone(t.attempts)
	out.InboundID, out.ReplyID, out.ErrorEventID, out.Leader, out.Steps = t.inbound, t.reply, t.errorEvent, t.leader, slices.Clone(t.steps)
	out.ClaimedAt = t.claimed
	if out.State == store.TurnWaiting {
		out.NextAt = t.notBefore
	}
	for _, s := range t.steps {
		out.Usage.Add(s.Usage)
	}
	if d := m.deliveries[t.reply]; d != nil {
		row := m.row(t.reply, d)
		row.Thread = out.Thread
		out.Delivery = &row
	}
	return out, nil
}

// listed is what the inbox knows of an event.
func (m *Model) listed(id int64) store.Turn {
	e := m.inbox.events[id-1]
	out := store.Turn{Agent: m.agent, InboxID: id, Key: m.key(id), State: store.TurnQueued, Source: e.Source, QueuedAt: thread.ParseStamp(e.CreatedAt)}
	if f := m.fates[id]; f != nil {
		out.State, out.Fate, out.Settled, out.Thread, out.Error, out.Resolved = store.TurnDone, f.fate, true, f.thread, f.err, f.resolved
		out.FinishedAt = f.at
	} else if o := m.origins[id]; o != nil && e.Type == thread.TypeMessage {
		out.Thread = o.Thread
	}
	return out
}

// ListTurns answers the newest first.
func (m *Model) ListTurns(_ context.Context, _ string, q store.ListTurns) ([]store.Turn, error) {
	var out []store.Turn
	for id := m.inbox.head(); id > 0 && len(out) < q.Limit; id-- {
		t := m.listed(id)
		if q.Before > 0 && id >= q.Before || q.Fate != "" && q.Fate != t.Fate || q.Unresolved && t.Resolved != "" {
			continue
		}
		out = append(out, t)
	}
	return out, nil
}
