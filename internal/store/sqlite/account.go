package sqlite

import (
	"context"
	"errors"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/thread"
)

// Turn answers the account of an inbox event from the inbox and, when the event
// was claimed, from its conversation thread.
func (e *Engine) Turn(ctx context.Context, agent string, q store.TurnQuery) (store.Turn, error) {
	t := store.Turn{Agent: agent, InboxID: q.InboxID, State: store.TurnQueued}
	var ev thread.Event
	var mode string
	err := e.view(ctx, store.Inbox(agent), func(tx *db.Tx) error {
		var ok bool
		var err error
		if ev, ok, err = tx.Event(q.InboxID); err != nil {
			return err
		}
		t.Key = ev.Key(tx.UUID())
		if !ok || (q.Key != "" && q.Key != t.Key) {
			return store.ErrNoTurn
		}
		t.Source, t.QueuedAt = ev.Source, thread.ParseStamp(ev.CreatedAt)
		if mode, err = modeAt(tx, ev.ID); err != nil {
			return err
		}
		var fate string
		var at int64
		ok, err = tx.Row("SELECT f.thread, f.fate, f.at, COALESCE(d.error,''), COALESCE(d.resolved,'') FROM x_fate f LEFT JOIN x_dead d USING(inbox_id) WHERE f.inbox_id = ?",
			[]any{q.InboxID}, &t.Thread, &fate, &at, &t.Error, &t.Resolved)
		if ok {
			t.State, t.Fate, t.FinishedAt = store.TurnDone, store.Fate(fate), store.FromMillis(at)
		}
		return err
	})
	if err != nil {
		return t, err
	}
	if t.Thread == "" && t.Fate == store.FateNone && mode != "" && ev.Type == thread.TypeMessage {
		if t.Thread, err = q.Route(ev, mode); err != nil {
			t.Thread = "" // it will be dead when a batch opens
		}
	}
	if t.Thread == "" {
		return t, nil
	}
	err = e.view(ctx, store.Ref{Agent: agent, Thread: t.Thread}, func(tx *db.Tx) error { return explain(tx, &t) })
	if errors.Is(err, store.ErrNotFound) && t.Fate == store.FateNone {
		return t, nil // not claimed yet
	}
	return t, err
}

func explain(tx *db.Tx, t *store.Turn) error {
	var state, fate string
	var notBefore, claimed, finished int64
	ok, err := tx.Row("SELECT state, fate, crash_attempts, error_attempts, error, inbound_id, reply_id, error_id, not_before, claimed_at, finished_at FROM x_turn WHERE key = ?",
		[]any{t.Key}, &state, &fate, &t.CrashAttempts, &t.ErrorAttempts, &t.Error, &t.InboundID, &t.ReplyID, &t.ErrorEventID, &notBefore, &claimed, &finished)
	if err != nil || !ok {
		return err
	}
	t.State, t.Fate, t.ClaimedAt = state, store.Fate(fate), store.FromMillis(claimed)
	if finished > 0 {
		t.FinishedAt = store.FromMillis(finished)
	}
	if state == store.TurnWaiting {
		t.NextAt = store.FromMillis(notBefore)
	}
	if t.Steps, err = steps(tx, t.Key); err != nil {
		return err
	}
	for _, s := range t.Steps {
		t.Usage.Input += s.Usage.Input
		t.Usage.Output += s.Usage.Output
		t.Usage.CachedInput += s.Usage.CachedInput
		t.Usage.Reasoning += s.Usage.Reasoning
	}
	if t.ReplyID == 0 {
		return nil
	}
	d, ok, err := deliveryOf(tx, t.ReplyID)
	if ok {
		d.Thread = t.Thread
		t.Delivery = &d
	}
	return err
}

// ListTurns answers turns from the inbox alone; their threads stay closed.
func (e *Engine) ListTurns(ctx context.Context, agent string, q store.ListTurns) ([]store.Turn, error) {
	var out []store.Turn
	err := e.view(ctx, store.Inbox(agent), func(tx *db.Tx) error {
		sql := `SELECT ` + db.Columns + `, COALESCE(f.thread,''), COALESCE(f.fate,''), COALESCE(f.at,0), COALESCE(d.error,''), COALESCE(d.resolved,'')
			FROM events e LEFT JOIN x_fate f ON f.inbox_id = e.id LEFT JOIN x_dead d ON d.inbox_id = e.id WHERE (? = 0 OR e.id < ?)`
		args := []any{q.Before, q.Before}
		if q.Fate != store.FateNone {
			sql, args = sql+" AND f.fate = ?", append(args, string(q.Fate))
		}
		if q.Unresolved {
			sql += " AND COALESCE(d.resolved,'') = ''"
		}
		if q.Fate == store.FateDead { // few rows among many: start from them
			sql += " AND e.id IN (SELECT inbox_id FROM x_dead)"
		}
		return tx.Each(sql+" ORDER BY e.id DESC LIMIT ?", append(args, q.Limit), func(scan func(...any) error) error {
			t := store.Turn{Agent: agent, State: store.TurnQueued}
			var ev thread.Event
			var fate string
			var at int64
			if err := scan(&ev.ID, &ev.CreatedAt, &ev.Source, &ev.Type, &ev.Subtype, &ev.Content, &t.Thread, &fate, &at, &t.Error, &t.Resolved); err != nil {
				return err
			}
			t.InboxID, t.Key, t.Source, t.QueuedAt = ev.ID, ev.Key(tx.UUID()), ev.Source, thread.ParseStamp(ev.CreatedAt)
			if fate != "" {
				t.State, t.Fate, t.FinishedAt = store.TurnDone, store.Fate(fate), store.FromMillis(at)
			}
			out = append(out, t)
			return nil
		})
	})
	return out, err
}

// ResolveTurn takes a dead turn off the dead letters.
func (e *Engine) ResolveTurn(ctx context.Context, agent string, inboxID int64, how string) (thread.Event, string, error) {
	var ev thread.Event
	var key string
	err := e.do(ctx, store.Inbox(agent), true, func(tx *db.Tx) error {
		var ok bool
		var err error
		if ev, ok, err = tx.Event(inboxID); err != nil {
			return err
		}
		if !ok {
			return store.ErrNoTurn
		}
		key = ev.Key(tx.UUID())
		n, err := tx.Exec("UPDATE x_dead SET resolved = ? WHERE inbox_id = ? AND resolved IN ('', ?)", how, inboxID, how)
		if err == nil && n == 0 {
			return store.ErrNotDead
		}
		return err
	})
	return ev, key, err
}
