package transfer

import (
	"errors"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/sqlite/journal"
	"github.com/theclaw/agents/internal/store/sqlite/schema"
	"github.com/theclaw/agents/internal/store/transfer/rows"
	"github.com/theclaw/agents/internal/thread"
)

// eachThreadRow calls emit for the rows of a table of a thread's SQLite database, in their
// order. Rows that are composed of several (a thread's own row, the fences of an inbox)
// are read by the caller.
func eachThreadRow(tx *db.Tx, th string, t *rows.Table, emit func(rows.Row) error) error {
	return tx.Each(t.Lite, nil, func(scan func(...any) error) error {
		dest := t.Dest()
		if err := scan(dest...); err != nil {
			return err
		}
		return emit(rows.Row{Thread: th, Table: t, Values: t.Values(dest)})
	})
}

// writeThreadRow inserts a row into a new SQLite database of a thread, in the caller's
// transaction.
func writeThreadRow(tx *db.Tx, r rows.Row) error {
	exec := func(sql string, args ...any) error {
		_, err := tx.Exec(sql, args...)
		return err
	}
	v := r.Values
	switch r.Table {
	case rows.Thread:
		own := thread.Outbound
		if r.Thread == thread.Inbox {
			own = thread.Inbox
		}
		err := exec("UPDATE x_meta SET uuid = ?, tuple = ?, desired = ?", v[0], v[1], v[2])
		if head := v[3].(int64); err == nil && head > 0 { // ids that were given are not given again
			err = exec("INSERT INTO sqlite_sequence(name, seq) VALUES('events', ?)", head)
		}
		if acked := v[4].(int64); err == nil && acked > 0 {
			err = exec("INSERT INTO x_ack(consumer, id) VALUES(?,?)", own, acked)
		}
		return err
	case rows.Event:
		err := errors.Join(
			exec("INSERT INTO events(id, created_at, source, type, subtype, content) VALUES(?,?,?,?,?,?)", v[:6]...),
			exec("INSERT INTO x_chain(event_id, prev, sha256) VALUES(?,?,?)", v[0], v[6], v[7]))
		if err == nil && v[9] != nil {
			err = errors.Join(exec(schema.Erased), exec(schema.RaiseFormat, schema.FormatErased),
				exec("INSERT INTO x_erased(event_id, key, proof) VALUES(?,?,?)", v[0], v[8], v[9]))
		}
		return err
	case rows.Fate:
		err := exec("INSERT "+schema.IntoFate, v[:5]...)
		if err == nil && v[3] == "dead" {
			err = exec("INSERT INTO x_dead(inbox_id, error, resolved) VALUES(?,?,?)", v[0], v[5], v[6])
		}
		return err
	case rows.Origin:
		if err := tx.MakeOrigins(); err != nil {
			return err
		}
	case rows.Process:
		if err := tx.MakeProcesses(); err != nil {
			return err
		}
	case rows.Media:
		if err := tx.MakeMedia(); err != nil {
			return err
		}
	case rows.Step:
		if v[len(v)-1] != int64(0) {
			if err := tx.MarkExternal(); err != nil {
				return err
			}
		}
	case rows.Session:
		if err := tx.MakeSession(); err != nil {
			return err
		}
	}
	return exec(r.Table.Put, v...)
}

// writeSessions writes the list of sessions of a new inbox, which follows from the session rows
// of the conversations.
func writeSessions(tx *db.Tx, list []rows.Row) error {
	sessions := map[string]store.Session{}
	for _, r := range list {
		n := len(r.Values)
		sessions[r.Thread] = store.Session{Key: r.Values[0].(string), Epoch: r.Values[1].(string), Title: r.Values[n-2].(string), Archived: r.Values[n-1].(int64) != 0}
	}
	return journal.NewSessions(tx, sessions)
}
