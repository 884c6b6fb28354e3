// Package agents implements AgentService: it creates, describes, starts, stops and
// removes agents, reads and changes their files and settings, and backs them up and
// restores them.
//
// It promises that the desired state is stored before it is returned, and that no event
// is claimed after StopAgent has returned. It starts no work itself: packages
// standalone and cluster offer an agent with work to the workers.
package agents

import (
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/backup"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/peer"
	"github.com/theclaw/agents/services/registry/internal/prune"
	"github.com/theclaw/agents/services/registry/internal/state"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// Agents gives access to the agents of the registry, makes them and removes them.
type Agents interface {
	Get(id string) (*state.Agent, error)
	// Agent returns one whose inbox has been read, Find one that is there, broken or not.
	Agent(ctx context.Context, id string) (*state.Agent, error)
	Find(ctx context.Context, id string) (*state.Agent, error)
	// List returns a page in order; next is where the next page begins, "" at the end.
	List(ctx context.Context, after string, limit int) (page []*state.Agent, next string, err error)
	State(ctx context.Context, a *state.Agent) (store.InboxState, error)
	// Missing reports whether there is no such agent.
	Missing(id string) bool
	Create(ctx context.Context, id string, spec agentdir.Spec) (*state.Agent, error)
	// Remove removes an agent whose leases the caller has, with all its data.
	Remove(ctx context.Context, id string) error
	// Block keeps the leases of an agent from being granted to a worker of this registry,
	// until unblock is called. Where there are other registries, a lease that was given
	// back on request is kept for the caller of Acquire by its row.
	Block(id string) (unblock func())
	// Idle returns a *lease.HeldError while a program outside works on an agent.
	Idle(ctx context.Context, id string) error
	// Blocker describes that program; empty: there is none.
	Blocker(ctx context.Context, id string) string
	// GiveBack ends the lease of an agent that was stopped, when no turn is under way.
	GiveBack(ctx context.Context, a *state.Agent)
	Places
	Due
}

// Places returns the directories of agents and threads; "" where there are none.
type Places interface {
	Place(id string) string
	Path(r store.Ref) (string, error)
}

// Due records which agents may have work.
type Due interface {
	MarkDue(a *state.Agent)
	DropDue(id string)
}

// Files are the files of agents. Errors: AGENT_NOT_FOUND, those of agentdir.
type Files interface {
	// Settings returns the settings that are in force.
	Settings(ctx context.Context, a *state.Agent) (*agentdir.Agent, error)
	// Read returns a file and its version; the cause is fs.ErrNotExist when it is
	// missing. Write and Set are those of agentdir.Dir.
	Read(ctx context.Context, id, name string) (data []byte, version string, err error)
	Write(ctx context.Context, id, name string, data []byte, expect string) (version string, err error)
	Set(ctx context.Context, id, key, value string) (version string, err error)
}

// Backups writes backups and restores agents from them; a restored agent works at once.
type Backups interface {
	Backup(ctx context.Context, w io.Writer, what backup.Selection) error
	Restore(ctx context.Context, r io.Reader, what backup.Choice) ([]backup.Restored, error)
}

// Leases grants and checks leases; see lease/authority.
type Leases interface {
	Acquire(ctx context.Context, req lease.AcquireRequest) (lease.Record, error)
	Release(ctx context.Context, resource string, token uint64) error
	Get(ctx context.Context, resource string) (lease.Record, bool, error)
	RequestYield(ctx context.Context, resource string) (bool, error)
}

// Store stores whether an agent is started.
type Store interface {
	SetStarted(ctx context.Context, agent string, started bool, handler string) (changed bool, err error)
}

// Log is the log of each agent, for people.
type Log interface {
	wire.Log
	// Tail returns the newest lines, at most limit, in their order.
	Tail(ctx context.Context, id string, limit int) ([]string, error)
}

// Quota knows what agents have used.
type Quota interface {
	// Tokens returns how many tokens an agent has used today.
	Tokens(ctx context.Context, agent string) (int64, error)
}

// Deps are the dependencies of a Service.
type Deps struct {
	wire.Faults
	Store   Store
	Agents  Agents
	Files   Files
	Quota   Quota
	Leases  Leases
	Log     Log
	Backups Backups
	// CancelWaits ends the questions and approvals that an agent waits for; turn is empty.
	CancelWaits func(ctx context.Context, agent, turn, by string) error
	Peers       peer.Deps
	Prune       prune.Deps
}

// Service serves the RPCs. The zero value is not usable; see New.
type Service struct {
	registryv1.UnimplementedAgentServiceServer
	Deps
}

// New returns the service.
func New(d Deps) *Service { return &Service{Deps: d} }

// CreateAgent creates an agent.
func (s *Service) CreateAgent(ctx context.Context, req *registryv1.CreateAgentRequest) (*registryv1.CreateAgentResponse, error) {
	kind := "user"
	if req.GetKind() == registryv1.AgentKind_AGENT_KIND_SYSTEM {
		kind = "system"
	}
	a, err := s.Agents.Create(ctx, req.GetAgentId(), agentdir.Spec{
		Kind: kind, Provider: req.GetProvider(), Model: req.GetModel(), Profile: req.GetToolsProfile(), AlsoAllow: req.GetToolsAlsoAllow(),
	})
	if err != nil {
		return nil, err
	}
	return &registryv1.CreateAgentResponse{Agent: s.describe(ctx, a)}, nil
}

// Make creates an agent for another one and returns its directory, if it has one.
func (s *Service) Make(ctx context.Context, id string, spec agentdir.Spec) (string, error) {
	a, err := s.Agents.Create(ctx, id, spec)
	if err != nil {
		return "", err
	}
	return s.Agents.Place(a.ID), nil
}

// describe returns what is known of an agent; a problem is part of the answer.
func (s *Service) describe(ctx context.Context, a *state.Agent) *registryv1.Agent {
	k := a.Known()
	out := &registryv1.Agent{AgentId: a.ID, Dir: s.Agents.Place(a.ID), Started: k.Started, Health: registryv1.AgentHealth_AGENT_HEALTH_OK, Problem: k.Problem}
	switch {
	case k.Degraded:
		out.Health = registryv1.AgentHealth_AGENT_HEALTH_DEGRADED
	case k.Problem != "":
		out.Health = registryv1.AgentHealth_AGENT_HEALTH_FAILED
	default:
		if left := a.Aside(); left > 0 {
			out.Health, out.SetAside = registryv1.AgentHealth_AGENT_HEALTH_DEGRADED, durationpb.New(left)
			out.Problem = "set aside after repeated panics, for another " + left.Round(time.Second).String() + "; the runner's log has the panics"
		}
	}
	set, err := s.Files.Settings(ctx, a)
	if err != nil {
		out.Health, out.Problem = registryv1.AgentHealth_AGENT_HEALTH_FAILED, fault.From(err).What
		return out
	}
	if set.Problem != nil && out.GetProblem() == "" {
		out.Health = registryv1.AgentHealth_AGENT_HEALTH_DEGRADED
		out.Problem = fault.From(set.Problem).What + "; the last good settings stay in force until that is corrected"
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
	c := wire.TurnConfig(set, config.Conversation{})
	if c.GetProvider() == "" && c.GetModel() == "" {
		return "default"
	}
	return cmp.Or(c.GetProvider(), "default") + "/" + cmp.Or(c.GetModel(), "default")
}

// GetAgent returns one agent.
func (s *Service) GetAgent(ctx context.Context, req *registryv1.GetAgentRequest) (*registryv1.GetAgentResponse, error) {
	a, err := s.Agents.Find(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	return &registryv1.GetAgentResponse{Agent: s.describe(ctx, a)}, nil
}

// ListAgents returns every agent, broken ones too.
func (s *Service) ListAgents(ctx context.Context, req *registryv1.ListAgentsRequest) (*registryv1.ListAgentsResponse, error) {
	page, next, err := s.Agents.List(ctx, req.GetPageToken(), min(wire.Limit(req.GetPageSize(), 1000), 1000))
	if err != nil {
		return nil, err
	}
	out := &registryv1.ListAgentsResponse{NextPageToken: next}
	for _, a := range page {
		out.Agents = append(out.Agents, s.describe(ctx, a))
	}
	return out, nil
}

// StartAgent stores the desired state and makes queued events due.
func (s *Service) StartAgent(ctx context.Context, req *registryv1.StartAgentRequest) (*registryv1.StartAgentResponse, error) {
	a, err := s.Agents.Agent(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	set, err := s.Files.Settings(ctx, a)
	if err == nil {
		err = set.Problem // the last good settings are for an agent that works, not for a start
	}
	if err != nil {
		return nil, err
	}
	a.Life.Lock()
	a.NoteWrite()
	changed, err := s.Store.SetStarted(ctx, a.ID, true, state.Handler(a.ID))
	if err == nil {
		a.SetStarted(true)
	}
	a.Life.Unlock()
	if err != nil {
		return nil, s.Fault(a.ID, thread.Inbox, err)
	}
	if changed {
		wire.LogAgent(s.Log, a.ID, "agent started")
	}
	s.Agents.MarkDue(a)
	return &registryv1.StartAgentResponse{Already: !changed}, nil
}

// StopAgent stores the desired state; nothing is claimed after it has returned. Where no
// turn is under way the lease has ended then too.
func (s *Service) StopAgent(ctx context.Context, req *registryv1.StopAgentRequest) (*registryv1.StopAgentResponse, error) {
	a, err := s.Agents.Agent(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	a.Life.Lock()
	a.NoteWrite()
	changed, err := s.Store.SetStarted(ctx, a.ID, false, "")
	if err == nil {
		a.SetStarted(false)
	}
	a.Life.Unlock()
	if err != nil {
		return nil, s.Fault(a.ID, thread.Inbox, err)
	}
	s.Agents.DropDue(a.ID)
	s.Agents.GiveBack(ctx, a)
	if err := s.CancelWaits(ctx, a.ID, "", "owner"); err != nil {
		return nil, err
	}
	if changed {
		wire.LogAgent(s.Log, a.ID, "agent stopped")
	}
	return &registryv1.StopAgentResponse{Already: !changed}, nil
}

// GetAgentStatus returns state and progress.
func (s *Service) GetAgentStatus(ctx context.Context, req *registryv1.GetAgentStatusRequest) (*registryv1.GetAgentStatusResponse, error) {
	a, err := s.Agents.Get(req.GetAgentId())
	if err != nil {
		return nil, err
	}
	st, err := s.Agents.State(ctx, a)
	if errors.Is(err, store.ErrReadOnly) {
		a.SetError(s.Fault(a.ID, thread.Inbox, err))
	}
	if errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrReadOnly) { // that is its state
		return &registryv1.GetAgentStatusResponse{Agent: s.describe(ctx, a)}, nil
	}
	if err != nil {
		return nil, s.Fault(a.ID, thread.Inbox, err)
	}
	path, err := s.Agents.Path(store.Inbox(a.ID))
	if err != nil {
		return nil, s.Fault(a.ID, thread.Inbox, err)
	}
	out := &registryv1.GetAgentStatusResponse{
		Agent: s.describe(ctx, a), InboxPath: path, OutboundPending: int64(a.Known().Outbound), Dead: st.Dead,
		Inbox: &registryv1.ConsumerStatus{LastAckedId: st.Acked, Pending: st.Pending, HeadId: st.Head},
	}
	if at := thread.ParseStamp(st.LastAt); !at.IsZero() {
		out.LastActivity = timestamppb.New(at)
	}
	if set, err := s.Files.Settings(ctx, a); err == nil { // what is wrong with them is in the description
		out.TokensPerDay = int64(set.Config.Quota.TokensPerDay)
		if set.Config.Quota.Daily() {
			if out.TokensToday, err = s.Quota.Tokens(ctx, a.ID); err != nil {
				return nil, s.Fault(a.ID, "", err)
			}
		}
	}
	if rec, live, err := s.Leases.Get(ctx, lease.AgentResource(a.ID)); err != nil {
		return nil, s.Fault(a.ID, thread.Inbox, err)
	} else if live {
		out.Holder = rec.Holder
	} else {
		out.Holder = s.Agents.Blocker(ctx, a.ID)
	}
	return out, nil
}

// BootstrapAgents creates the system agents that are missing.
func (s *Service) BootstrapAgents(ctx context.Context, req *registryv1.BootstrapAgentsRequest) (*registryv1.BootstrapAgentsResponse, error) {
	out := &registryv1.BootstrapAgentsResponse{}
	for _, p := range agentdir.SystemAgents() {
		_, err := s.Agents.Create(ctx, p.ID, agentdir.Spec{Kind: p.Kind, Provider: req.GetProvider(), Model: req.GetModel()})
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
