package journal

import (
	"context"
	"slices"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/machine"
	"github.com/theclaw/agents/internal/store/postgres/unit"
)

// Step runs a transition of machine; Out is its answer.
type Step[T any] struct {
	needs  machine.Needs
	decide func(t *machine.Thread) (T, error)
	rows   machine.Thread
	Out    T
}

func step[T any](n machine.Needs, decide func(t *machine.Thread) (T, error)) *Step[T] {
	return &Step[T]{needs: n, decide: decide}
}

// Load queues the reads.
func (s *Step[T]) Load(tx *unit.Tx) {
	s.rows = machine.Thread{}
	load(tx, s.needs, &s.rows)
}

// Decide queues the writes.
func (s *Step[T]) Decide(_ context.Context, tx *unit.Tx) (err error) {
	begin(tx, &s.rows)
	if s.Out, err = s.decide(&s.rows); err == nil {
		save(tx, &s.rows)
	}
	return err
}

// Record journals steps and failed tries (T3, T4, T6); store.ErrNoTurn.
func Record(rec store.Record) *Step[int] {
	return step(machine.RecordNeeds(rec), func(t *machine.Thread) (int, error) { return machine.Record(t, rec) })
}

// Steer adds members to a running turn; store.ErrNoTurn.
func Steer(s store.Steer) *Step[store.Step] {
	return step(machine.SteerNeeds(s), func(t *machine.Thread) (store.Step, error) { return machine.Steer(t, s) })
}

// Finish gives a turn its fate (T7 or T9); store.ErrNoTurn.
func Finish(fin store.Finish) *Step[store.Finished] {
	return step(machine.FinishNeeds(fin), func(t *machine.Thread) (store.Finished, error) { return machine.Finish(t, fin) })
}

// Release forgets the claims of turns that were given back cleanly.
func Release(keys []string) *Step[struct{}] {
	return step(machine.ReleaseNeeds(keys), func(t *machine.Thread) (none struct{}, err error) {
		machine.Release(t)
		return none, nil
	})
}

// Decide appends a record/decision event once; store.ErrNoTurn.
func Decide(d store.Decision) *Step[struct{}] {
	return step(machine.DecideNeeds(d), func(t *machine.Thread) (none struct{}, err error) { return none, machine.Decide(t, d) })
}

// begin enters what the transaction holds of the thread.
func begin(tx *unit.Tx, t *machine.Thread) {
	t.UUID, t.Head, t.NextID, t.Tuple = tx.UUID, tx.Head, tx.Head+1, tx.Tuple
	t.Token, t.Now, t.Acked = tx.Fence.Token, tx.Time, tx.Acked
}

const (
	inThread    = "agent_id = $1 AND thread_id = $2"
	turnColumns = "key, inbox_id, state, fate, crash_attempts, error_attempts, error, not_before, waiting_since, leader, inbound_id, reply_id, error_id, finished_at, token, attempts"
	stepColumns = "seq, kind, key, request_sha256, class, state, name, call_id, arguments, result, input, output, cached_input, reasoning, duration_us, recorded_at, cache_write, asks, summary, is_error, external"

	oneTurn     = "SELECT " + turnColumns + " FROM turn WHERE " + inThread + " AND key = $3"
	turnMembers = "SELECT " + turnColumns + " FROM turn WHERE " + inThread + " AND leader = $3 AND leader <> ''"
)

// each are the rows of a table under the keys $3, each found separately: the plan for a
// list may be to walk through the thread, when threads were short as it was made.
func each(table string) string {
	return "unnest($3::text[]) AS wanted CROSS JOIN LATERAL (SELECT * FROM " + table + " WHERE " + inThread + " AND key = wanted OFFSET 0) AS found"
}

