package homedb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/theclaw/agents/internal/store"
)

const pairingColumns = "account, peer, type, name, state, owner, code_hash, code_key, expires, by, at, messages"

var (
	_ store.Cursors  = (*DB)(nil)
	_ store.Pairings = (*DB)(nil)
)

// Cursor implements store.Cursors.
func (d *DB) Cursor(ctx context.Context, account, identity, name string) (value string, err error) {
	err = d.db.QueryRowContext(ctx, "SELECT value FROM cursor WHERE account = ? AND identity = ? AND name = ?", account, identity, name).Scan(&value)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("load cursor: %w", err)
	}
	return value, nil
}

// PutCursor implements store.Cursors.
func (d *DB) PutCursor(ctx context.Context, c store.Cursor, reader *store.Fence) error {
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("save cursor: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	if err := d.held(reader); err != nil {
		return fmt.Errorf("save cursor: %w", err)
	}
	if _, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO cursor(account, identity, name, value, at) VALUES(?,?,?,?,?)",
		c.Account, c.Identity, c.Name, c.Value, store.Millis(c.At)); err != nil {
		return fmt.Errorf("save cursor: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("save cursor: %w", err)
	}
	return nil
}

// held refuses a write whose lease is no longer current. The caller has the connection, the only one: what the next
// holder writes comes after it.
func (d *DB) held(reader *store.Fence) error {
	if reader == nil {
		return nil
	}
	return d.Live(*reader)
}

// Cursors implements store.Cursors.
func (d *DB) Cursors(ctx context.Context) ([]store.Cursor, error) {
	rows, err := d.db.QueryContext(ctx, "SELECT account, identity, name, value, at FROM cursor ORDER BY account, identity, name")
	if err != nil {
		return nil, fmt.Errorf("load cursors: %w", err)
	}
	return collect(rows, func(scan func(...any) error) (c store.Cursor, err error) {
		var at int64
		if err := scan(&c.Account, &c.Identity, &c.Name, &c.Value, &at); err != nil {
			return c, fmt.Errorf("load cursors: %w", err)
		}
		c.At = store.FromMillis(at)
		return c, nil
	})
}

// Pairing implements store.Pairings.
func (d *DB) Pairing(ctx context.Context, account, peer string) (store.Pairing, bool, error) {
	list, err := loadPairings(ctx, d.db, "account = ? AND peer = ?", account, peer)
	if err != nil || len(list) == 0 {
		return store.Pairing{}, false, err
	}
	return list[0], true, nil
}

// Pairings implements store.Pairings.
func (d *DB) Pairings(ctx context.Context, account string) ([]store.Pairing, error) {
	return loadPairings(ctx, d.db, "?1 = '' OR account = ?1", account)
}

// WaitingNotices implements store.Pairings.
func (d *DB) WaitingNotices(ctx context.Context) ([]store.Pairing, error) {
	return loadPairings(ctx, d.db, "state = ? AND code_key = ?", store.PairingApproved, store.NoticeWaiting)
}

// PairedOwners implements store.Pairings.
func (d *DB) PairedOwners(ctx context.Context) ([]string, error) {
	rows, err := d.db.QueryContext(ctx, "SELECT DISTINCT type || ':' || peer FROM pairing WHERE owner = 1 AND state = 'approved' ORDER BY 1")
	if err != nil {
		return nil, fmt.Errorf("load owners: %w", err)
	}
	return collect(rows, func(scan func(...any) error) (name string, err error) {
		if err := scan(&name); err != nil {
			return "", fmt.Errorf("load owners: %w", err)
		}
		return name, nil
	})
}

func loadPairings(ctx context.Context, db interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}, where string, args ...any,
) ([]store.Pairing, error) {
	rows, err := db.QueryContext(ctx, "SELECT "+pairingColumns+" FROM pairing WHERE "+where+" ORDER BY account, peer", args...)
	if err != nil {
		return nil, fmt.Errorf("load pairings: %w", err)
	}
	return collect(rows, func(scan func(...any) error) (p store.Pairing, err error) {
		var expires, at int64
		if err := scan(&p.Account, &p.Peer, &p.Type, &p.Name, &p.State, &p.Owner, &p.CodeHash, &p.CodeKey, &expires, &p.By, &at, &p.Messages); err != nil {
			return p, fmt.Errorf("load pairings: %w", err)
		}
		p.Expires, p.At = store.FromMillis(expires), store.FromMillis(at)
		return p, nil
	})
}

// ChangePairings implements store.Pairings. The connection is the only one, so that no other change can come between.
func (d *DB) ChangePairings(ctx context.Context, account string, reader *store.Fence, next func([]store.Pairing) ([]store.Pairing, error)) error {
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("save pairings: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	if err := d.held(reader); err != nil {
		return fmt.Errorf("save pairings: %w", err)
	}
	before, err := loadPairings(ctx, tx, "?1 = '' OR account = ?1", account)
	if err != nil {
		return err
	}
	after, err := next(slices.Clone(before)) // which may change it
	if err != nil {
		return err
	}
	put, gone := store.PairingChanges(before, after)
	for _, p := range put {
		if _, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO pairing("+pairingColumns+") VALUES(?,?,?,?,?,?,?,?,?,?,?,?)",
			p.Account, p.Peer, p.Type, p.Name, p.State, p.Owner, p.CodeHash, p.CodeKey, store.Millis(p.Expires), p.By, store.Millis(p.At), p.Messages); err != nil {
			return fmt.Errorf("save pairings: %w", err)
		}
	}
	for _, p := range gone {
		if _, err := tx.ExecContext(ctx, "DELETE FROM pairing WHERE account = ? AND peer = ?", p.Account, p.Peer); err != nil {
			return fmt.Errorf("save pairings: %w", err)
		}
	}
	return tx.Commit()
}
