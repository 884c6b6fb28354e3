// Package agentapi is the edge of AgentService: agents are made, described, started
// and stopped, their files and settings read and changed, backed up and restored.
//
// It promises that the desired state is stored before it is answered, and that no
// event is claimed after the answer to a stop. It starts no work itself: what is
// due is on the core's lists.
package agentapi

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/texts"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/core"
	"github.com/theclaw/agents/services/registry/internal/directory"
	"github.com/theclaw/agents/services/registry/internal/watch"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// Service is the edge. The zero value is not usable; see New.
type Service struct {
	registryv1.UnimplementedAgentServiceServer
	*core.Core
	watch *watch.Watch
	// making keeps a name that is being removed from getting a new agent.
	making sync.RWMutex
}

// New makes the edge; w is told of agents that come and go here, nil where they are not
// directories.
func New(c *core.Core, w *watch.Watch) *Service { return &Service{Core: c, watch: w} }

// CreateAgent makes an agent directory.
func (s *Service) CreateAgent(ctx context.Context, req *registryv1.CreateAgentRequest) (*registryv1.CreateAgentResponse, error) {
	kind := "user"
	if req.GetKind() == registryv1.AgentKind_AGENT_KIND_SYSTEM {
		kind = "system"
	}
	a, err := s.create(ctx, req.GetAgentId(), agentdir.Spec{Kind: kind, Provider: req.GetProvider(), Model: req.GetModel()})
	if err != nil {
		return nil, err
	}
	return &registryv1.CreateAgentResponse{Agent: s.describe(ctx, a)}, nil
}

// Make makes an agent for another one, and answers its directory, if it has one.
func (s *Service) Make(ctx context.Context, id string, spec agentdir.Spec) (string, error) {
	a, err := s.create(ctx, id, spec)
	if err != nil || s.Shared != nil {
		return "", err
	}
	dir, err := s.Home.Agent(a.ID)
	return dir.Path, err
}

func (s *Service) create(ctx context.Context, id string, spec agentdir.Spec) (*directory.Agent, error) {
	s.making.RLock()
	defer s.making.RUnlock()
	if s.watch != nil {
		defer s.watch.Making(id)()
	}
	if err := s.Agents.Create(ctx, id, spec); err != nil {
		return nil, s.Fault(id, thread.Inbox, err)
	}
	a, err := s.Dir.Get(id)
	if err == nil && s.watch != nil {
		s.watch.Add(a)
	}
	return a, err
}

// describe answers what is known of an agent; a problem is part of the answer.
func (s *Service) describe(ctx context.Context, a *directory.Agent) *registryv1.Agent {
	k := a.Known()
	out := &registryv1.Agent{AgentId: a.ID, Started: k.Started, Health: registryv1.AgentHealth_AGENT_HEALTH_OK, Problem: k.Problem}
	switch {
	case k.Degraded:
		out.Health = registryv1.AgentHealth_AGENT_HEALTH_DEGRADED
	case k.Problem != "":
		out.Health = registryv1.AgentHealth_AGENT_HEALTH_FAILED
	}
	if dir, err := s.Home.Agent(a.ID); err == nil && s.Shared == nil {
		out.Dir = dir.Path
	}
	set, err := s.Agents.Settings(ctx, a)
	if err != nil {
		out.Health, out.Problem = registryv1.AgentHealth_AGENT_HEALTH_FAILED, fault.From(err).What
		return out
	}
	out.Kind = registryv1.AgentKind_AGENT_KIND_USER
	if set.Config.Kind == "system" {
		out.Kind = registryv1.AgentKind_AGENT_KIND_SYSTEM
	}
	out.Model = modelText(set)
	out.ContextWindow = int64(set.Config.ContextWindow)
	return out
}

// modelText is provider/model, or "default" when nobody chose: then the runner
// takes the one it has a key for.
func modelText(set *agentdir.Agent) string {
	c := wire.TurnConfig(set)
	if c.GetProvider() == "" && c.GetModel() == "" {
		return "default"
	}
	return cmp.Or(c.GetProvider(), "default") + "/" + cmp.Or(c.GetModel(), "default")
}

// GetAgent answers one agent.
func (s *Service) GetAgent(ctx context.Context, req *registryv1.GetAgentRequest) (*registryv1.GetAgentResponse, error) {
	a, err := s.Dir.Get(req.GetAgentId())
	if err != nil {
		return nil, err
	}
	if err := s.Present(a.ID); err != nil {
		return nil, err
	}
	if _, err := s.Agent(ctx, a.ID); err != nil && s.Shared != nil {
		return nil, err
	} // a broken directory is described with its problem
	return &registryv1.GetAgentResponse{Agent: s.describe(ctx, a)}, nil
}

// ListAgents answers every agent, broken ones too.
func (s *Service) ListAgents(ctx context.Context, req *registryv1.ListAgentsRequest) (*registryv1.ListAgentsResponse, error) {
	if s.Shared != nil {
		return s.listShared(ctx, req)
	}
	if req.GetPageToken() == "" {
		if err := s.watch.Rescan(); err != nil {
			return nil, err
		}
	}
	ids, next := wire.Page(s.Dir.IDs(), req.GetPageToken(), int(req.GetPageSize()), 1000)
	out := &registryv1.ListAgentsResponse{NextPageToken: next}
	for _, id := range ids {
		if a, err := s.Dir.Get(id); err == nil {
			out.Agents = append(out.Agents, s.describe(ctx, a))
		}
	}
	return out, nil
}

