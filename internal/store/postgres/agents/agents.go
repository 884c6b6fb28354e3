// Package agents owns the agents of registries that share a database: which there are,
// and the files of each that lie in its directory on one machine (settings, identity,
// usage, memory), with the version of each.
//
// An agent comes whole: its row, its files, its inbox and the rows of its two leases
// are one transaction, and of two that make the same one exactly one succeeds. A file
// is replaced by compare-and-set on its version, which is the sha256 of its content.
//
// What a file may hold, and what its content means, is agentdir's.
package agents

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/unit"
)

// Errors; compare with errors.Is. An agent that is not there is store.ErrNotFound, a
// file with another version than the expected one store.ErrMoved.
var (
	ErrExists = errors.New("agent exists")
	ErrNoFile = errors.New("agent has no such file")
)

// Shards are the databases: that of an agent, and all (package shard).
type Shards interface {
	Of(agent string) *pgxpool.Pool
	All() []*pgxpool.Pool
}

// DB keeps agents. It is safe for concurrent use and keeps nothing in memory.
type DB struct{ shards Shards }

// New makes it over databases, which stay the caller's.
func New(s Shards) *DB { return &DB{s} }

const insertFile = "INSERT INTO agent_file(agent_id, name, content, version) VALUES($1, $2, $3, $4)"

// Create makes an agent with its files. Errors: ErrExists.
func (d *DB) Create(ctx context.Context, id string, files map[string][]byte) error {
	b := &pgx.Batch{}
	made := false
	err := pgx.BeginFunc(ctx, d.shards.Of(id), func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "INSERT INTO agent(agent_id) VALUES($1) ON CONFLICT DO NOTHING", id)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		made = true
		b.Queue("INSERT INTO thread(agent_id, thread_id, uuid) VALUES($1, 'inbox', gen_random_uuid()::text)", id)
		for _, res := range []string{lease.AgentResource(id), lease.DeliverResource(id)} {
			b.Queue(`INSERT INTO lease(agent_id, resource, token, holder, address, request_id, ttl_ms, expires_at, released)
				VALUES($1, $2, 0, '', '', '', 0, clock_timestamp(), true) ON CONFLICT DO NOTHING`, id, res)
		}
		for name, data := range files {
			b.Queue(insertFile, id, name, data, agentdir.Version(data))
		}
		return tx.SendBatch(ctx, b).Close()
	})
	switch {
	case err != nil:
		return fmt.Errorf("make agent %s: %w", id, unit.Problem(err))
	case !made:
		return fmt.Errorf("make agent %s: %w", id, ErrExists)
	}
	return nil
}

// Remove forgets an agent with all its rows; of its leases the tokens stay, above which
// those of a new agent of the name begin. One that is not there is store.ErrNotFound.
func (d *DB) Remove(ctx context.Context, id string) error {
	err := pgx.BeginFunc(ctx, d.shards.Of(id), func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "DELETE FROM agent WHERE agent_id = $1", id) // threads, files and what hangs on them go with it
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return store.ErrNotFound
		}
		b := &pgx.Batch{}
		for _, q := range []string{
			"DELETE FROM approval WHERE agent_id = $1", "DELETE FROM usage WHERE agent_id = $1", "DELETE FROM due WHERE agent_id = $1",
			"UPDATE lease SET holder = '', address = '', request_id = '', released = true WHERE agent_id = $1",
		} {
			b.Queue(q, id)
		}
		return tx.SendBatch(ctx, b).Close()
	})
	return wrap("remove rows", id, err)
}

// Has answers nil, or store.ErrNotFound.
func (d *DB) Has(ctx context.Context, id string) error {
	var one int
	err := d.shards.Of(id).QueryRow(ctx, "SELECT 1 FROM agent WHERE agent_id = $1", id).Scan(&one)
	if errors.Is(err, pgx.ErrNoRows) {
		err = store.ErrNotFound
	}
	return wrap("read agent", id, err)
}

// Entry is an agent in a list.
type Entry struct {
	ID      string
	Started bool
	Config  []byte // config.yaml
	Version string // of it
}

