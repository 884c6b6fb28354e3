package journal

import (
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/thread"
)

const originColumns = "thread, session_key, account, provider_id, rev, command, sent_at, cause"

// Origin answers that of an inbox event; nil: it has none.
func Origin(tx *db.Tx, id int64) (*store.Origin, error) {
	if !tx.HasSessions() {
		return nil, nil
	}
	var o store.Origin
	var sent int64
	ok, err := tx.Row("SELECT "+originColumns+" FROM x_origin WHERE inbox_id = ?", []any{id},
		&o.Thread, &o.Key, &o.Account, &o.ProviderID, &o.Rev, &o.Command, &sent, &o.Cause)
	if err != nil || !ok {
		return nil, err
	}
	o.SentAt = store.FromMillis(sent)
	return &o, nil
}

// SaveOrigin stores the origin of a new inbox event.
func SaveOrigin(tx *db.Tx, id int64, o store.Origin) error {
	if err := tx.MakeOrigins(); err != nil {
		return err
	}
	_, err := tx.Exec("INSERT INTO x_origin(inbox_id, "+originColumns+") VALUES(?,?,?,?,?,?,?,?,?)",
		id, o.Thread, o.Key, o.Account, o.ProviderID, o.Rev, o.Command, store.Millis(o.SentAt), o.Cause)
	return err
}

// origins are those of events, by id.
func origins(tx *db.Tx, events []thread.Event) (map[int64]*store.Origin, error) {
	if !tx.HasSessions() {
		return nil, nil
	}
	out := map[int64]*store.Origin{}
	for _, e := range events {
		o, err := Origin(tx, e.ID)
		if err != nil {
			return nil, err
		}
		if o != nil {
			out[e.ID] = o
		}
	}
	return out, nil
}
