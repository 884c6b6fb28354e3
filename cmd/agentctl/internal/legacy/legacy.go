// Package legacy converts what the earlier agent wrote in another format than this
// runtime: settings, names of conversations and memory files, an invalid filter, locks
// that nobody holds, file modes.
//
// [Scan] reads one agent's directory and returns what it would change, what it cannot
// decide, and what waits there to be answered or sent. It changes nothing, and may read a
// home in use. [Apply] makes the changes, [SkipWaiting] skips what waits, [Undo] returns the
// changes that give a directory back to the earlier agent. The package promises that
// nothing is deleted: what is replaced keeps its bytes under a name with `.migrated-` and
// the time; that each step is one rename or one transaction, so that the next run continues
// an interrupted one; and that a directory that needs no change is not touched.
//
// A conversation is renamed only when its own messages show who spoke in it, all of them
// the same, and nothing of this runtime is in it yet.
//
// Before a change that the way back needs, Apply records it in migration.json of the
// agent's directory. The caller of Apply holds the home's lock. Damaged databases are repaired by fsck.
package legacy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/invariant/exposure"
	"github.com/theclaw/agents/internal/lease/runlock"
)

// Change is one thing that the earlier agent left in another way.
type Change struct {
	Agent string `json:"agent"`
	Check string `json:"check"` // settings, lock, modes, filter, thread, memory
	What  string `json:"what"`
	// Do is what a migration does about it; empty: only a person can, and Fix says how.
	Do  string `json:"do"`
	Fix string `json:"fix"`
	// Stops means that the agent cannot work until then.
	Stops bool `json:"stops"`

	do func(ctx context.Context, stamp string) error
}

// Options of a scan.
type Options struct {
	Live bool // a registry may be at work in the home
	Now  time.Time
	// Skips counts what SkipWaiting would skip: what is older than SkipBefore,
	// or all when that is zero.
	Skips      bool
	SkipBefore time.Time
}

// Found is the result of a scan.
type Found struct {
	Changes []Change
	Waiting Waiting
}

// scan is the examination of one agent.
type scan struct {
	home    layout.Home
	id, dir string
	o       Options
	found   Found
	taken   bool // this runtime has started or stopped the agent
}

func newScan(home layout.Home, id string, o Options) (*scan, error) {
	s := &scan{home: home, id: id, dir: home.AgentDir(id), o: o}
	_, err := os.Stat(s.dir)
	return s, err
}

// last is the newest change.
func (s *scan) last() *Change { return &s.found.Changes[len(s.found.Changes)-1] }

func (s *scan) will(check, do string, fn func(context.Context, string) error, what string, args ...any) {
	s.found.Changes = append(s.found.Changes, Change{Agent: s.id, Check: check, What: fmt.Sprintf(what, args...), Do: do, Fix: "run 'agentctl migrate " + s.id + " --apply' with the services stopped", do: fn})
}

func (s *scan) cannot(check, fix, what string, args ...any) {
	s.found.Changes = append(s.found.Changes, Change{Agent: s.id, Check: check, What: fmt.Sprintf(what, args...), Fix: fix})
}

// Scan answers what is to be done for an agent, in the order of doing it.
func Scan(ctx context.Context, home layout.Home, id string, o Options) (Found, error) {
	s, err := newScan(home, id, o)
	if err != nil {
		return Found{}, err
	}
	if err := s.locks(); err != nil {
		return Found{}, err
	}
	if err := s.settings(ctx); err != nil {
		return Found{}, err
	}
	if err := s.modes(ctx); err != nil {
		return Found{}, err
	}
	s.waiting(ctx)
	if err := s.threads(ctx); err != nil {
		return Found{}, err
	}
	return s.found, ctx.Err()
}

// Apply does what can be done and answers how much that was; what was done before
// an error stays done.
func Apply(ctx context.Context, changes []Change, now time.Time) (done int, err error) {
	stamp := now.UTC().Format("20060102-150405")
	for _, c := range changes {
		if c.do == nil {
			continue
		}
		if err := c.do(ctx, stamp); err != nil {
			return done, fmt.Errorf("migrate %s of agent %s: %w", c.Check, c.Agent, err)
		}
		done++
	}
	return done, nil
}

// Busy answers the pid of the earlier agent that works for id now; 0: nobody does.
func Busy(home layout.Home, id string) int {
	l := runlock.New(filepath.Join(home.AgentDir(id), "run.lock"))
	if _, err := os.Lstat(filepath.Join(home.AgentDir(id), "run.lock")); err != nil {
		return 0
	}
	if stale, err := l.Stale(); err != nil || stale {
		return 0
	}
	return max(pidIn(filepath.Join(home.AgentDir(id), "run.lock")), 1)
}

// locks finds locks that outlived their process: the earlier agent, and the
// dispatch of the external tool, wait for them for ever.
func (s *scan) locks() error {
	aside := func(path string) func(context.Context, string) error {
		return func(_ context.Context, stamp string) error {
			err := os.Rename(path, path+".migrated-"+stamp)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
	}
	path := filepath.Join(s.dir, "run.lock")
	if _, err := os.Lstat(path); err == nil {
		stale, err := runlock.New(path).Stale()
		if err != nil {
			return err
		}
		if stale {
			s.will("lock", "puts it aside", aside(path), "run.lock is left of process %d, which is gone", pidIn(path))
		}
	}
	for _, pattern := range []string{"inbox/run/*.lock", "threads/*/run/*.lock", "threads/*/*/run/*.lock"} {
		found, err := filepath.Glob(filepath.Join(escape(s.dir), pattern))
		if err != nil {
			return err
		}
		for _, path := range found {
			info, err := os.Lstat(path)
			// The dispatch writes its own pid, and is gone a moment later. A lock that
			// is just being made is left alone.
			if err != nil || s.o.Now.Sub(info.ModTime()) < time.Minute || alive(pidIn(path)) {
				continue
			}
			rel, _ := filepath.Rel(s.dir, path)
			s.will("lock", "puts it aside", aside(path), "%s is left of a process that is gone; the external dispatch waits for it", rel)
		}
	}
	return nil
}

// modes finds what others may read: the earlier agent followed the umask. Logs of the
// external thread tool, which follows it still, count only where others can reach them.
func (s *scan) modes(ctx context.Context) error {
	n := 0
	visit := func(ctx context.Context, fn func(f exposure.File, mode fs.FileMode) error) error {
		return exposure.Walk(ctx, s.home, s.id, func(f exposure.File) error {
			if f.Agent == "" {
				if f.Info.IsDir() && f.Path != "." && f.Full != s.home.AgentsDir() {
					return fs.SkipDir
				}
				return nil
			}
			if how, most := f.Exposed(); how == exposure.Exposed {
				if err := fn(f, f.Info.Mode().Perm()&most); err != nil {
					return err
				}
			}
			if f.Rest == "workdir" && f.Info.IsDir() {
				return fs.SkipDir // what its programs made there is theirs
			}
			return nil
		}, func(exposure.File, error) {}) // the check of the home reports it
	}
	if err := visit(ctx, func(exposure.File, fs.FileMode) error { n++; return nil }); err != nil || n == 0 {
		return err
	}
	s.will("modes", "takes others' permissions away", func(ctx context.Context, _ string) error {
		return visit(ctx, func(f exposure.File, mode fs.FileMode) error { return f.Dir.Chmod(f.Name(), mode) })
	}, "%d files and directories can be read by others", n)
	return nil
}
