// Package home stores what registries that share a database keep outside of threads: the
// approvals and questions that people are asked for, what agents and their peers have used today, the states
// of the bindings, the tools of MCP servers, the cursors and pairings of channel accounts, and the files that a single machine has in its home.
//
// Every change is a compare-and-set in the database, so that two registries cannot both
// take the same approval, or both spend the last message of a quota.
package home

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/unit"
)

// DB keeps them. It is safe for concurrent use.
type DB struct{ pool *pgxpool.Pool }

var _ store.Counts = (*DB)(nil)

// New makes it over a database, which stays the caller's.
func New(p *pgxpool.Pool) *DB { return &DB{p} }

const columns = "id, agent_id, thread, key, command, cwd, reason, digest, state, token, requested, expires, kind, tool, summary, patterns, external, decision, decided_by"

// PutApproval implements store.Approvals. Old ones are forgotten.
func (d *DB) PutApproval(ctx context.Context, a store.Approval, was string, policy *store.ExecPolicy) error {
	if policy != nil {
		return pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
			if err := change(ctx, tx, a, was); err != nil {
				return err
			}
			return putPolicy(ctx, tx, *policy)
		})
	}
	if was != "" {
		return change(ctx, d.pool, a, was)
	}
	b := &pgx.Batch{}
	b.Queue("DELETE FROM approval WHERE agent_id = $1 AND expires < $2", a.Agent, time.Now().Add(-store.ApprovalsKept).UnixMilli())
	var n int64
	b.Queue("INSERT INTO approval("+columns+") VALUES($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19) ON CONFLICT DO NOTHING RETURNING 1",
		a.ID, a.Agent, a.Thread, a.Key, a.Command, a.Cwd, a.Reason, a.Digest, a.State, int64(a.Token), a.Requested.UnixMilli(), a.Expires.UnixMilli(),
		a.Kind, a.Tool, a.Summary, a.Patterns, a.External, a.Decision, a.By).
		Query(func(rows pgx.Rows) error {
			for rows.Next() {
				n++
			}
			return rows.Err()
		})
	err := d.pool.SendBatch(ctx, b).Close()
	return put(n, err)
}

// executor is the pool or a transaction.
type executor interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

func change(ctx context.Context, db executor, a store.Approval, was string) error {
	tag, err := db.Exec(ctx, "UPDATE approval SET state = $3, token = $4, expires = $6, decision = $7, decided_by = $8 WHERE agent_id = $1 AND id = $2 AND state = $5",
		a.Agent, a.ID, a.State, int64(a.Token), was, a.Expires.UnixMilli(), a.Decision, a.By)
	return put(tag.RowsAffected(), err)
}

// ExecPolicy implements store.Approvals.
func (d *DB) ExecPolicy(ctx context.Context) (p store.ExecPolicy, err error) {
	err = d.pool.QueryRow(ctx, "SELECT version, body FROM exec_policy").Scan(&p.Version, &p.Body)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return p, fmt.Errorf("load policy for commands: %w", unit.Problem(err))
	}
	return p, nil
}

// PutExecPolicy implements store.Approvals.
func (d *DB) PutExecPolicy(ctx context.Context, p store.ExecPolicy) error {
	return putPolicy(ctx, d.pool, p)
}

func putPolicy(ctx context.Context, db executor, p store.ExecPolicy) error {
	query := "UPDATE exec_policy SET version = $1, body = $2 WHERE version = $1 - 1"
	if p.Version == 1 {
		query = "INSERT INTO exec_policy(one, version, body) VALUES(1, $1, $2) ON CONFLICT DO NOTHING"
	}
	tag, err := db.Exec(ctx, query, p.Version, string(p.Body))
	return put(tag.RowsAffected(), err)
}

func put(rows int64, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("save approval: %w", unit.Problem(err))
	case rows == 0:
		return fmt.Errorf("save approval: %w", store.ErrMoved)
	}
	return nil
}

