package home

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/unit"
)

// PinColumns are those that ScanPin reads.
const PinColumns = "server, tool, reported, reported_sha, approved, approved_sha, denied_sha, class, decided_by, decided_at"

var _ store.Pins = (*DB)(nil)

// Pins implements store.Pins.
func (d *DB) Pins(ctx context.Context, server string) ([]store.Pin, error) {
	out, err := loadPins(ctx, d.pool, server)
	if err != nil {
		return nil, fmt.Errorf("load pins: %w", unit.Problem(err))
	}
	return out, nil
}

func loadPins(ctx context.Context, q queries, server string) ([]store.Pin, error) {
	rows, err := q.Query(ctx, "SELECT "+PinColumns+" FROM mcp_pin WHERE $1 = '' OR server = $1 ORDER BY server, tool", server)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (store.Pin, error) { return ScanPin(row.Scan) })
}

// ScanPin reads a row of PinColumns.
func ScanPin(scan func(...any) error) (p store.Pin, err error) {
	var at int64
	dest := []any{&p.Server, &p.Tool, &p.Reported, &p.ReportedSHA, &p.Approved, &p.ApprovedSHA, &p.DeniedSHA, &p.Class, &p.By, &at}
	if err := scan(dest...); err != nil {
		return p, err
	}
	p.At = store.FromMillis(at)
	return p, unit.Restore(dest)
}

// ApprovedPins implements store.Pins.
func (d *DB) ApprovedPins(ctx context.Context) ([]store.Pin, error) {
	rows, err := d.pool.Query(ctx, "SELECT server, tool, approved_sha FROM mcp_pin WHERE approved_sha = reported_sha AND reported_sha <> '' ORDER BY server, tool")
	if err == nil {
		var out []store.Pin
		out, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (p store.Pin, err error) {
			dest := []any{&p.Server, &p.Tool, &p.ApprovedSHA}
			if err := row.Scan(dest...); err != nil {
				return p, err
			}
			return p, unit.Restore(dest)
		})
		if err == nil {
			return out, nil
		}
	}
	return nil, fmt.Errorf("load approved pins: %w", unit.Problem(err))
}

// holdPins is the bytes of "theclaw" and 2: one change of pins at a time.
const holdPins = "SELECT pg_advisory_xact_lock(8388065783672043266)"

// ChangePins implements store.Pins.
func (d *DB) ChangePins(ctx context.Context, server string, next func([]store.Pin) ([]store.Pin, error)) error {
	var refused error
	err := pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, holdPins); err != nil {
			return err
		}
		before, err := loadPins(ctx, tx, server)
		if err != nil {
			return err
		}
		after, err := next(before)
		if err != nil {
			refused = err
			return err
		}
		put, gone := store.PinChanges(before, after)
		b := &pgx.Batch{}
		for _, p := range put {
			p.Server = server
			QueuePin(b, p, `(server, tool) DO UPDATE SET reported = excluded.reported, reported_sha = excluded.reported_sha, approved = excluded.approved,
				approved_sha = excluded.approved_sha, denied_sha = excluded.denied_sha, class = excluded.class, decided_by = excluded.decided_by, decided_at = excluded.decided_at`)
		}
		for _, tool := range gone {
			b.Queue("DELETE FROM mcp_pin WHERE server = $1 AND tool = $2", server, unit.Stored(tool))
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
	return fmt.Errorf("save pins: %w", unit.Problem(err))
}

// QueuePin adds a pin; conflict is what becomes of one that is there, behind ON CONFLICT.
func QueuePin(b *pgx.Batch, p store.Pin, conflict string) {
	b.Queue("INSERT INTO mcp_pin("+PinColumns+") VALUES($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT "+conflict,
		p.Server, unit.Stored(p.Tool), unit.Stored(p.Reported), p.ReportedSHA, unit.Stored(p.Approved), p.ApprovedSHA, p.DeniedSHA, p.Class, unit.Stored(p.By), store.Millis(p.At))
}

// PrunePins implements store.Pins.
func (d *DB) PrunePins(ctx context.Context, servers []string) error {
	if _, err := d.pool.Exec(ctx, "DELETE FROM mcp_pin WHERE NOT server = ANY($1)", append([]string{}, servers...)); err != nil {
		return fmt.Errorf("prune pins: %w", unit.Problem(err))
	}
	return nil
}
