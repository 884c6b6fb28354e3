// Package prune owns the clearing away of what is old: it goes through the
// databases and directories of one agent, a page of threads at a time, and adds up
// what went and what is needed still.
//
//	inbox            keys of pushes, parts of events.jsonl, logs
//	conversation     results of steps, parts of events.jsonl, logs
//	the agent        parts of agent.log
//
// It promises that the newest part of each events.jsonl stays, since the writer
// knows by it that there were older ones, and 'agentctl fsck --repair' makes the
// end of a lost database of it. What a database may forget is store.Pruner's.
package prune

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/rotated"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// Options say what is old and which threads are looked at.
type Options struct {
	Before time.Time
	Apply  bool
	After  string // the last thread of the page before; empty: begin, with the inbox
	Size   int    // threads of a page
}

// Sums are what became of an agent's things.
type Sums struct{ Results, Keys, Lines, Logs Share }

// Share is a store.Share that others are added to.
type Share struct{ store.Share }

func (s *Share) add(o store.Share) {
	s.Gone += o.Gone
	s.Bytes += o.Bytes
	s.Kept += o.Kept
}

// files clears the old parts of a file, but the newest few.
func (s *Share) files(dir, prefix, suffix string, spare int, o Options) error {
	parts, err := rotated.Find(dir, prefix, suffix)
	if err != nil {
		return agentdir.Fault(err)
	}
	old, kept := rotated.Old(parts, o.Before, spare)
	sum := store.Share{Gone: int64(len(old)), Kept: int64(kept)}
	for _, f := range old {
		sum.Bytes += f.Size
	}
	s.add(sum)
	if !o.Apply || len(old) == 0 {
		return nil
	}
	return agentdir.Fault(rotated.Remove(dir, old))
}

// Agents answers where the threads of agents are.
type Agents interface {
	Threads(ctx context.Context, id, after string, limit int) ([]string, error)
	// Place answers the directory of an agent, Path that of a thread; "" where there are
	// none, and so no files.
	Place(id string) string
	Path(r store.Ref) (string, error)
	// Visit is called before a thread is read in passing, leave after it.
	Visit(r store.Ref) (leave func())
}

// Deps are what pages are cleared with.
type Deps struct {
	wire.Faults
	Store  store.Pruner
	Agents Agents
}

// Page clears a page of an agent's threads and answers where the next begins;
// empty is the end.
func (c Deps) Page(ctx context.Context, agent string, o Options) (s Sums, next string, err error) {
	threads, err := c.Agents.Threads(ctx, agent, o.After, o.Size)
	if err != nil {
		return s, "", c.Fault(agent, thread.Inbox, err)
	}
	if len(threads) == o.Size {
		next = threads[o.Size-1]
	}
	if o.After == "" {
		threads = append([]string{thread.Inbox}, threads...)
	}
	if at := c.Agents.Place(agent); o.After == "" && at != "" {
		if err := s.Logs.files(agentdir.Dir{ID: agent, Path: at}.Logs(), "agent", "log", 0, o); err != nil {
			return s, "", err
		}
	}
	for _, id := range threads {
		if err := s.thread(ctx, c, store.Ref{Agent: agent, Thread: id}, o); err != nil {
			return s, "", c.Fault(agent, id, err)
		}
	}
	return s, next, nil
}

func (s *Sums) thread(ctx context.Context, c Deps, r store.Ref, o Options) error {
	leave := c.Agents.Visit(r)
	p, err := c.Store.Prune(ctx, r, store.Prune{Before: o.Before, Apply: o.Apply})
	if errors.Is(err, store.ErrNotFound) { // removed since it was listed
		return nil
	}
	if err != nil {
		return err
	}
	leave()
	s.Results.add(p.Results)
	s.Keys.add(p.Keys)
	path, err := c.Agents.Path(r)
	if err != nil || path == "" {
		return err
	}
	if err := s.Lines.files(path, "events", "jsonl", 1, o); err != nil {
		return err
	}
	return s.Logs.files(filepath.Join(path, "logs"), "thread", "log", 0, o)
}
