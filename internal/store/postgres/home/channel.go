package home

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/unit"
)

// CursorColumns and PairingColumns are those that ScanCursor and ScanPairing read.
const (
	CursorColumns  = "account, identity, name, value, at"
	PairingColumns = "account, peer, type, name, state, owner, code_hash, code_key, expires, decided_by, at, messages"
)

var (
	_ store.Cursors  = (*DB)(nil)
	_ store.Pairings = (*DB)(nil)
)

// Cursor implements store.Cursors.
func (d *DB) Cursor(ctx context.Context, account, identity, name string) (value string, err error) {
	err = d.pool.QueryRow(ctx, "SELECT value FROM cursor WHERE account = $1 AND identity = $2 AND name = $3", unit.Stored(account), unit.Stored(identity), unit.Stored(name)).Scan(&value)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	if err == nil {
		err = unit.Restore([]any{&value})
	}
	if err != nil {
		return "", fmt.Errorf("load cursor: %w", unit.Problem(err))
	}
	return value, nil
}

// PutCursor implements store.Cursors.
func (d *DB) PutCursor(ctx context.Context, c store.Cursor, reader *store.Fence) error {
	if reader != nil {
		return d.putCursor(ctx, c, *reader)
	}
	b := &pgx.Batch{}
	QueueCursor(b, c, "(account, identity, name) DO UPDATE SET value = excluded.value, at = excluded.at")
	if err := d.pool.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("save cursor: %w", unit.Problem(err))
	}
	return nil
}

// putCursor is PutCursor under a lease.
func (d *DB) putCursor(ctx context.Context, c store.Cursor, reader store.Fence) error {
	var refused error
	err := pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		if refused = held(ctx, tx, reader); refused != nil {
			return refused
		}
		b := &pgx.Batch{}
		QueueCursor(b, c, "(account, identity, name) DO UPDATE SET value = excluded.value, at = excluded.at")
		return tx.SendBatch(ctx, b).Close()
	})
	switch {
	case refused != nil:
		return refused
	case err != nil:
		return fmt.Errorf("save cursor: %w", unit.Problem(err))
	}
	return nil
}

// held refuses a write whose lease is no longer current. A change of the holder waits for the end of the transaction.
func held(ctx context.Context, tx pgx.Tx, reader store.Fence) error {
	var one int
	err := tx.QueryRow(ctx, unit.LeasedNow, unit.LeaseArgs(reader)...).Scan(&one)
	if errors.Is(err, pgx.ErrNoRows) {
		return unit.Lost(reader)
	}
	if err != nil {
		return fmt.Errorf("read lease: %w", unit.Problem(err))
	}
	return nil
}

// QueueCursor adds a cursor; conflict is what becomes of one that is there, behind ON CONFLICT.
func QueueCursor(b *pgx.Batch, c store.Cursor, conflict string) {
	b.Queue("INSERT INTO cursor("+CursorColumns+") VALUES($1, $2, $3, $4, $5) ON CONFLICT "+conflict,
		unit.Stored(c.Account), unit.Stored(c.Identity), unit.Stored(c.Name), unit.Stored(c.Value), store.Millis(c.At))
}

// Cursors implements store.Cursors.
func (d *DB) Cursors(ctx context.Context) ([]store.Cursor, error) {
	rows, err := d.pool.Query(ctx, "SELECT "+CursorColumns+" FROM cursor ORDER BY account, identity, name")
	if err == nil {
		var out []store.Cursor
		if out, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (store.Cursor, error) { return ScanCursor(row.Scan) }); err == nil {
			return out, nil
		}
	}
	return nil, fmt.Errorf("load cursors: %w", unit.Problem(err))
}

// ScanCursor reads a row of CursorColumns.
func ScanCursor(scan func(...any) error) (c store.Cursor, err error) {
	var at int64
	dest := []any{&c.Account, &c.Identity, &c.Name, &c.Value, &at}
	if err := scan(dest...); err != nil {
		return c, err
	}
	c.At = store.FromMillis(at)
	return c, unit.Restore(dest)
}

// Pairing implements store.Pairings.
func (d *DB) Pairing(ctx context.Context, account, peer string) (store.Pairing, bool, error) {
	list, err := loadPairings(ctx, d.pool, "account = $1 AND peer = $2", unit.Stored(account), unit.Stored(peer))
	if err != nil {
		return store.Pairing{}, false, fmt.Errorf("load pairing: %w", unit.Problem(err))
	}
	if len(list) == 0 {
		return store.Pairing{}, false, nil
	}
	return list[0], true, nil
}

