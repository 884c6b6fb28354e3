// Package settle owns what makes the copies of a backup one agent again: where
// its inbox and its leases go on, what is due, and what was cut in two.
//
// It works on directories that nobody else has open and knows no tar. What it
// does and why is said in package backup.
package settle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/sqlite/journal"
	"github.com/theclaw/agents/internal/store/sqlite/snapshot"
	"github.com/theclaw/agents/internal/thread"
)

const database = "events.db"

// Floor is what a restored inbox must go on above.
type Floor struct {
	id     int64             // inbox ids handed out
	tokens map[string]uint64 // of leases, by resource
}

// ErrStarted is the answer for an agent whose place is wanted and that is not stopped.
var ErrStarted = errors.New("the agent is started")

// room is kept above the last id of an inbox that is replaced: a push may reach
// it while the two are exchanged, and its id is not given out again either.
const room = 1024

// With adds the tokens that a backup ends with.
func (f Floor) With(tokens map[string]uint64, id string) Floor {
	for _, r := range []string{lease.AgentResource(id), lease.DeliverResource(id)} {
		f.raise(r, tokens[r])
	}
	return f
}

func (f Floor) raise(resource string, token uint64) {
	f.tokens[resource] = max(f.tokens[resource], token)
}

// None is the floor where no agent was.
func None() Floor { return Floor{tokens: map[string]uint64{}} }

// Below answers the floor that the inbox at dir gives; scratch is a directory that
// does not exist. Errors: ErrStarted. An inbox that cannot be read gives none, and
// works on nothing.
func Below(ctx context.Context, dir, scratch string) (Floor, error) {
	f := None()
	// A copy: a registry may have the inbox open, and it opens a database once.
	if err := os.Mkdir(scratch, 0o700); err != nil {
		return f, err
	}
	err := snapshot.Copy(ctx, dir, filepath.Join(scratch, database))
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrCorrupt) {
		return f, nil
	}
	if err != nil {
		return f, err
	}
	var st store.InboxState
	err = within(ctx, scratch, func(tx *db.Tx) error {
		var err error
		if st, err = journal.State(tx); err != nil {
			return err
		}
		f.id, err = handedOut(tx)
		return err
	})
	if err == nil && st.Started {
		err = ErrStarted
	}
	f.id += room
	maps.Copy(f.tokens, st.Fences)
	return f, err
}

// within runs fn durably in a copy that nobody else has open.
func within(ctx context.Context, dir string, fn func(*db.Tx) error) error {
	d, err := db.Open(ctx, dir, db.Options{})
	if err != nil {
		return err
	}
	return errors.Join(d.Do(ctx, true, fn), d.Close())
}

// handedOut is the greatest id that an inbox has given to an event.
func handedOut(tx *db.Tx) (int64, error) {
	var id int64
	_, err := tx.Row(`SELECT MAX(COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'events'),0), COALESCE((SELECT MAX(id) FROM events),0),
		COALESCE((SELECT MAX(id) FROM x_ack WHERE consumer = 'inbox'),0), COALESCE((SELECT MAX(inbox_id) FROM x_fate),0))`, nil, &id)
	return id, err
}

func fences(tx *db.Tx, f Floor) error {
	return tx.Each("SELECT resource, token FROM x_fence", nil, func(scan func(...any) error) error {
		var r string
		var t int64
		err := scan(&r, &t)
		f.raise(r, uint64(t))
		return err
	})
}

// Account is what an agent has after it was settled.
type Account struct {
	Threads, Events      int64 // the inbox counted in
	LastInboxID, Aborted int64
}

// Agent settles the copies at dir of the agent id, which is called as from now on.
func Agent(ctx context.Context, dir, id, as string, f Floor) (Account, error) {
	out := Account{Threads: 1}
	if err := config(dir, id, as); err != nil {
		return out, err
	}
	var head int64
	in := filepath.Join(dir, thread.Inbox)
	if err := within(ctx, in, func(tx *db.Tx) error {
		var err error
		if head, err = tx.Head(); err != nil {
			return err
		}
		last, err := handedOut(tx)
		f.id = max(f.id, last)
		return errors.Join(err, fences(tx, f), whole(tx, &out))
	}); err != nil {
		return out, fmt.Errorf("check inbox: %w", err)
	}
	due := map[string]int64{}
	err := filepath.WalkDir(filepath.Join(dir, "threads"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != database {
			return err
		}
		rel, err := filepath.Rel(dir, filepath.Dir(path))
		if err != nil || layout.ValidThread(filepath.ToSlash(rel)) != nil {
			return err
		}
		out.Threads++
		if err := within(ctx, filepath.Dir(path), func(tx *db.Tx) error {
			due[filepath.ToSlash(rel)], err = conversation(tx, head, &f, &out)
			return errors.Join(err, call(tx, id, as))
		}); err != nil {
			return fmt.Errorf("check thread %s: %w", rel, err)
		}
		return furnish(ctx, filepath.Dir(path))
	})
	if err != nil {
		return out, err
	}
	out.LastInboxID = f.id
	err = within(ctx, in, func(tx *db.Tx) error { return errors.Join(goOn(tx, f, due, id != as), call(tx, id, as)) })
	return out, errors.Join(err, furnish(ctx, in))
}