// List answers the agents after an id, at most limit, in order.
func (d *DB) List(ctx context.Context, after string, limit int) ([]Entry, error) {
	var out []Entry
	for _, pool := range d.shards.All() {
		rows, err := pool.Query(ctx, `SELECT a.agent_id, COALESCE(t.desired, '') = 'started', COALESCE(f.content, ''), COALESCE(f.version, '') FROM agent a
			LEFT JOIN thread t ON t.agent_id = a.agent_id AND t.thread_id = 'inbox'
			LEFT JOIN agent_file f ON f.agent_id = a.agent_id AND f.name = 'config.yaml'
			WHERE a.agent_id > $1 ORDER BY a.agent_id LIMIT $2`, after, limit)
		if err == nil {
			var part []Entry
			part, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Entry])
			out = append(out, part...)
		}
		if err != nil {
			return nil, wrap("list agents", "", err)
		}
	}
	slices.SortFunc(out, func(a, b Entry) int { return strings.Compare(a.ID, b.ID) })
	return out[:min(len(out), limit)], nil
}

// Read answers a file and its version. Errors: ErrNoFile, store.ErrNotFound.
func (d *DB) Read(ctx context.Context, id, name string) (data []byte, version string, err error) {
	err = d.shards.Of(id).QueryRow(ctx, "SELECT content, version FROM agent_file WHERE agent_id = $1 AND name = $2", id, name).Scan(&data, &version)
	if errors.Is(err, pgx.ErrNoRows) {
		if err = d.Has(ctx, id); err == nil {
			err = ErrNoFile
		}
	}
	return data, version, wrap("read "+name, id, err)
}

// Version answers the version of a file; "" when it is not there.
func (d *DB) Version(ctx context.Context, id, name string) (version string, err error) {
	err = d.shards.Of(id).QueryRow(ctx, "SELECT version FROM agent_file WHERE agent_id = $1 AND name = $2", id, name).Scan(&version)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return version, wrap("read version of "+name, id, err)
}

// Write replaces a file that has the version expect, "" any, agentdir.NoFile none, and
// answers its new one. Errors: store.ErrMoved, store.ErrNotFound.
func (d *DB) Write(ctx context.Context, id, name string, data []byte, expect string) (version string, err error) {
	version = agentdir.Version(data)
	sql, args := "UPDATE agent_file SET content = $3, version = $4, updated_at = now() WHERE agent_id = $1 AND name = $2 AND version = $5", []any{id, name, data, version, expect}
	switch expect {
	case agentdir.NoFile:
		sql, args = insertFile+" ON CONFLICT DO NOTHING", args[:4]
	case "":
		sql, args = insertFile+" ON CONFLICT (agent_id, name) DO UPDATE SET content = excluded.content, version = excluded.version, updated_at = now()", args[:4]
	}
	tag, err := d.shards.Of(id).Exec(ctx, sql, args...)
	if err == nil && tag.RowsAffected() == 0 {
		if err = d.Has(ctx, id); err == nil {
			err = store.ErrMoved
		}
	}
	return version, wrap("write "+name, id, err)
}

// Threads answers the ids of an agent's conversation threads after one, at most limit.
func (d *DB) Threads(ctx context.Context, id, after string, limit int) ([]string, error) {
	if err := d.Has(ctx, id); err != nil {
		return nil, err
	}
	rows, err := d.shards.Of(id).Query(ctx, "SELECT thread_id FROM thread WHERE agent_id = $1 AND thread_id > $2 AND thread_id <> 'inbox' ORDER BY thread_id LIMIT $3", id, after, limit)
	if err != nil {
		return nil, wrap("list threads", id, err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return ids, wrap("list threads", id, err)
}

func wrap(what, id string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s of agent %s: %w", what, id, unit.Problem(err))
}

// ReadAll answers those of several files that are there.
func (d *DB) ReadAll(ctx context.Context, id string, names []string) (map[string][]byte, error) {
	return d.contents(ctx, d.shards.Of(id), "SELECT name, content FROM agent_file WHERE agent_id = $1 AND name = ANY($2)", id, names)
}

// Firsts answers one file of the first agents of each database that have it, by agent.
func (d *DB) Firsts(ctx context.Context, name string, limit int) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, pool := range d.shards.All() {
		part, err := d.contents(ctx, pool, "SELECT a.agent_id, f.content FROM (SELECT agent_id FROM agent ORDER BY agent_id LIMIT $2) a JOIN agent_file f ON f.agent_id = a.agent_id AND f.name = $1", name, limit)
		if err != nil {
			return nil, err
		}
		maps.Copy(out, part)
	}
	return out, nil
}

func (d *DB) contents(ctx context.Context, pool *pgxpool.Pool, sql string, args ...any) (map[string][]byte, error) {
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
