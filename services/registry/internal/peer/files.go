package peer

import (
	"context"
	"errors"
	"io/fs"

	"github.com/theclaw/agents/internal/execpolicy"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// files finds the files of the peer that exist.
func (f *Data) files(ctx context.Context, c Deps) error {
	names := []string{"memory/" + route.MemoryUserFile(f.Peer)}
	var threads []string
	for _, p := range f.Threads {
		if p.ID != thread.Inbox {
			threads = append(threads, p.ID)
			names = append(names, "memory/"+route.MemoryThreadFile(p.ID), "sessions/"+route.SessionFile(p.ID))
		}
	}
	past, err := c.Agents.PastFiles(ctx, f.agent.ID, threads)
	if err != nil {
		return err
	}
	for _, n := range append(names, past...) {
		_, err := c.Agents.OwnFile(ctx, f.agent.ID, n)
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

// records lists the data of the peer outside of threads.
func (f *Data) records() store.PeerRecords {
	var s store.PeerRecords
	if !f.Peer.Internal {
		s.Account, s.Peer = f.Peer.ChannelID, f.Peer.PeerID
	}
	for _, p := range f.Threads {
		if p.ID == thread.Inbox {
			s.Inbox = p.Events
		} else if p.Whole {
			s.Threads = append(s.Threads, p.ID)
		}
		s.Turns = append(s.Turns, p.Turns...)
	}
	return s
}

// eraseUses empties the last commands in the allow list of the agent: each may be of the peer. The
// rows that it replaces are gone from the files of the home after eraseFiles.
func (f *Data) eraseUses(ctx context.Context, c Deps) error {
	for {
		p, err := c.Approvals.ExecPolicy(ctx)
		if err != nil || p.Version == 0 {
			return c.Fault(f.agent.ID, "", err)
		}
		d, err := execpolicy.Parse(p.Body)
		if err != nil || !d.ForgetCommands(f.agent.ID) {
			return err
		}
		if p.Body, err = d.JSON(); err != nil {
			return err
		}
		p.Version++
		if err := c.Approvals.PutExecPolicy(ctx, p); !errors.Is(err, store.ErrMoved) {
			return c.Fault(f.agent.ID, "", err)
		}
	}
}

// eraseFiles erases files, questions and lines of the log.
func (f *Data) eraseFiles(ctx context.Context, c Deps) error {
	if err := c.Agents.ErasePeer(ctx, f.agent.ID, f.records(), f.Files); err != nil {
		return c.Fault(f.agent.ID, thread.Inbox, err)
	}
	c.Wakes.ApprovalChanged("") // any of them may be gone
	return nil
}
