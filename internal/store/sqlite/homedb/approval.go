package homedb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/theclaw/agents/internal/store"
)

const approvalColumns = "id, agent, thread, key, command, cwd, reason, digest, state, token, requested, expires, kind, tool, summary, patterns, external, decision, decided_by"

var _ store.Approvals = (*DB)(nil)

// PutApproval implements store.Approvals. Old questions are forgotten.
func (d *DB) PutApproval(ctx context.Context, a store.Approval, was string, policy *store.ExecPolicy) error {
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
		res, err = tx.ExecContext(ctx, "INSERT OR IGNORE INTO approval("+approvalColumns+") VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
			a.ID, a.Agent, a.Thread, a.Key, a.Command, a.Cwd, a.Reason, a.Digest, a.State, int64(a.Token), a.Requested.UnixMilli(), a.Expires.UnixMilli(),
			a.Kind, a.Tool, a.Summary, a.Patterns, a.External, a.Decision, a.By)
	} else {
		res, err = tx.ExecContext(ctx, "UPDATE approval SET state = ?, token = ?, expires = ?, decision = ?, decided_by = ? WHERE id = ? AND state = ?",
			a.State, int64(a.Token), a.Expires.UnixMilli(), a.Decision, a.By, a.ID, was)
	}
	if err != nil {
		return fmt.Errorf("save approval: %w", err)
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return fmt.Errorf("save approval: %w", errors.Join(store.ErrMoved, err))
	}
	if policy != nil {
		if err := putPolicy(ctx, tx, *policy); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// Approval answers the question with this id, or of this agent and key when the
// id is empty; false when there is none.
func (d *DB) Approval(ctx context.Context, id, agent, key string) (store.Approval, bool, error) {
	a, err := scanApproval(d.db.QueryRowContext(ctx, "SELECT "+approvalColumns+" FROM approval WHERE id = ? OR (? = '' AND agent = ? AND key = ?)", id, id, agent, key).Scan)
	return found(a, err)
}

// Approvals answers questions after an id, of one agent or all, in one state or any.
func (d *DB) Approvals(ctx context.Context, after, agent, state string, limit int) ([]store.Approval, error) {
	rows, err := d.db.QueryContext(ctx, "SELECT "+approvalColumns+" FROM approval WHERE id > ? AND (? = '' OR agent = ?) AND (? = '' OR state = ?) ORDER BY id LIMIT ?",
		after, agent, agent, state, state, limit)
	if err != nil {
		return nil, fmt.Errorf("load approvals: %w", err)
	}
	return collect(rows, scanApproval)
}

func scanApproval(scan func(...any) error) (store.Approval, error) {
	var a store.Approval
	var token, requested, expires int64
	err := scan(&a.ID, &a.Agent, &a.Thread, &a.Key, &a.Command, &a.Cwd, &a.Reason, &a.Digest, &a.State, &token, &requested, &expires,
		&a.Kind, &a.Tool, &a.Summary, &a.Patterns, &a.External, &a.Decision, &a.By)
	if err != nil {
		return a, fmt.Errorf("load approval: %w", err)
	}
	a.Token, a.Requested, a.Expires = uint64(token), time.UnixMilli(requested), time.UnixMilli(expires)
	return a, nil
}

// ExecPolicy implements store.Approvals.
func (d *DB) ExecPolicy(ctx context.Context) (p store.ExecPolicy, err error) {
	err = d.db.QueryRowContext(ctx, "SELECT version, body FROM exec_policy").Scan(&p.Version, &p.Body)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return p, fmt.Errorf("load policy for commands: %w", err)
	}
	return p, nil
}

// PutExecPolicy implements store.Approvals.
func (d *DB) PutExecPolicy(ctx context.Context, p store.ExecPolicy) error {
	return putPolicy(ctx, d.db, p)
}

func putPolicy(ctx context.Context, db interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}, p store.ExecPolicy,
) error {
	// The body is text for the functions of SQLite that take an agent out of it.
	query := "UPDATE exec_policy SET version = ?1, body = ?2 WHERE version = ?1 - 1"
	if p.Version == 1 {
		query = "INSERT OR IGNORE INTO exec_policy(one, version, body) VALUES(1, ?1, ?2)"
	}
	res, err := db.ExecContext(ctx, query, p.Version, string(p.Body))
	if err != nil {
		return fmt.Errorf("save policy for commands: %w", err)
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return fmt.Errorf("save policy for commands: %w", errors.Join(store.ErrMoved, err))
	}
	return nil
}
