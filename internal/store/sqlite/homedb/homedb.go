// Package homedb stores the registry's own tables in registry.db: the lease ledger, the
// last known state of each inbox, the usage of today where there is a quota, the
// approvals and questions that people are asked for, the states of the bindings, the tools of MCP servers, and
// the cursors and pairings of channel accounts.
//
// All can be lost without losing a message. A lease's token is also in the
// inbox it fences, and Acquire starts above that; what is known of inboxes only
// saves opening them at the next start; without the earlier states of the bindings a message
// that is delivered again after a change is not recognized; tools of MCP servers and people of
// channel accounts wait for the owner again.
// Lease rows, pins, cursors, pairings and states of the
// bindings are on disk before the call returns, the rest is written lazily. One goroutine at a time uses the
// connection; the type is safe for concurrent use.
package homedb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	_ "modernc.org/sqlite" // the engine

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
)

// format is the version of these tables, kept as user_version: one of a newer build
// is refused before it is touched. 0 is the same as 1, from before it was written; 2 adds
// binding_rev, 3 exec_policy and question, 4 mcp_pin, 5 cursor and pairing.
const format = 5

const schema = `
CREATE TABLE IF NOT EXISTS lease (
  resource TEXT PRIMARY KEY, token INTEGER NOT NULL, holder TEXT NOT NULL, address TEXT NOT NULL,
  request_id TEXT NOT NULL, ttl_ms INTEGER NOT NULL, expires INTEGER NOT NULL, released INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS inbox (
  agent TEXT PRIMARY KEY, settings TEXT NOT NULL, path TEXT NOT NULL, signature TEXT NOT NULL, started INTEGER NOT NULL, head INTEGER NOT NULL,
  acked INTEGER NOT NULL, dead INTEGER NOT NULL, last_at TEXT NOT NULL DEFAULT '') WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS usage (
  day TEXT, agent TEXT, peer TEXT, messages INTEGER NOT NULL, tokens INTEGER NOT NULL, micros INTEGER NOT NULL,
  PRIMARY KEY (day, agent, peer)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS approval (
  id TEXT PRIMARY KEY, agent TEXT NOT NULL, thread TEXT NOT NULL, key TEXT NOT NULL, command TEXT NOT NULL, cwd TEXT NOT NULL,
  reason TEXT NOT NULL, digest TEXT NOT NULL, state TEXT NOT NULL, token INTEGER NOT NULL, requested INTEGER NOT NULL, expires INTEGER NOT NULL,
  kind TEXT NOT NULL DEFAULT '', tool TEXT NOT NULL DEFAULT '', summary TEXT NOT NULL DEFAULT '', patterns TEXT NOT NULL DEFAULT '',
  external INTEGER NOT NULL DEFAULT 0, decision TEXT NOT NULL DEFAULT '', decided_by TEXT NOT NULL DEFAULT '',
  UNIQUE (agent, key)) WITHOUT ROWID;
-- Questions to peers (format 3). allow_text is 0 or 1, options a JSON array.
CREATE TABLE IF NOT EXISTS question (
  id TEXT PRIMARY KEY, agent TEXT NOT NULL, thread TEXT NOT NULL, key TEXT NOT NULL, text TEXT NOT NULL, options TEXT NOT NULL,
  allow_text INTEGER NOT NULL, peer TEXT NOT NULL, after INTEGER NOT NULL, state TEXT NOT NULL, answer TEXT NOT NULL, by TEXT NOT NULL,
  requested INTEGER NOT NULL, expires INTEGER NOT NULL, ended INTEGER NOT NULL, UNIQUE (agent, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS binding_rev (rev INTEGER PRIMARY KEY, at INTEGER NOT NULL, body BLOB NOT NULL);
-- The policy for commands that leave the sandbox; body is JSON.
CREATE TABLE IF NOT EXISTS exec_policy (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL, body TEXT NOT NULL);
-- Tools of MCP servers. Descriptions are JSON, empty where there is none; at is 0 before the first decision.
CREATE TABLE IF NOT EXISTS mcp_pin (
  server TEXT NOT NULL, tool TEXT NOT NULL, reported TEXT NOT NULL, reported_sha TEXT NOT NULL, approved TEXT NOT NULL, approved_sha TEXT NOT NULL,
  denied_sha TEXT NOT NULL, class TEXT NOT NULL, by TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (server, tool)) WITHOUT ROWID;
-- Where receivers of channel accounts continue (format 5).
CREATE TABLE IF NOT EXISTS cursor (
  account TEXT NOT NULL, identity TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, at INTEGER NOT NULL,
  PRIMARY KEY (account, identity, name)) WITHOUT ROWID;
-- Who asked to write to accounts. expires is 0 without a code, owner is 0 or 1.
CREATE TABLE IF NOT EXISTS pairing (
  account TEXT NOT NULL, peer TEXT NOT NULL, type TEXT NOT NULL, name TEXT NOT NULL, state TEXT NOT NULL, owner INTEGER NOT NULL,
  code_hash TEXT NOT NULL, code_key TEXT NOT NULL, expires INTEGER NOT NULL, by TEXT NOT NULL, at INTEGER NOT NULL, messages INTEGER NOT NULL,
  PRIMARY KEY (account, peer)) WITHOUT ROWID;
`

