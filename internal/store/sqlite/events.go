package sqlite

import (
	"context"
	"errors"
	"slices"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/consumer"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/sqlite/journal"
	"github.com/theclaw/agents/internal/thread"
)

// Append commits events durably (T0).
func (e *Engine) Append(ctx context.Context, r store.Ref, events []store.NewEvent, o store.AppendOptions) (store.Appended, error) {
	var out store.Appended
	if len(events) == 0 {
		return out, nil
	}
	err := e.do(ctx, r, true, func(tx *db.Tx) error {
		if o.Fence != nil {
			if err := e.fence(tx, *o.Fence); err != nil {
				return err
			}
		}
		if o.Reader != nil { // in the transaction: what the next holder stores comes after it
			if err := e.live(*o.Reader); err != nil {
				return err
			}
		}
		list, duplicate, err := appendOnce(tx, r.IsInbox(), events, o)
		if err != nil {
			return err
		}
		out, err = appended(tx, r, list, duplicate)
		return err
	})
	return out, err
}

// appended describes events that were stored.
func appended(tx *db.Tx, r store.Ref, list []thread.Event, duplicate bool) (store.Appended, error) {
	out := store.Appended{At: thread.ParseStamp(list[0].CreatedAt), Duplicate: duplicate}
	for _, e := range list {
		out.IDs = append(out.IDs, e.ID)
		if r.IsInbox() {
			key, err := tx.KeyOf(e)
			if err != nil {
				return store.Appended{}, err
			}
			origin, err := journal.Origin(tx, e.ID)
			if err != nil {
				return store.Appended{}, err
			}
			out.Keys, out.Origins = append(out.Keys, key), append(out.Origins, origin)
		}
	}
	return out, nil
}

