package journal

import (
	"context"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/memory"
	"github.com/theclaw/agents/internal/store/postgres/outbox"
	"github.com/theclaw/agents/internal/store/postgres/unit"
	"github.com/theclaw/agents/internal/thread"
)

// RecordStep journals steps (T3, T4, T6) and failed tries, and answers how many
// tries failed.
type RecordStep struct {
	rec  store.Record
	book book
	Out  int
}

// Record makes the step.
func Record(rec store.Record) *RecordStep { return &RecordStep{rec: rec, book: open(rec.Key)} }

// Load queues the reads.
func (s *RecordStep) Load(tx *unit.Tx) {
	s.book.loadTurn(tx)
	s.book.loadStates(tx, s.rec.Steps, false)
	keys := toolcallKeys(s.rec.Key, s.rec.Toolcalls)
	for _, say := range s.rec.Says {
		keys = append(keys, say.Key(s.rec.Key))
	}
	s.book.loadUsed(tx, keys...)
	if len(s.rec.Says) > 0 && (!s.rec.Deliver || s.rec.Console) {
		s.book.front.Load(tx, true)
	}
}

func toolcallKeys(turn string, toolcalls map[string]string) []string {
	var keys []string
	for step := range toolcalls {
		keys = append(keys, turn+":"+step)
	}
	return keys
}

// Decide queues the writes; store.ErrNoTurn.
func (s *RecordStep) Decide(_ context.Context, tx *unit.Tx) error {
	t, rec := s.book.turn(), &s.rec
	if !t.found {
		return store.ErrNoTurn
	}
	s.Out = t.errors
	if t.state == store.TurnDone {
		return nil
	}
	fresh := s.book.put(tx, rec.Steps, rec.Toolcalls)
	for _, say := range rec.Says {
		s.book.say(tx, say.Key(rec.Key), say.Content, outbox.Way{Deliver: rec.Deliver, Console: rec.Console, BootID: rec.BootID})
	}
	switch {
	case rec.Failed != nil:
		if fresh { // an outage that began earlier is over
			t.waitingSince = 0
		}
		s.Out = countFailure(tx, rec.Key, t, *rec.Failed)
	case fresh && (t.crashes > 0 || t.waitingSince > 0):
		// Progress: what crashed before is not what this message does.
		tx.Exec("UPDATE turn SET crash_attempts = 0, waiting_since = 0 WHERE "+ofThread+" AND key = $3", rec.Key)
	}
	return nil
}

func countFailure(tx *unit.Tx, key string, t turnRow, ft store.FailedTry) int {
	attempts, since := t.errors, t.waitingSince
	if ft.Counted {
		attempts, since = attempts+max(ft.Tries, 1), 0
	} else if since == 0 {
		since = tx.Time.UnixMilli()
	}
	tx.Exec("UPDATE turn SET state = 'waiting', error_attempts = $4, error = $5, not_before = $6, waiting_since = $7, crash_attempts = 0 WHERE "+ofThread+" AND key = $3",
		key, attempts, ft.Error, tx.Time.Add(ft.Wait).UnixMilli(), since)
	return attempts
}

// DecideStep appends a record/decision event once. In a turn its step is journalled
// too, which is progress like any other; outside of one it stands under the key of
// the decision.
type DecideStep struct {
	d      store.Decision
	book   book // of the decision, or outside of a turn
	inTurn *RecordStep
}

// Decide makes the step.
func Decide(d store.Decision) *DecideStep {
	s := &DecideStep{d: d, book: open(d.Key)}
	if d.Step.Key != "" && d.Turn != "" {
		s.inTurn = Record(store.Record{Key: d.Turn, Steps: []store.Step{d.Step}})
	}
	return s
}

// Load queues the reads.
func (s *DecideStep) Load(tx *unit.Tx) {
	s.book.loadUsed(tx, s.d.Key)
	switch {
	case s.inTurn != nil:
		s.inTurn.Load(tx)
	case s.d.Step.Key != "":
		s.book.loadStates(tx, []store.Step{s.d.Step}, false)
	}
}

// Decide queues the writes; store.ErrNoTurn.
func (s *DecideStep) Decide(ctx context.Context, tx *unit.Tx) error {
	s.book.record(tx, s.d.Key, thread.SubtypeDecision, s.d.Content)
	switch {
	case s.inTurn != nil:
		return s.inTurn.Decide(ctx, tx)
	case s.d.Step.Key != "":
		s.book.putStep(tx, s.d.Step)
	}
	return nil
}

// CompactStep moves a mark of memory, with the decision that tells of it.
type CompactStep struct {
	move   *memory.MoveStep
	decide *DecideStep // nil: nothing is told
	Out    store.MemoryMark
}

// Compact makes the step.
func Compact(c store.Compaction) *CompactStep {
	s := &CompactStep{move: memory.Move(c)}
	if c.Decision.Content != "" {
		s.decide = Decide(c.Decision)
	}
	return s
}

// Load queues the reads.
func (s *CompactStep) Load(tx *unit.Tx) {
	s.move.Load(tx)
	if s.decide != nil {
		s.decide.Load(tx)
	}
}

// Decide queues the writes; store.ErrMemoryMoved, ErrNoTurn.
func (s *CompactStep) Decide(ctx context.Context, tx *unit.Tx) error {
	err := s.move.Decide(ctx, tx)
	s.Out = s.move.Out
	if err != nil || !s.move.Fresh || s.decide == nil {
		return err
	}
	return s.decide.Decide(ctx, tx)
}
