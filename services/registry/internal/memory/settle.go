// Package memory keeps the memory files of agents in step with the marks that record what
// their digests cover.
//
// A digest is committed with its text, and only then written to its file: a
// database and a file never commit together, and this order loses nothing.
//
//	RecordCompaction: mark + text + decision (one transaction, on disk)
//	                      |  killed here: the next claim finds the text
//	                      v
//	                  file replaced, if it is still the one the text was made from
//	                      |  killed here: the next claim finds both, and clears the text
//	                      v
//	                  digest counted in the inbox, and then the text cleared
//
// The other order would leave a file that holds more than the mark says, and the
// same messages would be digested, and paid for, again.
//
// The layer of a thread is about one epoch of its conversation, which begins behind a
// record/session event (EpochFrom of store.Session). The mark says which: its digest is of
// the epoch only when it reaches further than that event ([Earlier]). One of an earlier epoch
// is left out of prompts and answers, and moved out of the file:
//
//	BeginTurn: record/session event and message (one transaction)
//	                      |  killed here: the mark shows that the digest is of an earlier epoch
//	                      v
//	                  text of the file written to memory/past/<stem>.<last event digested>.md
//	                      |  killed here: the next claim finds the same text there, and goes on
//	                      v
//	                  file emptied, if it is still the one that was copied
//	                      |  killed here: nothing is left to do
//	                      v
//	RecordCompaction: the first digest of the epoch, made from nothing, moves the mark
//
// The mark stays as it is until then, so that no order of steps shows an earlier digest. What
// a person writes into the file of a thread before the first digest of an epoch is moved
// likewise. A digest of an earlier epoch that is committed after the next has begun, because
// it followed the last turn of that epoch, goes to memory/past/ at once. The layers of peers
// and of the agent are about all epochs.
//
// It promises that a committed digest reaches its file, whatever dies in between; that a
// person who changes the file meanwhile loses nothing; and that the file of a layer follows
// from the thread and the speaking peer alone, so that no caller can name another peer's.
//
// It makes no digest and serves no RPC. It also writes the decision event of a digest and
// introduces other agents to system agents (S0-24).
package memory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/state"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// Agents reads and writes the files of agents.
type Agents interface {
	Read(ctx context.Context, id, name string) (data []byte, version string, err error)
	Write(ctx context.Context, id, name string, data []byte, expect string) (version string, err error)
	Each(ctx context.Context, id string, names []string, found func(name string, data []byte, err error))
	Usages(ctx context.Context, but string, limit int) ([]state.Usage, error)
}

// Files are the memory files of all agents.
type Files struct {
	wire.Faults
	Store  store.Memories
	Agents Agents
	// Term identifies a term of a lease, if anybody else could change an agent's layer
	// between two of them.
	Term func(store.Fence) uint64
	Log  *slog.Logger
}

const agentLayer = "memory/" + route.MemoryAgentFile

// ThreadLayer is the file about a thread.
func ThreadLayer(threadID string) string { return "memory/" + route.MemoryThreadFile(threadID) }

// PeerLayer is the file about a peer in all its threads.
func PeerLayer(t route.Tuple) string { return "memory/" + route.MemoryUserFile(t) }

// DecisionKey is the key of the decision event of a digest.
func DecisionKey(m store.MemoryMark) string { return fmt.Sprintf("compact:%s:%d", m.Layer, m.N) }

// Settle finishes what an earlier process left between a mark and its file,
// before a prompt is made of them.
func (s *Files) Settle(ctx context.Context, a *state.Agent, fence store.Fence, r store.Ref, marks []store.MemoryMark) error {
	for _, m := range marks {
		if err := s.SettleMark(ctx, a, fence, r, m); err != nil {
			return err
		}
	}
	if a.MemorySettled(s.Term(fence)) {
		return nil
	}
	inbox := store.Inbox(a.ID)
	own, err := s.Store.Memory(ctx, inbox, agentLayer)
	if err != nil {
		return s.Fault(a.ID, inbox.Thread, err)
	}
	if err := s.SettleMark(ctx, a, fence, inbox, own[0]); err != nil {
		return err
	}
	a.SettleMemory(s.Term(fence))
	return nil
}

// Settled reports that Settle has nothing to do.
func (s *Files) Settled(a *state.Agent, fence store.Fence, marks []store.MemoryMark) bool {
	for _, m := range marks {
		if m.Text != "" || m.Event != "" {
			return false
		}
	}
	return a.MemorySettled(s.Term(fence))
}

// SettleMark brings a mark's text into its file and its decision into a thread.
func (s *Files) SettleMark(ctx context.Context, a *state.Agent, fence store.Fence, r store.Ref, m store.MemoryMark) error {
	if m.Text == "" && m.Event == "" {
		return nil
	}
	if m.Text != "" {
		if err := s.writeDigest(ctx, r, m); err != nil {
			return s.Fault(a.ID, r.Thread, err)
		}
	}
	fault.Point("compaction.written")
	if m.Event != "" {
		err := s.Store.Decide(ctx, store.Ref{Agent: a.ID, Thread: m.Thread}, fence, store.Decision{Key: DecisionKey(m), Content: m.Event, Step: Step(m.Event)})
		if err != nil && !errors.Is(err, store.ErrNotFound) { // a removed thread gets no event
			return s.Fault(a.ID, m.Thread, err)
		}
	}
	if err := s.Count(ctx, fence, r, m); err != nil {
		return err
	}
	return s.Fault(a.ID, r.Thread, s.Store.MemoryWritten(ctx, r, m.Layer, m.N))
}

// Count counts a digest of a thread in the inbox, so that the agent's own layer
// catches up in its time.
func (s *Files) Count(ctx context.Context, fence store.Fence, r store.Ref, m store.MemoryMark) error {
	if r.IsInbox() || m.Layer != ThreadLayer(r.Thread) {
		return nil
	}
	return s.Fault(r.Agent, thread.Inbox, s.Store.CountCompaction(ctx, r.Agent, fence, r.Thread, m.N))
}

// writeDigest replaces the file. A person who changed it since the digest was
// made keeps the change: the digest goes below it, and the next one merges both.
// The mark is read again behind the file: once another call has finished it, the file may
// have been changed or moved since, and must not get the text a second time.
func (s *Files) writeDigest(ctx context.Context, r store.Ref, m store.MemoryMark) error {
	for {
		data, have, err := s.Agents.Read(ctx, r.Agent, m.Layer)
		if errors.Is(err, fs.ErrNotExist) {
			data, have, err = nil, agentdir.NoFile, nil
		}
		if err != nil {
			return err
		}
		now, err := s.Store.Memory(ctx, r, m.Layer)
		if err != nil {
			return err
		}
		text := m.Text
		switch {
		case now[0].N != m.N || now[0].Text == "", have == agentdir.Version([]byte(text)):
			return nil
		case have != m.Base && len(data) > 0 && len(data)+len(text)+1 < agentdir.MaxFileSize:
			text = strings.TrimRight(string(data), "\n") + "\n\n" + text
		}
		if _, err = s.Agents.Write(ctx, r.Agent, m.Layer, []byte(text), have); !errors.Is(err, agentdir.ErrChanged) {
			return err
		}
	}
}

// State is a mark as an answer carries it.
func State(layer registryv1.MemoryLayer, m store.MemoryMark) *registryv1.MemoryState {
	return &registryv1.MemoryState{Layer: layer, Name: m.Layer, DigestedId: m.Digested, Compactions: m.N}
}
