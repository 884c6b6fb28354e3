package peer

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/store/beside"
	"github.com/theclaw/agents/internal/thread"
	"github.com/theclaw/agents/services/registry/internal/core"
)

// row tells whether a file of the agent is a row among several registries: memory is.
// Sessions are with the runner that keeps them, in this home as far as it is its own.
func row(c *core.Core, name string) bool {
	return c.Shared != nil && strings.HasPrefix(name, "memory/")
}

// read answers a file of the agent; the cause of one that is missing is fs.ErrNotExist.
func (f *Found) read(ctx context.Context, c *core.Core, name string) ([]byte, error) {
	if row(c, name) {
		b, _, err := c.Agents.Read(ctx, f.agent.ID, name)
		return b, err
	}
	b, err := f.dir.OwnFile(name)
	if c.Shared != nil && fault.Is(err, fault.AgentNotFound) { // no runner of this home has worked for it
		return nil, fs.ErrNotExist
	}
	return b, err
}

// files are those of the peer's that are there.
func (f *Found) files(ctx context.Context, c *core.Core) error {
	names := []string{"memory/" + route.MemoryUserFile(f.Peer)}
	for _, p := range f.Threads {
		if p.ID != thread.Inbox {
			names = append(names, "memory/"+route.MemoryThreadFile(p.ID), "sessions/"+route.SessionFile(p.ID))
		}
	}
	for _, n := range names {
		_, err := f.read(ctx, c, n)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		f.Files = append(f.Files, n)
	}
	return nil
}

// beside is what lies beside the threads.
func (f *Found) beside(c *core.Core) beside.Share {
	s := beside.Share{Files: []string{}}
	for _, p := range f.Threads {
		if p.ID == thread.Inbox {
			s.Inbox = p.Events
		} else if p.Whole {
			s.Threads = append(s.Threads, p.ID)
		}
		s.Turns = append(s.Turns, p.Turns...)
	}
	for _, n := range f.Files {
		if row(c, n) {
			s.Files = append(s.Files, n)
		}
	}
	return s
}

// eraseBeside forgets files, questions and lines of the log.
func (f *Found) eraseBeside(ctx context.Context, c *core.Core) error {
	for _, n := range f.Files {
		if row(c, n) {
			continue
		}
		if err := f.dir.RemoveFile(n); err != nil {
			return err
		}
	}
	if c.Shared != nil {
		c.Shared.Story.Flush() // what was said here of late is among the lines
	}
	if err := c.Approvals.ErasePeer(ctx, f.agent.ID, f.beside(c)); err != nil {
		return c.Fault(f.agent.ID, thread.Inbox, err)
	}
	c.Asked()
	return nil
}
