package journal

import (
	"cmp"
	"slices"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/machine"
	"github.com/theclaw/agents/internal/store/sqlite/consumer"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/thread"
)

// Run loads what a transition needs, lets it decide, and saves what it changed.
func Run(tx *db.Tx, token uint64, n machine.Needs, decide func(t *machine.Thread) error) error {
	t := machine.Thread{Token: token, Now: time.Now()}
	if err := Load(tx, n, &t); err != nil {
		return err
	}
	if err := decide(&t); err != nil {
		return err
	}
	return Save(tx, &t)
}

// Load reads the rows that n names, in addition to those that t has.
func Load(tx *db.Tx, n machine.Needs, t *machine.Thread) (err error) {
	t.UUID = tx.UUID()
	if t.Head, t.NextID, err = tx.Last(); err != nil {
		return err
	}
	for _, key := range n.Turns {
		if err := loadTurn(tx, key, t); err != nil {
			return err
		}
	}
	if err := loadSteps(tx, n, t); err != nil {
		return err
	}
	if n.Leader != "" {
		if err := loadMembers(tx, n.Leader, t); err != nil {
			return err
		}
	}
	if n.Session {
		if err := loadSession(tx, t); err != nil {
			return err
		}
	}
	for _, key := range n.Keys {
		id, err := tx.Deduped(key)
		if err != nil {
			return err
		}
		if id != 0 {
			t.Use(key, id)
		}
	}
	return loadDeliveries(tx, n, t)
}

const turnColumns = "inbox_id, state, fate, crash_attempts, error_attempts, error, not_before, waiting_since, leader, inbound_id, reply_id, error_id, finished_at, attempts"

func loadTurn(tx *db.Tx, key string, t *machine.Thread) error {
	r, ok, err := turn(tx, key)
	if ok {
		t.Turns = append(t.Turns, r)
	}
	return err
}

func turn(tx *db.Tx, key string) (machine.Turn, bool, error) {
	r := machine.Turn{Key: key}
	var fate string
	ok, err := tx.Row("SELECT "+turnColumns+", claimed_at FROM x_turn WHERE key = ?", []any{key}, &r.InboxID, &r.State, &fate, &r.CrashAttempts, &r.ErrorAttempts,
		&r.Error, &r.NotBefore, &r.WaitingSince, &r.Leader, &r.InboundID, &r.ReplyID, &r.ErrorID, &r.FinishedAt, &r.Attempts, &r.ClaimedAt)
	r.Fate = store.Fate(fate)
	return r, ok, err
}

// loadMembers reads the turns of all members that a turn ever had; its steer steps are loaded.
func loadMembers(tx *db.Tx, leader string, t *machine.Thread) error {
	for _, s := range t.Steps {
		if s.Turn != leader || s.Kind != store.StepSteer {
			continue
		}
		added, err := machine.DecodeMembers(s.Result)
		if err != nil {
			return err
		}
		for _, m := range added.Messages {
			if slices.ContainsFunc(t.Turns, func(r machine.Turn) bool { return r.Key == m.Key }) {
				continue
			}
			if err := loadTurn(tx, m.Key, t); err != nil {
				return err
			}
		}
	}
	return nil
}

const (
	stepColumns  = "seq, kind, key, request_sha256, class, state, name, call_id, arguments, result, input, output, cached_input, reasoning, duration_us, recorded_at, cache_write, asks, summary, is_error, external"
	stateColumns = "SELECT seq, kind, key, state, recorded_at, CASE kind WHEN 'steer' THEN result END FROM x_step WHERE turn = ?"
)

func loadSteps(tx *db.Tx, n machine.Needs, t *machine.Thread) error {
	if n.AllSteps {
		return eachStep(tx, n.Turn, func(s store.Step) { t.Steps = append(t.Steps, machine.Step{Turn: n.Turn, Step: s}) })
	}
	state := func(scan func(...any) error) error {
		s := machine.Step{Turn: n.Turn}
		var at int64
		err := scan(&s.Seq, &s.Kind, &s.Key, &s.State, &at, &s.Result)
		s.RecordedAt = store.FromMillis(at)
		if !slices.ContainsFunc(t.Steps, func(o machine.Step) bool { return o.Turn == s.Turn && o.Key == s.Key }) {
			t.Steps = append(t.Steps, s)
		}
		return err
	}
	for _, key := range n.Steps {
		if err := tx.Each(stateColumns+" AND key = ?", []any{n.Turn, key}, state); err != nil {
			return err
		}
	}
	if !n.Steers {
		return nil
	}
	// By the prefix of their keys: a turn has many more steps, with large results.
	from := len(t.Steps)
	if err := tx.Each(stateColumns+" AND key >= 'steer:' AND key < 'steer;'", []any{n.Turn}, state); err != nil {
		return err
	}
	slices.SortFunc(t.Steps[from:], func(a, b machine.Step) int { return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Key, b.Key)) })
	return nil
}

