package home

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/erase"
	"github.com/theclaw/agents/internal/store/postgres/unit"
)

// ErasePeer implements store.Approvals: approvals, questions, the pairing, lines of the log and files of a peer
// go in one transaction, in which nobody can begin to work on the agent.
func (d *DB) ErasePeer(ctx context.Context, agent string, s store.PeerRecords) error {
	err := pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error { return erasePeer(ctx, tx, agent, s) })
	if err == nil {
		return nil
	}
	if refused, ok := errors.AsType[*fault.Error](err); ok {
		return refused
	}
	return fmt.Errorf("forget what is kept of a peer of agent %s: %w", agent, unit.Problem(err))
}

func erasePeer(ctx context.Context, tx pgx.Tx, agent string, s store.PeerRecords) error {
	var desired, holder string
	var approvals, questions []string
	var told []page
	b := &pgx.Batch{}
	b.Queue(erase.Lock, agent)
	b.Queue(erase.Remaining, agent, "inbox").QueryRow(func(row pgx.Row) error { return row.Scan(&desired, &holder) })
	asked := func(ids *[]string) func(pgx.Rows) error {
		return func(rows pgx.Rows) error {
			var id, thread, key string
			_, err := pgx.ForEachRow(rows, []any{&id, &thread, &key}, func() error {
				if s.Asked(thread, key) {
					*ids = append(*ids, id)
				}
				return nil
			})
			return err
		}
	}
	b.Queue("SELECT id, thread, key FROM approval WHERE agent_id = $1", agent).Query(asked(&approvals))
	b.Queue("SELECT id, thread, key FROM question WHERE agent_id = $1", agent).Query(asked(&questions))
	b.Queue("SELECT id, text FROM agent_log WHERE agent_id = $1", agent).Query(func(rows pgx.Rows) error {
		var id int64
		var texts []string
		_, err := pgx.ForEachRow(rows, []any{&id, &texts}, func() error {
			if err := unit.Restore([]any{&texts}); err != nil {
				return err
			}
			p := page{id: id}
			for i, text := range texts {
				if s.Logged(text) {
					p.lines = append(p.lines, int64(i+1))
				}
			}
			if p.whole = len(p.lines) == len(texts); len(p.lines) > 0 {
				told = append(told, p)
			}
			return nil
		})
		return err
	})
	if err := tx.SendBatch(ctx, b).Close(); errors.Is(err, pgx.ErrNoRows) {
		return store.ErrNotFound
	} else if err != nil {
		return err
	}
	if err := erase.Refuse(agent, desired, holder); err != nil {
		return err
	}
	w := &pgx.Batch{}
	w.Queue("DELETE FROM approval WHERE agent_id = $1 AND id = ANY($2::text[])", agent, approvals)
	w.Queue("DELETE FROM question WHERE agent_id = $1 AND id = ANY($2::text[])", agent, questions)
	w.Queue("DELETE FROM pairing WHERE account = $1 AND peer = $2 AND state <> 'blocked'", unit.Stored(s.Account), unit.Stored(s.Peer))
	w.Queue("UPDATE pairing SET name = '', code_key = '', messages = 0 WHERE account = $1 AND peer = $2", unit.Stored(s.Account), unit.Stored(s.Peer))
	for _, p := range told {
		p.forget(w, agent)
	}
	w.Queue("DELETE FROM agent_file WHERE agent_id = $1 AND name = ANY($2::text[])", agent, s.Files)
	return tx.SendBatch(ctx, w).Close()
}

// page is a row of the log, and which of its lines go, counted from 1.
type page struct {
	id    int64
	lines []int64
	whole bool // all of them
}

// forget takes the lines out of their row, and the row away when none is left.
func (p page) forget(b *pgx.Batch, agent string) {
	if p.whole {
		b.Queue("DELETE FROM agent_log WHERE agent_id = $1 AND id = $2", agent, p.id)
		return
	}
	b.Queue(`UPDATE agent_log SET (at, level, text) =
		(SELECT array_agg(l.at ORDER BY l.n), array_agg(l.level ORDER BY l.n), array_agg(l.text ORDER BY l.n)
			FROM unnest(agent_log.at, agent_log.level, agent_log.text) WITH ORDINALITY AS l(at, level, text, n) WHERE l.n <> ALL($3::bigint[]))
		WHERE agent_id = $1 AND id = $2`, agent, p.id, p.lines)
}
