package journal

import (
	"maps"
	"slices"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/machine"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/thread"
)

const sessionColumns = `key, epoch, epoch_from, started_at, pending, pending_by, model, thinking, verbose, reasoning,
	queue_mode, usage_footer, elevated, title, archived`

// Session answers that of the conversation; nil: it has none.
func Session(tx *db.Tx) (*store.Session, error) {
	if !tx.HasSessions() {
		return nil, nil
	}
	var s store.Session
	var started int64
	ok, err := tx.Row("SELECT "+sessionColumns+" FROM x_session", nil, &s.Key, &s.Epoch, &s.EpochFrom, &started, &s.Pending, &s.PendingBy,
		&s.Model, &s.Thinking, &s.Verbose, &s.Reasoning, &s.QueueMode, &s.UsageFooter, &s.Elevated, &s.Title, &s.Archived)
	if err != nil || !ok {
		return nil, err
	}
	s.StartedAt = store.FromMillis(started)
	return &s, nil
}

func saveSession(tx *db.Tx, s store.Session) error {
	if err := tx.MakeSession(); err != nil {
		return err
	}
	_, err := tx.Exec("INSERT OR REPLACE INTO x_session(one, "+sessionColumns+") VALUES(1,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
		s.Key, s.Epoch, s.EpochFrom, store.Millis(s.StartedAt), s.Pending, s.PendingBy,
		s.Model, s.Thinking, s.Verbose, s.Reasoning, s.QueueMode, s.UsageFooter, s.Elevated, s.Title, s.Archived)
	return err
}

// loadSession reads the session, and when the newest event was stored that is no context.
func loadSession(tx *db.Tx, t *machine.Thread) (err error) {
	if t.Session, err = Session(tx); err != nil {
		return err
	}
	var at string
	ok, err := tx.Row("SELECT created_at FROM events WHERE (type, COALESCE(subtype, '')) <> ('"+thread.TypeRecord+"', '"+thread.SubtypeContext+"') ORDER BY id DESC LIMIT 1", nil, &at)
	if ok {
		t.LastAt = thread.ParseStamp(at)
	}
	return err
}

// PatchSession changes the session of the conversation, or makes one, and answers it.
func PatchSession(tx *db.Tx, p store.SessionPatch) (store.Session, error) {
	found, err := Session(tx)
	if err != nil {
		return store.Session{}, err
	}
	if found == nil {
		s := p.Apply(store.Session{Key: p.Key})
		return s, saveSession(tx, s)
	}
	s := p.Apply(*found)
	if s == *found {
		return s, nil
	}
	return s, saveSession(tx, s)
}

// settleSession counts messages that got their fate in the list of sessions, and writes
// there what is known of the session of their conversation.
func settleSession(tx *db.Tx, s store.Settlement, fresh, at int64) error {
	if s.Session == nil {
		if fresh == 0 || !tx.HasSessions() {
			return nil
		}
		_, err := tx.Exec("UPDATE x_sessions SET last_at = MAX(last_at, ?), messages = messages + ? WHERE thread = ?", at, fresh, s.Thread)
		return err
	}
	if fresh == 0 {
		at = 0 // it was counted with the first settlement
	}
	found, err := updateEntry(tx, s.Thread, *s.Session, fresh, at)
	if err != nil || found {
		return err
	}
	return insertEntry(tx, s.Thread, *s.Session, fresh, at)
}

// NoteSession writes a session into the list. Messages of a conversation that the list does
// not have are counted from their fates, which reads the fates of all conversations.
func NoteSession(tx *db.Tx, thread string, s store.Session) error {
	found, err := updateEntry(tx, thread, s, 0, 0)
	if err != nil || found {
		return err
	}
	var messages, at int64
	if _, err := tx.Row("SELECT COUNT(*), COALESCE(MAX(at), 0) FROM x_fate WHERE thread = ?", []any{thread}, &messages, &at); err != nil {
		return err
	}
	return insertEntry(tx, thread, s, messages, at)
}

// NewSessions writes sessions by conversation into a list that has none of them, with one read
// of the fates.
func NewSessions(tx *db.Tx, sessions map[string]store.Session) error {
	if len(sessions) == 0 {
		return nil
	}
	if err := tx.MakeOrigins(); err != nil {
		return err
	}
	messages, last := map[string]int64{}, map[string]int64{}
	if err := tx.Each("SELECT thread, COUNT(*), MAX(at) FROM x_fate GROUP BY thread", nil, func(scan func(...any) error) error {
		var thread string
		var n, at int64
		err := scan(&thread, &n, &at)
		messages[thread], last[thread] = n, at
		return err
	}); err != nil {
		return err
	}
	for _, thread := range slices.Sorted(maps.Keys(sessions)) {
		if err := insertEntry(tx, thread, sessions[thread], messages[thread], last[thread]); err != nil {
			return err
		}
	}
	return nil
}

// updateEntry changes the entry of a conversation; false: the list has none. The key is
// written when it is another one, so that its index is not written with each message.
func updateEntry(tx *db.Tx, thread string, s store.Session, messages, at int64) (bool, error) {
	if err := tx.MakeOrigins(); err != nil {
		return false, err
	}
	const rest = "epoch = ?, title = ?, archived = ?, messages = messages + ?, last_at = MAX(last_at, ?) WHERE thread = ?"
	args := []any{s.Epoch, s.Title, s.Archived, messages, at, thread, s.Key}
	n, err := tx.Exec("UPDATE x_sessions SET "+rest+" AND key = ?", args...)
	if err != nil || n > 0 {
		return n > 0, err
	}
	n, err = tx.Exec("UPDATE x_sessions SET key = ?, key_folded = ?, "+rest, append([]any{s.Key, s.Folded()}, args[:len(args)-1]...)...)
	return n > 0, err
}

func insertEntry(tx *db.Tx, thread string, s store.Session, messages, at int64) error {
	_, err := tx.Exec("INSERT INTO x_sessions(thread, key, key_folded, epoch, title, archived, messages, last_at) VALUES(?,?,?,?,?,?,?,?)",
		thread, s.Key, s.Folded(), s.Epoch, s.Title, s.Archived, messages, at)
	return err
}

// Sessions answers the list of sessions: the last active first, and of the same time by
// conversation.
func Sessions(tx *db.Tx, q store.ListSessions) ([]store.SessionEntry, error) {
	if !tx.HasSessions() {
		return nil, nil
	}
	sql, args := "SELECT thread, key, epoch, title, last_at, messages, archived FROM x_sessions WHERE ", []any{}
	if q.Folded != "" {
		sql, args = sql+"key_folded = ? AND ", append(args, q.Folded)
	}
	sql, args = sql+"last_at >= ?", append(args, store.Millis(q.Since))
	if q.BeforeThread != "" { // the last entry of a page may have no time
		before := store.Millis(q.Before)
		sql, args = sql+" AND (last_at < ? OR last_at = ? AND thread > ?)", append(args, before, before, q.BeforeThread)
	}
	if !q.Archived {
		sql += " AND archived = 0"
	}
	var out []store.SessionEntry
	err := tx.Each(sql+" ORDER BY last_at DESC, thread LIMIT ?", append(args, q.Limit), func(scan func(...any) error) error {
		var e store.SessionEntry
		var at int64
		err := scan(&e.Thread, &e.Key, &e.Epoch, &e.Title, &at, &e.Messages, &e.Archived)
		e.LastAt = store.FromMillis(at)
		out = append(out, e)
		return err
	})
	return out, err
}