// Pairings implements store.Pairings.
func (d *DB) Pairings(ctx context.Context, account string) ([]store.Pairing, error) {
	out, err := loadPairings(ctx, d.pool, "$1 = '' OR account = $1", unit.Stored(account))
	if err != nil {
		return nil, fmt.Errorf("load pairings: %w", unit.Problem(err))
	}
	return out, nil
}

// WaitingNotices implements store.Pairings.
func (d *DB) WaitingNotices(ctx context.Context) ([]store.Pairing, error) {
	out, err := loadPairings(ctx, d.pool, "state = $1 AND code_key = $2", store.PairingApproved, unit.Stored(store.NoticeWaiting))
	if err != nil {
		return nil, fmt.Errorf("load pairings: %w", unit.Problem(err))
	}
	return out, nil
}

// PairedOwners implements store.Pairings.
func (d *DB) PairedOwners(ctx context.Context) ([]string, error) {
	list, err := loadPairings(ctx, d.pool, "owner AND state = 'approved'")
	if err != nil {
		return nil, fmt.Errorf("load owners: %w", unit.Problem(err))
	}
	var out []string
	for _, p := range list {
		if !slices.Contains(out, p.OwnerName()) {
			out = append(out, p.OwnerName())
		}
	}
	slices.Sort(out)
	return out, nil
}

func loadPairings(ctx context.Context, q queries, where string, args ...any) ([]store.Pairing, error) {
	rows, err := q.Query(ctx, "SELECT "+PairingColumns+" FROM pairing WHERE "+where+" ORDER BY account, peer", args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (store.Pairing, error) { return ScanPairing(row.Scan) })
}

// ScanPairing reads a row of PairingColumns.
func ScanPairing(scan func(...any) error) (p store.Pairing, err error) {
	var expires, at int64
	dest := []any{&p.Account, &p.Peer, &p.Type, &p.Name, &p.State, &p.Owner, &p.CodeHash, &p.CodeKey, &expires, &p.By, &at, &p.Messages}
	if err := scan(dest...); err != nil {
		return p, err
	}
	p.Expires, p.At = store.FromMillis(expires), store.FromMillis(at)
	return p, unit.Restore(dest)
}

// holdPairings is the bytes of "theclaw" and 3: one change of pairings at a time.
const holdPairings = "SELECT pg_advisory_xact_lock(8388065783672043267)"

// ChangePairings implements store.Pairings.
func (d *DB) ChangePairings(ctx context.Context, account string, reader *store.Fence, next func([]store.Pairing) ([]store.Pairing, error)) error {
	var refused error
	err := pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		if reader != nil {
			if refused = held(ctx, tx, *reader); refused != nil {
				return refused
			}
		}
		if _, err := tx.Exec(ctx, holdPairings); err != nil {
			return err
		}
		before, err := loadPairings(ctx, tx, "$1 = '' OR account = $1", unit.Stored(account))
		if err != nil {
			return err
		}
		after, err := next(slices.Clone(before)) // which may change it
		if err != nil {
			refused = err
			return err
		}
		put, gone := store.PairingChanges(before, after)
		b := &pgx.Batch{}
		for _, p := range put {
			QueuePairing(b, p, `(account, peer) DO UPDATE SET type = excluded.type, name = excluded.name, state = excluded.state, owner = excluded.owner,
				code_hash = excluded.code_hash, code_key = excluded.code_key, expires = excluded.expires, decided_by = excluded.decided_by, at = excluded.at,
				messages = excluded.messages`)
		}
		for _, p := range gone {
			b.Queue("DELETE FROM pairing WHERE account = $1 AND peer = $2", unit.Stored(p.Account), unit.Stored(p.Peer))
		}
		if b.Len() == 0 {
			return nil
		}
		return tx.SendBatch(ctx, b).Close()
	})
	switch {
	case err == nil:
		return nil
	case refused != nil && errors.Is(err, refused):
		return refused
	}
	return fmt.Errorf("save pairings: %w", unit.Problem(err))
}

// QueuePairing adds a pairing; conflict is what becomes of one that is there, behind ON CONFLICT.
func QueuePairing(b *pgx.Batch, p store.Pairing, conflict string) {
	b.Queue("INSERT INTO pairing("+PairingColumns+") VALUES($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT "+conflict,
		unit.Stored(p.Account), unit.Stored(p.Peer), p.Type, unit.Stored(p.Name), p.State, p.Owner, p.CodeHash, unit.Stored(p.CodeKey),
		store.Millis(p.Expires), unit.Stored(p.By), store.Millis(p.At), p.Messages)
}
