package journal

import (
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/consumer"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/thread"
)

// State answers what dispatch must know.
func State(tx *db.Tx) (store.InboxState, error) {
	s := store.InboxState{UUID: tx.UUID(), Fences: map[string]uint64{}}
	var desired string
	if _, err := tx.Row(`SELECT desired, EXISTS(SELECT 1 FROM subscriptions WHERE consumer_id = 'inbox'),
		COALESCE((SELECT MAX(id) FROM events),0), COALESCE((SELECT id FROM x_ack WHERE consumer = 'inbox'),0),
		COALESCE((SELECT created_at FROM events ORDER BY id DESC LIMIT 1),''),
		(SELECT COUNT(*) FROM x_dead WHERE resolved = '') + (SELECT COALESCE(SUM(dead),0) FROM x_outbox)
		FROM x_meta`, nil, &desired, &s.Subscribed, &s.Head, &s.Acked, &s.LastAt, &s.Dead); err != nil {
		return s, err
	}
	s.Started, s.Undecided = started(desired, s.Subscribed), desired == ""
	var err error
	if s.Pending, err = Waiting(tx, s.Acked, ""); err != nil {
		return s, err
	}
	if err := tx.Each("SELECT thread FROM x_outbox WHERE acked < head ORDER BY thread", nil, func(scan func(...any) error) error {
		var t string
		err := scan(&t)
		s.Outbox = append(s.Outbox, t)
		return err
	}); err != nil {
		return s, err
	}
	err = tx.Each("SELECT resource, token FROM x_fence", nil, func(scan func(...any) error) error {
		var r string
		var t int64
		err := scan(&r, &t)
		s.Fences[r] = uint64(t)
		return err
	})
	return s, err
}

// started reports what is desired; an inbox that only the external tool has known
// is started when its agent is subscribed.
func started(desired string, subscribed bool) bool {
	return desired == "started" || (desired == "" && subscribed)
}

// Waiting counts the events after the ack that have no fate, of one source or,
// when that is empty, of all.
func Waiting(tx *db.Tx, acked int64, source string) (int64, error) {
	var n int64
	_, err := tx.Row("SELECT COUNT(*) FROM events e WHERE id > ? AND (? = '' OR source = ?) AND NOT EXISTS (SELECT 1 FROM x_fate f WHERE f.inbox_id = e.id)",
		[]any{acked, source, source}, &n)
	return n, err
}

// Event answers one inbox event and its key; store.ErrNoTurn.
func Event(tx *db.Tx, id int64) (thread.Event, string, error) {
	ev, ok, err := tx.Event(id)
	if err == nil && !ok {
		err = store.ErrNoTurn
	}
	if err != nil {
		return ev, "", err
	}
	key, err := tx.KeyOf(ev)
	return ev, key, err
}

// SetStarted stores the desired state, then makes the subscription agree; both
// in one transaction, so that no reader ever sees one without the other.
func SetStarted(tx *db.Tx, start bool, handler string) (changed bool, err error) {
	want := "stopped"
	if start {
		want = "started"
	}
	var desired string
	var subscribed bool
	if _, err := tx.Row("SELECT desired, EXISTS(SELECT 1 FROM subscriptions WHERE consumer_id = 'inbox') FROM x_meta", nil, &desired, &subscribed); err != nil {
		return false, err
	}
	changed = start != started(desired, subscribed)
	if desired != want {
		if _, err := tx.Exec("UPDATE x_meta SET desired = ?", want); err != nil {
			return false, err
		}
	}
	if start {
		return changed, consumer.Keep(tx, thread.Inbox, handler, nil)
	}
	_, err = tx.Exec("DELETE FROM subscriptions WHERE consumer_id = 'inbox'")
	return changed, err
}

// MarkOutbox keeps a thread's delivery progress, so that a restart finds what is
// left to send without opening every thread.
func MarkOutbox(tx *db.Tx, m store.OutboxMark) error {
	_, err := tx.Exec(`INSERT INTO x_outbox(thread, head, acked, dead) VALUES(?,0,?,?)
		ON CONFLICT(thread) DO UPDATE SET acked = MAX(acked, excluded.acked), dead = excluded.dead`, m.Thread, m.Acked, m.Dead)
	if err != nil || !m.Reopen {
		return err
	}
	_, err = tx.Exec("UPDATE x_outbox SET head = MAX(head, 1), acked = MIN(acked, MAX(head, 1) - 1) WHERE thread = ?", m.Thread)
	return err
}
