package agentdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"time"

	"github.com/theclaw/agents/internal/agentdir/layout"
)

// Entry is one agent of a [Home.List]. Err says why it cannot be used; Kind is empty
// then. A broken agent is listed, never dropped.
type Entry struct {
	ID, Path, Kind string
	Err            error
}

var tempRule = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\.[a-z0-9][a-z0-9_-]{0,63}\.tmp-[a-z0-9]+$`) })

// IDs returns the names of all agents in order without looking into them, which is
// cheap for thousands. Directories whose name is no agent id are left out.
func (h *Home) IDs() ([]string, error) {
	entries, err := h.entries()
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() && layout.ValidID(e.Name()) == nil {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// List returns all agents in order with their kind, and removes what interrupted
// creations have left behind. It fails only when agents/ itself cannot be read.
func (h *Home) List(ctx context.Context) ([]Entry, error) {
	entries, err := h.entries()
	if err != nil {
		return nil, err
	}
	list := []Entry{} // not nil: an empty home is [] in JSON
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		name := e.Name()
		switch {
		case tempRule().MatchString(name):
			h.sweep(name)
			continue
		case name[0] == '.' || !e.IsDir() && e.Type()&fs.ModeSymlink == 0:
			continue
		}
		entry := Entry{ID: name, Path: filepath.Join(h.AgentsDir(), name)}
		if a, err := h.Load(name); err != nil {
			entry.Err = err
		} else {
			entry.Kind = a.Config.Kind
		}
		list = append(list, entry)
	}
	return list, nil
}

// entries reads agents/ in the order of the names; a home without one has no agents.
func (h *Home) entries() ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(h.AgentsDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, Fault(fmt.Errorf("list agents: %w", err))
	}
	return entries, nil
}

// staleAfter is the age at which an unfinished directory was locked by its creator.
const staleAfter = time.Minute

// sweep removes an unfinished directory whose creator is gone: old enough that it was
// locked, and not locked any more. Failing is harmless; the next List tries again.
func (h *Home) sweep(name string) {
	agents, err := h.root.OpenRoot("agents")
	if err != nil {
		return
	}
	defer func() { _ = agents.Close() }()
	f, err := agents.Open(name)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || !info.IsDir() || time.Since(info.ModTime()) < staleAfter {
		return
	}
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		_ = agents.RemoveAll(name)
	}
}
