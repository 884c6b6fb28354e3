package homedb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/theclaw/agents/internal/store"
)

const approvalColumns = "id, agent, thread, key, command, cwd, reason, digest, state, token, requested, expires"

var _ store.Approvals = (*DB)(nil)

// PutApproval implements store.Approvals. Old questions are forgotten.
func (d *DB) PutApproval(ctx context.Context, a store.Approval, was string) error {
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("save approval: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "DELETE FROM approval WHERE expires < ?", time.Now().Add(-store.ApprovalsKept).UnixMilli()); err != nil {
		return fmt.Errorf("save approval: %w", err)
	}
	var res sql.Result
	if was == "" {
		res, err = tx.ExecContext(ctx, "INSERT OR IGNORE INTO approval("+approvalColumns+") VALUES(?,?,?,?,?,?,?,?,?,?,?,?)",
			a.ID, a.Agent, a.Thread, a.Key, a.Command, a.Cwd, a.Reason, a.Digest, a.State, int64(a.Token), a.Requested.UnixMilli(), a.Expires.UnixMilli())
	} else {
		res, err = tx.ExecContext(ctx, "UPDATE approval SET state = ?, token = ? WHERE id = ? AND state = ?", a.State, int64(a.Token), a.ID, was)
	}
	if err != nil {
		return fmt.Errorf("save approval: %w", err)
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return fmt.Errorf("save approval: %w", errors.Join(store.ErrMoved, err))
	}
	return tx.Commit()
}

// Approval answers the question with this id, or of this agent and key when the
// id is empty; false when there is none.
func (d *DB) Approval(ctx context.Context, id, agent, key string) (store.Approval, bool, error) {
	a, err := scanApproval(d.db.QueryRowContext(ctx, "SELECT "+approvalColumns+" FROM approval WHERE id = ? OR (? = '' AND agent = ? AND key = ?)", id, id, agent, key).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return a, false, nil
	}
	return a, err == nil, err
}

// Approvals answers questions after an id, of one agent or all, in one state or any.
func (d *DB) Approvals(ctx context.Context, after, agent, state string, limit int) ([]store.Approval, error) {
	rows, err := d.db.QueryContext(ctx, "SELECT "+approvalColumns+" FROM approval WHERE id > ? AND (? = '' OR agent = ?) AND (? = '' OR state = ?) ORDER BY id LIMIT ?",
		after, agent, agent, state, state, limit)
	if err != nil {
		return nil, fmt.Errorf("load approvals: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var out []store.Approval
	for rows.Next() {
		a, err := scanApproval(rows.Scan)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, rows.Err()
}

func scanApproval(scan func(...any) error) (store.Approval, error) {
	var a store.Approval
	var token, requested, expires int64
	err := scan(&a.ID, &a.Agent, &a.Thread, &a.Key, &a.Command, &a.Cwd, &a.Reason, &a.Digest, &a.State, &token, &requested, &expires)
	if err != nil {
		return a, fmt.Errorf("load approval: %w", err)
	}
	a.Token, a.Requested, a.Expires = uint64(token), time.UnixMilli(requested), time.UnixMilli(expires)
	return a, nil
}