// whole verifies every event and counts them.
func whole(tx *db.Tx, out *Account) error {
	if _, err := tx.VerifyChain(); err != nil {
		return err
	}
	var n int64
	_, err := tx.Row("SELECT COUNT(*) FROM events", nil, &n)
	out.Events += n
	return err
}

// conversation settles one thread and answers the newest event to deliver. head
// is the last message that the inbox of the backup has.
func conversation(tx *db.Tx, head int64, f *Floor, out *Account) (int64, error) {
	var last int64
	if _, err := tx.Row("SELECT COALESCE(MAX(inbox_id),0) FROM x_turn", nil, &last); err != nil {
		return 0, err
	}
	f.id = max(f.id, last)
	n, err := tx.Exec("UPDATE x_turn SET state = 'done', fate = 'aborted', error = ?, not_before = 0, finished_at = ? WHERE inbox_id > ? AND state <> 'done'",
		"accepted while the backup was made that this agent was restored from", time.Now().UnixMilli(), head)
	if err != nil {
		return 0, err
	}
	out.Aborted += n
	// Another boot's rows are sent with the flag that the peer may have them.
	if _, err := tx.Exec("UPDATE x_delivery SET boot_id = 'restored' WHERE state = 'pending'"); err != nil {
		return 0, err
	}
	due, err := journal.OpenHead(tx)
	return due, errors.Join(err, fences(tx, *f), whole(tx, out))
}

// call gives an agent of another name the fences it had: what was written stays
// below them, and so do the tokens to come.
func call(tx *db.Tx, id, as string) error {
	if id == as {
		return nil
	}
	for was, is := range map[string]string{lease.AgentResource(id): lease.AgentResource(as), lease.DeliverResource(id): lease.DeliverResource(as)} {
		if _, err := tx.Exec("INSERT INTO x_fence(resource, token) SELECT ?, token FROM x_fence WHERE resource = ? ON CONFLICT(resource) DO UPDATE SET token = MAX(token, excluded.token)", is, was); err != nil {
			return err
		}
	}
	return nil
}

// goOn tells the inbox where the life of before ended.
func goOn(tx *db.Tx, f Floor, due map[string]int64, stop bool) error {
	n, err := tx.Exec("UPDATE sqlite_sequence SET seq = MAX(seq, ?) WHERE name = 'events'", f.id)
	if err == nil && n == 0 {
		_, err = tx.Exec("INSERT INTO sqlite_sequence(name, seq) VALUES('events', ?)", f.id)
	}
	for r, t := range f.tokens {
		if err == nil && t > 0 {
			_, err = tx.Exec("INSERT INTO x_fence(resource, token) VALUES(?,?) ON CONFLICT(resource) DO UPDATE SET token = MAX(token, excluded.token)", r, int64(t))
		}
	}
	for t, head := range due {
		if err == nil && head > 0 {
			_, err = tx.Exec("INSERT INTO x_outbox(thread, head, acked) VALUES(?,?,0) ON CONFLICT(thread) DO UPDATE SET head = MAX(head, excluded.head), acked = MIN(acked, excluded.head - 1)", t, head)
		}
	}
	if err == nil && stop {
		_, err = journal.SetStarted(tx, false, "")
	}
	return err
}

// furnish makes what a thread directory has beside its database, the newest
// lines of events.jsonl among it.
func furnish(ctx context.Context, dir string) (err error) {
	for _, sub := range []string{"run", "logs"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return err
		}
	}
	var b []byte
	if err := within(ctx, dir, func(tx *db.Tx) error {
		head, err := tx.Head()
		if err != nil {
			return err
		}
		const lines = 1000
		return tx.Each("SELECT "+db.Columns+" FROM events WHERE id > ? ORDER BY id", []any{head - lines}, func(scan func(...any) error) error {
			e, err := db.Scan(scan)
			b = append(e.AppendLine(b), '\n')
			return err
		})
	}); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "events.jsonl"), b, 0o600)
}

var ownName = regexp.MustCompile(`(?m)^agent_id:.*$`)

// config gives the settings the agent's name and its inbox the place that it has
// in every backup. Settings that were wrong stay as they were.
func config(dir, id, as string) error {
	name := filepath.Join(dir, "config.yaml")
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	was := data
	if id != as {
		data = ownName.ReplaceAllLiteral(data, []byte(`agent_id: "`+as+`"`))
	}
	in := layer.Layers{AgentID: as, Agent: layer.File{Name: "config.yaml", Data: data}}
	if set, err := layer.Load(in); err == nil && set.Config.Inbox.Path != "" {
		if moved, err := layer.Set(in, "inbox.path", thread.Inbox); err == nil {
			data = moved
		}
	}
	if bytes.Equal(was, data) {
		return nil
	}
	return os.WriteFile(name, data, 0o600)
}
