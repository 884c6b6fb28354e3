package agents

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/theclaw/agents/internal/store"
)

// List answers the agents after an id, at most limit, in order.
func (d *DB) List(ctx context.Context, after string, limit int) ([]store.AgentRow, error) {
	rows, err := d.pool.Query(ctx, page, after, limit)
	if err != nil {
		return nil, wrap("list agents", "", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[store.AgentRow])
	return all, wrap("list agents", "", err)
}

// page is what is told of an agent. It is looked up for each of a page, and not joined: a
// join may be planned to walk through all agents up to the page.
const page = `SELECT a.agent_id, COALESCE(t.desired, '') = 'started', COALESCE(f.content, ''), COALESCE(f.version, '')
	FROM (SELECT agent_id FROM agent WHERE agent_id > $1 ORDER BY agent_id LIMIT $2) a
	LEFT JOIN LATERAL (SELECT desired FROM thread WHERE agent_id = a.agent_id AND thread_id = 'inbox' OFFSET 0) t ON true
	LEFT JOIN LATERAL (SELECT content, version FROM agent_file WHERE agent_id = a.agent_id AND name = 'config.yaml' OFFSET 0) f ON true
	ORDER BY a.agent_id`

// filesOf reads those of an agent ($1) by their names ($2), each found by itself: it may
// have thousands.
const filesOf = "SELECT name, content FROM unnest($2::text[]) AS wanted CROSS JOIN LATERAL (SELECT name, content FROM agent_file WHERE agent_id = $1 AND name = wanted OFFSET 0) AS found"

// ReadAll answers those of several files that are there.
func (d *DB) ReadAll(ctx context.Context, id string, names []string) (map[string][]byte, error) {
	return d.contents(ctx, filesOf, id, names)
}

// Names answers the names of the files below a prefix, in order.
func (d *DB) Names(ctx context.Context, id, prefix string) ([]string, error) {
	rows, err := d.pool.Query(ctx, "SELECT name FROM agent_file WHERE agent_id = $1 AND starts_with(name, $2) ORDER BY name", id, prefix)
	if err != nil {
		return nil, wrap("list files", id, err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return names, wrap("list files", id, err)
}

// Firsts answers one file of the first agents that have it, by agent.
func (d *DB) Firsts(ctx context.Context, name string, limit int) (map[string][]byte, error) {
	return d.contents(ctx, "SELECT a.agent_id, f.content FROM (SELECT agent_id FROM agent ORDER BY agent_id LIMIT $2) a JOIN agent_file f ON f.agent_id = a.agent_id AND f.name = $1", name, limit)
}

func (d *DB) contents(ctx context.Context, sql string, args ...any) (map[string][]byte, error) {
	out := map[string][]byte{}
	rows, err := d.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, wrap("read files", "", err)
	}
	var key string
	var data []byte
	_, err = pgx.ForEachRow(rows, []any{&key, &data}, func() error {
		out[key] = slices.Clone(data)
		return nil
	})
	return out, wrap("read files", "", err)
}
