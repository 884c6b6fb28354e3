package homedb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Approval is a question whether a command may run, and its answer.
type Approval struct {
	ID, Agent, Thread, Key       string // ids rise with time
	Command, Cwd, Reason, Digest string
	State                        string // pending, approved, denied, expired, used
	Token                        uint64 // of the lease under which it was used
	Requested, Expires           time.Time
}

// approvalsKept is how long answered questions are remembered.
const approvalsKept = 7 * 24 * time.Hour

const approvalColumns = "id, agent, thread, key, command, cwd, reason, digest, state, token, requested, expires"

// PutApproval writes a question; it is on disk when PutApproval returns. Old ones
// are forgotten.
func (d *DB) PutApproval(ctx context.Context, a Approval) error {
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("save approval: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "DELETE FROM approval WHERE expires < ?", time.Now().Add(-approvalsKept).UnixMilli()); err != nil {
		return fmt.Errorf("save approval: %w", err)
	}
	if _, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO approval("+approvalColumns+") VALUES(?,?,?,?,?,?,?,?,?,?,?,?)",
		a.ID, a.Agent, a.Thread, a.Key, a.Command, a.Cwd, a.Reason, a.Digest, a.State, int64(a.Token), a.Requested.UnixMilli(), a.Expires.UnixMilli()); err != nil {
		return fmt.Errorf("save approval: %w", err)
	}
	return tx.Commit()
}

// Approval answers the question with this id, or of this agent and key when the
// id is empty; false when there is none.
func (d *DB) Approval(ctx context.Context, id, agent, key string) (Approval, bool, error) {
	a, err := scanApproval(d.db.QueryRowContext(ctx, "SELECT "+approvalColumns+" FROM approval WHERE id = ? OR (? = '' AND agent = ? AND key = ?)", id, id, agent, key).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return a, false, nil
	}
	return a, err == nil, err
}

// Approvals answers questions after an id, of one agent or all, in one state or any.
func (d *DB) Approvals(ctx context.Context, after, agent, state string, limit int) ([]Approval, error) {
	rows, err := d.db.QueryContext(ctx, "SELECT "+approvalColumns+" FROM approval WHERE id > ? AND (? = '' OR agent = ?) AND (? = '' OR state = ?) ORDER BY id LIMIT ?",
		after, agent, agent, state, state, limit)
	if err != nil {
		return nil, fmt.Errorf("load approvals: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var out []Approval
	for rows.Next() {
		a, err := scanApproval(rows.Scan)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, rows.Err()
}

func scanApproval(scan func(...any) error) (Approval, error) {
	var a Approval
	var token, requested, expires int64
	err := scan(&a.ID, &a.Agent, &a.Thread, &a.Key, &a.Command, &a.Cwd, &a.Reason, &a.Digest, &a.State, &token, &requested, &expires)
	if err != nil {
		return a, fmt.Errorf("load approval: %w", err)
	}
	a.Token, a.Requested, a.Expires = uint64(token), time.UnixMilli(requested), time.UnixMilli(expires)
	return a, nil
}
