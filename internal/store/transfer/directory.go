package transfer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/sqlite/homedb"
	"github.com/theclaw/agents/internal/store/sqlite/schema"
	"github.com/theclaw/agents/internal/store/sqlite/snapshot"
	"github.com/theclaw/agents/internal/store/transfer/rows"
	"github.com/theclaw/agents/internal/thread"
)

// directory is an agent on one machine: a database for each thread, and files.
type directory struct {
	home    *agentdir.Home
	agent   string
	path    string // of the agent; the name may be one to be
	inbox   string // directory of the inbox
	scratch string // for copies
	bare    bool   // what the home has granted is not looked at
	live    bool   // it may be one that works: nobody works here

	open   *db.DB     // the thread that is written now
	queued []rows.Row // to be written to it
	size   int

	sessions []rows.Row // of the conversations that were written
}

// read tells every row of the agent, in the order of the format. It reads copies: the
// source is not even adopted, repaired or chained.
func (d *directory) read(ctx context.Context, emit func(rows.Row) error) error {
	if err := eachText(d.path, func(name string, data []byte) error {
		return emit(rows.Row{Table: rows.File, Values: []any{name, data}})
	}); err != nil {
		return err
	}
	threads, err := d.threads(ctx)
	if err != nil {
		return err
	}
	tokens, err := d.tokens(ctx)
	if err != nil {
		return err
	}
	for _, th := range append([]string{thread.Inbox}, threads...) {
		if err := d.thread(ctx, th, tokens, emit); err != nil {
			return err
		}
	}
	return nil
}

func (d *directory) dir(th string) string {
	if th == thread.Inbox {
		return d.inbox
	}
	return filepath.Join(d.path, filepath.FromSlash(th))
}

// threads are the conversations in the order of their ids.
func (d *directory) threads(ctx context.Context) (out []string, err error) {
	root := filepath.Join(d.path, "threads")
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case e.Name() == "events.db" && e.Type().IsRegular():
			th, err := filepath.Rel(d.path, filepath.Dir(path))
			out = append(out, filepath.ToSlash(th))
			return err
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list threads: %w", err)
	}
	slices.Sort(out)
	return out, nil
}

// tokens are the greatest that the home has granted for the agent.
func (d *directory) tokens(ctx context.Context) (_ map[string]int64, err error) {
	out := map[string]int64{}
	if _, err := os.Stat(d.home.RegistryDB()); d.bare || errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	h, err := homedb.Open(ctx, d.home.RegistryDB())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	records, err := h.Load(ctx)
	for _, r := range records {
		if r.Token > 0 && (r.Resource == lease.AgentResource(d.agent) || r.Resource == lease.DeliverResource(d.agent)) {
			out[r.Resource] = int64(r.Token)
		}
	}
	return out, err
}

func (d *directory) thread(ctx context.Context, th string, tokens map[string]int64, emit func(rows.Row) error) (err error) {
	at, err := os.MkdirTemp(d.scratch, "thread-")
	if err != nil {
		return fmt.Errorf("make room for a copy: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(at)) }()
	if err := snapshot.Copy(ctx, d.dir(th), filepath.Join(at, "events.db")); err != nil {
		return err
	}
	c, err := db.Open(ctx, at, db.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	// What another program wrote last may not be in the chain yet.
	return c.Do(ctx, false, func(tx *db.Tx) error {
		if err := tx.ChainForeign(); err != nil {
			return err
		}
		for _, table := range slices.Concat([]string{schema.Erased, schema.Media}, schema.Origins, schema.Process, schema.Session) { // of the copy, which may have none
			if _, err := tx.Exec(table); err != nil {
				return err
			}
		}
		if err := d.head(tx, th, emit); err != nil {
			return err
		}
		for _, t := range rows.All {
			if t.Inbox && th != thread.Inbox {
				continue
			}
			var err error
			if t == rows.Fence && th == thread.Inbox {
				err = fences(tx, tokens, emit)
			} else {
				err = eachThreadRow(tx, th, t, emit)
			}
			if err != nil {
				return fmt.Errorf("read %s of %s: %w", t.Name, th, err)
			}
		}
		return nil
	})
}

// fences tells the seals of an inbox, and above them what the home has granted: no
// token is given twice, wherever it was written.
func fences(tx *db.Tx, tokens map[string]int64, emit func(rows.Row) error) error {
	all := maps.Clone(tokens)
	err := eachThreadRow(tx, thread.Inbox, rows.Fence, func(r rows.Row) error {
		res := r.Values[0].(string)
		all[res] = max(all[res], r.Values[1].(int64))
		return nil
	})
	for _, res := range slices.Sorted(maps.Keys(all)) {
		if err == nil {
			err = emit(rows.Row{Thread: thread.Inbox, Table: rows.Fence, Values: []any{res, all[res]}})
		}
	}
	return err
}

// head tells the row of the thread itself; LEASE_HELD for an inbox whose agent works.
func (d *directory) head(tx *db.Tx, th string, emit func(rows.Row) error) error {
	var uuid, tuple, desired string
	var subscribed bool
	var head, acked int64
	own := thread.Outbound
	if th == thread.Inbox {
		own = thread.Inbox
	}
	_, err := tx.Row(`SELECT uuid, tuple, desired, EXISTS(SELECT 1 FROM subscriptions WHERE consumer_id = 'inbox'),
		MAX(COALESCE((SELECT MAX(id) FROM events), 0), COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0)),
		COALESCE((SELECT id FROM x_ack WHERE consumer = ?), 0) FROM x_meta`, []any{own}, &uuid, &tuple, &desired, &subscribed, &head, &acked)
	if err != nil {
		return fmt.Errorf("read %s: %w", th, err)
	}
	if th == thread.Inbox && !d.live && (desired == "started" || desired == "" && subscribed) {
		return started(d.agent)
	}
	return emit(rows.Row{Thread: th, Table: rows.Thread, Values: []any{uuid, tuple, desired, head, acked}})
}
