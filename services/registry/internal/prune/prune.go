// Package prune removes old data of one agent from its databases and directories, a page
// of threads at a time, and counts what was removed and what is old but still needed.
//
//	inbox            keys of pushes, parts of events.jsonl, logs
//	conversation     results of steps, parts of events.jsonl, logs
//	the agent        parts of agent.log, media that nothing needs
//
// It promises that rotated files are removed from the oldest on, without a gap, and that
// the newest rotated part of each events.jsonl stays: the writer learns from it that there
// were older ones, and 'agentctl fsck --repair' restores the end of a lost database from
// it. Files that are still written to, and other files, are never touched. store.Pruner
// decides what a database may forget.
package prune

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	"github.com/theclaw/agents/services/registry/internal/media"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// Options select what is old and which threads are pruned.
type Options struct {
	Before time.Time
	Apply  bool
	After  string // the last thread of the previous page; empty: begin, with the inbox
	Size   int    // threads per page
}

// Sums are the results of a page, by kind of data.
type Sums struct{ Results, Keys, Lines, Logs, Media Share }

// Share adds up store.Share values.
type Share struct{ store.Share }

func (s *Share) add(o store.Share) {
	s.Gone += o.Gone
	s.Bytes += o.Bytes
	s.Kept += o.Kept
}

// files removes the old rotated files of one file, except for the newest spare ones.
func (s *Share) files(dir, prefix, suffix string, spare int, o Options) error {
	files, err := rotatedFiles(dir, prefix, suffix)
	if err != nil {
		return agentdir.Fault(err)
	}
	old, kept := oldest(files, o.Before, spare)
	sum := store.Share{Gone: int64(len(old)), Kept: int64(kept)}
	for _, f := range old {
		sum.Bytes += f.size
	}
	s.add(sum)
	if !o.Apply || len(old) == 0 {
		return nil
	}
	return agentdir.Fault(remove(dir, old))
}

// Agents locates the threads of agents.
type Agents interface {
	Threads(ctx context.Context, id, after string, limit int) ([]string, error)
	// Place returns the directory of an agent, Path that of a thread; "" where agents and
	// threads have no directories, and so no files.
	Place(id string) string
	Path(r store.Ref) (string, error)
	// Visit is called before a thread is read for pruning only, leave after it.
	Visit(r store.Ref) (leave func())
}

// Deps are the dependencies of Page.
type Deps struct {
	wire.Faults
	Store  store.Pruner
	Agents Agents
	Media  media.Sweeper
}

// Page prunes a page of an agent's threads and returns the token of the next page, empty
// at the end.
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
	if next != "" {
		return s, next, nil
	}
	// With the last page, after the results of steps that referred to media.
	swept, err := c.Media.Sweep(ctx, agent, media.Sweep{Before: time.Now().Add(-store.MediaGrace), Since: o.Before, Apply: o.Apply})
	s.Media.add(swept)
	return s, "", c.Fault(agent, thread.Inbox, err)
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
