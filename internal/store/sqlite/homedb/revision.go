package homedb

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/theclaw/agents/internal/store"
)

// PutRevision adds a state of the bindings, unless the newest has the same body: then that is
// answered, also to a caller that did not know of it. The connection is the only one, so nothing
// changes between the reads and the writes. Errors: store.ErrMoved.
func (d *DB) PutRevision(ctx context.Context, was int64, body []byte, keep int) (store.Revision, error) {
	out, err := d.putRevision(ctx, was, body, keep)
	if err != nil {
		return store.Revision{}, fmt.Errorf("save state of the bindings: %w", err)
	}
	return out, nil
}

func (d *DB) putRevision(ctx context.Context, was int64, body []byte, keep int) (store.Revision, error) {
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return store.Revision{}, err
	}
	defer func() { _ = tx.Rollback() }()
	newest, err := revisions(ctx, tx, 1)
	if err != nil {
		return store.Revision{}, err
	}
	next, add, err := store.NextRevision(newest, was, body, time.Now())
	if err != nil || !add {
		return next, err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO binding_rev(rev, at, body) VALUES(?,?,?)", next.Rev, next.At.UnixMilli(), next.Body); err != nil {
		return store.Revision{}, err
	}
	if _, err := tx.ExecContext(ctx, "DELETE FROM binding_rev WHERE rev <= ?", next.Rev-int64(max(keep, 1))); err != nil {
		return store.Revision{}, err
	}
	return next, tx.Commit()
}

// Revisions answers the newest states of the bindings, the newest first.
func (d *DB) Revisions(ctx context.Context, limit int) ([]store.Revision, error) {
	out, err := revisions(ctx, d.db, limit)
	if err != nil {
		return nil, fmt.Errorf("load states of the bindings: %w", err)
	}
	return out, nil
}

// queries is a database or a transaction.
type queries interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func revisions(ctx context.Context, q queries, limit int) ([]store.Revision, error) {
	rows, err := q.QueryContext(ctx, "SELECT rev, at, body FROM binding_rev ORDER BY rev DESC LIMIT ?", limit)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var out []store.Revision
	for rows.Next() {
		var r store.Revision
		var at int64
		if err := rows.Scan(&r.Rev, &at, &r.Body); err != nil {
			return nil, err
		}
		r.At = store.FromMillis(at)
		out = append(out, r)
	}
	return out, rows.Err()
}
