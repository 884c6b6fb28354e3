package agents

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/internal/store"
)

// Entry is an agent in a list.
type Entry struct {
	ID      string
	Started bool
	Config  []byte // config.yaml
	Version string // of it
}

// List answers the agents after an id, at most limit, in order. One that is moved
// meanwhile is in it once: where it was, where it is, or where its old place leads to.
func (d *DB) List(ctx context.Context, after string, limit int) ([]Entry, error) {
	found, led := map[string]Entry{}, map[string]bool{}
	for _, pool := range d.shards.All() {
		b := &pgx.Batch{}
		b.Queue(page, after, limit).Query(func(rows pgx.Rows) error {
			part, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Entry])
			for _, e := range part {
				found[e.ID] = e
			}
			return err
		})
		b.Queue("SELECT agent_id FROM moved WHERE agent_id > $1 ORDER BY agent_id LIMIT $2", after, limit).Query(func(rows pgx.Rows) error {
			part, err := pgx.CollectRows(rows, pgx.RowTo[string])
			for _, id := range part {
				led[id] = true
			}
			return err
		})
		if err := pool.SendBatch(ctx, b).Close(); err != nil {
			return nil, wrap("list agents", "", err)
		}
	}
	last := ""
	if ids := slices.Sorted(maps.Keys(found)); len(ids) >= limit {
		last = ids[limit-1]
	}
	for id := range led {
		if _, there := found[id]; there || last != "" && id > last {
			continue
		}
		if e, ok, err := d.entry(ctx, id); err != nil {
			return nil, err
		} else if ok {
			found[id] = e
		}
	}
	out := slices.SortedFunc(maps.Values(found), func(a, b Entry) int { return strings.Compare(a.ID, b.ID) })
	return out[:min(len(out), limit)], nil
}

// entry is one agent, wherever it is; false when it is nowhere.
func (d *DB) entry(ctx context.Context, id string) (Entry, bool, error) {
	p, err := d.shards.Look(ctx, id)
	if err != nil || !p.There {
		return Entry{}, false, err
	}
	rows, err := d.shards.All()[p.Index].Query(ctx, one, id)
	if err != nil {
		return Entry{}, false, wrap("list agents", id, err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Entry])
	if err != nil || len(all) == 0 {
		return Entry{}, false, wrap("list agents", id, err)
	}
	return all[0], true, nil
}

// What is told of an agent is looked up for each of a page, and not joined: a join may be
// planned to walk through all agents up to the page.
const (
	entry = `SELECT a.agent_id, COALESCE(t.desired, '') = 'started', COALESCE(f.content, ''), COALESCE(f.version, '') FROM (`
	about = `) a
	LEFT JOIN LATERAL (SELECT desired FROM thread WHERE agent_id = a.agent_id AND thread_id = 'inbox' OFFSET 0) t ON true
	LEFT JOIN LATERAL (SELECT content, version FROM agent_file WHERE agent_id = a.agent_id AND name = 'config.yaml' OFFSET 0) f ON true`

	one  = entry + "SELECT agent_id FROM agent WHERE agent_id = $1 OFFSET 0" + about
	page = entry + `SELECT agent_id FROM agent n WHERE agent_id > $1
		AND NOT EXISTS (SELECT 1 FROM arriving r WHERE r.agent_id = n.agent_id OFFSET 0) ORDER BY agent_id LIMIT $2` + about
)

// filesOf reads those of an agent ($1) by their names ($2), each found by itself: it may
// have thousands.
const filesOf = "SELECT name, content FROM unnest($2::text[]) AS wanted CROSS JOIN LATERAL (SELECT name, content FROM agent_file WHERE agent_id = $1 AND name = wanted OFFSET 0) AS found"

// ReadAll answers those of several files that are there.
func (d *DB) ReadAll(ctx context.Context, id string, names []string) (out map[string][]byte, err error) {
	err = d.shards.On(ctx, id, func(pool *pgxpool.Pool) (err error) {
		out, err = contents(ctx, pool, filesOf, id, names)
		if err == nil && len(out) == 0 {
			err = store.ErrNotFound
		}
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		err = nil
	}
	return out, err
}

// Firsts answers one file of the first agents of each database that have it, by agent.
func (d *DB) Firsts(ctx context.Context, name string, limit int) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, pool := range d.shards.All() {
		part, err := contents(ctx, pool, "SELECT a.agent_id, f.content FROM (SELECT agent_id FROM agent WHERE agent_id NOT IN (SELECT agent_id FROM arriving) ORDER BY agent_id LIMIT $2) a JOIN agent_file f ON f.agent_id = a.agent_id AND f.name = $1", name, limit)
		if err != nil {
			return nil, err
		}
		maps.Copy(out, part)
	}
	return out, nil
}

func contents(ctx context.Context, pool *pgxpool.Pool, sql string, args ...any) (map[string][]byte, error) {
	out := map[string][]byte{}
	rows, err := pool.Query(ctx, sql, args...)
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
