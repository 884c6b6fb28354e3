// Package repair corrects what may be corrected in a home without a decision of a person:
// modes, missing tables and indexes, fences that were lost with the ledger, events.jsonl,
// the list of sessions, and a database that is damaged.
//
// It deletes nothing but the files of unfinished writes. A damaged database gets another
// name, and a new one in its place holds every row that could still be read and every
// event that the chain or events.jsonl vouches for; what an inbox no longer
// knows is taken from its threads. A message that may have been answered is not
// answered again, one that may have been sent is sent flagged. Each step may be
// interrupted: the next run goes on.
//
// The caller holds the home's lock, so that nobody else works in it. What no
// program may decide stays as it is, and is found by the next check.
package repair

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/invariant/exposure"
	"github.com/theclaw/agents/internal/invariant/leftover"
	"github.com/theclaw/agents/internal/invariant/record"
	"github.com/theclaw/agents/internal/invariant/snapshot"
)

// Options of a repair.
type Options struct {
	Agent    string // only this one, and no file outside of it; empty: the home
	UserHome string
	Now      time.Time // for the names of what is put aside
}

// Action is one thing that was done, or could not be.
type Action struct {
	Agent  string `json:"agent"`
	Thread string `json:"thread"`
	What   string `json:"what"`
	Error  string `json:"error,omitempty"` // why it was not done
}

type work struct {
	home    layout.Home
	o       Options
	actions []Action
	stopped bool // whether the agent was started was lost with its inbox
}

// Home repairs what it may and answers what it did; what was done before an
// error stays done. What cannot be repaired is an action with an error, and does not end
// the repair of the rest.
func Home(ctx context.Context, home layout.Home, o Options) ([]Action, error) {
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	w := &work{home: home, o: o}
	if err := w.files(ctx); err != nil {
		return w.actions, err
	}
	read := snapshot.Options{Agent: o.Agent, UserHome: o.UserHome}
	h, err := snapshot.Read(ctx, home, read)
	if err != nil {
		return w.actions, fmt.Errorf("read home: %w", err)
	}
	for _, a := range h.Agents {
		if err := w.agent(ctx, a); ctx.Err() != nil {
			return w.actions, ctx.Err()
		} else if err != nil { // of this agent alone
			w.actions = append(w.actions, Action{Agent: a.ID, What: "repair its databases", Error: err.Error()})
		}
	}
	return w.actions, nil
}

func (w *work) did(d *snapshot.DB, format string, args ...any) {
	w.actions = append(w.actions, Action{Agent: d.Agent, Thread: d.Thread, What: fmt.Sprintf(format, args...)})
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
	for i, d := range a.Threads {
		if err := w.session(ctx, a, d); err != nil {
			return err
		}
		a.Threads[i] = again(d)
	}
	if err := w.list(ctx, a); err != nil {
		return err
	}
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
	if len(record.Broken(d)) == 0 && !lostInbox(a, d) {
		return nil
	}
	return w.salvage(ctx, a, d)
}

// lostInbox reports whether an inbox has lost its last commits: events.jsonl knows
// more. They are taken from there, and what became of them from the threads. Where
// a thread has lost commits too, nobody can say what was answered.
func lostInbox(a *snapshot.Agent, d *snapshot.DB) bool {
	if !d.IsInbox() || record.Compare(d).Ahead == 0 {
		return false
	}
	return !slices.ContainsFunc(a.Threads, func(t *snapshot.DB) bool { return record.Compare(t).Ahead != 0 })
}

// schema makes the missing tables and indexes of a database that can be read. A
// missing column is another version's table, and is left alone.
func (w *work) schema(ctx context.Context, d *snapshot.DB) error {
	if len(d.Missing) == 0 || d.Foreign || len(d.Damage) > 0 {
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

// fences raises the fence of each database to what was accepted in it, and the
// inbox's to what its threads have seen: the next grant counts from there when the
// ledger is gone.
func (w *work) fences(ctx context.Context, a *snapshot.Agent) error {
	if len(a.Inbox.Damage) > 0 {
		return nil
	}
	seen := map[string]uint64{}
	for _, d := range append(slices.Clone(a.Threads), a.Inbox) {
		accepted := d.Accepted()
		for r, token := range d.Fences {
			accepted[r] = max(accepted[r], token)
		}
		for r, token := range accepted {
			seen[r] = max(seen[r], token)
		}
		if d.IsInbox() {
			accepted = seen
		}
		if err := w.raise(ctx, d, accepted); err != nil {
			return err
		}
	}
	return nil
}

func (w *work) raise(ctx context.Context, d *snapshot.DB, to map[string]uint64) error {
	var low []string
	for _, r := range slices.Sorted(maps.Keys(to)) {
		if to[r] > d.Fences[r] {
			low = append(low, r)
		}
	}
	if len(low) == 0 || len(d.Damage) > 0 {
		return nil
	}
	c, done, err := change(ctx, filepath.Join(d.Dir, "events.db"))
	if err != nil {
		return err
	}
	for _, r := range low {
		if _, err := c.ExecContext(ctx, "INSERT INTO x_fence(resource, token) VALUES(?,?) ON CONFLICT(resource) DO UPDATE SET token = excluded.token", r, int64(to[r])); err != nil {
			return errors.Join(fmt.Errorf("raise fence: %w", err), done(false))
		}
	}
	if err := done(true); err != nil {
		return err
	}
	for _, r := range low {
		w.did(d, "raised the fence of %s from %d to %d", r, d.Fences[r], to[r])
	}
	return nil
}

// files gives every file and directory the modes it must have, but not those
// that an agent's programs have made in their directory, and removes what interrupted
// writes have left. What cannot be changed is an action with an error.
func (w *work) files(ctx context.Context) error {
	return exposure.Walk(ctx, w.home, w.o.Agent, func(f exposure.File) error {
		if w.o.Agent != "" && f.Agent == "" {
			if f.Info.IsDir() && f.Path != "." && f.Full != w.home.AgentsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if leftover.Is(f.Path) {
			w.actions = append(w.actions, action(f, f.Dir.RemoveAll(f.Name()), "was left behind by an interrupted write and is removed"))
			if f.Info.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if how, most := f.Exposed(); how != exposure.Private {
			mode := f.Info.Mode().Perm() & most
			w.actions = append(w.actions, action(f, f.Dir.Chmod(f.Name(), mode), fmt.Sprintf("has mode %o now", mode)))
		}
		if f.Rest == "workdir" && f.Info.IsDir() {
			return fs.SkipDir
		}
		return nil
	}, func(exposure.File, error) {}) // the check that follows reports it
}

func action(f exposure.File, err error, what string) Action {
	a := Action{Agent: f.Agent, What: boundary.Name(f.Full) + " " + what}
	if err != nil {
		a.Error = err.Error()
	}
	return a
}