// load queues the reads of the rows that n names, in addition to those that t has.
func load(tx *unit.Tx, n machine.Needs, t *machine.Thread) {
	loadTurns(tx, n, t)
	loadSteps(tx, n, t)
	switch len(n.Keys) {
	case 0:
	case 1:
		tx.Read(unit.Deduped, []any{n.Keys[0]}, func(scan func(...any) error) error {
			var id int64
			err := scan(&id)
			t.Use(n.Keys[0], id)
			return err
		})
	default:
		tx.Read("SELECT key, event_id FROM "+each("dedupe"), []any{n.Keys}, func(scan func(...any) error) error {
			var key string
			var id int64
			err := scan(&key, &id)
			t.Use(key, id)
			return err
		})
	}
	loadDeliveries(tx, n, t)
	if n.Session {
		loadSession(tx, &t.Session)
		loadLastAt(tx, &t.LastAt)
	}
}

func loadTurns(tx *unit.Tx, n machine.Needs, t *machine.Thread) {
	add := func(scan func(...any) error) error {
		r, err := scanTurn(scan)
		t.Turns = append(t.Turns, r)
		return err
	}
	switch {
	case len(n.Turns) == 1 && n.Turns[0] == n.Leader:
		tx.Read(oneTurn+" UNION ALL "+turnMembers, []any{n.Leader}, add)
		return
	case len(n.Turns) == 1:
		tx.Read(oneTurn, []any{n.Turns[0]}, add)
	case len(n.Turns) > 1:
		tx.Read("SELECT "+turnColumns+" FROM "+each("turn"), []any{n.Turns}, add)
	}
	if n.Leader != "" {
		tx.Read(turnMembers, []any{n.Leader}, add)
	}
}

func scanTurn(scan func(...any) error, more ...any) (r machine.Turn, err error) {
	var fate string
	err = scan(append([]any{
		&r.Key, &r.InboxID, &r.State, &fate, &r.CrashAttempts, &r.ErrorAttempts, &r.Error, &r.NotBefore, &r.WaitingSince,
		&r.Leader, &r.InboundID, &r.ReplyID, &r.ErrorID, &r.FinishedAt, &r.Token, &r.Attempts,
	}, more...)...)
	r.Fate = store.Fate(fate)
	return r, err
}

// loadSteps reads all steps of a turn, or the states of some: the results of the others
// stay where they are, they may be large.
func loadSteps(tx *unit.Tx, n machine.Needs, t *machine.Thread) {
	if n.AllSteps {
		loadAllSteps(tx, n.Turn, func(s store.Step) { t.Steps = append(t.Steps, machine.Step{Turn: n.Turn, Step: s}) })
		return
	}
	if len(n.Steps) == 0 && !n.Steers {
		return
	}
	or := ""
	if n.Steers {
		or = " OR kind = 'steer'"
	}
	keys := n.Steps
	if keys == nil {
		keys = []string{}
	}
	tx.Read("SELECT seq, kind, key, state, recorded_at, CASE kind WHEN 'steer' THEN result END FROM step WHERE "+inThread+" AND turn = $3 AND (key = ANY($4)"+or+") ORDER BY seq, key",
		[]any{n.Turn, keys}, func(scan func(...any) error) error {
			s := machine.Step{Turn: n.Turn}
			var at int64
			err := scan(&s.Seq, &s.Kind, &s.Key, &s.State, &at, &s.Result)
			s.RecordedAt = store.FromMillis(at)
			t.Steps = append(t.Steps, s)
			return err
		})
}

func loadAllSteps(tx *unit.Tx, turn string, found func(store.Step)) {
	tx.Read("SELECT "+stepColumns+" FROM step WHERE "+inThread+" AND turn = $3 ORDER BY seq, key", []any{turn}, func(scan func(...any) error) error {
		var s store.Step
		var us, at int64
		err := scan(&s.Seq, &s.Kind, &s.Key, &s.RequestSHA256, &s.Class, &s.State, &s.Name, &s.CallID, &s.Arguments, &s.Result,
			&s.Usage.Input, &s.Usage.Output, &s.Usage.CachedInput, &s.Usage.Reasoning, &us, &at, &s.Usage.CacheWrite, &s.Asks, &s.Summary, &s.IsError, &s.External)
		s.Duration, s.RecordedAt = time.Duration(us)*time.Microsecond, store.FromMillis(at)
		found(s)
		return err
	})
}

