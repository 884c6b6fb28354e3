package sqlite

import (
	"context"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/thread"
)

// maxDeliveryCrashes bounds how often a send that kills its process is begun.
const maxDeliveryCrashes = 10

type deliveryRow struct {
	store.Delivery
	bootID    string
	notBefore int64
	crashes   int
	created   int64
}

const deliveryColumns = "event_id, key, state, attempts, not_before, channel, provider_id, boot_id, crashes, error, maybe_duplicate, created_at, updated_at, resolved"

func scanDelivery(scan func(...any) error) (deliveryRow, error) {
	var d deliveryRow
	var updated int64
	err := scan(&d.EventID, &d.Key, &d.State, &d.Attempts, &d.notBefore, &d.Channel, &d.ProviderID, &d.bootID, &d.crashes, &d.Error, &d.MaybeDuplicate, &d.created, &updated, &d.Resolved)
	d.CreatedAt, d.UpdatedAt = store.FromMillis(d.created), store.FromMillis(updated)
	if d.State == store.DeliveryPending {
		d.NextAt = store.FromMillis(d.notBefore)
	}
	return d, err
}

func loadDelivery(tx *db.Tx, eventID int64) (deliveryRow, bool, error) {
	var d deliveryRow
	found := false
	err := tx.Each("SELECT "+deliveryColumns+" FROM x_delivery WHERE event_id = ?", []any{eventID}, func(scan func(...any) error) error {
		var err error
		found = true
		d, err = scanDelivery(scan)
		return err
	})
	return d, found, err
}

func deliveryOf(tx *db.Tx, eventID int64) (store.Delivery, bool, error) {
	d, ok, err := loadDelivery(tx, eventID)
	return d.Delivery, ok, err
}

// firstOpen is the first event after an id that is neither sent nor given up,
// whoever wrote it; 0 when there is none. The unary plus keeps the walk on the
// ids: it starts near the head, where any other index would start at the front.
func firstOpen(tx *db.Tx, after int64) (int64, error) {
	var id int64
	_, err := tx.Row(`SELECT e.id FROM events e LEFT JOIN x_delivery d ON d.event_id = e.id
		WHERE e.id > ? AND +e.type = 'message' AND +e.source = 'self' AND (d.state IS NULL OR d.state IN ('pending','sending')) ORDER BY e.id LIMIT 1`, []any{after}, &id)
	return id, err
}

// nextOpen also sees dead letters that were made pending again below the ack.
func nextOpen(tx *db.Tx) (int64, error) {
	acked, err := ackOf(tx, thread.Outbound)
	if err != nil {
		return 0, err
	}
	var retried int64
	if _, err := tx.Row("SELECT COALESCE(MIN(event_id),0) FROM x_delivery WHERE state IN ('pending','sending')", nil, &retried); err != nil {
		return 0, err
	}
	if retried != 0 && retried <= acked {
		return retried, nil
	}
	return firstOpen(tx, acked)
}

// advanceOutbound moves the outbound ack to the end of the done prefix.
func advanceOutbound(tx *db.Tx) (int64, error) {
	acked, err := ackOf(tx, thread.Outbound)
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
	return to, setAck(tx, thread.Outbound, to)
}

func deadDeliveries(tx *db.Tx) (int64, error) {
	var n int64
	_, err := tx.Row("SELECT COUNT(*) FROM x_delivery WHERE state = 'dead' AND resolved = ''", nil, &n)
	return n, err
}

// NextDelivery answers the first undelivered event and counts the attempt (D1).
func (e *Engine) NextDelivery(ctx context.Context, r store.Ref, f store.Fence, n store.NextDelivery) (store.DueDelivery, error) {
	var out store.DueDelivery
	err := e.do(ctx, r, false, func(tx *db.Tx) error {
		out = store.DueDelivery{}
		if err := e.fence(tx, f); err != nil {
			return err
		}
		for out.Outcome == 0 {
			if err := nextDelivery(tx, f, n, &out); err != nil {
				return err
			}
		}
		var err error
		if out.Acked, err = advanceOutbound(tx); err != nil {
			return err
		}
		out.Dead, err = deadDeliveries(tx)
		return err
	})
	return out, err
}

