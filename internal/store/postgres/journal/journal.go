// Package journal owns the turns of a conversation thread: what became of each inbox
// event, and the steps, what a turn has done so far.
//
//	        Begin            Record (failed try)
//	queued ------> claimed <--------------------> waiting
//	                  |  Finish, or Begin past the crash limit
//	                  v
//	                done (fate)
//
// Others may join a turn, at its claim or later: they are recorded as its members,
// and have their fate with its own, in the transactions that do the same for it.
//
// A claim is counted before any work, so that a killer can be told from an
// innocent however often the process dies. Everything is keyed by the event's
// key and done once; what is done stays as it is.
//
// Each step reads in Load all that it may need, and writes in Decide what follows: two
// trips. A claim that is not the first takes one more, for what those before it left.
// The fence is the transaction's business.
package journal

import (
	"context"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/consumer"
	"github.com/theclaw/agents/internal/store/postgres/memory"
	"github.com/theclaw/agents/internal/store/postgres/unit"
	"github.com/theclaw/agents/internal/thread"
)

// BeginStep claims an event (T1) and records it (T2).
type BeginStep struct {
	b       store.Begin
	book    book
	keep    *consumer.KeepStep
	marks   *memory.MarksStep
	desired string // of the agent
	earlier int64  // id of the inbound event when an earlier claim recorded it
	inbound thread.Event
	tail    []thread.Event // messages up to the event
	files   map[string][]byte
	Out     store.Begun
}

// Begin makes the step.
func Begin(b store.Begin) *BeginStep {
	filter := thread.OutboundFilter
	return &BeginStep{b: b, book: open(b.Key), marks: memory.Marks(b.Layers), keep: consumer.Keep(thread.Outbound, b.Handler, &filter)}
}

// Lazy says that it waits for no disk: what is made under a claim and seen by others waits for the disk, and so keeps it.
func (s *BeginStep) Lazy() bool { return true }

// maxTail are the bytes of context that a claim answers at most.
const maxTail = thread.MaxAnswer / 2

// Load queues the reads of a first claim: what an earlier one left is found with few.
func (s *BeginStep) Load(tx *unit.Tx) {
	var in, turns []string
	for _, m := range s.b.Members {
		in, turns = append(in, m.Key+":in"), append(turns, m.Key)
	}
	// Behind the fence: who stops the agent waits for the lease.
	tx.One("SELECT COALESCE((SELECT desired FROM thread WHERE agent_id = $1 AND thread_id = '"+thread.Inbox+"'), ''), COALESCE(("+unit.Deduped+"), 0)",
		[]any{s.b.Key + ":in"}, nil, &s.desired, &s.earlier)
	s.book.loadTurn(tx)
	s.book.loadTurns(tx, turns)
	s.book.loadUsed(tx, in...)
	if s.b.Subscribe {
		s.keep.Load(tx)
	}
	s.marks.Load(tx)
	if len(s.b.Files) > 0 {
		s.files = map[string][]byte{}
		tx.Read("SELECT name, content FROM unnest($3::text[]) AS wanted CROSS JOIN LATERAL (SELECT name, content FROM agent_file WHERE agent_id = $1 AND $2 <> '' AND name = wanted OFFSET 0) AS found", []any{s.b.Files}, func(scan func(...any) error) error {
			var name string
			var content []byte
			err := scan(&name, &content)
			s.files[name] = content
			return err
		})
	}
	s.loadTail(tx, "type = 'message'")
}

func (s *BeginStep) loadTail(tx *unit.Tx, where string, args ...any) {
	var more bool
	s.tail = nil
	tx.Page(unit.Page{Where: where, Args: args, Desc: true, Limit: s.b.Tail, Budget: maxTail}, &s.tail, &more)
}

// loadLeft queues the reads of what an earlier claim has left.
func (s *BeginStep) loadLeft(tx *unit.Tx) {
	s.book.loadLed(tx)
	s.book.loadSteps(tx)
	s.book.loadUsed(tx, s.b.Key+":err")
	s.book.front.Load(tx, false)
	if s.earlier != 0 {
		tx.Event(s.earlier, &s.inbound, nil)
		s.loadTail(tx, "type = 'message' AND id <= $3", s.earlier)
	}
}