// DB is an open registry.db.
type DB struct {
	db *sql.DB
	// Live returns nil while a token is the current one of a live lease, else store.ErrLeaseLost; required for
	// writes under a lease. It is called in their transaction.
	Live func(store.Fence) error
}

var _ store.Home = (*DB)(nil)

// Open opens or makes the database at path, mode 0600.
func Open(ctx context.Context, path string) (*DB, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make registry database: %w", err)
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("make registry database: %w", err)
	}
	dsn := (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: "mode=rw&_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=cache_size(-256)"}).String()
	s, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	s.SetMaxOpenConns(1)
	// Read back, because drivers differ in what they accept: a token must be on
	// disk before it is granted.
	var sync int
	if err = adopt(ctx, s, path); err == nil {
		err = s.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&sync)
	}
	if err == nil && sync != 2 {
		err = fmt.Errorf("synchronous is %d, want 2", sync)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open registry database: %w", err), s.Close())
	}
	return &DB{db: s}, nil
}

// adopt makes the tables in a database of this format or of an earlier one.
func adopt(ctx context.Context, s *sql.DB, path string) error {
	var has int
	if err := s.QueryRowContext(ctx, "PRAGMA user_version").Scan(&has); err != nil {
		return err
	}
	if has > format {
		return fault.New(codes.FailedPrecondition, fault.FormatMismatch,
			fmt.Sprintf("%s has format %d, this build knows %d: a newer version has served this home", path, has, format),
			"use that version, or restore a backup into a new home")
	}
	if _, err := s.ExecContext(ctx, schema); err != nil {
		return err
	}
	for _, c := range later {
		var there int
		err := s.QueryRowContext(ctx, "SELECT COUNT(*) FROM pragma_table_info(?) WHERE name = ?", c[0], c[1]).Scan(&there)
		if err == nil && there == 0 {
			_, err = s.ExecContext(ctx, "ALTER TABLE "+c[0]+" ADD COLUMN "+c[1]+" "+c[2])
		}
		if err != nil {
			return err
		}
	}
	if has == format {
		return nil
	}
	_, err := s.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", format))
	return err
}

// later are the columns that a file may lack: table, column and definition.
var later = [][3]string{
	{"inbox", "last_at", "TEXT NOT NULL DEFAULT ''"},
	// What is asked for, and who answered.
	{"approval", "kind", "TEXT NOT NULL DEFAULT ''"},
	{"approval", "tool", "TEXT NOT NULL DEFAULT ''"},
	{"approval", "summary", "TEXT NOT NULL DEFAULT ''"},
	{"approval", "patterns", "TEXT NOT NULL DEFAULT ''"},
	{"approval", "external", "INTEGER NOT NULL DEFAULT 0"},
	{"approval", "decision", "TEXT NOT NULL DEFAULT ''"},
	{"approval", "decided_by", "TEXT NOT NULL DEFAULT ''"},
}

// Close closes the database.
func (d *DB) Close() error { return d.db.Close() }