// nextDelivery looks at one event; it leaves the outcome open when that event
// is dead now and the next one must be looked at.
func nextDelivery(tx *db.Tx, f store.Fence, n store.NextDelivery, out *store.DueDelivery) error {
	id, err := nextOpen(tx)
	if err != nil {
		return err
	}
	if id == 0 {
		out.Outcome = store.DueIdle
		return nil
	}
	d, err := ensureDelivery(tx, id, n.BootID)
	if err != nil {
		return err
	}
	now := time.Now()
	// A send may have left when the row says so, and also when a power cut may
	// have taken the row's last state with it.
	crashed := d.State == store.DeliverySending
	duplicate := d.MaybeDuplicate || crashed || (d.bootID != "" && d.bootID != n.BootID)
	switch {
	case n.MaxAge > 0 && now.Sub(d.CreatedAt) > n.MaxAge:
		return giveUp(tx, f, d, "not delivered within "+n.MaxAge.String())
	case d.crashes >= maxDeliveryCrashes:
		return giveUp(tx, f, d, "the process died each time this was sent")
	case d.State == store.DeliveryPending && d.notBefore > now.UnixMilli():
		out.Outcome, out.Wait = store.DueWait, time.Duration(d.notBefore-now.UnixMilli())*time.Millisecond
		return nil
	}
	out.Outcome, out.Key, out.Attempt, out.MaybeDuplicate = store.DueSend, d.Key, d.Attempts+1, duplicate
	if crashed {
		out.Attempt = max(d.Attempts, 1) // the same try again: a crash spends none
	}
	if out.Event, _, err = tx.Event(id); err != nil || n.Peek {
		return err
	}
	crashes := d.crashes
	if crashed {
		crashes++
	}
	_, err = tx.Exec("UPDATE x_delivery SET state = 'sending', attempts = ?, crashes = ?, boot_id = ?, maybe_duplicate = ?, updated_at = ? WHERE event_id = ?",
		out.Attempt, crashes, n.BootID, duplicate, now.UnixMilli(), id)
	return err
}

// ensureDelivery answers the row of an event, and makes it for an event that
// another program wrote as the agent.
func ensureDelivery(tx *db.Tx, id int64, bootID string) (deliveryRow, error) {
	d, ok, err := loadDelivery(tx, id)
	if err != nil || ok {
		return d, err
	}
	ev, _, err := tx.Event(id)
	if err != nil {
		return d, err
	}
	now := time.Now().UnixMilli()
	if _, err := tx.Exec("INSERT INTO x_delivery(event_id, key, state, boot_id, created_at, updated_at) VALUES(?,?,?,?,?,?)",
		id, ev.DeliveryKey(tx.UUID()), store.DeliveryPending, bootID, now, now); err != nil {
		return d, err
	}
	d, _, err = loadDelivery(tx, id)
	return d, err
}

// giveUp makes a delivery a dead letter (D4); the next event goes on.
func giveUp(tx *db.Tx, f store.Fence, d deliveryRow, why string) error {
	if _, err := tx.Exec("UPDATE x_delivery SET state = 'dead', error = ?, not_before = 0, resolved = '', updated_at = ? WHERE event_id = ?",
		why, time.Now().UnixMilli(), d.EventID); err != nil {
		return err
	}
	content := append([]byte(`{"error":`), thread.AppendString(nil, why)...)
	content = append(append(content, `,"context":`...), thread.AppendString(nil, "delivery "+d.Key)...)
	sub := thread.SubtypeError
	_, _, err := tx.InsertOnce("delivery:"+d.Key+":err", f.Token, store.NewEvent{Source: thread.SourceSelf, Type: thread.TypeRecord, Subtype: &sub, Content: string(append(content, '}'))})
	return err
}

// FinishDelivery records what became of a send (D3, D4).
func (e *Engine) FinishDelivery(ctx context.Context, r store.Ref, f store.Fence, fin store.FinishDelivery) (store.Delivery, error) {
	var out store.Delivery
	err := e.do(ctx, r, false, func(tx *db.Tx) error {
		if err := e.fence(tx, f); err != nil {
			return err
		}
		d, ok, err := loadDelivery(tx, fin.EventID)
		if err != nil {
			return err
		}
		if !ok {
			return store.ErrNoDelivery
		}
		if d.State == store.DeliverySending {
			if err := settleDelivery(tx, f, d, fin); err != nil {
				return err
			}
		}
		out, err = report(tx, r, fin.EventID)
		return err
	})
	return out, err
}

