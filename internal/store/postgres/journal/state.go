package journal

import (
	"context"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/consumer"
	"github.com/theclaw/agents/internal/store/postgres/unit"
	"github.com/theclaw/agents/internal/thread"
)

// open holds of an event e that has no fate. OFFSET 0 keeps the planner from joining
// all fates of the agent: each event is looked up, and there are few before the limit.
const open = "NOT EXISTS (SELECT 1 FROM fate f WHERE f.agent_id = $1 AND f.thread_id = $2 AND f.inbox_id = e.id OFFSET 0)"

// behind is the ack, in a statement whose values are known before it is.
const behind = "(SELECT acked FROM thread WHERE agent_id = $1 AND thread_id = $2)"

// Full reports whether as many events as most wait for their fate, of one source or, when
// that is empty, of all. It counts no further.
func Full(ctx context.Context, tx *unit.Tx, source string, most int64) (bool, error) {
	var n int64
	err := tx.Now(ctx, "SELECT count(*) FROM (SELECT 1 FROM event e WHERE agent_id = $1 AND thread_id = $2 AND id > $3 AND ($4 = '' OR source = $4) AND "+open+" LIMIT $5) AS waiting",
		[]any{tx.Acked, source, most}, func(scan func(...any) error) error { return scan(&n) })
	return n >= most, err
}

// StateStep answers what dispatch must know.
type StateStep struct {
	sub *consumer.KeepStep
	Out store.InboxState
}

// State is a view.
func State() *StateStep { return &StateStep{sub: consumer.Keep(thread.Inbox, "", nil)} }

// Load reads it.
func (s *StateStep) Load(tx *unit.Tx) {
	s.Out.Fences = map[string]uint64{}
	s.sub.Load(tx)
	tx.One("SELECT count(*) FROM event e WHERE agent_id = $1 AND thread_id = $2 AND id > "+behind+" AND "+open, nil, nil, &s.Out.Pending)
	tx.One(`SELECT (SELECT count(*) FROM fate WHERE agent_id = $1 AND thread_id = $2 AND fate = 'dead' AND resolved = '')
		+ (SELECT COALESCE(sum(dead), 0) FROM outbox WHERE agent_id = $1 AND thread_id = $2)::bigint`, nil, nil, &s.Out.Dead)
	tx.Read("SELECT thread FROM outbox WHERE agent_id = $1 AND thread_id = $2 AND acked < head ORDER BY thread", nil, func(scan func(...any) error) error {
		var t string
		err := scan(&t)
		s.Out.Outbox = append(s.Out.Outbox, t)
		return err
	})
	tx.Read("SELECT resource, token FROM fence WHERE agent_id = $1 AND thread_id = $2", nil, func(scan func(...any) error) error {
		var r string
		var t int64
		err := scan(&r, &t)
		s.Out.Fences[r] = uint64(t)
		return err
	})
}

// Decide puts it together.
func (s *StateStep) Decide(_ context.Context, tx *unit.Tx) error {
	o := &s.Out
	o.UUID, o.Head, o.Acked, o.LastAt, o.Subscribed = tx.UUID, tx.Head, tx.Acked, tx.LastAt, s.sub.Subscribed()
	o.Started, o.Undecided = tx.Desired == unit.Started, tx.Desired == ""
	return nil
}

// StartStep stores the desired state and makes the subscription agree, so that no
// reader ever sees one without the other.
type StartStep struct {
	sub   *consumer.KeepStep
	start bool
	Out   bool // it was otherwise before
}

// SetStarted is a step.
func SetStarted(start bool, handler string) *StartStep {
	return &StartStep{sub: consumer.Keep(thread.Inbox, handler, nil), start: start}
}

// Load reads the subscription.
func (s *StartStep) Load(tx *unit.Tx) { s.sub.Load(tx) }

// Decide writes both.
func (s *StartStep) Decide(ctx context.Context, tx *unit.Tx) error {
	s.Out = s.start != (tx.Desired == unit.Started)
	if s.start {
		tx.Desired = unit.Started
		return s.sub.Decide(ctx, tx)
	}
	tx.Desired = "stopped"
	if s.sub.Subscribed() {
		consumer.Drop(tx, thread.Inbox)
	}
	return nil
}

// MarkStep keeps a thread's delivery progress, so that a restart finds what is left to
// send without looking into every thread.
type MarkStep struct{ m store.OutboxMark }

// Mark is a step.
func Mark(m store.OutboxMark) MarkStep { return MarkStep{m} }

// Lazy says when it waits for no disk: what was recorded of a thread is recorded again when it is
// found on the list in vain. That a dead letter is tried again was asked for by somebody.
func (s MarkStep) Lazy() bool { return !s.m.Reopen }

// Load has nothing to read.
func (MarkStep) Load(*unit.Tx) {}

// Decide writes it.
func (s MarkStep) Decide(_ context.Context, tx *unit.Tx) error {
	tx.Exec(`INSERT INTO outbox AS o (agent_id, thread_id, thread, head, acked, dead) VALUES($1,$2,$3,0,$4,$5)
		ON CONFLICT (agent_id, thread_id, thread) DO UPDATE SET acked = GREATEST(o.acked, excluded.acked), dead = excluded.dead`, s.m.Thread, s.m.Acked, s.m.Dead)
	if s.m.Reopen {
		tx.Exec(`UPDATE outbox SET head = GREATEST(head, 1), told = 0, acked = LEAST(acked, GREATEST(head, 1) - 1)
			WHERE agent_id = $1 AND thread_id = $2 AND thread = $3`, s.m.Thread)
	}
	return nil
}