// listShared lists the agents of a database, a page in one look.
func (s *Service) listShared(ctx context.Context, req *registryv1.ListAgentsRequest) (*registryv1.ListAgentsResponse, error) {
	size := min(wire.Limit(req.GetPageSize(), 1000), 1000)
	page, err := s.Shared.List(ctx, req.GetPageToken(), size)
	if err != nil {
		return nil, err
	}
	out := &registryv1.ListAgentsResponse{}
	for _, a := range page {
		out.Agents = append(out.Agents, s.describe(ctx, a))
	}
	if len(page) == size {
		out.NextPageToken = page[size-1].ID
	}
	return out, nil
}

// StartAgent stores the desired state and makes queued events due.
func (s *Service) StartAgent(ctx context.Context, req *registryv1.StartAgentRequest) (*registryv1.StartAgentResponse, error) {
	a, err := s.Agent(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	if _, err := s.Agents.Settings(ctx, a); err != nil { // an agent that cannot run is not started
		return nil, err
	}
	a.Life.Lock()
	a.Wrote()
	changed, err := s.Store.SetStarted(ctx, a.ID, true, core.Handler(a.ID))
	if err == nil {
		a.SetStarted(true)
	}
	a.Life.Unlock()
	if err != nil {
		return nil, s.Fault(a.ID, thread.Inbox, err)
	}
	if changed {
		s.LogAgent(a.ID, "agent started")
	}
	s.MarkDue(a)
	return &registryv1.StartAgentResponse{Already: !changed}, nil
}

// StopAgent stores the desired state; after its answer nothing is claimed.
func (s *Service) StopAgent(ctx context.Context, req *registryv1.StopAgentRequest) (*registryv1.StopAgentResponse, error) {
	a, err := s.Agent(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	a.Life.Lock()
	a.Wrote()
	changed, err := s.Store.SetStarted(ctx, a.ID, false, "")
	if err == nil {
		a.SetStarted(false)
	}
	a.Life.Unlock()
	if err != nil {
		return nil, s.Fault(a.ID, thread.Inbox, err)
	}
	if s.Shared == nil {
		s.DueRuns.Drop(a.ID)
	}
	if changed {
		s.LogAgent(a.ID, "agent stopped")
	}
	return &registryv1.StopAgentResponse{Already: !changed}, nil
}

// GetAgentStatus answers state and progress.
func (s *Service) GetAgentStatus(ctx context.Context, req *registryv1.GetAgentStatusRequest) (*registryv1.GetAgentStatusResponse, error) {
	a, err := s.Dir.Get(req.GetAgentId())
	if err != nil {
		return nil, err
	}
	if err := s.Present(a.ID); err != nil {
		return nil, err
	}
	st, err := s.State(ctx, a)
	if errors.Is(err, store.ErrReadOnly) {
		core.Trouble(a, s.Fault(a.ID, thread.Inbox, err))
	}
	if errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrReadOnly) { // that is its state
		return &registryv1.GetAgentStatusResponse{Agent: s.describe(ctx, a)}, nil
	}
	if err != nil {
		return nil, s.Fault(a.ID, thread.Inbox, err)
	}
	path := ""
	if s.Shared == nil {
		if path, err = s.Dir.Path(store.Inbox(a.ID)); err != nil {
			return nil, s.Fault(a.ID, thread.Inbox, err)
		}
	}
	out := &registryv1.GetAgentStatusResponse{
		Agent: s.describe(ctx, a), InboxPath: path, OutboundPending: int64(a.Known().Outbound), Dead: st.Dead,
		Inbox: &registryv1.ConsumerStatus{LastAckedId: st.Acked, Pending: st.Pending, HeadId: st.Head},
	}
	if at := thread.ParseStamp(st.LastAt); !at.IsZero() {
		out.LastActivity = timestamppb.New(at)
	}
	if rec, live, err := s.Leases.Get(ctx, lease.AgentResource(a.ID)); err != nil {
		return nil, s.Fault(a.ID, thread.Inbox, err)
	} else if live {
		out.Holder = rec.Holder
	}
	return out, nil
}

// BootstrapAgents makes the system agents that are absent.
func (s *Service) BootstrapAgents(ctx context.Context, req *registryv1.BootstrapAgentsRequest) (*registryv1.BootstrapAgentsResponse, error) {
	out := &registryv1.BootstrapAgentsResponse{}
	for _, p := range texts.SystemAgents() {
		_, err := s.create(ctx, p.ID, agentdir.Spec{Kind: p.Kind, Provider: req.GetProvider(), Model: req.GetModel()})
		switch {
		case err == nil:
			out.Created = append(out.Created, p.ID)
		case fault.Is(err, fault.AgentExists):
			out.Existing = append(out.Existing, p.ID)
		default:
			return nil, err
		}
	}
	return out, nil
}