// Approval implements store.Approvals.
func (d *DB) Approval(ctx context.Context, id, agent, key string) (store.Approval, bool, error) {
	where, args := "id = $1", []any{id}
	if id == "" {
		where, args = "agent_id = $1 AND key = $2", []any{agent, key}
	}
	all, err := d.read(ctx, where, args...)
	if err != nil || len(all) == 0 {
		return store.Approval{}, false, err
	}
	return all[0], true, nil
}

func (d *DB) read(ctx context.Context, where string, args ...any) ([]store.Approval, error) {
	rows, err := d.pool.Query(ctx, "SELECT "+columns+" FROM approval WHERE "+where, args...)
	if err == nil {
		var out []store.Approval
		out, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (store.Approval, error) {
			var a store.Approval
			var requested, expires int64
			err := row.Scan(&a.ID, &a.Agent, &a.Thread, &a.Key, &a.Command, &a.Cwd, &a.Reason, &a.Digest, &a.State, &a.Token, &requested, &expires,
				&a.Kind, &a.Tool, &a.Summary, &a.Patterns, &a.External, &a.Decision, &a.By)
			a.Requested, a.Expires = time.UnixMilli(requested), time.UnixMilli(expires)
			return a, err
		})
		if err == nil {
			return out, nil
		}
	}
	return nil, fmt.Errorf("load approvals: %w", unit.Problem(err))
}

// Approvals implements store.Approvals.
func (d *DB) Approvals(ctx context.Context, after, agent, state string, limit int) ([]store.Approval, error) {
	return d.read(ctx, "id > $1 AND ($2 = '' OR agent_id = $2) AND ($3 = '' OR state = $3) ORDER BY id LIMIT $4", after, agent, state, limit)
}

// Used answers what an agent has used in a day.
func (d *DB) Used(ctx context.Context, day, agent string) (store.Used, error) {
	u := store.Used{Day: day, Agent: agent}
	err := d.pool.QueryRow(ctx, "SELECT messages, tokens, micros FROM usage WHERE agent_id = $1 AND day = $2 AND peer = ''", agent, day).Scan(&u.Messages, &u.Tokens, &u.Micros)
	if errors.Is(err, pgx.ErrNoRows) {
		return u, nil
	}
	return u, unit.Problem(err)
}

// Count changes what an agent and one of its peers have used in a day: decide is shown
// both as they stand, and answers what to add to both, or an error, which Count passes
// on with nothing changed. Others that count for the agent wait meanwhile. The days
// before are forgotten.
func (d *DB) Count(ctx context.Context, day, agent, peer string, decide func(all, one store.Used) (store.Used, error)) error {
	var refused error
	peer = unit.Indexed(peer)
	err := pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		b.Queue("DELETE FROM usage WHERE agent_id = $1 AND day < $2", agent, day)
		b.Queue("INSERT INTO usage(agent_id, day, peer, messages, tokens, micros) VALUES($1, $2, '', 0, 0, 0) ON CONFLICT DO NOTHING", agent, day)
		b.Queue("SELECT 1 FROM usage WHERE agent_id = $1 AND day = $2 AND peer = '' FOR UPDATE", agent, day)
		b.Queue("INSERT INTO usage(agent_id, day, peer, messages, tokens, micros) VALUES($1, $2, $3, 0, 0, 0) ON CONFLICT DO NOTHING", agent, day, peer)
		var all, one store.Used
		b.Queue("SELECT peer, messages, tokens, micros FROM usage WHERE agent_id = $1 AND day = $2 AND peer IN ('', $3)", agent, day, peer).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				u := store.Used{Day: day, Agent: agent}
				if err := rows.Scan(&u.Peer, &u.Messages, &u.Tokens, &u.Micros); err != nil {
					return err
				}
				if u.Peer == "" {
					all = u
				} else {
					one = u
				}
			}
			return rows.Err()
		})
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		more, err := decide(all, one)
		if err != nil {
			refused = err
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE usage SET messages = GREATEST(0, messages + $4), tokens = tokens + $5, micros = micros + $6
			WHERE agent_id = $1 AND day = $2 AND peer IN ('', $3)`, agent, day, peer, more.Messages, more.Tokens, more.Micros)
		return err
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, refused):
		return refused
	}
	return fmt.Errorf("count usage: %w", unit.Problem(err))
}