// Pushed answers what the push under a key did; false: there was none.
func (e *Engine) Pushed(ctx context.Context, r store.Ref, key string) (out store.Appended, found bool, err error) {
	if key == "" {
		return out, false, nil
	}
	err = e.pool.View(ctx, r, func(tx *db.Tx) error {
		list, err := pushed(tx, key)
		if err != nil || len(list) == 0 {
			return err
		}
		found = true
		out, err = appended(tx, r, list, true)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return out, false, nil
	}
	return out, found && err == nil, err
}

// pushed are the events of the push under a key.
func pushed(tx *db.Tx, key string) (out []thread.Event, err error) {
	first, err := tx.Deduped(firstOf + key)
	if err != nil || first == 0 {
		return nil, err
	}
	last, err := tx.Deduped(lastOf + key)
	if err != nil {
		return nil, err
	}
	// One transaction gives consecutive ids.
	err = tx.Events("SELECT "+db.Columns+" FROM events WHERE id >= ? AND id <= ? ORDER BY id", []any{first, max(first, last)}, func(e thread.Event) error {
		out = append(out, e)
		return nil
	})
	return out, err
}

// A push is remembered by its first event, and by its last when it has several.
const (
	firstOf = "push:"
	lastOf  = "push-end:"
)

func appendOnce(tx *db.Tx, inbox bool, events []store.NewEvent, o store.AppendOptions) (list []thread.Event, duplicate bool, err error) {
	if o.Key != "" {
		first, err := tx.Deduped(firstOf + o.Key)
		if err != nil {
			return nil, false, err
		}
		if first != 0 {
			list, err = repeated(tx, first, events, o.Key)
			return list, true, err
		}
	}
	if err := checkDepth(tx, events[0].Source, o); err != nil {
		return nil, false, err
	}
	for _, n := range events {
		ev, err := tx.Insert(n)
		if err != nil {
			return nil, false, err
		}
		list = append(list, ev)
		if n.Origin != nil && inbox {
			if err := journal.SaveOrigin(tx, ev.ID, *n.Origin); err != nil {
				return nil, false, err
			}
		}
	}
	if o.Key == "" {
		return list, false, nil
	}
	if err := tx.Dedupe(firstOf+o.Key, list[0].ID, 0); err != nil {
		return list, false, err
	}
	for _, key := range o.PartKeys {
		if err := tx.DedupeNew(firstOf+key, list[0].ID); err != nil {
			return list, false, err
		}
	}
	if len(events) == 1 {
		return list, false, nil
	}
	return list, false, tx.Dedupe(lastOf+o.Key, list[len(list)-1].ID, 0)
}

// repeated answers the events of the first push under a key. A push under the same
// key that says something else is a mistake of the caller, reported and not stored.
func repeated(tx *db.Tx, first int64, events []store.NewEvent, key string) ([]thread.Event, error) {
	var out []thread.Event
	last, err := tx.Deduped(lastOf + key)
	if err != nil {
		return nil, err
	}
	if max(first, last)-first+1 != int64(len(events)) { // one transaction gives consecutive ids
		return nil, store.ErrKeyReused
	}
	for i, n := range events {
		ev, ok, err := tx.Event(first + int64(i))
		if err != nil {
			return nil, err
		}
		if !ok || ev.Source != n.Source || ev.Type != n.Type || ev.Content != n.Content ||
			(ev.Subtype == nil) != (n.Subtype == nil) || (n.Subtype != nil && *n.Subtype != *ev.Subtype) {
			return nil, store.ErrKeyReused
		}
		out = append(out, ev)
	}
	return out, nil
}

// checkDepth refuses a push to a full inbox. Counting is only needed when the
// bound is near: no more events wait than there are ids after the ack.
func checkDepth(tx *db.Tx, source string, o store.AppendOptions) error {
	if o.MaxPending <= 0 && o.MaxPerPeer <= 0 {
		return nil
	}
	acked, err := consumer.Acked(tx, thread.Inbox)
	if err != nil {
		return err
	}
	head, err := tx.Head()
	if err != nil {
		return err
	}
	for _, bound := range []struct {
		most   int64
		source string
		over   error
	}{{o.MaxPending, "", store.ErrInboxFull}, {o.MaxPerPeer, source, store.ErrPeerFull}} {
		if bound.most <= 0 || head-acked < bound.most {
			continue
		}
		n, err := journal.Waiting(tx, acked, bound.source)
		if err != nil {
			return err
		}
		if n >= bound.most {
			return bound.over
		}
	}
	return nil
}

// Read answers a page of events.
func (e *Engine) Read(ctx context.Context, r store.Ref, q store.Query) (store.Page, error) {
	return view(ctx, e, r, func(tx *db.Tx) (store.Page, error) { return read(tx, q) })
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
	errFull := errors.New("page is full")
	err = tx.Events("SELECT "+db.Columns+" FROM events WHERE "+where+" ORDER BY id "+order+" LIMIT ?", args, func(ev thread.Event) error {
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
	return view(ctx, e, r, describe)
}

// Subscriptions answers the consumers in the order they were made.
func (e *Engine) Subscriptions(ctx context.Context, r store.Ref) ([]store.Subscription, error) {
	return view(ctx, e, r, consumer.List)
}

// Subscribe adds a consumer. Who subscribes the agent to its inbox before anybody has said
// whether it shall work says so with it.
func (e *Engine) Subscribe(ctx context.Context, r store.Ref, s store.Subscription) error {
	return e.do(ctx, r, true, func(tx *db.Tx) error {
		if err := consumer.Subscribe(tx, s); err != nil || !r.IsInbox() || s.Consumer != thread.Inbox {
			return err
		}
		_, err := tx.Exec("UPDATE x_meta SET desired = 'started' WHERE desired = ''")
		return err
	})
}

// Unsubscribe removes a consumer and keeps its progress.
func (e *Engine) Unsubscribe(ctx context.Context, r store.Ref, name string) error {
	return e.do(ctx, r, true, func(tx *db.Tx) error { return consumer.Unsubscribe(tx, name) })
}

// Ack moves a consumer's progress as the external pop does; what our own
// consumers have acked is not touched.
func (e *Engine) Ack(ctx context.Context, r store.Ref, name string, id int64, forward bool) (int64, error) {
	var now int64
	err := e.do(ctx, r, false, func(tx *db.Tx) error {
		var err error
		now, err = consumer.Move(tx, name, id, forward)
		return err
	})
	return now, err
}
