package home

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/unit"
)

// A push that was resolved by a state of the bindings commits before the next state is visible,
// or is refused. It holds a shared lock from before it reads the newest state until it commits; a
// change holds the same lock exclusively:
//
//	push           shared lock -> newest = its own -> commit
//	PutRevision    exclusive lock, after those pushes -> newest + 1 -> commit
//
// NewestRevision is a statement of its own behind HoldRevision, so that it sees what was
// committed while the lock was waited for. The lock is the bytes of "theclaw" and 1; that of
// migrations has no 1.
const (
	HoldRevision   = "SELECT pg_advisory_xact_lock_shared(8388065783672043265)"
	NewestRevision = "SELECT COALESCE(MAX(rev), 0) FROM binding_rev"

	holdRevisionExclusively = "SELECT pg_advisory_xact_lock(8388065783672043265)"
)

// PutRevision adds a state of the bindings, unless the newest has the same body: then that is
// answered, also to a caller that did not know of it, so that a call whose answer was lost may
// be repeated. Errors: store.ErrMoved.
func (d *DB) PutRevision(ctx context.Context, was int64, body []byte, keep int) (store.Revision, error) {
	var out store.Revision
	err := pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) (err error) {
		out, err = putRevision(ctx, tx, was, body, keep)
		return err
	})
	if err != nil {
		return store.Revision{}, fmt.Errorf("save state of the bindings: %w", unit.Problem(err))
	}
	return out, nil
}

func putRevision(ctx context.Context, tx pgx.Tx, was int64, body []byte, keep int) (store.Revision, error) {
	if _, err := tx.Exec(ctx, holdRevisionExclusively); err != nil {
		return store.Revision{}, err
	}
	newest, err := revisions(ctx, tx, 1)
	if err != nil {
		return store.Revision{}, err
	}
	next, add, err := store.NextRevision(newest, was, body, time.Now())
	if err != nil || !add {
		return next, err
	}
	b := &pgx.Batch{}
	b.Queue("INSERT INTO binding_rev(rev, at, body) VALUES($1, $2, $3)", next.Rev, next.At.UnixMilli(), next.Body)
	b.Queue("DELETE FROM binding_rev WHERE rev <= $1", next.Rev-int64(max(keep, 1)))
	return next, tx.SendBatch(ctx, b).Close()
}

// Revisions answers the newest states of the bindings, the newest first.
func (d *DB) Revisions(ctx context.Context, limit int) ([]store.Revision, error) {
	out, err := revisions(ctx, d.pool, limit)
	if err != nil {
		return nil, fmt.Errorf("load states of the bindings: %w", unit.Problem(err))
	}
	return out, nil
}

// queries is a pool or a transaction.
type queries interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func revisions(ctx context.Context, q queries, limit int) ([]store.Revision, error) {
	rows, err := q.Query(ctx, "SELECT rev, at, body FROM binding_rev ORDER BY rev DESC LIMIT $1", limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r store.Revision, err error) {
		var at int64
		err = row.Scan(&r.Rev, &at, &r.Body)
		r.At = store.FromMillis(at)
		return r, err
	})
}

// HomeFile answers a file and its version; nil and "" when there is none.
func (d *DB) HomeFile(ctx context.Context, name string) (data []byte, version string, err error) {
	err = d.pool.QueryRow(ctx, "SELECT data, version FROM home_file WHERE name = $1", name).Scan(&data, &version)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("read %s: %w", name, unit.Problem(err))
	}
	return data, version, nil
}

// PutHomeFile replaces a file that has the version was, or makes one that has none, and answers
// the new version. Errors: store.ErrMoved.
func (d *DB) PutHomeFile(ctx context.Context, name string, data []byte, was string) (version string, err error) {
	version = agentdir.Version(data)
	sql, args := "UPDATE home_file SET data = $2, version = $3, updated_at = now() WHERE name = $1 AND version = $4", []any{name, append([]byte{}, data...), version, was}
	if was == "" {
		sql, args = "INSERT INTO home_file(name, data, version) VALUES($1, $2, $3) ON CONFLICT DO NOTHING", args[:3]
	}
	tag, err := d.pool.Exec(ctx, sql, args...)
	switch {
	case err != nil:
		return "", fmt.Errorf("write %s: %w", name, unit.Problem(err))
	case tag.RowsAffected() == 0:
		return "", fmt.Errorf("write %s: %w", name, store.ErrMoved)
	}
	return version, nil
}
