package repair

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/theclaw/agents/internal/invariant/snapshot"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/sqlite/schema"
	"github.com/theclaw/agents/internal/thread"
)

// account gives a salvaged database back what it knew about its events, from
// the other databases of the agent where its own rows are lost.
func (w *work) account(ctx context.Context, to *sql.Conn, a *snapshot.Agent, d *snapshot.DB) error {
	if !d.IsInbox() {
		return accountThread(ctx, to, a, d)
	}
	desired := w.started(ctx, a.ID)
	uuid, made, err := identity(ctx, to, a, desired)
	w.stopped = w.stopped || made && desired == ""
	if err != nil || uuid == "" {
		return err // unknown to all: the next opening adopts it as another tool's inbox
	}
	turns := map[int64]snapshot.Turn{}
	threads := map[int64]string{}
	for _, t := range a.Threads {
		for _, turn := range t.Turns {
			if turn.State == store.TurnDone && strings.HasPrefix(turn.Key, uuid+":") {
				turns[turn.InboxID], threads[turn.InboxID] = turn, t.Thread
			}
		}
	}
	var acked int64
	if err := to.QueryRowContext(ctx, `SELECT COALESCE((SELECT id FROM x_ack WHERE consumer = 'inbox'), (SELECT last_acked_id FROM consumer_progress WHERE consumer_id = 'inbox'), 0)`).Scan(&acked); err != nil {
		return err
	}
	var open []thread.Event
	err = rowsOf(ctx, to, "SELECT "+db.Columns+" FROM events e WHERE NOT EXISTS (SELECT 1 FROM x_fate f WHERE f.inbox_id = e.id) ORDER BY id", 6, func(r []any) {
		e, _ := eventOf(r[0].(int64), r[1:])
		open = append(open, e)
	})
	if err != nil {
		return err
	}
	for _, e := range open {
		fate, where := string(store.FateSilent), ""
		turn, done := turns[e.ID]
		switch {
		case done:
			fate, where = turn.Fate, threads[e.ID]
		case e.ID > acked:
			continue // it still waits
		case e.Type != thread.TypeMessage:
			fate = string(store.FateNotAMessage)
		}
		if _, err := to.ExecContext(ctx, "INSERT "+schema.IntoFate, e.ID, e.Key(uuid), where, fate, thread.ParseStamp(e.CreatedAt).UnixMilli()); err != nil {
			return err
		}
		if fate == string(store.FateDead) {
			if _, err := to.ExecContext(ctx, "INSERT OR IGNORE INTO x_dead(inbox_id, error) VALUES(?,'what it died of was lost with the inbox')", e.ID); err != nil {
				return err
			}
		}
	}
	// The ack is the end of the contiguous prefix of fates, as ever.
	_, err = to.ExecContext(ctx, `INSERT INTO x_ack(consumer, id) VALUES('inbox', (SELECT COALESCE((SELECT MIN(id) - 1 FROM events e WHERE NOT EXISTS
		(SELECT 1 FROM x_fate f WHERE f.inbox_id = e.id)), (SELECT MAX(id) FROM events), 0))) ON CONFLICT(consumer) DO UPDATE SET id = MAX(id, excluded.id)`)
	return err
}

// identity answers the inbox's uuid, which is in the key of every turn, and
// writes it when it was lost; then made is true.
func identity(ctx context.Context, to *sql.Conn, a *snapshot.Agent, desired string) (uuid string, made bool, err error) {
	err = to.QueryRowContext(ctx, "SELECT uuid FROM x_meta").Scan(&uuid)
	if err == nil || !errors.Is(err, sql.ErrNoRows) {
		return uuid, false, err
	}
	key := ""
	err = to.QueryRowContext(ctx, "SELECT key FROM x_fate ORDER BY inbox_id DESC LIMIT 1").Scan(&key)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", false, err
	}
	for _, t := range a.Threads {
		for _, turn := range t.Turns {
			if key == "" || turn.State == store.TurnDone {
				key = turn.Key
			}
		}
	}
	uuid, _, ok := strings.Cut(key, ":")
	if !ok {
		return "", false, nil
	}
	_, err = to.ExecContext(ctx, "INSERT INTO x_meta(one, uuid, format, desired) VALUES(1, ?, ?, ?)", uuid, schema.Format, desired)
	return uuid, true, err
}

// started answers the desired state as the registry last knew it; without one the
// agent is stopped until its owner starts it.
func (w *work) started(ctx context.Context, agent string) string {
	c, done, err := read(ctx, w.home.RegistryDB())
	if err != nil {
		return ""
	}
	defer done()
	var on bool
	if err := c.QueryRowContext(ctx, "SELECT started FROM inbox WHERE agent = ?", agent).Scan(&on); err != nil || !on {
		return ""
	}
	return "started"
}

// accountThread keeps what was said from being sent again as if it were new: up
// to where the inbox knows it was delivered it is done, and what follows is sent
// with the flag.
func accountThread(ctx context.Context, to *sql.Conn, a *snapshot.Agent, d *snapshot.DB) error {
	var rows int
	if err := to.QueryRowContext(ctx, "SELECT COUNT(*) FROM x_meta").Scan(&rows); err != nil {
		return err
	}
	if rows > 0 {
		return nil // its own rows were there
	}
	var acked int64
	err := to.QueryRowContext(ctx, "SELECT COALESCE((SELECT id FROM x_ack WHERE consumer = 'outbound'), -1)").Scan(&acked)
	if err != nil {
		return err
	}
	if acked < 0 {
		var known bool
		if acked, known = a.Inbox.Outbox[d.Thread]; !known {
			if err := to.QueryRowContext(ctx, "SELECT COALESCE(MAX(id),0) FROM events").Scan(&acked); err != nil {
				return err
			}
		}
		if _, err := to.ExecContext(ctx, "INSERT INTO x_ack(consumer, id) VALUES('outbound', ?)", acked); err != nil {
			return err
		}
	}
	uuid := d.UUID
	if uuid == "" {
		uuid = schema.NewUUID()
	}
	if _, err := to.ExecContext(ctx, "INSERT INTO x_meta(one, uuid, format) VALUES(1, ?, ?)", uuid, schema.Format); err != nil {
		return err
	}
	var unsent []thread.Event
	err = rowsOf(ctx, to, "SELECT "+db.Columns+" FROM events e WHERE id > "+fmt.Sprint(acked)+` AND type = 'message' AND source = 'self'
		AND NOT EXISTS (SELECT 1 FROM x_delivery v WHERE v.event_id = e.id) ORDER BY id`, 6, func(r []any) {
		e, _ := eventOf(r[0].(int64), r[1:])
		unsent = append(unsent, e)
	})
	for _, e := range unsent {
		said := thread.ParseStamp(e.CreatedAt).UnixMilli()
		if _, err := to.ExecContext(ctx, "INSERT INTO x_delivery(event_id, key, state, maybe_duplicate, created_at, updated_at) VALUES(?,?,'pending',1,?,?)", e.ID, e.DeliveryKey(uuid), said, said); err != nil {
			return err
		}
	}
	return err
}
