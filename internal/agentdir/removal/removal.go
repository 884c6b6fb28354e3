// Package removal removes an agent's directory: its name at once, and its files after that.
//
//	agents/<id> --Put--> agents/.<id>.gone-<random> --Clear--> (absent)
//
// It promises that an agent exists completely or not at all, and that what a killed process
// left can be found (Unfinished) and cleared, including what lies elsewhere: the inbox, the
// working directory among those that all runners share, the scratch directories of its sandboxes and the
// directories of its MCP servers. The registry decides who may remove an agent, and removes its rows.
package removal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/safefile"
	"github.com/theclaw/agents/internal/fault"
)

var (
	goneRule = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\.([a-z0-9][a-z0-9_-]{0,63})\.gone-[a-z0-9]+$`) })
	// inboxRule are the names that a thread's directory holds.
	inboxRule = regexp.MustCompile(`^(\.?events.*\.(db|db-wal|db-shm|db-journal|jsonl)|\.?events\.db.*|run|logs)$`)
)

// Dir is a directory that lost its name and waits to be cleared.
type Dir struct{ Agent, Name string }

// Put renames an agent's directory: when it returns there is no such
// agent any more, whatever happens then, and the name is free.
func Put(h *agentdir.Home, id string) (Dir, error) {
	d, err := h.Agent(id)
	if err != nil {
		return Dir{}, err
	}
	if err := d.Check(); err != nil {
		return Dir{}, err
	}
	agents, err := os.OpenRoot(h.AgentsDir())
	if err != nil {
		return Dir{}, agentdir.Fault(err)
	}
	defer func() { _ = agents.Close() }()
	if info, err := agents.Lstat(id); err == nil && !info.IsDir() {
		return Dir{}, fault.New(codes.FailedPrecondition, fault.InvalidArgument, d.Path+" is a link, and what it leads to is not ours to remove",
			"remove the link and what it leads to yourself, with the services stopped")
	}
	g := Dir{id, "." + id + ".gone-" + strings.ToLower(rand.Text())}
	if err := agents.Rename(id, g.Name); err != nil {
		return Dir{}, agentdir.Fault(fmt.Errorf("put agent away: %w", err))
	}
	return g, agentdir.Fault(safefile.SyncDir(agents, "."))
}

// Unfinished returns what was put away and is still there.
func Unfinished(h *agentdir.Home) ([]Dir, error) {
	entries, err := os.ReadDir(h.AgentsDir())
	var out []Dir
	for _, e := range entries {
		if m := goneRule().FindStringSubmatch(e.Name()); m != nil {
			out = append(out, Dir{m[1], e.Name()})
		}
	}
	return out, agentdir.Fault(err)
}

// Clear removes what was put away, and what lies elsewhere of it. It may be repeated. alone: the home has the directories
// of all agents that use it.
func Clear(h *agentdir.Home, g Dir, alone bool) error {
	agents, err := os.OpenRoot(h.AgentsDir())
	if err != nil {
		return agentdir.Fault(err)
	}
	defer func() { _ = agents.Close() }()
	// The settings name the place of the rest, so they are removed last. By none, or none that are
	// right, nothing was ever put elsewhere.
	if data, err := agents.ReadFile(g.Name + "/config.yaml"); err == nil {
		if a, err := h.Judge(g.Agent, data); err == nil {
			if err := clearInbox(a); err != nil {
				return agentdir.Fault(fmt.Errorf("remove the inbox of agent %s: %w", g.Agent, err))
			}
			// What is there when the name is in use again is of another agent.
			if _, err := agents.Lstat(g.Agent); errors.Is(err, fs.ErrNotExist) {
				if err := Workdir(a); err != nil {
					return err
				}
			}
		}
	}
	if _, err := agents.Lstat(g.Agent); errors.Is(err, fs.ErrNotExist) {
		if err := errors.Join(clearScratch(h, g.Agent, alone), clearBelow(h.ServersDir(), func(name string) bool { return name == g.Agent })); err != nil {
			return agentdir.Fault(fmt.Errorf("remove the scratch directories of agent %s: %w", g.Agent, err))
		}
	}
	return agentdir.Fault(remove(agents, g.Name))
}

// clearScratch removes the scratch directories of an agent, and not the one that all agents share. Their names begin
// like the key of what has them, so that one of a conversation may be of an agent whose id begins in the same way: it is
// left where such an agent is there, or is not known.
func clearScratch(h *agentdir.Home, id string, alone bool) error {
	var others []string
	if alone {
		var err error
		if others, err = h.IDs(); err != nil {
			return err
		}
	}
	own := config.Slug(config.ScopeKey(config.ScopeAgent, id, config.Conversation{}))
	return clearBelow(h.SandboxesDir(), func(name string) bool {
		return name == own || alone && mayHave(id, name) && !slices.ContainsFunc(others, func(other string) bool { return other != id && mayHave(other, name) })
	})
}

// mayHave reports whether a scratch directory may be that of a conversation of an agent.
func mayHave(id, name string) bool {
	begin := config.Slug(config.ScopeKey(config.ScopeAgent, id, config.Conversation{}))
	begin = begin[:len(begin)-len("-12345678")] // without the hash; what is left may be cut, too
	return strings.HasPrefix(name, begin+"-")
}

// clearBelow removes the directories below one whose names are chosen.
func clearBelow(dir string, chosen func(name string) bool) error {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if chosen(e.Name()) {
			if err := remove(root, e.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

// Workdir removes an agent's working directory from those that all runners have
// (workdir.shared), if this machine has them. It may be repeated. Errors: READ_ONLY.
func Workdir(a *agentdir.Agent) error {
	shared := a.Config.Workdir.Shared
	if shared == "" {
		return nil
	}
	root, err := os.OpenRoot(shared)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = errors.Join(remove(root, a.ID), root.Close())
	}
	switch {
	case errors.Is(err, fs.ErrPermission): // it belongs to the user of the runners
		return fault.Wrap(fault.New(codes.FailedPrecondition, fault.ReadOnly, "the registry may not remove "+filepath.Join(shared, a.ID),
			"remove it yourself"), err)
	case err != nil:
		return agentdir.Fault(fmt.Errorf("remove the shared working directory of agent %s: %w", a.ID, err))
	}
	return nil
}

// remove removes a directory permanently. It removes a link and not its target.
func remove(root *os.Root, name string) error {
	err := root.RemoveAll(name)
	if errors.Is(err, fs.ErrPermission) { // a program took the right to write from a directory of its own
		_ = fs.WalkDir(root.FS(), name, func(name string, e fs.DirEntry, _ error) error {
			if e != nil && e.IsDir() {
				_ = root.Chmod(name, 0o700)
			}
			return nil
		})
		err = root.RemoveAll(name)
	}
	if err == nil {
		err = safefile.SyncDir(root, ".")
	}
	return err
}

// clearInbox removes the thread's own files from a directory that its owner chose;
// others in there are not ours.
func clearInbox(a *agentdir.Agent) error {
	path := a.Inbox()
	if rel, err := filepath.Rel(a.Path, path); err == nil && filepath.IsLocal(rel) {
		return nil
	}
	dir, err := os.OpenRoot(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	entries, err := fs.ReadDir(dir.FS(), ".")
	for _, e := range entries {
		if inboxRule.MatchString(e.Name()) {
			err = errors.Join(err, dir.RemoveAll(e.Name()))
		}
	}
	if err != nil {
		return err
	}
	_ = os.Remove(path) // stays where it holds something else
	return nil
}