func settleDelivery(tx *db.Tx, f store.Fence, d deliveryRow, fin store.FinishDelivery) error {
	now := time.Now()
	put := func(state string, attempts int, wait time.Duration) error {
		notBefore := int64(0)
		if wait > 0 {
			notBefore = now.Add(wait).UnixMilli()
		}
		_, err := tx.Exec("UPDATE x_delivery SET state = ?, attempts = ?, not_before = ?, channel = ?, provider_id = ?, error = ?, updated_at = ? WHERE event_id = ?",
			state, attempts, notBefore, fin.Channel, fin.ProviderID, fin.Error, now.UnixMilli(), d.EventID)
		return err
	}
	switch fin.Outcome {
	case store.OutcomeSent:
		return put(store.DeliverySent, d.Attempts, 0)
	case store.OutcomeSkipped:
		return put(store.DeliverySkipped, d.Attempts, 0)
	case store.OutcomeUnavailable: // the channel is down: nobody's attempt
		return put(store.DeliveryPending, max(d.Attempts-1, 0), fin.RetryAfter)
	case store.OutcomeFailed:
		if d.Attempts < fin.MaxAttempts {
			wait := store.DeliveryWaits[min(d.Attempts, len(store.DeliveryWaits))-1]
			return put(store.DeliveryPending, d.Attempts, max(wait, fin.RetryAfter))
		}
	}
	if err := put(store.DeliverySending, d.Attempts, 0); err != nil { // keeps channel and error
		return err
	}
	return giveUp(tx, f, d, fin.Error)
}

func report(tx *db.Tx, r store.Ref, eventID int64) (store.Delivery, error) {
	acked, err := advanceOutbound(tx)
	if err != nil {
		return store.Delivery{}, err
	}
	d, _, err := deliveryOf(tx, eventID)
	if err != nil {
		return d, err
	}
	d.Thread, d.Acked = r.Thread, acked
	d.Dead, err = deadDeliveries(tx)
	return d, err
}

// ListDeliveries answers rows after an event id, oldest first.
func (e *Engine) ListDeliveries(ctx context.Context, r store.Ref, state string, after int64, limit int) ([]store.Delivery, error) {
	var out []store.Delivery
	err := e.view(ctx, r, func(tx *db.Tx) error {
		where, args := "event_id > ?", []any{after}
		if state != "" {
			where, args = where+" AND state = ? AND resolved = ''", append(args, state)
		}
		return tx.Each("SELECT "+deliveryColumns+" FROM x_delivery WHERE "+where+" ORDER BY event_id LIMIT ?", append(args, limit), func(scan func(...any) error) error {
			d, err := scanDelivery(scan)
			d.Thread = r.Thread
			out = append(out, d.Delivery)
			return err
		})
	})
	return out, err
}

// ResolveDelivery retries or drops a dead delivery.
func (e *Engine) ResolveDelivery(ctx context.Context, r store.Ref, eventID int64, how string) (store.Delivery, error) {
	var out store.Delivery
	err := e.do(ctx, r, true, func(tx *db.Tx) error {
		d, ok, err := loadDelivery(tx, eventID)
		if err != nil {
			return err
		}
		if !ok {
			return store.ErrNoDelivery
		}
		if d.State != store.DeliveryDead {
			return store.ErrNotDead
		}
		now := time.Now().UnixMilli()
		if how == "retried" {
			_, err = tx.Exec("UPDATE x_delivery SET state = 'pending', attempts = 0, crashes = 0, not_before = 0, created_at = ?, updated_at = ?, resolved = '' WHERE event_id = ?", now, now, eventID)
		} else {
			_, err = tx.Exec("UPDATE x_delivery SET resolved = ?, updated_at = ? WHERE event_id = ?", how, now, eventID)
		}
		if err != nil {
			return err
		}
		out, err = report(tx, r, eventID)
		return err
	})
	return out, err
}
