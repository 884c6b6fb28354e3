package sqlite

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/thread"
)

// Append commits events durably (T0).
func (e *Engine) Append(ctx context.Context, r store.Ref, events []store.NewEvent, o store.AppendOptions) (store.Appended, error) {
	var out store.Appended
	err := e.do(ctx, r, true, func(tx *db.Tx) error {
		out = store.Appended{}
		if o.Fence != nil {
			if err := e.fence(tx, *o.Fence); err != nil {
				return err
			}
		}
		if o.Key != "" {
			first, err := tx.Deduped("push:" + o.Key)
			if err != nil {
				return err
			}
			if first != 0 {
				return repeated(tx, first, events, &out)
			}
		}
		if err := checkDepth(tx, events[0].Source, o); err != nil {
			return err
		}
		for _, n := range events {
			ev, err := tx.Insert(n)
			if err != nil {
				return err
			}
			out.IDs = append(out.IDs, ev.ID)
		}
		if o.Key == "" {
			return nil
		}
		_, err := tx.Exec("INSERT INTO x_dedupe(key, event_id, token) VALUES(?,?,0)", "push:"+o.Key, out.IDs[0])
		return err
	})
	return out, err
}

// repeated answers the ids of the first push under a key. A push under the same
// key that says something else is a mistake of the caller, told and not stored.
func repeated(tx *db.Tx, first int64, events []store.NewEvent, out *store.Appended) error {
	out.Duplicate = true
	for i, n := range events {
		id := first + int64(i) // one transaction gives consecutive ids
		ev, ok, err := tx.Event(id)
		if err != nil {
			return err
		}
		if !ok || ev.Source != n.Source || ev.Type != n.Type || ev.Content != n.Content {
			return store.ErrKeyReused
		}
		out.IDs = append(out.IDs, id)
	}
	return nil
}

func checkDepth(tx *db.Tx, source string, o store.AppendOptions) error {
	if o.MaxPending <= 0 {
		return nil
	}
	acked, err := ackOf(tx, thread.Inbox)
	if err != nil {
		return err
	}
	head, err := tx.Head()
	if err != nil {
		return err
	}
	// Ids are dense, so the difference bounds the count; counting rows is only
	// needed when the bound is near.
	if head-acked >= o.MaxPending {
		return store.ErrInboxFull
	}
	if o.MaxPerPeer <= 0 || head-acked < o.MaxPerPeer {
		return nil
	}
	var n int64
	if _, err := tx.Row("SELECT COUNT(*) FROM events WHERE id > ? AND source = ?", []any{acked, source}, &n); err != nil {
		return err
	}
	if n >= o.MaxPerPeer {
		return store.ErrInboxFull
	}
	return nil
}

func ackOf(tx *db.Tx, consumer string) (int64, error) {
	var id int64
	_, err := tx.Row("SELECT id FROM x_ack WHERE consumer = ?", []any{consumer}, &id)
	return id, err
}

// setAck raises our ack and writes its mirror where the external tool looks.
func setAck(tx *db.Tx, consumer string, id int64) error {
	n, err := tx.Exec("INSERT INTO x_ack(consumer, id) VALUES(?,?) ON CONFLICT(consumer) DO UPDATE SET id = excluded.id WHERE excluded.id > id", consumer, id)
	if err != nil || n == 0 {
		return err
	}
	return mirrorAck(tx, consumer, id)
}

func mirrorAck(tx *db.Tx, consumer string, id int64) error {
	_, err := tx.Exec(`INSERT INTO consumer_progress(consumer_id, last_acked_id, updated_at) VALUES(?,?,?)
		ON CONFLICT(consumer_id) DO UPDATE SET last_acked_id = excluded.last_acked_id, updated_at = excluded.updated_at`,
		consumer, id, thread.Stamp(time.Now()))
	return err
}

// Read answers a page of events.
func (e *Engine) Read(ctx context.Context, r store.Ref, q store.Query) (store.Page, error) {
	var p store.Page
	err := e.view(ctx, r, func(tx *db.Tx) error {
		var err error
		p, err = read(tx, q)
		return err
	})
	return p, err
}

