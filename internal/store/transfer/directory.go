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
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/sqlite/homedb"
	"github.com/theclaw/agents/internal/store/sqlite/snapshot"
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

	open *db.DB // the thread that is written now
	rows []Row  // to be written to it
	size int
}

// read tells every row of the agent, in the order of the format. It reads copies: the
// source is not even adopted, repaired or chained.
func (d *directory) read(ctx context.Context, emit func(Row) error) error {
	if err := d.files(emit); err != nil {
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

// files are the texts that an agent may have.
func (d *directory) files(emit func(Row) error) error {
	names := []string{"IDENTITY.md", "USAGE.md", "config.yaml"}
	entries, err := os.ReadDir(filepath.Join(d.path, "memory"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list memory: %w", err)
	}
	for _, e := range entries {
		if name := "memory/" + e.Name(); e.Type().IsRegular() && agentdir.ValidFile(name) == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(d.path, filepath.FromSlash(name)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read file: %w", err)
		}
		if err := emit(Row{"", fileTable, []any{name, append([]byte{}, data...)}}); err != nil {
			return err
		}
	}
	return nil
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

func (d *directory) thread(ctx context.Context, th string, tokens map[string]int64, emit func(Row) error) (err error) {
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
		if err := d.head(tx, th, emit); err != nil {
			return err
		}
		for _, t := range tables {
			if t.Inbox && th != thread.Inbox {
				continue
			}
			var err error
			if t == fenceTable && th == thread.Inbox {
				err = fences(tx, tokens, emit)
			} else {
				err = each(tx, th, t, emit)
			}
			if err != nil {
				return fmt.Errorf("read %s of %s: %w", t.Name, th, err)
			}
		}
		return nil
	})
}

func each(tx *db.Tx, th string, t *Table, emit func(Row) error) error {
	return tx.Each(t.Lite, nil, func(scan func(...any) error) error {
		dest := t.dest()
		if err := scan(dest...); err != nil {
			return err
		}
		return emit(Row{th, t, t.values(dest)})
	})
}

// fences tells the seals of an inbox, and above them what the home has granted: no
// token is given twice, wherever it was written.
func fences(tx *db.Tx, tokens map[string]int64, emit func(Row) error) error {
	all := maps.Clone(tokens)
	err := each(tx, thread.Inbox, fenceTable, func(r Row) error {
		res := r.Values[0].(string)
		all[res] = max(all[res], r.Values[1].(int64))
		return nil
	})
	for _, res := range slices.Sorted(maps.Keys(all)) {
		if err == nil {
			err = emit(Row{thread.Inbox, fenceTable, []any{res, all[res]}})
		}
	}
	return err
}

// head tells the row of the thread itself; LEASE_HELD for an inbox whose agent works.
func (d *directory) head(tx *db.Tx, th string, emit func(Row) error) error {
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
	if th == thread.Inbox && (desired == "started" || desired == "" && subscribed) {
		return started(d.agent)
	}
	return emit(Row{th, threadTable, []any{uuid, tuple, desired, head, acked}})
}

// put writes a row, soon.
func (d *directory) put(ctx context.Context, r Row) error {
	switch r.Table {
	case fileTable:
		return d.file(r.Values[0].(string), r.Values[1].([]byte))
	case threadTable:
		if err := d.next(ctx, r.Thread); err != nil {
			return err
		}
	}
	d.rows = append(d.rows, r)
	for _, v := range r.Values {
		switch v := v.(type) {
		case string:
			d.size += len(v)
		case []byte:
			d.size += len(v)
		}
	}
	if len(d.rows) < maxRows && d.size < maxBytes {
		return nil
	}
	return d.flush(ctx)
}

// file writes a text; one whose name leads elsewhere is refused.
func (d *directory) file(name string, data []byte) error {
	if err := agentdir.ValidFile(name); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(d.path, filepath.FromSlash(name)), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// next ends the thread that is written and begins one.
func (d *directory) next(ctx context.Context, th string) error {
	if err := errors.Join(d.flush(ctx), d.close()); err != nil {
		return err
	}
	if th != thread.Inbox && (!strings.HasPrefix(th, "threads/") || !filepath.IsLocal(filepath.FromSlash(th))) {
		return fault.New(codes.DataLoss, fault.DatabaseCorrupt, fmt.Sprintf("%.80q is not a thread", th), "run 'agentctl fsck' on the source")
	}
	at := d.dir(th)
	if err := os.MkdirAll(at, 0o700); err != nil {
		return fmt.Errorf("make thread: %w", err)
	}
	if _, err := db.Create(at); err != nil {
		return err
	}
	var err error
	d.open, err = db.Open(ctx, at, db.Options{})
	return err
}

func (d *directory) flush(ctx context.Context) error {
	if len(d.rows) == 0 {
		return nil
	}
	rows := d.rows
	d.rows, d.size = nil, 0
	return d.open.Do(ctx, true, func(tx *db.Tx) error {
		for _, r := range rows {
			if err := write(tx, r); err != nil {
				return fmt.Errorf("write %s of %s: %w", r.Table.Name, r.Thread, err)
			}
		}
		return nil
	})
}

// write puts a row into the thread's own database.
func write(tx *db.Tx, r Row) error {
	exec := func(sql string, args ...any) error {
		_, err := tx.Exec(sql, args...)
		return err
	}
	v := r.Values
	switch r.Table {
	case threadTable:
		own := thread.Outbound
		if r.Thread == thread.Inbox {
			own = thread.Inbox
		}
		err := exec("UPDATE x_meta SET uuid = ?, tuple = ?, desired = ?", v[0], v[1], v[2])
		if head := v[3].(int64); err == nil && head > 0 { // ids that were given are not given again
			err = exec("INSERT INTO sqlite_sequence(name, seq) VALUES('events', ?)", head)
		}
		if acked := v[4].(int64); err == nil && acked > 0 {
			err = exec("INSERT INTO x_ack(consumer, id) VALUES(?,?)", own, acked)
		}
		return err
	case eventTable:
		return errors.Join(
			exec("INSERT INTO events(id, created_at, source, type, subtype, content) VALUES(?,?,?,?,?,?)", v[:6]...),
			exec("INSERT INTO x_chain(event_id, prev, sha256) VALUES(?,?,?)", v[0], v[6], v[7]))
	case fateTable:
		err := exec("INSERT INTO x_fate(inbox_id, key, thread, fate, at) VALUES(?,?,?,?,?)", v[:5]...)
		if err == nil && v[3] == "dead" {
			err = exec("INSERT INTO x_dead(inbox_id, error, resolved) VALUES(?,?,?)", v[0], v[5], v[6])
		}
		return err
	}
	return exec(r.Table.Put, v...)
}

// finished tells every row of what was written.
func (d *directory) finished(ctx context.Context, emit func(Row) error) error {
	if err := errors.Join(d.flush(ctx), d.close()); err != nil {
		return err
	}
	d.bare = true
	return d.read(ctx, emit)
}

func (d *directory) close() error {
	if d.open == nil {
		return nil
	}
	err := d.open.Close()
	d.open = nil
	return err
}