// save queues the writes of the rows that a transition changed.
func save(tx *unit.Tx, t *machine.Thread) {
	for _, e := range t.Appended {
		tx.Append(e.Event)
		tx.Dedupe(e.Key, e.ID, t.Token)
	}
	for i := range t.Turns {
		saveTurn(tx, &t.Turns[i])
	}
	for i := range t.Steps {
		saveStep(tx, &t.Steps[i])
	}
	for i := range t.Deliveries {
		saveDelivery(tx, &t.Deliveries[i])
	}
	if t.SessionSet {
		saveSession(tx, *t.Session)
	}
	tx.Acked, tx.Tuple = t.Acked, t.Tuple
}

func saveTurn(tx *unit.Tx, r *machine.Turn) {
	switch r.Change {
	case machine.Inserted:
		tx.Exec("INSERT INTO turn(agent_id, thread_id, "+turnColumns+", reply_context, claimed_at) VALUES($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17,$18,$19,$20)",
			r.Key, r.InboxID, r.State, string(r.Fate), r.CrashAttempts, r.ErrorAttempts, r.Error, r.NotBefore, r.WaitingSince, r.Leader,
			r.InboundID, r.ReplyID, r.ErrorID, r.FinishedAt, int64(r.Token), r.Attempts, r.ReplyContext, r.ClaimedAt)
	case machine.Updated:
		tx.Exec(`UPDATE turn SET state = $4, fate = $5, crash_attempts = $6, error_attempts = $7, error = $8, not_before = $9, waiting_since = $10,
			leader = $11, inbound_id = $12, reply_id = $13, error_id = $14, finished_at = $15, token = $16, attempts = $17 WHERE `+inThread+" AND key = $3",
			r.Key, r.State, string(r.Fate), r.CrashAttempts, r.ErrorAttempts, r.Error, r.NotBefore, r.WaitingSince, r.Leader,
			r.InboundID, r.ReplyID, r.ErrorID, r.FinishedAt, int64(r.Token), r.Attempts)
	}
}

func saveStep(tx *unit.Tx, s *machine.Step) {
	switch s.Change {
	case machine.Inserted:
		tx.Exec("INSERT INTO step(agent_id, thread_id, turn, "+stepColumns+") VALUES($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17,$18,$19,$20,$21,$22,$23,$24)",
			s.Turn, s.Seq, s.Kind, s.Key, s.RequestSHA256, s.Class, s.State, s.Name, s.CallID, s.Arguments, s.Result,
			s.Usage.Input, s.Usage.Output, s.Usage.CachedInput, s.Usage.Reasoning, s.Duration.Microseconds(), store.Millis(s.RecordedAt), s.Usage.CacheWrite, s.Asks, s.Summary, s.IsError, s.External)
	case machine.Updated:
		tx.Exec("UPDATE step SET state = $5, result = $6, duration_us = $7, recorded_at = $8, is_error = $9, external = $10 WHERE "+inThread+" AND turn = $3 AND key = $4",
			s.Turn, s.Key, s.State, s.Result, s.Duration.Microseconds(), store.Millis(s.RecordedAt), s.IsError, s.External)
	case machine.Deleted:
		tx.Exec("DELETE FROM step WHERE "+inThread+" AND turn = $3 AND key = $4", s.Turn, s.Key)
	}
}

// appended answers the event that a transition appended under an id.
func appended(t *machine.Thread, id int64) *machine.Event {
	if i := slices.IndexFunc(t.Appended, func(e machine.Event) bool { return e.ID == id }); i >= 0 {
		return &t.Appended[i]
	}
	return nil
}
