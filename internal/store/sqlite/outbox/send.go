package outbox

import (
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/thread"
)

// Next answers the first undelivered event and counts the attempt (D1).
func Next(tx *db.Tx, f store.Fence, n store.NextDelivery) (store.DueDelivery, error) {
	var out store.DueDelivery
	for out.Outcome == 0 {
		if err := next(tx, f, n, &out); err != nil {
			return out, err
		}
	}
	var err error
	if out.Acked, err = advance(tx); err != nil {
		return out, err
	}
	out.Dead, err = dead(tx)
	return out, err
}

// next looks at one event; it leaves the outcome open when that event
// is dead now and the next one must be looked at.
func next(tx *db.Tx, f store.Fence, n store.NextDelivery, out *store.DueDelivery) error {
	id, err := nextOpen(tx)
	if err != nil {
		return err
	}
	if id == 0 {
		out.Outcome = store.DueIdle
		return nil
	}
	d, err := ensure(tx, id, n.BootID)
	if err != nil {
		return err
	}
	now := time.Now()
	// A send may have left when the row says so, and also when a power cut may
	// have taken the row's last state with it.
	crashed := d.State == store.DeliverySending
	duplicate := d.MaybeDuplicate || crashed || (d.bootID != "" && d.bootID != n.BootID)
	switch {
	case !crashed && n.MaxAttempts > 0 && d.Attempts >= n.MaxAttempts: // the limit was lowered
		return giveUp(tx, f, d, d.Error)
	case n.MaxAge > 0 && now.Sub(d.CreatedAt) > n.MaxAge:
		return giveUp(tx, f, d, "not delivered within "+n.MaxAge.String())
	case d.crashes >= maxCrashes:
		return giveUp(tx, f, d, "the process died each time this was sent")
	case d.State == store.DeliveryPending && d.notBefore > now.UnixMilli():
		out.Outcome, out.Wait = store.DueWait, time.Duration(d.notBefore-now.UnixMilli())*time.Millisecond
		return nil
	}
	out.Outcome, out.Key, out.Attempt, out.MaybeDuplicate = store.DueSend, d.Key, d.Attempts+1, duplicate
	out.Parts, out.Reach = d.Parts, d.Reach
	if crashed {
		out.Attempt = max(d.Attempts, 1) // the same try again: a crash spends none
	}
	if out.Event, _, err = tx.Event(id); err != nil || n.Peek {
		return err
	}
	if n.WithRun {
		if _, err := tx.Row("SELECT key FROM x_turn WHERE reply_id = ?", []any{id}, &out.Run); err != nil {
			return err
		}
	}
	crashes := d.crashes
	if crashed {
		crashes++
	}
	_, err = tx.Exec("UPDATE x_delivery SET state = 'sending', attempts = ?, crashes = ?, boot_id = ?, maybe_duplicate = ?, updated_at = ? WHERE event_id = ?",
		out.Attempt, crashes, n.BootID, duplicate, now.UnixMilli(), id)
	return err
}

// ensure answers the row of an event, and makes it for an event that
// another program wrote as the agent.
func ensure(tx *db.Tx, id int64, bootID string) (row, error) {
	d, ok, err := load(tx, id)
	if err != nil || ok {
		return d, err
	}
	ev, _, err := tx.Event(id)
	if err != nil {
		return d, err
	}
	now := time.Now().UnixMilli()
	said := now // its age counts from when it was said, not from when we saw it
	if at := thread.ParseStamp(ev.CreatedAt); !at.IsZero() {
		said = min(now, at.UnixMilli())
	}
	if _, err := tx.Exec("INSERT INTO x_delivery(event_id, key, state, boot_id, created_at, updated_at) VALUES(?,?,?,?,?,?)",
		id, ev.DeliveryKey(tx.UUID()), store.DeliveryPending, bootID, said, now); err != nil {
		return d, err
	}
	d, _, err = load(tx, id)
	return d, err
}

