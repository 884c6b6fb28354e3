package agentdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/fault"
)

// Dir is the directory of one agent. It is a value; copying it is fine.
type Dir struct {
	ID, Path string

	home  *Home
	inbox string // resolved inbox.path; empty: the default
}

// Inbox returns the inbox thread's directory. inbox.path counts only for the Dir of
// an [Agent] that [Home.Load] returned; a Dir of [Home.Agent] returns the default.
func (d Dir) Inbox() string {
	if d.inbox != "" {
		return d.inbox
	}
	return filepath.Join(d.Path, "inbox")
}

// Memory holds the memory layers.
func (d Dir) Memory() string { return filepath.Join(d.Path, "memory") }

// Sessions holds the session files, projections that may be deleted.
func (d Dir) Sessions() string { return filepath.Join(d.Path, "sessions") }

// Scratch is the scratch directory of that name, which conversations in a sandbox have.
func (d Dir) Scratch(name string) string { return filepath.Join(d.home.SandboxesDir(), name) }

// Workdir is the working directory of the agent's programs.
func (d Dir) Workdir() string { return filepath.Join(d.Path, "workdir") }

// Logs holds agent.log and its older parts.
func (d Dir) Logs() string { return d.Path + string(filepath.Separator) + "logs" }

// RunLock is locked while somebody works for the agent.
func (d Dir) RunLock() string { return filepath.Join(d.Path, "run.lock") }

// Check returns AGENT_NOT_FOUND unless the directory is there.
func (d Dir) Check() error {
	root, err := d.open()
	if err != nil {
		return err
	}
	return root.Close()
}

// NotFound is the error for an agent that is not there; it has the words of the command
// line (CONTRACTS 6).
func (d Dir) NotFound() *fault.Error {
	e := fault.New(codes.NotFound, fault.AgentNotFound, fmt.Sprintf("Agent '%s' not found at %s", d.ID, d.Path),
		fmt.Sprintf("run 'agent init %s' first", d.ID))
	e.Meta = map[string]string{"agent_id": d.ID, "dir": d.Path}
	return e
}

// open opens the directory for access that cannot leave it. A symbolic link in the
// place of the directory is not followed out of agents/.
func (d Dir) open() (*os.Root, error) {
	root, err := d.home.root.OpenRoot("agents/" + d.ID)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Wrap(d.NotFound(), err)
	}
	if err != nil {
		return nil, Fault(fmt.Errorf("open agent %s: %w", d.ID, err))
	}
	return root, nil
}

// Thread returns the directory of a thread, which need not exist. An id that is
// malformed, or that a symbolic link leads out of the agent's directory, is refused.
func (d Dir) Thread(id string) (string, error) {
	if err := layout.ValidThread(id); err != nil {
		return "", err
	}
	if id == "inbox" && d.inbox != "" {
		return d.inbox, nil
	}
	root, err := d.open()
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	if _, err := root.Stat(id); err != nil && !errors.Is(err, fs.ErrNotExist) {
		if isEscape(err) {
			return "", fault.Wrap(fault.New(codes.PermissionDenied, fault.PermissionDenied,
				fmt.Sprintf("thread %s leads outside the directory of agent '%s'", id, d.ID), "remove the symbolic link"), err)
		}
		return "", Fault(err)
	}
	return filepath.Join(d.Path, filepath.FromSlash(id)), nil
}

// ThreadOf returns the id of a thread directory of this agent, the inverse of Thread.
func (d Dir) ThreadOf(dir string) (string, error) {
	clean := filepath.Clean(dir)
	if clean == d.Inbox() {
		return "inbox", nil
	}
	rel, err := filepath.Rel(d.Path, clean)
	if err != nil {
		return "", fmt.Errorf("resolve thread: %w", err)
	}
	id := filepath.ToSlash(rel)
	return id, layout.ValidThread(id)
}

// ListThreads returns the ids of at most limit conversation threads that sort after
// `after`, in order; fewer than limit means there are no more. A thread is a directory
// below threads/ that holds events.db; nothing is looked for inside one, nor deeper
// than a thread id can name. Symbolic links are not followed.
func (d Dir) ListThreads(ctx context.Context, after string, limit int) ([]string, error) {
	root, err := d.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	files := root.FS()
	var ids []string
	err = fs.WalkDir(files, "threads", func(id string, entry fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, fs.ErrNotExist): // removed during the walk
			return nil
		case err != nil:
			return err
		case !entry.IsDir() || id == "threads":
			return nil
		}
		if info, err := fs.Stat(files, path.Join(id, "events.db")); err == nil && info.Mode().IsRegular() {
			if id > after && layout.ValidThread(id) == nil {
				ids = append(ids, id)
			}
			return fs.SkipDir
		}
		if strings.Count(id, "/") >= layout.MaxThreadLevels-1 {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return nil, Fault(fmt.Errorf("list threads of %s: %w", d.ID, err))
	}
	slices.Sort(ids) // a walk sorts by level, an id by byte
	return ids[:min(max(limit, 0), len(ids))], nil
}
