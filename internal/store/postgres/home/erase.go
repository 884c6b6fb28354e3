package home

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/beside"
	"github.com/theclaw/agents/internal/store/postgres/erase"
	"github.com/theclaw/agents/internal/store/postgres/unit"
)

// ErasePeer implements store.Approvals: questions, lines of the log and files of a peer
// go in one transaction, in which nobody can begin to work on the agent.
func (d *DB) ErasePeer(ctx context.Context, agent string, s beside.Share) error {
	err := d.shards.On(ctx, agent, func(pool *pgxpool.Pool) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return erasePeer(ctx, tx, agent, s) })
	})
	if err == nil {
		return nil
	}
	if refused, ok := errors.AsType[*fault.Error](err); ok {
		return refused
	}
	return fmt.Errorf("forget what is kept of a peer of agent %s: %w", agent, unit.Problem(err))
}

func erasePeer(ctx context.Context, tx pgx.Tx, agent string, s beside.Share) error {
	var desired, holder string
	var questions []string
	var lines []int64
	b := &pgx.Batch{}
	b.Queue(erase.Lock, agent)
	b.Queue(erase.Rest, agent, "inbox").QueryRow(func(row pgx.Row) error { return row.Scan(&desired, &holder) })
	b.Queue("SELECT id, thread, key FROM approval WHERE agent_id = $1", agent).Query(func(rows pgx.Rows) error {
		var id, thread, key string
		_, err := pgx.ForEachRow(rows, []any{&id, &thread, &key}, func() error {
			if s.Asked(thread, key) {
				questions = append(questions, id)
			}
			return nil
		})
		return err
	})
	b.Queue("SELECT id, text FROM agent_log WHERE agent_id = $1", agent).Query(func(rows pgx.Rows) error {
		var id int64
		var text string
		_, err := pgx.ForEachRow(rows, []any{&id, &text}, func() error {
			if err := unit.Restore([]any{&text}); err != nil {
				return err
			}
			if s.Told(text) {
				lines = append(lines, id)
			}
			return nil
		})
		return err
	})
	if err := tx.SendBatch(ctx, b).Close(); errors.Is(err, pgx.ErrNoRows) {
		return store.ErrNotFound // not here
	} else if err != nil {
		return err
	}
	if err := erase.Refuse(agent, desired, holder); err != nil {
		return err
	}
	w := &pgx.Batch{}
	w.Queue("DELETE FROM approval WHERE agent_id = $1 AND id = ANY($2::text[])", agent, questions)
	w.Queue("DELETE FROM agent_log WHERE agent_id = $1 AND id = ANY($2::bigint[])", agent, lines)
	w.Queue("DELETE FROM agent_file WHERE agent_id = $1 AND name = ANY($2::text[])", agent, s.Files)
	return tx.SendBatch(ctx, w).Close()
}