// giveUp makes a delivery a dead letter (D4); the next event goes on.
func giveUp(tx *db.Tx, f store.Fence, d row, why string) error {
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

// Finish records what became of a send (D3, D4); a send that was recorded stays
// as it is.
func Finish(tx *db.Tx, r store.Ref, f store.Fence, fin store.FinishDelivery) (store.Delivery, error) {
	d, ok, err := load(tx, fin.EventID)
	if err != nil {
		return store.Delivery{}, err
	}
	if !ok {
		return store.Delivery{}, store.ErrNoDelivery
	}
	if d.State == store.DeliverySending {
		if err := settle(tx, f, d, fin); err != nil {
			return store.Delivery{}, err
		}
	}
	return report(tx, r, fin.EventID)
}

func settle(tx *db.Tx, f store.Fence, d row, fin store.FinishDelivery) error {
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
	case store.OutcomePart: // progress: what failed before is not what is left
		if fin.Parts <= d.Parts {
			return nil // the answer was lost, not the part
		}
		_, err := tx.Exec("UPDATE x_delivery SET attempts = 1, crashes = 0, parts = ?, reach = ?, channel = ?, provider_id = ?, error = '', updated_at = ? WHERE event_id = ?",
			fin.Parts, fin.Reach, fin.Channel, fin.ProviderID, now.UnixMilli(), d.EventID)
		return err
	case store.OutcomeUnavailable: // the channel is down: nobody's attempt
		return put(store.DeliveryPending, max(d.Attempts-1, 0), fin.RetryAfter)
	case store.OutcomeFailed:
		if d.Attempts < fin.MaxAttempts {
			waits := fin.Waits
			if len(waits) == 0 {
				waits = store.DeliveryWaits
			}
			wait := waits[min(d.Attempts, len(waits))-1]
			return put(store.DeliveryPending, d.Attempts, max(wait, fin.RetryAfter))
		}
	}
	if err := put(store.DeliverySending, d.Attempts, 0); err != nil { // keeps channel and error
		return err
	}
	return giveUp(tx, f, d, fin.Error)
}

func report(tx *db.Tx, r store.Ref, eventID int64) (store.Delivery, error) {
	acked, err := advance(tx)
	if err != nil {
		return store.Delivery{}, err
	}
	d, _, err := Of(tx, eventID)
	if err != nil {
		return d, err
	}
	d.Thread, d.Acked = r.Thread, acked
	d.Dead, err = dead(tx)
	return d, err
}

// List answers rows after an event id, oldest first; of one state without the
// dead letters that were resolved.
func List(tx *db.Tx, r store.Ref, state string, after int64, limit int) ([]store.Delivery, error) {
	var out []store.Delivery
	where, args := "event_id > ?", []any{after}
	if state != "" {
		where, args = where+" AND state = ? AND resolved = ''", append(args, state)
	}
	err := tx.Each("SELECT "+columns+" FROM x_delivery WHERE "+where+" ORDER BY event_id LIMIT ?", append(args, limit), func(scan func(...any) error) error {
		d, err := scanRow(scan)
		d.Thread = r.Thread
		out = append(out, d.Delivery)
		return err
	})
	return out, err
}

// Resolve retries or drops a dead delivery.
func Resolve(tx *db.Tx, r store.Ref, eventID int64, how string) (store.Delivery, error) {
	d, ok, err := load(tx, eventID)
	switch {
	case err != nil:
		return store.Delivery{}, err
	case !ok:
		return store.Delivery{}, store.ErrNoDelivery
	case d.State != store.DeliveryDead:
		return store.Delivery{}, store.ErrNotDead
	}
	now := time.Now().UnixMilli()
	if how == "retried" {
		_, err = tx.Exec("UPDATE x_delivery SET state = 'pending', attempts = 0, crashes = 0, not_before = 0, created_at = ?, updated_at = ?, resolved = '' WHERE event_id = ?", now, now, eventID)
	} else {
		_, err = tx.Exec("UPDATE x_delivery SET resolved = ?, updated_at = ? WHERE event_id = ?", how, now, eventID)
	}
	if err != nil {
		return store.Delivery{}, err
	}
	return report(tx, r, eventID)
}
