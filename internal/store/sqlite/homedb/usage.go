package homedb

import (
	"context"
	"fmt"

	"github.com/theclaw/agents/internal/store"
)

// Usage answers the rows of a day.
func (d *DB) Usage(ctx context.Context, day string) ([]store.Used, error) {
	rows, err := d.db.QueryContext(ctx, "SELECT day, agent, peer, messages, tokens, micros FROM usage WHERE day = ?", day)
	if err != nil {
		return nil, fmt.Errorf("load usage: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var out []store.Used
	for rows.Next() {
		var u store.Used
		if err := rows.Scan(&u.Day, &u.Agent, &u.Peer, &u.Messages, &u.Tokens, &u.Micros); err != nil {
			return nil, fmt.Errorf("load usage: %w", err)
		}
		out = append(out, u)
	}
	return out, rows.Err()
}

// SaveUsage replaces rows of one day, and forgets the days before.
func (d *DB) SaveUsage(ctx context.Context, put []store.Used) error {
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("save usage: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	for _, u := range put {
		if _, err := tx.ExecContext(ctx, "DELETE FROM usage WHERE day < ?", u.Day); err != nil {
			return fmt.Errorf("save usage: %w", err)
		}
		if _, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO usage(day, agent, peer, messages, tokens, micros) VALUES(?,?,?,?,?,?)",
			u.Day, u.Agent, u.Peer, u.Messages, u.Tokens, u.Micros); err != nil {
			return fmt.Errorf("save usage: %w", err)
		}
	}
	return tx.Commit()
}
