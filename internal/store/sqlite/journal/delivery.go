package journal

import (
	"slices"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/machine"
	"github.com/theclaw/agents/internal/store/sqlite/consumer"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/thread"
)

const (
	deliveryColumns = "key, state, attempts, not_before, channel, provider_id, boot_id, crashes, error, maybe_duplicate, created_at, updated_at, resolved, parts, reach"

	// reported is the event committed under machine.ReportKey.
	reported = "COALESCE((SELECT event_id FROM x_dedupe WHERE key = 'delivery:' || x_delivery.key || ':err'), 0)"

	openDelivery = "state IN ('pending','sending')"
	deadDelivery = "state = 'dead' AND resolved = ''"

	// firstOpen are the messages of the agent after an id, but for one, that are neither
	// sent nor given up, whichever program wrote them. What another program wrote counts
	// where there is an outbound consumer: a thread without one sends nothing. The unary
	// plus keeps the scan on the ids: it starts near the head, where any other index
	// would start at the front.
	firstOpen = `SELECT e.id FROM events e LEFT JOIN x_delivery d ON d.event_id = e.id
		WHERE e.id > ? AND e.id <> ? AND +e.type = 'message' AND +e.source = 'self'
		AND (d.state IN ('pending','sending') OR d.state IS NULL AND EXISTS (SELECT 1 FROM subscriptions WHERE consumer_id = 'outbound')) ORDER BY e.id LIMIT ?`
)

func loadDeliveries(tx *db.Tx, n machine.Needs, t *machine.Thread) (err error) {
	if n.OpenHead {
		if _, err := tx.Row("SELECT COALESCE(MAX(event_id),0) FROM x_delivery WHERE "+openDelivery, nil, &t.OpenHead); err != nil {
			return err
		}
	}
	if n.FirstOpen {
		if t.Acked, err = consumer.Acked(tx, thread.Outbound); err != nil {
			return err
		}
		t.FirstOpen = 0
		if err := loadOpen(tx, n, t); err != nil {
			return err
		}
	}
	if n.Delivery != 0 {
		d, ok, err := delivery(tx, n.Delivery)
		if err != nil {
			return err
		}
		if ok {
			t.Deliveries = append(t.Deliveries, d)
		}
	}
	if n.Dead {
		_, err = tx.Row("SELECT COUNT(*) FROM x_delivery WHERE "+deadDelivery+" AND event_id <> ?", []any{n.Except}, &t.Dead)
	}
	return err
}

// loadOpen reads the first open event after the ack and, when asked, the first of all.
func loadOpen(tx *db.Tx, n machine.Needs, t *machine.Thread) error {
	var ids []int64
	add := func(scan func(...any) error) error {
		var id int64
		err := scan(&id)
		ids = append(ids, id)
		return err
	}
	if err := tx.Each(firstOpen, []any{t.Acked, n.Except, max(n.Due, 1)}, add); err != nil {
		return err
	}
	if len(ids) > 0 {
		t.FirstOpen = ids[0]
	}
	if n.Due == 0 {
		return nil
	}
	if err := tx.Each("SELECT event_id FROM x_delivery WHERE "+openDelivery+" ORDER BY event_id LIMIT ?", []any{n.Due}, add); err != nil {
		return err
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	for _, id := range ids[:min(n.Due, len(ids))] { // of two lists merged, so many are without a gap
		d, ok, err := delivery(tx, id)
		if err != nil {
			return err
		}
		d.Foreign = !ok
		if d.Event, _, err = tx.Event(id); err != nil {
			return err
		}
		if n.Runs {
			if _, err := tx.Row("SELECT key FROM x_turn WHERE reply_id = ?", []any{id}, &d.Run); err != nil {
				return err
			}
		}
		t.Deliveries = append(t.Deliveries, d)
	}
	return nil
}

// delivery reads the row of an event, and the event that reports its end.
func delivery(tx *db.Tx, eventID int64) (d machine.Delivery, ok bool, err error) {
	err = tx.Each("SELECT event_id, "+deliveryColumns+", "+reported+" FROM x_delivery WHERE event_id = ?", []any{eventID}, func(scan func(...any) error) error {
		ok = true
		d, err = scanDelivery(scan)
		return err
	})
	return d, ok, err
}

func scanDelivery(scan func(...any) error) (d machine.Delivery, err error) {
	var created, updated int64
	err = scan(&d.EventID, &d.Key, &d.State, &d.Attempts, &d.NotBefore, &d.Channel, &d.ProviderID, &d.BootID, &d.Crashes, &d.Error,
		&d.MaybeDuplicate, &created, &updated, &d.Resolved, &d.Parts, &d.Reach, &d.ErrorID)
	d.CreatedAt, d.UpdatedAt = store.FromMillis(created), store.FromMillis(updated)
	d.SetNextAt()
	return d, err
}

func saveDelivery(tx *db.Tx, d *machine.Delivery) (err error) {
	switch d.Change {
	case machine.Inserted:
		_, err = tx.Exec("INSERT INTO x_delivery("+deliveryColumns+", event_id) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
			d.Key, d.State, d.Attempts, d.NotBefore, d.Channel, d.ProviderID, d.BootID, d.Crashes, d.Error, d.MaybeDuplicate,
			store.Millis(d.CreatedAt), store.Millis(d.UpdatedAt), d.Resolved, d.Parts, d.Reach, d.EventID)
	case machine.Updated:
		_, err = tx.Exec(`UPDATE x_delivery SET state = ?, attempts = ?, not_before = ?, channel = ?, provider_id = ?, boot_id = ?, crashes = ?, error = ?,
			maybe_duplicate = ?, created_at = ?, updated_at = ?, resolved = ?, parts = ?, reach = ? WHERE event_id = ?`,
			d.State, d.Attempts, d.NotBefore, d.Channel, d.ProviderID, d.BootID, d.Crashes, d.Error, d.MaybeDuplicate,
			store.Millis(d.CreatedAt), store.Millis(d.UpdatedAt), d.Resolved, d.Parts, d.Reach, d.EventID)
	}
	return err
}

// Deliveries answers rows after an event id, oldest first; of one state without the dead
// letters that were resolved.
func Deliveries(tx *db.Tx, r store.Ref, state string, after int64, limit int) ([]store.Delivery, error) {
	var out []store.Delivery
	where, args := "event_id > ?", []any{after}
	if state != "" {
		where, args = where+" AND state = ? AND resolved = ''", append(args, state)
	}
	err := tx.Each("SELECT event_id, "+deliveryColumns+", 0 FROM x_delivery WHERE "+where+" ORDER BY event_id LIMIT ?", append(args, limit), func(scan func(...any) error) error {
		d, err := scanDelivery(scan)
		d.Thread = r.Thread
		out = append(out, d.Delivery)
		return err
	})
	return out, err
}

// OpenHead is the newest event that waits for delivery; 0 when none does.
func OpenHead(tx *db.Tx) (int64, error) {
	var t machine.Thread
	err := loadDeliveries(tx, machine.Needs{OpenHead: true}, &t)
	return t.OpenHead, err
}
