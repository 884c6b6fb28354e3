// Package lag owns how much agents of a shared database have not done yet: messages
// without a fate, and conversations with something to send.
//
// It looks where dispatch looks, at the tables due and outbox, which hold nothing of an
// agent that has nothing to do; so a look costs as much as there are agents with work,
// and at most Most of each, those that wait longest first. It changes nothing.
package lag

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/internal/store/postgres/unit"
)

// Most is the most rows of each table that one look reads.
const Most = 1000

const (
	// waits reads the oldest of due by their index, and the inbox of each by its key.
	waits = `SELECT d.agent_id, t.head - t.acked, t.acked FROM (SELECT agent_id FROM due ORDER BY since, agent_id LIMIT $1) d
		JOIN thread t ON t.agent_id = d.agent_id AND t.thread_id = 'inbox'`
	// sends reads an index that holds nothing else.
	sends = `SELECT agent_id, count(*), 0 FROM (SELECT agent_id FROM outbox WHERE acked < head ORDER BY since, agent_id LIMIT $1) o GROUP BY agent_id`
)

// Look answers by agent the messages of its inbox behind the ack, the ack, and the conversations
// that have something to send. Agents that have none, or are stopped, are left out.
func Look(ctx context.Context, pool *pgxpool.Pool) (inbox, acked, outbound map[string]int64, err error) {
	inbox, acked, outbound = map[string]int64{}, map[string]int64{}, map[string]int64{}
	b := &pgx.Batch{}
	b.Queue(waits, Most).Query(into(inbox, acked))
	b.Queue(sends, Most).Query(into(outbound, map[string]int64{}))
	if err := pool.SendBatch(ctx, b).Close(); err != nil {
		return nil, nil, nil, fmt.Errorf("look at lag: %w", unit.Problem(err))
	}
	return inbox, acked, outbound, nil
}

func into(m, second map[string]int64) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var id string
		var n, k int64
		_, err := pgx.ForEachRow(rows, []any{&id, &n, &k}, func() error {
			m[id], second[id] = n, k
			return nil
		})
		return err
	}
}
