package memory

import (
	"context"
	"errors"
	"io/fs"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/sessionkey"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/state"
)

// maxUnseen is the most threads that one digest of the agent's layer reads.
const maxUnseen = 256

// Place is where a conversation's memory lies.
type Place struct {
	Agent  *state.Agent
	Thread store.Ref
	Tuple  route.Tuple
	// EpochFrom is the event that begins the epoch of the thread; 0: it is the whole thread.
	EpochFrom int64
}

// Layer is the mark's database and the file of a layer.
func (p Place) Layer(l registryv1.MemoryLayer) (store.Ref, string) {
	switch l {
	case registryv1.MemoryLayer_MEMORY_LAYER_THREAD:
		return p.Thread, ThreadLayer(p.Thread.Thread)
	case registryv1.MemoryLayer_MEMORY_LAYER_PEER:
		return p.Thread, PeerLayer(p.Tuple)
	default:
		return store.Inbox(p.Agent.ID), agentLayer
	}
}

// Unchanged refuses a digest of a file that somebody has changed since.
func (s *Files) Unchanged(ctx context.Context, a *state.Agent, m store.MemoryMark) error {
	if m.Text == "" {
		return nil
	}
	_, have, err := s.file(ctx, a.ID, m.Layer)
	if err == nil && have != m.Base {
		return fault.New(codes.FailedPrecondition, fault.InvalidArgument, m.Layer+" of agent '"+a.ID+"' was changed by somebody else", "read it again and repeat the digest")
	}
	return err
}

// file reads a file that may be absent.
func (s *Files) file(ctx context.Context, agentID, name string) (text, version string, err error) {
	data, version, err := s.Agents.Read(ctx, agentID, name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", agentdir.NoFile, nil
	}
	return string(data), version, s.Fault(agentID, thread.Inbox, err)
}

// Layers is every layer of a conversation as it stands.
func (s *Files) Layers(ctx context.Context, p Place) (out []*registryv1.MemoryState, unseen []*registryv1.ThreadRecords, err error) {
	threads, pending, err := s.Store.UnseenThreads(ctx, p.Agent.ID, maxUnseen)
	if err != nil {
		return nil, nil, s.Fault(p.Agent.ID, thread.Inbox, err)
	}
	for _, t := range threads {
		unseen = append(unseen, &registryv1.ThreadRecords{ThreadId: t.Layer, Compactions: t.N, DigestedId: t.Digested})
	}
	var digests int64
	for _, l := range []registryv1.MemoryLayer{registryv1.MemoryLayer_MEMORY_LAYER_THREAD, registryv1.MemoryLayer_MEMORY_LAYER_PEER, registryv1.MemoryLayer_MEMORY_LAYER_AGENT} {
		ofAgent := l == registryv1.MemoryLayer_MEMORY_LAYER_AGENT
		if !ofAgent && (p.Thread.Thread == "" || l == registryv1.MemoryLayer_MEMORY_LAYER_PEER && p.Tuple == (route.Tuple{})) {
			continue
		}
		r, name := p.Layer(l)
		marks, err := s.Store.Memory(ctx, r, name)
		if err != nil {
			return nil, nil, s.Fault(p.Agent.ID, r.Thread, err)
		}
		state := State(l, marks[0])
		switch l {
		case registryv1.MemoryLayer_MEMORY_LAYER_THREAD:
			digests = marks[0].N
		case registryv1.MemoryLayer_MEMORY_LAYER_PEER:
			state.Pending = digests - marks[0].Seen
		default:
			state.Pending = pending
		}
		if state.Content, state.Version, err = s.file(ctx, p.Agent.ID, name); err != nil {
			return nil, nil, err
		}
		switch {
		case l == registryv1.MemoryLayer_MEMORY_LAYER_THREAD && Earlier(state.GetDigestedId(), p.EpochFrom):
			state.Content = "" // it is about to be moved
		case l == registryv1.MemoryLayer_MEMORY_LAYER_PEER && sessionkey.OfGroup(p.Thread.Thread):
			state.Content = "" // see Names
		}
		out = append(out, state)
	}
	return out, unseen, nil
}
