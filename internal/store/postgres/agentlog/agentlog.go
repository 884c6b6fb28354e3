// Package agentlog keeps the log lines of the agents of a shared database, which a single
// machine keeps in logs/agent.log.
//
// Lines are written in batches, by one statement that does not wait for the disk: a crash
// loses the most recent lines, as it does of a file. The lines of an agent in one batch are
// one row, so that a line costs little more than its bytes; a large batch has a row for each
// page, so that few lines are read without the others. The newest MaxLines lines of an agent or
// some more stay. The lines of a removed agent are removed with it; lines of an unknown
// agent are dropped.
//
// The package does not redact secrets: the caller does.
package agentlog

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/unit"
)

const (
	// MaxLines is how many lines of an agent stay.
	MaxLines = 10_000
	// page is how many lines a row holds at most.
	page = 500
	// soon is how long a line waits for others.
	soon = 250 * time.Millisecond
	// crowd is how many wait at most, over all agents; more are dropped and counted.
	crowd = 20_000
	// patience bounds one write.
	patience = 10 * time.Second
)

// Book keeps the lines. It is safe for concurrent use.
type Book struct {
	pool   *pgxpool.Pool
	failed func(error) // told of lines that were lost
	soon   time.Duration

	writing sync.Mutex // one write at a time, so that lines keep their order

	mu      sync.Mutex
	waiting []said
	lost    int
	later   *time.Timer
	since   map[string]int // lines of an agent since its old ones were looked for
}

type said struct {
	agent string
	store.LogLine
}

// New makes it over a database, which stays the caller's; failed is called when lines could
// not be written.
func New(p *pgxpool.Pool, failed func(error)) *Book {
	return &Book{pool: p, failed: failed, soon: soon, since: map[string]int{}}
}

// Say keeps lines of an agent, soon. It never waits.
func (b *Book) Say(agent string, lines ...store.LogLine) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range lines {
		if len(b.waiting) >= crowd {
			b.lost++
			continue
		}
		b.waiting = append(b.waiting, said{agent, l})
	}
	if b.later == nil && len(b.waiting) > 0 {
		b.later = time.AfterFunc(b.soon, b.Flush)
	}
}

// Flush writes what waits.
func (b *Book) Flush() {
	b.writing.Lock()
	defer b.writing.Unlock()
	b.mu.Lock()
	all, lost := b.waiting, b.lost
	if b.later != nil {
		b.later.Stop()
	}
	b.waiting, b.lost, b.later = nil, 0, nil
	old := b.count(all)
	b.mu.Unlock()
	if lost > 0 {
		b.failed(fmt.Errorf("%d lines came faster than they could be written", lost))
	}
	if len(all) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := b.write(ctx, all, old); err != nil {
		b.failed(fmt.Errorf("write %d lines: %w", len(all), unit.Problem(err)))
	}
}

// count answers the agents whose old lines are to be looked for now. The caller has the
// lock.
func (b *Book) count(all []said) []string {
	var old []string
	for _, s := range all {
		if b.since[s.agent]++; b.since[s.agent] >= MaxLines/10 {
			b.since[s.agent] = 0
			old = append(old, s.agent)
		}
	}
	if len(b.since) > crowd {
		clear(b.since) // they are looked for a little later
	}
	return old
}

// counted are the newest rows of the agent $1, each with the number of lines that are
// newer than all of its own.
const counted = "SELECT *, sum(cardinality(at)) OVER (ORDER BY id DESC) - cardinality(at) AS newer FROM agent_log WHERE agent_id = $1 ORDER BY id DESC"

func (b *Book) write(ctx context.Context, all []said, old []string) error {
	agents, pages, seen := make([]string, len(all)), make([]int, len(all)), map[string]int{}
	at, levels, texts := make([]time.Time, len(all)), make([]string, len(all)), make([]string, len(all))
	for i, s := range all {
		agents[i], at[i], levels[i], texts[i] = s.agent, s.At, s.Level, unit.Stored(s.Text).(string)
		pages[i] = seen[s.agent] / page
		seen[s.agent]++
	}
	q := &pgx.Batch{}
	q.Queue("SELECT set_config('synchronous_commit', 'off', true)")
	q.Queue(`INSERT INTO agent_log(agent_id, at, level, text)
		SELECT l.id, array_agg(l.at ORDER BY l.n), array_agg(l.level ORDER BY l.n), array_agg(l.text ORDER BY l.n)
		FROM unnest($1::text[], $2::int[], $3::timestamptz[], $4::text[], $5::text[]) WITH ORDINALITY AS l(id, page, at, level, text, n)
		JOIN agent a ON a.agent_id = l.id GROUP BY l.id, l.page ORDER BY min(l.n)`, agents, pages, at, levels, texts)
	for _, id := range slices.Compact(old) {
		q.Queue("DELETE FROM agent_log WHERE agent_id = $1 AND id <= (SELECT id FROM ("+counted+") c WHERE newer >= $2 LIMIT 1)", id, MaxLines)
	}
	return b.pool.SendBatch(ctx, q).Close()
}

// Read answers the newest lines of an agent, at most limit, in their order.
func (b *Book) Read(ctx context.Context, agent string, limit int) ([]store.LogLine, error) {
	// A row has a line at least, so no more than limit rows are looked at.
	rows, err := b.pool.Query(ctx, `SELECT l.at, l.level, l.text
		FROM (`+counted+` LIMIT $2) c, unnest(c.at, c.level, c.text) WITH ORDINALITY AS l(at, level, text, n)
		WHERE c.newer < $2 ORDER BY c.id DESC, l.n DESC LIMIT $2`, agent, limit)
	if err != nil {
		return nil, fmt.Errorf("read log of agent: %w", unit.Problem(err))
	}
	out, err := pgx.CollectRows(rows, pgx.RowToStructByPos[store.LogLine])
	if err != nil {
		return nil, fmt.Errorf("read log of agent: %w", unit.Problem(err))
	}
	for i := range out {
		if err := unit.Restore([]any{&out[i].Text}); err != nil {
			return nil, err
		}
	}
	slices.Reverse(out)
	return out, nil
}
