package backup

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/backup/archive"
	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store"
)

// Choice is what to restore.
type Choice struct {
	Agents []string // out of the backup; empty: all
	// As is another name for the one agent restored, which is stopped then: two
	// agents must not answer the same waiting messages without a request to.
	As      string
	Replace bool // exchange agents that exist and are stopped
	// Absent, when set, is asked of each name before much is read: of agents that are
	// brought somewhere else than into the home afterwards. Its error ends the restore.
	Absent func(ctx context.Context, id string) error
}

// Restored is one agent after its restore.
type Restored struct {
	Agent string `json:"agent_id"`
	// Threads counts the inbox in.
	Threads int64 `json:"threads"`
	Events  int64 `json:"events"`
	// LastInboxID is the greatest inbox id known to have been handed out.
	LastInboxID int64 `json:"last_inbox_id"`
	// Aborted messages are in their thread and not in the inbox of the backup.
	Aborted int64 `json:"aborted"`
	// Kept is where the agent lies that was replaced.
	Kept string `json:"kept,omitempty"`
	// Left is why the working directory of the backup was not taken.
	Left string `json:"workdir_left,omitempty"`
}

// Restore makes the agents of a backup; see the package. Errors: AGENT_EXISTS,
// AGENT_NOT_FOUND, INVALID_ARGUMENT for a tar that is no backup, those of
// [agentdir.Fault].
func Restore(ctx context.Context, in io.Reader, home *agentdir.Home, c Choice) (out []Restored, err error) {
	s, err := newStage(home)
	if err != nil {
		return nil, agentdir.Fault(fmt.Errorf("make room for agents: %w", err))
	}
	defer func() { err = agentdir.Fault(errors.Join(err, s.close())) }()
	floors := map[string]floor{}
	var ids []string
	_, m, err := archive.Read(ctx, in, func(h archive.Head) error {
		if ids, err = c.of(h); err != nil {
			return err
		}
		for _, id := range ids { // before much is read, and what an agent begins with
			if floors[id], err = s.floor(ctx, c.name(id), c.Replace); err != nil {
				return err
			}
			if c.Absent != nil {
				if err := c.Absent(ctx, c.name(id)); err != nil {
					return err
				}
			}
			for _, dir := range directories {
				if err := s.root.MkdirAll(id+"/"+dir, 0o700); err != nil {
					return err
				}
			}
		}
		return nil
	}, func(e *tar.Header, body io.Reader) error {
		id, rest, err := archive.Split(e.Name)
		if err != nil || !slices.Contains(ids, id) {
			return err
		}
		if err := s.put(id, rest, e, body); err != nil {
			return fmt.Errorf("restore %s: %w", boundary.Name(e.Name), err)
		}
		return nil
	})
	if err == nil {
		err = s.finish(m, ids)
	}
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		a, err := restoreAgent(ctx, filepath.Join(s.dir, id), id, c.name(id), floors[id].with(m.Tokens, id))
		if err == nil {
			err = s.sync(ctx, id)
		}
		if errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrNotFound) {
			return nil, fault.Wrap(archive.Damaged("agent '"+id+"' has a damaged or missing database"), err)
		}
		if err != nil {
			return nil, fmt.Errorf("restore agent %s: %w", id, err)
		}
		out = append(out, Restored{Agent: c.name(id), Threads: a.Threads, Events: a.Events, LastInboxID: a.LastInboxID, Aborted: a.Aborted})
	}
	var undo []func() error
	for i, id := range ids {
		kept, back, err := s.place(id, c.name(id), c.Replace)
		if err != nil {
			for _, u := range slices.Backward(undo) {
				err = errors.Join(err, u())
			}
			return nil, err
		}
		undo, out[i].Kept = append(undo, back), kept
	}
	return out, syncDir(home.AgentsDir())
}

// of answers the agents to restore out of a backup.
func (c Choice) of(h archive.Head) ([]string, error) {
	ids := slices.Compact(slices.Sorted(slices.Values(c.Agents)))
	if len(ids) == 0 {
		ids = slices.Compact(slices.Sorted(slices.Values(h.Agents)))
	}
	for _, id := range ids {
		if !slices.Contains(h.Agents, id) {
			return nil, fault.New(codes.NotFound, fault.AgentNotFound, fmt.Sprintf("agent '%.80s' is not in the backup", id),
				"it holds "+strings.Join(h.Agents, ", "))
		}
	}
	if c.As == "" {
		return ids, nil
	}
	if err := layout.ValidID(c.As); err != nil {
		return nil, err
	}
	if len(ids) != 1 {
		return nil, fault.New(codes.InvalidArgument, fault.InvalidArgument, fmt.Sprintf("one new name cannot be given to %d agents", len(ids)), "choose one with --agent")
	}
	return ids, nil
}

// name is what an agent of the backup is called here.
func (c Choice) name(id string) string {
	if c.As != "" {
		return c.As
	}
	return id
}

// floor looks at the agent that has the name now. It must be stopped when it is
// to be replaced.
func (s *stage) floor(ctx context.Context, id string, replace bool) (floor, error) {
	none := noFloor()
	dir, err := s.home.Agent(id)
	if err != nil {
		return none, err
	}
	if _, err := os.Lstat(dir.Path); errors.Is(err, fs.ErrNotExist) {
		return none, nil
	} else if err != nil {
		return none, err
	}
	if !replace {
		return none, exists(id)
	}
	f, err := floorOf(ctx, inboxOf(s.home, dir), filepath.Join(s.dir, ".old-"+id))
	if errors.Is(err, errStarted) {
		return none, fault.New(codes.FailedPrecondition, fault.AgentExists, "agent '"+id+"' is started", "run 'agentctl stop "+id+"' first")
	}
	return f, err
}

// inboxOf is where an agent's inbox lies; with broken settings where it usually is.
func inboxOf(home *agentdir.Home, dir agentdir.Dir) string {
	if set, err := home.Load(dir.ID); err == nil {
		return set.Dir.Inbox()
	}
	return dir.Inbox()
}

func syncDir(dir string) error {
	f, err := os.Open(filepath.Clean(dir))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
