// Package consumer stores the subscriptions of a thread and their progress, in the tables
// of the external tool and in x_ack, which is ours.
//
// x_ack decides for our own consumers, inbox and outbound; it only rises. The
// external tool's consumer_progress is written as its mirror, and a foreign pop
// that moves the mirror, forwards or backwards, changes nothing for us.
package consumer

import (
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/thread"
)

// Acked is our own ack of a consumer, 0 when it never acked.
func Acked(tx *db.Tx, consumer string) (int64, error) {
	var id int64
	_, err := tx.Row("SELECT id FROM x_ack WHERE consumer = ?", []any{consumer}, &id)
	return id, err
}

// Ack raises our ack and writes its mirror where the external tool looks.
func Ack(tx *db.Tx, consumer string, id int64) error {
	n, err := tx.Exec("INSERT INTO x_ack(consumer, id) VALUES(?,?) ON CONFLICT(consumer) DO UPDATE SET id = excluded.id WHERE excluded.id > id", consumer, id)
	if err != nil || n == 0 {
		return err
	}
	return put(tx, consumer, id)
}

func put(tx *db.Tx, consumer string, id int64) error {
	_, err := tx.Exec(`INSERT INTO consumer_progress(consumer_id, last_acked_id, updated_at) VALUES(?,?,?)
		ON CONFLICT(consumer_id) DO UPDATE SET last_acked_id = excluded.last_acked_id, updated_at = excluded.updated_at`,
		consumer, id, thread.Stamp(time.Now()))
	return err
}

// Move sets a consumer's progress as the external pop does, back too unless
// forward, and answers where it stands. Our own acks are not touched.
func Move(tx *db.Tx, consumer string, id int64, forward bool) (int64, error) {
	var one int
	ok, err := tx.Row("SELECT 1 FROM subscriptions WHERE consumer_id = ?", []any{consumer}, &one)
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, store.ErrNoConsumer
	}
	var now int64
	if _, err := tx.Row("SELECT last_acked_id FROM consumer_progress WHERE consumer_id = ?", []any{consumer}, &now); err != nil {
		return 0, err
	}
	if forward && id <= now {
		return now, nil
	}
	return id, put(tx, consumer, id)
}

// Subscribe adds a consumer; store.ErrConsumerExists.
func Subscribe(tx *db.Tx, s store.Subscription) error {
	n, err := tx.Exec("INSERT OR IGNORE INTO subscriptions(consumer_id, handler_cmd, filter) VALUES(?,?,?)", s.Consumer, s.Handler, s.Filter)
	if err == nil && n == 0 {
		return store.ErrConsumerExists
	}
	return err
}

// Unsubscribe removes a consumer and keeps its progress; store.ErrNoConsumer.
func Unsubscribe(tx *db.Tx, consumer string) error {
	n, err := tx.Exec("DELETE FROM subscriptions WHERE consumer_id = ?", consumer)
	if err == nil && n == 0 {
		return store.ErrNoConsumer
	}
	return err
}

// Keep makes one of our own subscriptions as it must be; nothing is written
// when it is.
func Keep(tx *db.Tx, consumer, handler string, filter *string) error {
	var h string
	var f *string
	ok, err := tx.Row("SELECT handler_cmd, filter FROM subscriptions WHERE consumer_id = ?", []any{consumer}, &h, &f)
	if err != nil {
		return err
	}
	if ok && h == handler && (f == nil) == (filter == nil) && (f == nil || *f == *filter) {
		return nil
	}
	_, err = tx.Exec("INSERT INTO subscriptions(consumer_id, handler_cmd, filter) VALUES(?,?,?) ON CONFLICT(consumer_id) DO UPDATE SET handler_cmd = excluded.handler_cmd, filter = excluded.filter", consumer, handler, filter)
	return err
}

// List answers the subscriptions in the order they were made.
func List(tx *db.Tx) ([]store.Subscription, error) {
	var out []store.Subscription
	err := tx.Each(`SELECT s.consumer_id, s.handler_cmd, s.filter, COALESCE(p.last_acked_id,0), COALESCE(p.updated_at,'')
		FROM subscriptions s LEFT JOIN consumer_progress p USING(consumer_id) ORDER BY s.rowid`, nil, func(scan func(...any) error) error {
		var s store.Subscription
		err := scan(&s.Consumer, &s.Handler, &s.Filter, &s.Acked, &s.UpdatedAt)
		out = append(out, s)
		return err
	})
	return out, err
}
