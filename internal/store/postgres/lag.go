package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/theclaw/agents/internal/store/postgres/unit"
)

// lagLimit is the most rows of each table that Lag reads.
const lagLimit = 1000

const (
	// inboxLag reads the oldest of due by their index, and the inbox of each by its key.
	inboxLag = `SELECT d.agent_id, t.head - t.acked, t.acked FROM (SELECT agent_id FROM due ORDER BY since, agent_id LIMIT $1) d
		JOIN thread t ON t.agent_id = d.agent_id AND t.thread_id = 'inbox'`
	// outboundLag reads an index that holds nothing else.
	outboundLag = `SELECT agent_id, count(*), 0 FROM (SELECT agent_id FROM outbox WHERE acked < head ORDER BY since, agent_id LIMIT $1) o GROUP BY agent_id`
)

// Lag returns by agent the messages of its inbox behind the ack, the ack, and the number of
// conversations that have something to send. Agents that have none, or are stopped, are
// left out.
//
// It reads the tables that dispatch reads, due and outbox, which hold nothing of an agent
// without work; so it costs as much as there are agents with work, and reads at most
// lagLimit rows of each, those that wait longest first.
func (e *Engine) Lag(ctx context.Context) (inbox, acked, outbound map[string]int64, err error) {
	inbox, acked, outbound = map[string]int64{}, map[string]int64{}, map[string]int64{}
	b := &pgx.Batch{}
	b.Queue(inboxLag, lagLimit).Query(scanLag(inbox, acked))
	b.Queue(outboundLag, lagLimit).Query(scanLag(outbound, map[string]int64{}))
	if err := e.db.SendBatch(ctx, b).Close(); err != nil {
		return nil, nil, nil, fmt.Errorf("look at lag: %w", unit.Problem(err))
	}
	return inbox, acked, outbound, nil
}

func scanLag(m, second map[string]int64) func(pgx.Rows) error {
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