func read(tx *db.Tx, q store.Query) (store.Page, error) {
	var p store.Page
	var err error
	if p.Head, err = tx.Head(); err != nil {
		return p, err
	}
	where, args := "id > ?", []any{q.After}
	if q.Upto > 0 {
		where, args = where+" AND id <= ?", append(args, q.Upto)
	}
	if q.Filter != nil {
		cond, bound := q.Filter.Where()
		if cond != "" {
			where, args = where+" AND ("+cond+")", append(args, bound...)
		}
	}
	order := "ASC"
	if q.Tail {
		order = "DESC"
	}
	budget := q.MaxBytes
	if budget <= 0 {
		budget = thread.MaxAnswer
	}
	args = append(args, q.Limit+1)
	errFull := fmt.Errorf("page is full")
	err = tx.Each("SELECT "+db.Columns+" FROM events WHERE "+where+" ORDER BY id "+order+" LIMIT ?", args, func(scan func(...any) error) error {
		ev, err := db.Scan(scan)
		if err != nil {
			return err
		}
		if len(p.Events) == q.Limit || (len(p.Events) > 0 && ev.Size() > budget) {
			p.More = true
			return errFull
		}
		budget -= ev.Size()
		p.Events = append(p.Events, ev)
		return nil
	})
	if p.More {
		err = nil
	}
	if q.Tail {
		slices.Reverse(p.Events)
	}
	return p, err
}

// Info describes a thread.
func (e *Engine) Info(ctx context.Context, r store.Ref) (store.Info, error) {
	var in store.Info
	err := e.view(ctx, r, func(tx *db.Tx) error {
		in = store.Info{UUID: tx.UUID()}
		if _, err := tx.Row("SELECT COUNT(*), COALESCE(MAX(id),0), COALESCE((SELECT created_at FROM events ORDER BY id DESC LIMIT 1),'') FROM events", nil, &in.Count, &in.Head, &in.LastAt); err != nil {
			return err
		}
		return tx.Each(`SELECT s.consumer_id, s.handler_cmd, s.filter, COALESCE(p.last_acked_id,0), COALESCE(p.updated_at,'')
			FROM subscriptions s LEFT JOIN consumer_progress p USING(consumer_id) ORDER BY s.rowid`, nil, func(scan func(...any) error) error {
			var s store.Subscription
			if err := scan(&s.Consumer, &s.Handler, &s.Filter, &s.Acked, &s.UpdatedAt); err != nil {
				return err
			}
			in.Subscriptions = append(in.Subscriptions, s)
			return nil
		})
	})
	return in, err
}

// Subscribe adds a consumer.
func (e *Engine) Subscribe(ctx context.Context, r store.Ref, s store.Subscription) error {
	return e.do(ctx, r, true, func(tx *db.Tx) error {
		n, err := tx.Exec("INSERT OR IGNORE INTO subscriptions(consumer_id, handler_cmd, filter) VALUES(?,?,?)", s.Consumer, s.Handler, s.Filter)
		if err == nil && n == 0 {
			return store.ErrConsumerExists
		}
		return err
	})
}

// Unsubscribe removes a consumer and keeps its progress.
func (e *Engine) Unsubscribe(ctx context.Context, r store.Ref, consumer string) error {
	return e.do(ctx, r, true, func(tx *db.Tx) error {
		n, err := tx.Exec("DELETE FROM subscriptions WHERE consumer_id = ?", consumer)
		if err == nil && n == 0 {
			return store.ErrNoConsumer
		}
		return err
	})
}

// Ack moves a consumer's mirror progress. Our own acks are x_ack and are not
// touched here, so a foreign pop changes nothing for us.
func (e *Engine) Ack(ctx context.Context, r store.Ref, consumer string, id int64, forward bool) (int64, error) {
	var now int64
	err := e.do(ctx, r, false, func(tx *db.Tx) error {
		var one int
		ok, err := tx.Row("SELECT 1 FROM subscriptions WHERE consumer_id = ?", []any{consumer}, &one)
		if err != nil {
			return err
		}
		if !ok {
			return store.ErrNoConsumer
		}
		if _, err := tx.Row("SELECT last_acked_id FROM consumer_progress WHERE consumer_id = ?", []any{consumer}, &now); err != nil {
			return err
		}
		if forward && id <= now {
			return nil
		}
		now = id
		return mirrorAck(tx, consumer, id)
	})
	return now, err
}

// upsertSubscription keeps one of our own consumers as it must be.
func upsertSubscription(tx *db.Tx, consumer, handler string, filter *string) error {
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
