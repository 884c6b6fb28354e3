package homedb

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/theclaw/agents/internal/store"
)

const pinColumns = "server, tool, reported, reported_sha, approved, approved_sha, denied_sha, class, by, at"

var _ store.Pins = (*DB)(nil)

// Pins implements store.Pins.
func (d *DB) Pins(ctx context.Context, server string) ([]store.Pin, error) {
	return loadPins(ctx, d.db, server)
}

func loadPins(ctx context.Context, db interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}, server string,
) ([]store.Pin, error) {
	rows, err := db.QueryContext(ctx, "SELECT "+pinColumns+" FROM mcp_pin WHERE ?1 = '' OR server = ?1 ORDER BY server, tool", server)
	if err != nil {
		return nil, fmt.Errorf("load pins: %w", err)
	}
	return collect(rows, func(scan func(...any) error) (store.Pin, error) {
		var p store.Pin
		var at int64
		err := scan(&p.Server, &p.Tool, &p.Reported, &p.ReportedSHA, &p.Approved, &p.ApprovedSHA, &p.DeniedSHA, &p.Class, &p.By, &at)
		if err != nil {
			return p, fmt.Errorf("load pins: %w", err)
		}
		p.At = store.FromMillis(at)
		return p, nil
	})
}

// ApprovedPins implements store.Pins.
func (d *DB) ApprovedPins(ctx context.Context) ([]store.Pin, error) {
	rows, err := d.db.QueryContext(ctx, "SELECT server, tool, approved_sha FROM mcp_pin WHERE approved_sha = reported_sha AND reported_sha <> '' ORDER BY server, tool")
	if err != nil {
		return nil, fmt.Errorf("load approved pins: %w", err)
	}
	return collect(rows, func(scan func(...any) error) (p store.Pin, err error) {
		if err := scan(&p.Server, &p.Tool, &p.ApprovedSHA); err != nil {
			return p, fmt.Errorf("load approved pins: %w", err)
		}
		return p, nil
	})
}

// ChangePins implements store.Pins.
func (d *DB) ChangePins(ctx context.Context, server string, next func([]store.Pin) ([]store.Pin, error)) error {
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("save pins: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	before, err := loadPins(ctx, tx, server)
	if err != nil {
		return err
	}
	after, err := next(before)
	if err != nil {
		return err
	}
	put, gone := store.PinChanges(before, after)
	for _, p := range put {
		if _, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO mcp_pin("+pinColumns+") VALUES(?,?,?,?,?,?,?,?,?,?)",
			server, p.Tool, p.Reported, p.ReportedSHA, p.Approved, p.ApprovedSHA, p.DeniedSHA, p.Class, p.By, store.Millis(p.At)); err != nil {
			return fmt.Errorf("save pins: %w", err)
		}
	}
	for _, tool := range gone {
		if _, err := tx.ExecContext(ctx, "DELETE FROM mcp_pin WHERE server = ? AND tool = ?", server, tool); err != nil {
			return fmt.Errorf("save pins: %w", err)
		}
	}
	return tx.Commit()
}

// PrunePins implements store.Pins.
func (d *DB) PrunePins(ctx context.Context, servers []string) error {
	list, err := json.Marshal(append([]string{}, servers...))
	if err == nil {
		_, err = d.db.ExecContext(ctx, "DELETE FROM mcp_pin WHERE server NOT IN (SELECT value FROM json_each(?))", string(list))
	}
	if err != nil {
		return fmt.Errorf("prune pins: %w", err)
	}
	return nil
}
