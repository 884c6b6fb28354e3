// Package database reads a PostgreSQL database that several registries share for the
// invariant checker, as of one instant, into the same plain values that package snapshot
// makes of the files of a home.
//
// It changes nothing and blocks nobody: it reads in one read-only
// transaction and locks no row. A text that cannot be what a registry has stored damages the
// thread it stands in, and does not hide the others; a database that cannot be read to
// its end is an error.
//
// It knows the tables as anyone finds them in the database, and uses nothing of the
// engine that writes them: a checker that shares code shares mistakes. It judges
// nothing. Contents are hashed and searched while they pass by, and not kept.
package database

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/theclaw/agents/internal/invariant/snapshot"
)

// Read reads all agents of a database, or only one. Errors: fs.ErrNotExist for an agent
// that is not there.
func Read(ctx context.Context, url string, o snapshot.Options) (*snapshot.Home, error) {
	out := &snapshot.Home{Shared: true}
	if err := read(ctx, url, o, out); err != nil {
		return nil, fmt.Errorf("read database: %w", err)
	}
	slices.SortFunc(out.Agents, func(a, b *snapshot.Agent) int { return strings.Compare(a.ID, b.ID) })
	if o.Agent != "" && len(out.Agents) == 0 {
		return nil, fs.ErrNotExist
	}
	return out, nil
}

func read(ctx context.Context, url string, o snapshot.Options, out *snapshot.Home) error {
	conf, err := pgx.ParseConfig(url)
	if err != nil {
		return errors.New("its URL cannot be read") // the text of the error may hold it, and that a password
	}
	c, err := pgx.ConnectConfig(ctx, conf)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }() // it only read
	tx, err := c.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	l := &loader{ctx: ctx, tx: tx, o: o, agents: map[string]*snapshot.Agent{}, threads: map[[2]string]*snapshot.DB{}}
	for _, read := range []func(*snapshot.Home) error{l.format, l.all, l.events, l.account, l.journal, l.asked, l.sessions, l.leases} {
		if err := read(out); err != nil {
			return err
		}
	}
	for _, a := range l.agents {
		if a.Inbox == nil {
			a.Inbox = snapshot.NewDB(a.ID, inbox)
			a.Inbox.Absent, a.Inbox.Unread["events"] = true, true
		}
		out.Agents = append(out.Agents, a)
	}
	return nil
}

const inbox = "inbox"

// loader reads one database.
type loader struct {
	ctx     context.Context
	tx      pgx.Tx
	o       snapshot.Options
	agents  map[string]*snapshot.Agent
	threads map[[2]string]*snapshot.DB
}

// each calls fn for the rows of a query over the agents that are asked for.
func (l *loader) each(table, columns, order string, fn func(scan func(...any) error) error) error {
	rows, err := l.tx.Query(l.ctx, "SELECT "+columns+" FROM "+table+" WHERE ($1 = '' OR agent_id = $1) ORDER BY "+order, l.o.Agent)
	if err != nil {
		return fmt.Errorf("%s: %w", table, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := fn(rows.Scan); err != nil {
			return fmt.Errorf("%s: %w", table, err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("%s: %w", table, err)
	}
	return nil
}

// rows is each for a table of threads, or of inboxes alone: fn is called with the thread of the row, after
// its columns were scanned into dest. Texts are as they were said; one that cannot be
// read damages its thread, and its row is left out.
func (l *loader) rows(table, columns, order string, dest []any, fn func(d *snapshot.DB)) error {
	var agent, id string
	of, by := "agent_id, thread_id, ", "agent_id, thread_id, "
	if slices.Contains([]string{"origin", "process", media}, table) { // its rows are of inboxes
		of, by = "agent_id, 'inbox', ", "agent_id, "
	}
	return l.each(table, of+columns, by+order, func(scan func(...any) error) error {
		if err := scan(append([]any{&agent, &id}, dest...)...); err != nil {
			return err
		}
		d := l.threads[[2]string{agent, id}]
		if d == nil {
			return fmt.Errorf("a row of thread %s %s, which is not there", agent, id)
		}
		if !plain(dest) {
			d.Unread[table] = true
			d.Damage = append(d.Damage, table+": a text that no registry writes")
			return nil
		}
		fn(d)
		return nil
	})
}

func (l *loader) format(*snapshot.Home) error {
	var version int
	if err := l.tx.QueryRow(l.ctx, "SELECT version FROM format").Scan(&version); err != nil {
		return fmt.Errorf("this is no database of registries: %w", err)
	}
	return nil
}

// all reads which agents and threads there are.
func (l *loader) all(*snapshot.Home) error {
	err := l.each("agent a",
		`agent_id, (SELECT f.content FROM agent_file f WHERE f.agent_id = a.agent_id AND f.name = 'config.yaml'),
			EXISTS (SELECT 1 FROM due d WHERE d.agent_id = a.agent_id)`, "agent_id", func(scan func(...any) error) error {
			a := &snapshot.Agent{}
			err := scan(&a.ID, &a.Config, &a.Due)
			l.agents[a.ID] = a
			return err
		})
	if err != nil {
		return err
	}
	var agent, id, uuid, desired string
	var head, acked int64
	var end []byte
	return l.each("thread", "agent_id, thread_id, uuid, desired, head, acked, chain", "agent_id, thread_id", func(scan func(...any) error) error {
		if err := scan(&agent, &id, &uuid, &desired, &head, &acked, &end); err != nil {
			return err
		}
		d := snapshot.NewDB(agent, id)
		d.UUID, d.Desired, d.Sequence, d.End = uuid, desired, head, append([]byte{}, end...)
		l.threads[[2]string{agent, id}] = d
		if a := l.agents[agent]; id == inbox {
			a.Inbox, d.Acks[inbox] = d, acked
		} else {
			d.Acks["outbound"] = acked
			a.Threads = append(a.Threads, d)
		}
		return nil
	})
}

// leases reads the ledger. The database's clock says who holds one.
func (l *loader) leases(out *snapshot.Home) error {
	return l.each("lease", "resource, token, holder, ttl_ms, expires_at, released, expires_at > clock_timestamp()", "resource", func(scan func(...any) error) error {
		var v snapshot.Lease
		var token, ttl int64
		err := scan(&v.Resource, &token, &v.Holder, &ttl, &v.Expires, &v.Released, &v.Alive)
		v.Token, v.TTL = uint64(token), time.Duration(ttl)*time.Millisecond
		out.Leases = append(out.Leases, v)
		return err
	})
}
