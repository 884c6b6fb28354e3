// Package agents stores the agents of registries that share a database: which exist, and
// the files that each has in its directory on a single machine (settings, identity, usage,
// memory), with the version of each.
//
// An agent is created completely: its row, its files, its inbox and the rows of its two
// leases are one transaction, and of two callers that create the same agent exactly one
// succeeds. A file is replaced by compare-and-set on its version, which is the sha256 of
// its content.
//
// Package agentdir defines what a file may hold and what its content means.
package agents

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/unit"
)

// DB keeps agents. It is safe for concurrent use and keeps nothing in memory.
type DB struct{ pool *pgxpool.Pool }

// New makes it over a database, which stays the caller's.
func New(p *pgxpool.Pool) *DB { return &DB{p} }

const insertFile = "INSERT INTO agent_file(agent_id, name, content, version) VALUES($1, $2, $3, $4)"

// Create makes an agent with its files. Errors: store.ErrAgentExists.
func (d *DB) Create(ctx context.Context, id string, files map[string][]byte) error {
	err := pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error { return create(ctx, tx, id, files) })
	switch {
	case errors.Is(err, store.ErrAgentExists):
		return fmt.Errorf("make agent %s: %w", id, store.ErrAgentExists)
	case err != nil:
		return fmt.Errorf("make agent %s: %w", id, unit.Problem(err))
	}
	return nil
}

func create(ctx context.Context, tx pgx.Tx, id string, files map[string][]byte) error {
	tag, err := tx.Exec(ctx, "INSERT INTO agent(agent_id) VALUES($1) ON CONFLICT DO NOTHING", id)
	if err == nil && tag.RowsAffected() == 0 {
		err = store.ErrAgentExists
	}
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	b.Queue("INSERT INTO thread(agent_id, thread_id, uuid) VALUES($1, 'inbox', gen_random_uuid()::text)", id)
	for _, res := range []string{lease.AgentResource(id), lease.DeliverResource(id)} {
		b.Queue(`INSERT INTO lease(agent_id, resource, token, holder, address, request_id, ttl_ms, expires_at, released)
			VALUES($1, $2, 0, '', '', '', 0, clock_timestamp(), true) ON CONFLICT DO NOTHING`, id, res)
	}
	for name, data := range files {
		b.Queue(insertFile, id, name, data, agentdir.Version(data))
	}
	return tx.SendBatch(ctx, b).Close()
}

// forgetRules takes an agent, its argument, out of the policy for commands.
const forgetRules = "UPDATE exec_policy SET version = version + 1, body = (body::jsonb #- ARRAY['agents', $1::text])::text WHERE jsonb_exists(body::jsonb -> 'agents', $1::text)"

// Remove forgets an agent with all its rows; of its leases the tokens stay, above which
// those of a new agent of the name begin. One that is not there is store.ErrNotFound.
func (d *DB) Remove(ctx context.Context, id string) error {
	return wrap("remove rows", id, pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error { return RemoveIn(ctx, tx, id) }))
}

// RemoveIn is Remove in a transaction of the caller.
func RemoveIn(ctx context.Context, tx pgx.Tx, id string) error {
	tag, err := tx.Exec(ctx, "DELETE FROM agent WHERE agent_id = $1", id) // threads, files and what hangs on them go with it; no push is under way after it
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return store.ErrNotFound
	}
	b := &pgx.Batch{}
	for _, q := range []string{
		forgetRules,
		"DELETE FROM origin WHERE agent_id = $1", "DELETE FROM process WHERE agent_id = $1", "DELETE FROM approval WHERE agent_id = $1", "DELETE FROM question WHERE agent_id = $1", "DELETE FROM usage WHERE agent_id = $1", "DELETE FROM due WHERE agent_id = $1",
		"UPDATE lease SET holder = '', address = '', request_id = '', released = true WHERE agent_id = $1",
	} {
		b.Queue(q, id)
	}
	return tx.SendBatch(ctx, b).Close()
}

// Has answers nil, or store.ErrNotFound.
func (d *DB) Has(ctx context.Context, id string) error {
	return wrap("read agent", id, d.has(ctx, id))
}

func (d *DB) has(ctx context.Context, id string) error {
	var one int
	err := d.pool.QueryRow(ctx, "SELECT 1 FROM agent WHERE agent_id = $1", id).Scan(&one)
	if errors.Is(err, pgx.ErrNoRows) {
		return store.ErrNotFound
	}
	return err
}

// Read answers a file and its version. Errors: store.ErrNoFile, store.ErrNotFound.
func (d *DB) Read(ctx context.Context, id, name string) (data []byte, version string, err error) {
	err = d.pool.QueryRow(ctx, "SELECT content, version FROM agent_file WHERE agent_id = $1 AND name = $2", id, name).Scan(&data, &version)
	if errors.Is(err, pgx.ErrNoRows) {
		if err = d.has(ctx, id); err == nil {
			err = store.ErrNoFile
		}
	}
	return data, version, wrap("read "+name, id, err)
}

// Version answers the version of a file; "" when it is not there.
func (d *DB) Version(ctx context.Context, id, name string) (version string, err error) {
	err = d.pool.QueryRow(ctx, "SELECT version FROM agent_file WHERE agent_id = $1 AND name = $2", id, name).Scan(&version)
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
	tag, err := d.pool.Exec(ctx, sql, args...)
	if err == nil && tag.RowsAffected() == 0 {
		if err = d.has(ctx, id); err == nil {
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
	rows, err := d.pool.Query(ctx, "SELECT thread_id FROM thread WHERE agent_id = $1 AND thread_id > $2 AND thread_id <> 'inbox' ORDER BY thread_id LIMIT $3", id, after, limit)
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