// Load answers every lease row.
func (d *DB) Load(ctx context.Context) ([]lease.Record, error) {
	rows, err := d.db.QueryContext(ctx, "SELECT resource, token, holder, address, request_id, ttl_ms, expires, released FROM lease")
	if err != nil {
		return nil, fmt.Errorf("load leases: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var out []lease.Record
	for rows.Next() {
		var r lease.Record
		var token, ttl, expires int64
		if err := rows.Scan(&r.Resource, &token, &r.Holder, &r.Address, &r.RequestID, &ttl, &expires, &r.Released); err != nil {
			return nil, fmt.Errorf("load leases: %w", err)
		}
		r.Token, r.TTL, r.Expires = uint64(token), time.Duration(ttl)*time.Millisecond, time.UnixMilli(expires)
		out = append(out, r)
	}
	return out, rows.Err()
}

// Save writes one lease row; it is on disk when Save returns. A token below the
// stored one is an error: it was granted already.
func (d *DB) Save(ctx context.Context, r lease.Record) error {
	res, err := d.db.ExecContext(ctx, `INSERT INTO lease(resource, token, holder, address, request_id, ttl_ms, expires, released) VALUES(?,?,?,?,?,?,?,?)
		ON CONFLICT(resource) DO UPDATE SET token = excluded.token, holder = excluded.holder, address = excluded.address,
			request_id = excluded.request_id, ttl_ms = excluded.ttl_ms, expires = excluded.expires, released = excluded.released
		WHERE excluded.token >= lease.token`,
		r.Resource, int64(r.Token), r.Holder, r.Address, r.RequestID, r.TTL.Milliseconds(), r.Expires.UnixMilli(), r.Released)
	if err != nil {
		return fmt.Errorf("save lease: %w", err)
	}
	if n, err := res.RowsAffected(); err != nil {
		return fmt.Errorf("save lease: %w", err)
	} else if n == 0 {
		return fmt.Errorf("save lease: %s has a token above %d", r.Resource, r.Token)
	}
	return nil
}

// Inboxes answers what is known, by agent.
func (d *DB) Inboxes(ctx context.Context) (map[string]store.KnownInbox, error) {
	rows, err := d.db.QueryContext(ctx, "SELECT agent, settings, path, signature, started, head, acked, dead, last_at FROM inbox")
	if err != nil {
		return nil, fmt.Errorf("load inboxes: %w", err)
	}
	defer func() { _ = rows.Close() }()
	out := map[string]store.KnownInbox{}
	for rows.Next() {
		var i store.KnownInbox
		if err := rows.Scan(&i.Agent, &i.Settings, &i.Path, &i.Signature, &i.Started, &i.Head, &i.Acked, &i.Dead, &i.LastAt); err != nil {
			return nil, fmt.Errorf("load inboxes: %w", err)
		}
		out[i.Agent] = i
	}
	return out, rows.Err()
}

// Forget removes what is kept of an agent but the tokens of its leases, above which
// those of a new agent of the name must begin. The bytes are gone from the files when
// it returns.
func (d *DB) Forget(ctx context.Context, agent string) error {
	for _, q := range []string{
		`UPDATE exec_policy SET version = version + 1, body = json_remove(body, '$.agents."' || ?1 || '"') WHERE json_extract(body, '$.agents."' || ?1 || '"') IS NOT NULL`,
		"DELETE FROM approval WHERE agent = ?", "DELETE FROM question WHERE agent = ?", "DELETE FROM usage WHERE agent = ?", "DELETE FROM inbox WHERE agent = ?",
		"UPDATE lease SET holder = '', address = '', request_id = '', released = 1 WHERE resource IN ('agent/' || ?1, 'deliver/' || ?1)",
		"VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)",
	} {
		var args []any
		if strings.Contains(q, "?") {
			args = []any{agent}
		}
		if _, err := d.db.ExecContext(ctx, q, args...); err != nil {
			return fmt.Errorf("forget agent %s: %w", agent, err)
		}
	}
	return nil
}

// SaveInboxes replaces all rows.
func (d *DB) SaveInboxes(ctx context.Context, put []store.KnownInbox) error {
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("save inboxes: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "DELETE FROM inbox"); err != nil {
		return fmt.Errorf("save inboxes: %w", err)
	}
	for _, i := range put {
		if _, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO inbox(agent, settings, path, signature, started, head, acked, dead, last_at) VALUES(?,?,?,?,?,?,?,?,?)",
			i.Agent, i.Settings, i.Path, i.Signature, i.Started, i.Head, i.Acked, i.Dead, i.LastAt); err != nil {
			return fmt.Errorf("save inboxes: %w", err)
		}
	}
	return tx.Commit()
}

// collect reads all rows of a query with scan, and closes it.
func collect[T any](rows *sql.Rows, scan func(func(...any) error) (T, error)) ([]T, error) {
	defer func() { _ = rows.Close() }()
	var out []T
	for rows.Next() {
		one, err := scan(rows.Scan)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, rows.Err()
}

// found is a row that there may be; false: there is none.
func found[T any](one T, err error) (T, bool, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return one, false, nil
	}
	return one, err == nil, err
}
