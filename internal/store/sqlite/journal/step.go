package journal

import (
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/sqlite/outbox"
	"github.com/theclaw/agents/internal/thread"
)

const stepColumns = "seq, kind, key, request_sha256, class, state, name, call_id, arguments, result, input, output, cached_input, reasoning, duration_us, recorded_at, cache_write"

func steps(tx *db.Tx, turn string) ([]store.Step, error) {
	var out []store.Step
	err := tx.Each("SELECT "+stepColumns+" FROM x_step WHERE turn = ? ORDER BY seq", []any{turn}, func(scan func(...any) error) error {
		var s store.Step
		var us, at int64
		if err := scan(&s.Seq, &s.Kind, &s.Key, &s.RequestSHA256, &s.Class, &s.State, &s.Name, &s.CallID, &s.Arguments, &s.Result,
			&s.Usage.Input, &s.Usage.Output, &s.Usage.CachedInput, &s.Usage.Reasoning, &us, &at, &s.Usage.CacheWrite); err != nil {
			return err
		}
		s.Duration, s.RecordedAt = time.Duration(us)*time.Microsecond, store.FromMillis(at)
		out = append(out, s)
		return nil
	})
	return out, err
}

// putSteps journals steps: a new one is inserted, an intent becomes done or in
// doubt, and what is done stays as it is.
func putSteps(tx *db.Tx, f store.Fence, turn string, list []store.Step, toolcalls map[string]string) (fresh bool, err error) {
	for _, s := range list {
		n, err := tx.Exec(`INSERT INTO x_step(turn, `+stepColumns+`) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)
			ON CONFLICT(turn, key) DO UPDATE SET state = excluded.state, result = excluded.result, duration_us = excluded.duration_us,
				recorded_at = excluded.recorded_at WHERE x_step.state = 'intent' AND excluded.state <> 'intent'`,
			turn, s.Seq, s.Kind, s.Key, s.RequestSHA256, s.Class, s.State, s.Name, s.CallID, s.Arguments, s.Result,
			s.Usage.Input, s.Usage.Output, s.Usage.CachedInput, s.Usage.Reasoning, s.Duration.Microseconds(), time.Now().UnixMilli(), s.Usage.CacheWrite)
		if err != nil {
			return fresh, err
		}
		// That a program was called is no progress; what its tools did is.
		fresh = fresh || n > 0 && (s.Kind != store.StepModel || s.Class == "")
		content, ok := toolcalls[s.Key]
		if !ok {
			continue
		}
		sub := thread.SubtypeToolcall
		if _, _, err := tx.InsertOnce(turn+":"+s.Key, f.Token, store.NewEvent{Source: thread.SourceSelf, Type: thread.TypeRecord, Subtype: &sub, Content: content}); err != nil {
			return fresh, err
		}
	}
	return fresh, nil
}

// Record journals steps (T3, T4, T6) and failed tries, and answers how many
// tries failed.
func Record(tx *db.Tx, f store.Fence, rec store.Record) (int, error) {
	t, err := loadTurn(tx, rec.Key)
	if err != nil {
		return 0, err
	}
	if !t.found {
		return 0, store.ErrNoTurn
	}
	if t.state == store.TurnDone {
		return t.errors, nil
	}
	fresh, err := putSteps(tx, f, rec.Key, rec.Steps, rec.Toolcalls)
	if err != nil {
		return 0, err
	}
	for _, s := range rec.Says {
		if _, err := say(tx, f, way{rec.Deliver, rec.Console, rec.BootID}, s.Key(rec.Key), s.Content); err != nil {
			return 0, err
		}
	}
	if fresh && (t.crashes > 0 || t.waitingSince > 0) {
		// Progress: what crashed before is not what this message does, and an
		// outage that began earlier is over.
		t.waitingSince = 0
		if _, err := tx.Exec("UPDATE x_turn SET crash_attempts = 0, waiting_since = 0 WHERE key = ?", rec.Key); err != nil {
			return 0, err
		}
	}
	if rec.Failed == nil {
		return t.errors, nil
	}
	return countFailure(tx, rec.Key, t, *rec.Failed)
}

// Decide appends a record/decision event once. In a turn its step is journalled
// too, which is progress like any other; outside of one it stands under the key of
// the decision.
func Decide(tx *db.Tx, f store.Fence, d store.Decision) error {
	sub := thread.SubtypeDecision
	_, _, err := tx.InsertOnce(d.Key, f.Token, store.NewEvent{Source: thread.SourceSelf, Type: thread.TypeRecord, Subtype: &sub, Content: d.Content})
	if err != nil || d.Step.Key == "" {
		return err
	}
	if d.Turn == "" {
		_, err = putSteps(tx, f, d.Key, []store.Step{d.Step}, nil)
		return err
	}
	_, err = Record(tx, f, store.Record{Key: d.Turn, Steps: []store.Step{d.Step}})
	return err
}

func countFailure(tx *db.Tx, key string, t turnRow, ft store.FailedTry) (int, error) {
	attempts, now := t.errors, time.Now()
	since := t.waitingSince
	if ft.Counted {
		attempts, since = attempts+max(ft.Tries, 1), 0
	} else if since == 0 {
		since = now.UnixMilli()
	}
	_, err := tx.Exec("UPDATE x_turn SET state = 'waiting', error_attempts = ?, error = ?, not_before = ?, waiting_since = ?, crash_attempts = 0 WHERE key = ?",
		attempts, ft.Error, now.Add(ft.Wait).UnixMilli(), since, key)
	return attempts, err
}

// Explain completes the account of an inbox event from its thread.
func Explain(tx *db.Tx, t *store.Turn) error {
	var state, fate, why string
	var notBefore, claimed, finished int64
	ok, err := tx.Row("SELECT state, fate, crash_attempts, error_attempts, error, inbound_id, reply_id, error_id, not_before, claimed_at, finished_at, leader FROM x_turn WHERE key = ?",
		[]any{t.Key}, &state, &fate, &t.CrashAttempts, &t.ErrorAttempts, &why, &t.InboundID, &t.ReplyID, &t.ErrorEventID, &notBefore, &claimed, &finished, &t.Leader)
	if err != nil || !ok {
		return err
	}
	t.ClaimedAt = store.FromMillis(claimed)
	if t.Fate == store.FateNone || state == store.TurnDone { // what the inbox says is settled
		t.State, t.Fate, t.Error = state, store.Fate(fate), why
	}
	if finished > 0 {
		t.FinishedAt = store.FromMillis(finished)
	}
	if t.State == store.TurnWaiting {
		t.NextAt = store.FromMillis(notBefore)
	}
	if t.Steps, err = steps(tx, t.Key); err != nil {
		return err
	}
	for _, s := range t.Steps {
		t.Usage.Add(s.Usage)
	}
	if t.ReplyID == 0 {
		return nil
	}
	d, ok, err := outbox.Of(tx, t.ReplyID)
	if ok {
		d.Thread = t.Thread
		t.Delivery = &d
	}
	return err
}