func eachStep(tx *db.Tx, turn string, found func(store.Step)) error {
	return tx.Each("SELECT "+stepColumns+" FROM x_step WHERE turn = ? ORDER BY seq, key", []any{turn}, func(scan func(...any) error) error {
		var s store.Step
		var us, at int64
		err := scan(&s.Seq, &s.Kind, &s.Key, &s.RequestSHA256, &s.Class, &s.State, &s.Name, &s.CallID, &s.Arguments, &s.Result,
			&s.Usage.Input, &s.Usage.Output, &s.Usage.CachedInput, &s.Usage.Reasoning, &us, &at, &s.Usage.CacheWrite, &s.Asks, &s.Summary, &s.IsError, &s.External)
		s.Duration, s.RecordedAt = time.Duration(us)*time.Microsecond, store.FromMillis(at)
		found(s)
		return err
	})
}

// Save writes the rows that a transition changed.
func Save(tx *db.Tx, t *machine.Thread) error {
	for _, e := range t.Appended {
		if err := tx.Store(e.Event); err != nil {
			return err
		}
		if err := tx.Dedupe(e.Key, e.ID, t.Token); err != nil {
			return err
		}
	}
	for i := range t.Turns {
		if err := saveTurn(tx, &t.Turns[i]); err != nil {
			return err
		}
	}
	for i := range t.Steps {
		if err := saveStep(tx, &t.Steps[i]); err != nil {
			return err
		}
	}
	for i := range t.Deliveries {
		if err := saveDelivery(tx, &t.Deliveries[i]); err != nil {
			return err
		}
	}
	if t.TupleSet {
		if _, err := tx.Exec("UPDATE x_meta SET tuple = ? WHERE tuple = ''", t.Tuple); err != nil {
			return err
		}
	}
	if t.SessionSet {
		if err := saveSession(tx, *t.Session); err != nil {
			return err
		}
	}
	if t.AckMoved {
		return consumer.Ack(tx, thread.Outbound, t.Acked)
	}
	return nil
}

func saveTurn(tx *db.Tx, r *machine.Turn) (err error) {
	switch r.Change {
	case machine.Inserted:
		_, err = tx.Exec("INSERT INTO x_turn("+turnColumns+", key, reply_context, claimed_at) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
			r.InboxID, r.State, string(r.Fate), r.CrashAttempts, r.ErrorAttempts, r.Error, r.NotBefore, r.WaitingSince, r.Leader,
			r.InboundID, r.ReplyID, r.ErrorID, r.FinishedAt, r.Attempts, r.Key, r.ReplyContext, r.ClaimedAt)
	case machine.Updated:
		_, err = tx.Exec(`UPDATE x_turn SET state = ?, fate = ?, crash_attempts = ?, error_attempts = ?, error = ?, not_before = ?, waiting_since = ?,
			leader = ?, inbound_id = ?, reply_id = ?, error_id = ?, finished_at = ?, attempts = ? WHERE key = ?`,
			r.State, string(r.Fate), r.CrashAttempts, r.ErrorAttempts, r.Error, r.NotBefore, r.WaitingSince,
			r.Leader, r.InboundID, r.ReplyID, r.ErrorID, r.FinishedAt, r.Attempts, r.Key)
	}
	return err
}

func saveStep(tx *db.Tx, s *machine.Step) (err error) {
	if s.External && s.Change != machine.Deleted {
		if err := tx.MarkExternal(); err != nil {
			return err
		}
	}
	switch s.Change {
	case machine.Inserted:
		_, err = tx.Exec("INSERT INTO x_step(turn, "+stepColumns+") VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
			s.Turn, s.Seq, s.Kind, s.Key, s.RequestSHA256, s.Class, s.State, s.Name, s.CallID, s.Arguments, s.Result,
			s.Usage.Input, s.Usage.Output, s.Usage.CachedInput, s.Usage.Reasoning, s.Duration.Microseconds(), store.Millis(s.RecordedAt), s.Usage.CacheWrite, s.Asks, s.Summary, s.IsError, s.External)
	case machine.Updated:
		_, err = tx.Exec("UPDATE x_step SET state = ?, result = ?, duration_us = ?, recorded_at = ?, is_error = ?, external = ? WHERE turn = ? AND key = ?",
			s.State, s.Result, s.Duration.Microseconds(), store.Millis(s.RecordedAt), s.IsError, s.External, s.Turn, s.Key)
	case machine.Deleted:
		_, err = tx.Exec("DELETE FROM x_step WHERE turn = ? AND key = ?", s.Turn, s.Key)
	}
	return err
}
