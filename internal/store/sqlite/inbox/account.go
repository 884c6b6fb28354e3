package inbox

import (
	"math"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/thread"
)

// Turn answers what the inbox knows of an event. Its thread is that of its fate,
// or where it will go; empty when neither can be told.
func Turn(tx *db.Tx, agent string, q store.TurnQuery) (store.Turn, error) {
	t := store.Turn{Agent: agent, InboxID: q.InboxID, State: store.TurnQueued}
	ev, key, err := Event(tx, q.InboxID)
	if err != nil {
		return t, err
	}
	if q.Key != "" && q.Key != key {
		return t, store.ErrNoTurn
	}
	t.Key, t.Source, t.QueuedAt = key, ev.Source, thread.ParseStamp(ev.CreatedAt)
	var fate string
	var at int64
	ok, err := tx.Row("SELECT f.thread, f.fate, f.at, COALESCE(d.error,''), COALESCE(d.resolved,'') FROM x_fate f LEFT JOIN x_dead d USING(inbox_id) WHERE f.inbox_id = ?",
		[]any{q.InboxID}, &t.Thread, &fate, &at, &t.Error, &t.Resolved)
	if err != nil {
		return t, err
	}
	if ok {
		t.State, t.Fate, t.FinishedAt, t.Settled = store.TurnDone, store.Fate(fate), store.FromMillis(at), true
		return t, nil
	}
	mode, err := ModeAt(tx, ev.ID)
	if err != nil || mode == "" || ev.Type != thread.TypeMessage {
		return t, err
	}
	if id, err := q.Route(ev, mode); err == nil { // else it is dead when a batch opens
		t.Thread = id
	}
	return t, nil
}

// Turns answers events with their fates, newest first.
func Turns(tx *db.Tx, agent string, q store.ListTurns) ([]store.Turn, error) {
	if q.Before <= 0 {
		q.Before = math.MaxInt64
	}
	sql := `SELECT ` + db.Columns + `, COALESCE(f.thread,''), COALESCE(f.fate,''), COALESCE(f.at,0), COALESCE(d.error,''), COALESCE(d.resolved,'')
		FROM events e LEFT JOIN x_fate f ON f.inbox_id = e.id LEFT JOIN x_dead d ON d.inbox_id = e.id WHERE e.id < ?`
	args := []any{q.Before}
	if q.Fate != store.FateNone {
		sql, args = sql+" AND f.fate = ?", append(args, string(q.Fate))
	}
	if q.Unresolved {
		sql += " AND COALESCE(d.resolved,'') = ''"
	}
	if q.Fate == store.FateDead { // few rows among many: start from them
		sql += " AND e.id IN (SELECT inbox_id FROM x_dead)"
	}
	var out []store.Turn
	err := tx.Each(sql+" ORDER BY e.id DESC LIMIT ?", append(args, q.Limit), func(scan func(...any) error) error {
		t := store.Turn{Agent: agent, State: store.TurnQueued}
		var ev thread.Event
		var fate string
		var at int64
		if err := scan(&ev.ID, &ev.CreatedAt, &ev.Source, &ev.Type, &ev.Subtype, &ev.Content, &t.Thread, &fate, &at, &t.Error, &t.Resolved); err != nil {
			return err
		}
		key, err := tx.KeyOf(ev)
		if err != nil {
			return err
		}
		t.InboxID, t.Key, t.Source, t.QueuedAt = ev.ID, key, ev.Source, thread.ParseStamp(ev.CreatedAt)
		if fate != "" {
			t.State, t.Fate, t.FinishedAt, t.Settled = store.TurnDone, store.Fate(fate), store.FromMillis(at), true
		}
		out = append(out, t)
		return nil
	})
	return out, err
}

// Resolve takes a dead turn off the dead letters; repeated, it answers the same.
func Resolve(tx *db.Tx, inboxID int64, how string) (thread.Event, string, error) {
	ev, key, err := Event(tx, inboxID)
	if err != nil {
		return ev, key, err
	}
	n, err := tx.Exec("UPDATE x_dead SET resolved = ? WHERE inbox_id = ? AND resolved IN ('', ?)", how, inboxID, how)
	if err == nil && n == 0 {
		err = store.ErrNotDead
	}
	return ev, key, err
}
