// Package outbox owns the journal of what leaves a conversation thread: one
// x_delivery row per event of the agent, and the outbound ack.
//
//	         Next                 Finish
//	pending --------> sending ------------> sent | dead | skipped
//	   ^                  |
//	   +------------------+  failed: wait until not_before
//
// Events leave in the order of their ids: a waiting one holds back those behind
// it until it is sent or dead. One that is sent in parts stays sending from the first part to
// the last, and goes on behind what was sent. A row found sending was left by a process that
// died: it is sent again under the same key, flagged, and spends no attempt.
// The functions run inside a transaction whose caller has checked the fence.
package outbox

import (
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/consumer"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/thread"
)

// maxCrashes bounds how often a send that kills its process is begun.
const maxCrashes = 10

type row struct {
	store.Delivery
	bootID    string
	notBefore int64
	crashes   int
}

const columns = "event_id, key, state, attempts, not_before, channel, provider_id, boot_id, crashes, error, maybe_duplicate, created_at, updated_at, resolved, parts, reach"

func scanRow(scan func(...any) error) (row, error) {
	var d row
	var created, updated int64
	err := scan(&d.EventID, &d.Key, &d.State, &d.Attempts, &d.notBefore, &d.Channel, &d.ProviderID, &d.bootID, &d.crashes, &d.Error, &d.MaybeDuplicate, &created, &updated, &d.Resolved, &d.Parts, &d.Reach)
	d.CreatedAt, d.UpdatedAt = store.FromMillis(created), store.FromMillis(updated)
	if d.State == store.DeliveryPending {
		d.NextAt = store.FromMillis(d.notBefore)
	}
	return d, err
}

func load(tx *db.Tx, eventID int64) (row, bool, error) {
	var d row
	found := false
	err := tx.Each("SELECT "+columns+" FROM x_delivery WHERE event_id = ?", []any{eventID}, func(scan func(...any) error) error {
		var err error
		found = true
		d, err = scanRow(scan)
		return err
	})
	return d, found, err
}

// Of answers the delivery of an event; false when it has none.
func Of(tx *db.Tx, eventID int64) (store.Delivery, bool, error) {
	d, ok, err := load(tx, eventID)
	return d.Delivery, ok, err
}

// Head is the newest event that waits for delivery; 0 when none does.
func Head(tx *db.Tx) (int64, error) {
	var head int64
	_, err := tx.Row("SELECT COALESCE(MAX(event_id),0) FROM x_delivery WHERE state IN ('pending','sending')", nil, &head)
	return head, err
}

// Put makes the row of an event that the agent said just now. A thread without
// a channel skips it, so that a channel configured later does not send what was
// said before it.
func Put(tx *db.Tx, ev thread.Event, deliver, console bool, bootID string) error {
	now, state, channel := time.Now().UnixMilli(), store.DeliveryPending, ""
	switch {
	case !deliver:
		state = store.DeliverySkipped
	case console:
		state, channel = store.DeliverySent, "console"
	}
	if _, err := tx.Exec("INSERT INTO x_delivery(event_id, key, state, channel, boot_id, created_at, updated_at) VALUES(?,?,?,?,?,?,?)",
		ev.ID, ev.DeliveryKey(tx.UUID()), state, channel, bootID, now, now); err != nil {
		return err
	}
	if state == store.DeliveryPending {
		return nil
	}
	_, err := advance(tx)
	return err
}

// firstOpen is the first event after an id that is neither sent nor given up,
// whoever wrote it; 0 when there is none. What another program wrote counts where
// there is an outbound consumer: a thread without one talks to nobody. The unary
// plus keeps the walk on the ids: it starts near the head, where any other index
// would start at the front.
func firstOpen(tx *db.Tx, after int64) (int64, error) {
	var id int64
	_, err := tx.Row(`SELECT e.id FROM events e LEFT JOIN x_delivery d ON d.event_id = e.id
		WHERE e.id > ? AND +e.type = 'message' AND +e.source = 'self' AND (d.state IN ('pending','sending') OR d.state IS NULL AND EXISTS (SELECT 1 FROM subscriptions WHERE consumer_id = ?)) ORDER BY e.id LIMIT 1`, []any{after, thread.Outbound}, &id)
	return id, err
}

// nextOpen also sees dead letters that were made pending again below the ack.
func nextOpen(tx *db.Tx) (int64, error) {
	acked, err := advance(tx)
	if err != nil {
		return 0, err
	}
	var waiting int64
	if _, err := tx.Row("SELECT COALESCE(MIN(event_id),0) FROM x_delivery WHERE state IN ('pending','sending')", nil, &waiting); err != nil {
		return 0, err
	}
	if waiting != 0 && waiting <= acked {
		return waiting, nil
	}
	return firstOpen(tx, acked)
}

// advance moves the outbound ack to the end of the done prefix.
func advance(tx *db.Tx) (int64, error) {
	acked, err := consumer.Acked(tx, thread.Outbound)
	if err != nil {
		return 0, err
	}
	open, err := firstOpen(tx, acked)
	if err != nil {
		return acked, err
	}
	to := open - 1
	if open == 0 {
		if to, err = tx.Head(); err != nil {
			return acked, err
		}
	}
	if to <= acked {
		return acked, nil
	}
	return to, consumer.Ack(tx, thread.Outbound, to)
}

func dead(tx *db.Tx) (int64, error) {
	var n int64
	_, err := tx.Row("SELECT COUNT(*) FROM x_delivery WHERE state = 'dead' AND resolved = ''", nil, &n)
	return n, err
}