// Decide queues the writes; store.ErrStopped.
func (s *BeginStep) Decide(ctx context.Context, tx *unit.Tx) error {
	b, out, t := &s.b, &s.Out, s.book.turn()
	if b.IfStarted && s.desired != unit.Started {
		return store.ErrStopped
	}
	if t.found || s.earlier != 0 {
		if err := tx.Again(ctx, func() { s.loadLeft(tx) }); err != nil {
			return err
		}
		s.book.used[b.Key+":in"] = s.earlier
	}
	if t.state == store.TurnDone {
		out.Outcome = store.BeginFinished
		var err error
		out.Finished, err = s.book.finished()
		return err
	}
	if wait := t.notBefore - tx.Time.UnixMilli(); wait > 0 {
		out.Outcome, out.Wait = store.BeginWait, time.Duration(wait)*time.Millisecond
		return nil
	}
	if t.crashes >= store.AloneAfter && !b.Alone && t.crashes < store.MaxCrashAttempts {
		out.Outcome = store.BeginAlone
		return nil
	}
	if b.Subscribe {
		if err := s.keep.Decide(ctx, tx); err != nil {
			return err
		}
	}
	t.inboundID = s.recordInbound(tx)
	s.book.set(b.Key, t)
	if t.crashes >= store.MaxCrashAttempts {
		return s.exhaust(tx)
	}
	return s.claim(tx, t)
}

// claim counts the claim and answers what the turn is made from.
func (s *BeginStep) claim(tx *unit.Tx, t turnRow) error {
	b, out := &s.b, &s.Out
	first := t.state == ""
	if t.leader != "" { // it would have come first: there is none any more
		t = s.book.leave(tx, t.leader, b.Key)
	}
	if t.crashes >= dissolveAfter {
		if err := s.book.dissolve(tx); err != nil {
			return err
		}
	}
	if first {
		tx.Exec("INSERT INTO turn(agent_id, thread_id, key, inbox_id, state, crash_attempts, reply_context, inbound_id, claimed_at, token) VALUES($1,$2,$3,$4,'claimed',1,$5,$6,$7,$8)",
			b.Key, b.Event.ID, b.ReplyContext, t.inboundID, tx.Time.UnixMilli(), int64(tx.Fence.Token))
	} else {
		tx.Exec("UPDATE turn SET state = 'claimed', crash_attempts = crash_attempts + 1, inbound_id = $4, token = $5 WHERE "+ofThread+" AND key = $3",
			b.Key, t.inboundID, int64(tx.Fence.Token))
	}
	t.state, t.crashes = store.TurnClaimed, t.crashes+1
	s.book.set(b.Key, t)
	if first && len(b.Members) > 0 {
		if _, err := s.book.join(tx, store.Steer{Key: b.Key, Step: store.StepCollect, Seq: 1, Members: b.Members}); err != nil {
			return err
		}
	}
	out.Outcome, out.CrashAttempts, out.ErrorAttempts = store.BeginGo, t.crashes, t.errors
	if t.waitingSince > 0 {
		out.Waited = tx.Time.Sub(time.UnixMilli(t.waitingSince))
	}
	out.Inbound, out.Steps, out.Memory, out.Tail = s.inbound, s.book.steps, s.marks.Out, s.context()
	out.Files = s.files
	return nil
}

// recordInbound puts the event into the thread, once, and with it into what was read.
func (s *BeginStep) recordInbound(tx *unit.Tx) int64 {
	id, fresh := s.book.recordInbound(tx, s.b.Key, s.b.Event)
	switch {
	case !fresh:
		return id
	case tx.Tuple == "": // it is missing when the process died after making the thread
		tx.Tuple = s.b.Tuple
	}
	list := tx.Appended()
	s.inbound = list[len(list)-1]
	if s.inbound.Type == thread.TypeMessage && s.b.Tail > 0 {
		s.tail = append(s.tail[max(len(s.tail)-s.b.Tail+1, 0):], s.inbound)
	}
	if id == 1 && s.b.Opening != "" {
		s.book.record(tx, s.b.Key+":opened", thread.SubtypeDecision, s.b.Opening)
	}
	return id
}

func (b *book) recordInbound(tx *unit.Tx, key string, e thread.Event) (id int64, fresh bool) {
	return b.once(tx, key+":in", store.NewEvent{Source: e.Source, Type: e.Type, Subtype: e.Subtype, Content: e.Content})
}

// context is the end of the tail, as much as an answer may hold.
func (s *BeginStep) context() []thread.Event {
	budget, from := maxTail, len(s.tail)
	for from > 0 && (from == len(s.tail) || s.tail[from-1].Size() <= budget) {
		from--
		budget -= s.tail[from].Size()
	}
	return s.tail[from:]
}

func (s *BeginStep) exhaust(tx *unit.Tx) (err error) {
	s.Out.Outcome = store.BeginExhausted
	const why = "the process died each time this message was worked on"
	s.Out.Finished, err = s.book.finish(tx, store.Finish{
		Key: s.b.Key, Fate: store.FateDead, Error: why,
		Record: string(append(append([]byte(`{"error":`), thread.AppendString(nil, why)...), `,"context":"crash attempts used up"}`...)),
	})
	return err
}
