package sqlite

import (
	"context"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/consumer"
	"github.com/theclaw/agents/internal/store/sqlite/db"
)

// Guest is one thread directory, opened as the external tool opens it: any
// number of programs may do so at once, also while the owner does. Only the tables of
// that tool are read and written. Errors are those of the storage contract.
type Guest struct{ d *db.DB }

// OpenGuest opens the thread at dir; Close ends it. A directory that is no
// thread is store.ErrNotFound; db.Create makes one.
func OpenGuest(ctx context.Context, dir string) (*Guest, error) {
	d, err := db.Open(ctx, dir, db.Options{Guest: true})
	if err != nil {
		return nil, err
	}
	return &Guest{d}, nil
}

// Close writes what is missing in events.jsonl and closes the database.
func (g *Guest) Close() error { return g.d.Close() }

// Append commits events in one transaction that is on disk when it returns, and
// answers their ids.
func (g *Guest) Append(ctx context.Context, events []store.NewEvent) ([]int64, error) {
	if len(events) == 0 {
		return nil, nil
	}
	var ids []int64
	err := g.d.Do(ctx, true, func(tx *db.Tx) error {
		list, _, err := appendOnce(tx, false, events, store.AppendOptions{})
		ids = nil
		for _, e := range list {
			ids = append(ids, e.ID)
		}
		return err
	})
	return ids, err
}

// Read answers a page of events.
func (g *Guest) Read(ctx context.Context, q store.Query) (store.Page, error) {
	var p store.Page
	err := g.d.View(ctx, func(tx *db.Tx) error {
		var err error
		p, err = read(tx, q)
		return err
	})
	return p, err
}

// Info describes the thread; it has no uuid for a guest.
func (g *Guest) Info(ctx context.Context) (store.Info, error) {
	var in store.Info
	err := g.d.View(ctx, func(tx *db.Tx) error {
		var err error
		in, err = describe(tx)
		return err
	})
	return in, err
}

// Subscribe adds a consumer.
func (g *Guest) Subscribe(ctx context.Context, s store.Subscription) error {
	return g.d.Do(ctx, true, func(tx *db.Tx) error { return consumer.Subscribe(tx, s) })
}

// Unsubscribe removes a consumer and keeps its progress.
func (g *Guest) Unsubscribe(ctx context.Context, name string) error {
	return g.d.Do(ctx, true, func(tx *db.Tx) error { return consumer.Unsubscribe(tx, name) })
}

// Ack sets a consumer's progress, back too.
func (g *Guest) Ack(ctx context.Context, name string, id int64) error {
	return g.d.Do(ctx, true, func(tx *db.Tx) error {
		_, err := consumer.Move(tx, name, id, false)
		return err
	})
}

// describe is Info inside a transaction.
func describe(tx *db.Tx) (store.Info, error) {
	in := store.Info{UUID: tx.UUID()}
	_, err := tx.Row("SELECT COUNT(*), COALESCE(MAX(id),0), COALESCE((SELECT created_at FROM events ORDER BY id DESC LIMIT 1),'') FROM events", nil, &in.Count, &in.Head, &in.LastAt)
	if err != nil {
		return in, err
	}
	in.Subscriptions, err = consumer.List(tx)
	return in, err
}
