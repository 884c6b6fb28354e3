// Package repair owns what may be put right in a home without asking anybody:
// modes, missing tables and indexes, fences that were lost with the ledger, the
// text beside a database, and a database that is damaged.
//
// It promises that nothing is deleted. A damaged database gets another name, and
// a new one in its place holds every row that could still be read and every
// event that the chain or events.jsonl vouches for; what an inbox no longer
// knows is taken from its threads. A message that may have been answered is not
// answered again, one that may have been sent is sent flagged. Each step may be
// cut off: the next run goes on.
//
// The caller holds the home's lock, so that nobody else works in it. What no
// program may decide stays as it is, and is found by the next check.
package repair

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/invariant/exposure"
	"github.com/theclaw/agents/internal/invariant/record"
	"github.com/theclaw/agents/internal/invariant/snapshot"
)

// Options of a repair.
type Options struct {
	Agent    string // only this one, and no file outside of it; empty: the home
	UserHome string
	Now      time.Time // for the names of what is put aside
}

// Action is one thing that was done.
type Action struct {
	Agent  string `json:"agent"`
	Thread string `json:"thread"`
	What   string `json:"what"`
}

type work struct {
	home    layout.Home
	o       Options
	actions []Action
}

// Home puts right what it may and answers what it did; what was done before an
// error stays done.
func Home(ctx context.Context, home layout.Home, o Options) ([]Action, error) {
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	w := &work{home: home, o: o}
	if err := w.modes(); err != nil {
		return w.actions, err
	}
	read := snapshot.Options{Agent: o.Agent, UserHome: o.UserHome}
	h, err := snapshot.Read(ctx, home, read)
	if err != nil {
		return w.actions, fmt.Errorf("read home: %w", err)
	}
	for _, a := range h.Agents {
		if err := w.agent(ctx, a); err != nil {
			return w.actions, fmt.Errorf("repair agent %s: %w", a.ID, err)
		}
	}
	return w.actions, nil
}

func (w *work) did(d *snapshot.DB, format string, args ...any) {
	w.actions = append(w.actions, Action{d.Agent, d.Thread, fmt.Sprintf(format, args...)})
}

// agent repairs the threads first: the inbox learns from them.
func (w *work) agent(ctx context.Context, a *snapshot.Agent) error {
	again := func(d *snapshot.DB) *snapshot.DB {
		return snapshot.ReadDB(ctx, d.Agent, d.Thread, d.Dir, snapshot.Options{})
	}
	for i, d := range a.Threads {
		if err := w.database(ctx, a, d); err != nil {
			return err
		}
		a.Threads[i] = again(d)
	}
	if err := w.database(ctx, a, a.Inbox); err != nil {
		return err
	}
	a.Inbox = again(a.Inbox)
	if err := w.fences(ctx, a); err != nil {
		return err
	}
	for _, d := range a.All() {
		if err := w.mirror(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

func (w *work) database(ctx context.Context, a *snapshot.Agent, d *snapshot.DB) error {
	if err := w.schema(ctx, d); err != nil {
		return err
	}
	if len(record.Broken(d)) == 0 {
		return nil
	}
	return w.salvage(ctx, a, d)
}

// schema makes the missing tables and indexes of a database that can be read. A
// missing column is another version's table, and is left alone.
func (w *work) schema(ctx context.Context, d *snapshot.DB) error {
	if len(d.Missing) == 0 || len(d.Damage) > 0 {
		return nil
	}
	want, err := snapshot.Schema()
	if err != nil {
		return err
	}
	c, done, err := change(ctx, filepath.Join(d.Dir, "events.db"))
	if err != nil {
		return err
	}
	var made []string
	for _, o := range want {
		for _, m := range d.Missing {
			if m == o.Name {
				if _, err := c.ExecContext(ctx, o.SQL); err != nil {
					return errors.Join(fmt.Errorf("make %s: %w", o.Name, err), done(false))
				}
				made = append(made, m)
			}
		}
	}
	if err := done(true); err != nil || len(made) == 0 {
		return err
	}
	w.did(d, "made %s", strings.Join(made, ", "))
	return nil
}

// fences raises the inbox's fence to what its threads have seen: the next grant
// counts from there when the ledger is gone.
func (w *work) fences(ctx context.Context, a *snapshot.Agent) error {
	if len(a.Inbox.Damage) > 0 {
		return nil
	}
	raise := map[string]uint64{}
	for _, d := range a.Threads {
		for r, token := range d.Fences {
			if token > max(a.Inbox.Fences[r], raise[r]) {
				raise[r] = token
			}
		}
	}
	if len(raise) == 0 {
		return nil
	}
	c, done, err := change(ctx, filepath.Join(a.Inbox.Dir, "events.db"))
	if err != nil {
		return err
	}
	for r, token := range raise {
		if _, err := c.ExecContext(ctx, "INSERT INTO x_fence(resource, token) VALUES(?,?) ON CONFLICT(resource) DO UPDATE SET token = excluded.token", r, int64(token)); err != nil {
			return errors.Join(fmt.Errorf("raise fence: %w", err), done(false))
		}
	}
	return done(true)
}

// modes gives every file and directory the modes it must have, but not those
// that an agent's programs have made in their directory.
func (w *work) modes() error {
	root := w.home.Path()
	if w.o.Agent != "" {
		root = w.home.AgentDir(w.o.Agent)
	}
	return filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return nil //nolint:nilerr // it is gone
		}
		if most, counts := exposure.PrivateMode(info); counts && info.Mode().Perm()&^most != 0 {
			if err := os.Chmod(path, info.Mode().Perm()&most); err != nil {
				return fmt.Errorf("fix mode: %w", err)
			}
			w.actions = append(w.actions, Action{What: fmt.Sprintf("%s has mode %o now", path, info.Mode().Perm()&most)})
		}
		if rel, err := filepath.Rel(w.home.AgentsDir(), path); err == nil && e.IsDir() && strings.HasSuffix(rel, "/workdir") && strings.Count(rel, "/") == 1 {
			return fs.SkipDir
		}
		return nil
	})
}
