package turns

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/filter"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/memory"
	"github.com/theclaw/agents/services/registry/internal/state"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// RecordCompaction commits a digest; see package memory for the order.
func (s *Service) RecordCompaction(ctx context.Context, req *registryv1.RecordCompactionRequest) (*registryv1.RecordCompactionResponse, error) {
	a, fence, _, err := s.turnCall(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	s.Log.Append(a.ID, req.GetLogs())
	p := memory.Place{Agent: a, Thread: store.Ref{Agent: a.ID, Thread: req.GetThreadId()}}
	ofAgent := req.GetLayer() == registryv1.MemoryLayer_MEMORY_LAYER_AGENT
	if req.GetThreadId() == "" && !ofAgent || req.GetThreadId() == thread.Inbox {
		return nil, wire.Bad("the digest names no conversation thread", "name the thread it was made in")
	}
	if p.Tuple, err = s.speaker(ctx, a, req); err != nil {
		return nil, err
	}
	r, name := p.Layer(req.GetLayer())
	c := store.Compaction{After: req.GetCompactions(), Mark: store.MemoryMark{
		Layer: name, N: req.GetCompactions() + 1, Digested: req.GetDigestedId(), Base: req.GetBaseVersion(), Text: req.GetText(),
	}}
	if !strings.HasPrefix(name, "memory/") || agentdir.ValidFile(name) != nil {
		return nil, wire.Bad("the conversation has no memory file", "name a thread of the agent")
	}
	now, err := s.Store.Memory(ctx, r, name, memory.ThreadLayer(req.GetThreadId()))
	if err != nil {
		return nil, s.Fault(a.ID, r.Thread, err)
	}
	if req.GetLayer() == registryv1.MemoryLayer_MEMORY_LAYER_PEER {
		c.Mark.Seen = now[1].N
	}
	if p.EpochFrom, err = s.epochSince(ctx, p.Thread, now[1].Digested); err != nil {
		return nil, err
	}
	if repeated := now[0].N == c.Mark.N; !repeated {
		if req.GetLayer() == registryv1.MemoryLayer_MEMORY_LAYER_THREAD && p.EpochFrom > 0 {
			if err := s.leaveEpoch(ctx, p, fence, &c.Mark); err != nil {
				return nil, err
			}
		}
		if err := s.Memory.Unchanged(ctx, a, c.Mark); err != nil {
			return nil, err
		}
	}
	content := memory.Decision(req, name, c.Mark.N)
	if ofAgent {
		c.Mark.Digested = 0
		c.Mark.Thread = req.GetThreadId()
		if list := req.GetThreads(); c.Mark.Thread == "" && len(list) > 0 {
			c.Mark.Thread = list[0].GetThreadId() // a person asked: the event goes to the thread with the records
		}
		if c.Mark.Thread != "" {
			c.Mark.Event = content
		}
		for _, t := range req.GetThreads() {
			c.Threads = append(c.Threads, store.MemoryMark{Layer: t.GetThreadId(), N: t.GetCompactions(), Digested: t.GetDigestedId()})
		}
		a.SettleMemory(0)
	} else {
		c.Decision = store.Decision{Key: memory.DecisionKey(c.Mark), Content: content, Step: memory.Step(content)}
		if req.GetSeq() > 0 { // made in the turn; one that followed it has a row of its own
			c.Decision.Turn, c.Decision.Step.Seq = req.GetKey(), int(req.GetSeq())
		}
	}
	fault.Point("compaction.commit")
	m, err := s.Store.Compact(ctx, r, fence, c)
	if err != nil {
		return nil, s.Fault(a.ID, r.Thread, err)
	}
	fault.Point("compaction.committed")
	if err := s.Memory.SettleMark(ctx, a, fence, r, m); err != nil {
		return nil, err
	}
	if ofAgent {
		a.SettleMemory(s.Memory.Term(fence))
	}
	if m.Text == "" { // nothing for a file, so that it was not settled
		if err := s.Memory.Count(ctx, fence, r, m); err != nil {
			return nil, err
		}
	}
	out := &registryv1.RecordCompactionResponse{}
	out.Memory, out.Threads, err = s.Memory.Layers(ctx, p)
	return out, err
}

// leaveEpoch takes what is of an earlier epoch out of the way of a digest of a thread: the text of the
// file, or the digest itself when it is late.
func (s *Service) leaveEpoch(ctx context.Context, p memory.Place, fence store.Fence, m *store.MemoryMark) error {
	if !memory.Earlier(m.Digested, p.EpochFrom) {
		return s.Memory.MoveEarlier(ctx, p.Agent, fence, p.Thread, p.EpochFrom)
	}
	if m.Text == "" {
		return nil
	}
	err := s.Memory.WritePast(ctx, p.Thread, m.Digested, m.Text)
	m.Text = ""
	return err
}

// epochSince is the event that begins the epoch of a thread, if that is behind an event; else 0.
// It is read from the events: those behind the last digest are few.
func (s *Service) epochSince(ctx context.Context, r store.Ref, after int64) (int64, error) {
	if r.Thread == "" {
		return 0, nil
	}
	only, err := filter.Parse(thread.EpochFilter)
	if err != nil {
		return 0, err
	}
	page, err := s.Store.Read(ctx, r, store.Query{After: after, Limit: 1, Tail: true, Filter: only})
	if errors.Is(err, store.ErrNotFound) { // nothing was said in it
		return 0, nil
	}
	if err != nil || len(page.Events) == 0 {
		return 0, s.Fault(r.Agent, r.Thread, err)
	}
	return page.Events[0].ID, nil
}

// epochFrom is the event that begins the epoch of a claim.
func epochFrom(b store.Begun) int64 {
	if b.Session == nil {
		return 0
	}
	return b.Session.EpochFrom
}

// speaker is the peer whose layer is meant: the one who speaks in the turn that the digest
// was made in or followed, else
// the one the thread was made for.
func (s *Service) speaker(ctx context.Context, a *state.Agent, req *registryv1.RecordCompactionRequest) (route.Tuple, error) {
	if req.GetKey() != "" {
		c, err := s.claimOf(ctx, a, &registryv1.FinishTurnRequest{ThreadId: req.GetThreadId(), Key: req.GetKey(), InboxId: req.GetInboxId()})
		return c.Tuple, err
	}
	return s.madeFor(ctx, store.Ref{Agent: a.ID, Thread: req.GetThreadId()})
}

func (s *Service) madeFor(ctx context.Context, r store.Ref) (t route.Tuple, err error) {
	if r.Thread == "" {
		return t, nil
	}
	text, err := s.Store.Tuple(ctx, r)
	if err != nil {
		return t, s.Fault(r.Agent, r.Thread, err)
	}
	if json.Unmarshal([]byte(text), &t) != nil {
		return route.Tuple{}, nil // made by another program: it has no peer of its own
	}
	return t, nil
}

// GetMemory returns the layers for people and for a requested digest.
func (s *Service) GetMemory(ctx context.Context, req *registryv1.GetMemoryRequest) (*registryv1.GetMemoryResponse, error) {
	a, err := s.Agents.Agent(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	set, err := s.Agents.Settings(ctx, a)
	if err != nil {
		return nil, err
	}
	if req.GetThreadId() == thread.Inbox {
		return nil, wire.Bad("an inbox has no memory", "name a conversation thread")
	}
	p := memory.Place{Agent: a, Thread: store.Ref{Agent: a.ID, Thread: req.GetThreadId()}}
	if p.Tuple, err = s.madeFor(ctx, p.Thread); err != nil {
		return nil, err
	}
	fence, ok := wire.Fence(ctx)
	works := ok && fence.Resource == lease.AgentResource(a.ID)
	if works {
		if err := s.settleLayers(ctx, p, fence); err != nil {
			return nil, err
		}
	}
	if p.Thread.Thread != "" {
		marks, err := s.Store.Memory(ctx, p.Thread, memory.ThreadLayer(p.Thread.Thread))
		if err != nil {
			return nil, s.Fault(a.ID, p.Thread.Thread, err)
		}
		if p.EpochFrom, err = s.epochSince(ctx, p.Thread, marks[0].Digested); err != nil {
			return nil, err
		}
		if works {
			if err := s.Memory.MoveEarlier(ctx, a, fence, p.Thread, p.EpochFrom); err != nil {
				return nil, err
			}
		}
	}
	out := &registryv1.GetMemoryResponse{Agents: s.Memory.OtherAgents(ctx, set)}
	out.Memory, out.Threads, err = s.Memory.Layers(ctx, p)
	return out, err
}

// settleLayers is settleAll for a digest outside of a turn.
func (s *Service) settleLayers(ctx context.Context, p memory.Place, fence store.Fence) error {
	var marks []store.MemoryMark
	if p.Thread.Thread != "" {
		var err error
		if marks, err = s.Store.Memory(ctx, p.Thread, memory.ThreadLayer(p.Thread.Thread), memory.PeerLayer(p.Tuple)); err != nil {
			return s.Fault(p.Agent.ID, p.Thread.Thread, err)
		}
	}
	return s.Memory.Settle(ctx, p.Agent, fence, p.Thread, marks)
}
