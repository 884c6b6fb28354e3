package routing

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/binding"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// noVersion stands for the version of settings that do not exist yet.
const noVersion = "none"

// maxTried bounds the explanation of a route.
const maxTried = 20

// Service serves the RPCs. The zero value is not usable; see New.
type Service struct {
	registryv1.UnimplementedRoutingServiceServer
	router *Router
}

// New returns the service over a router.
func New(r *Router) *Service { return &Service{router: r} }

// ResolveRoute answers where a message would go now.
func (s *Service) ResolveRoute(ctx context.Context, req *registryv1.ResolveRouteRequest) (*registryv1.ResolveRouteResponse, error) {
	r := binding.Request{
		Channel: req.GetChannel(), Account: req.GetAccountId(), Peer: readPeer(req.GetPeer()), Parent: readPeer(req.GetParentPeer()),
		Guild: req.GetGuildId(), Team: req.GetTeamId(), ThreadID: req.GetPlatformThread(), Author: req.GetAuthor(),
	}
	for _, p := range []binding.Peer{r.Peer, r.Parent} {
		if (p.Kind == "") != (p.ID == "") {
			return nil, fault.New(codes.InvalidArgument, fault.InvalidArgument, "a peer has a kind or an id alone", "give both, such as group:77")
		}
	}
	c, done, err := s.router.hold(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer done()
	d, err := s.router.decide(ctx, c, r)
	if err != nil {
		return nil, err
	}
	out := &registryv1.ResolveRouteResponse{
		AgentId: d.Agent, Channel: d.Channel, AccountId: d.Account, SessionKey: d.Key, MainSessionKey: d.MainKey, MatchedBy: d.MatchedBy,
		ThreadId: d.Thread, Scope: string(d.Scope), Binding: int32(d.Binding), Version: cmp.Or(c.settings.Version, noVersion),
	}
	for _, t := range c.table.Explain(r, maxTried) {
		out.Tried = append(out.Tried, &registryv1.TriedBinding{Binding: int32(t.Binding), Why: t.Why})
	}
	return out, nil
}

func readPeer(p *registryv1.RoutePeer) binding.Peer {
	return binding.Peer{Kind: p.GetKind(), ID: p.GetId()}
}

// ListBindings answers the bindings in force.
func (s *Service) ListBindings(ctx context.Context, _ *registryv1.ListBindingsRequest) (*registryv1.ListBindingsResponse, error) {
	h, err := s.router.Home.HomeSettings(ctx)
	if err != nil {
		return nil, err
	}
	out := &registryv1.ListBindingsResponse{Version: cmp.Or(h.Version, noVersion)}
	for _, b := range h.Bindings {
		m := &registryv1.BindingMatch{Channel: b.Match.Channel, AccountId: b.Match.Account, GuildId: b.Match.Guild, TeamId: b.Match.Team}
		if b.Match.Peer != (binding.Peer{}) {
			m.Peer = &registryv1.RoutePeer{Kind: b.Match.Peer.Kind, Id: b.Match.Peer.ID}
		}
		out.Bindings = append(out.Bindings, &registryv1.Binding{AgentId: b.Agent, Match: m})
	}
	return out, nil
}

// SetBindings replaces the bindings.
func (s *Service) SetBindings(ctx context.Context, req *registryv1.SetBindingsRequest) (*registryv1.SetBindingsResponse, error) {
	list := make([]binding.Binding, len(req.GetBindings()))
	for i, b := range req.GetBindings() {
		m := b.GetMatch()
		list[i] = binding.Binding{Agent: b.GetAgentId(), Match: binding.Match{
			Channel: m.GetChannel(), Account: m.GetAccountId(), Peer: readPeer(m.GetPeer()), Guild: m.GetGuildId(), Team: m.GetTeamId(),
		}}
	}
	h, err := s.router.Home.HomeSettings(ctx)
	if err != nil {
		return nil, err
	}
	table, err := binding.New(snapshotOf(list, h.Accounts, ""))
	if err == nil {
		err = table.Unknown(func(id string) bool { return !s.router.Agents.Missing(id) })
	}
	if err == nil {
		err = table.Hidden()
	}
	if err != nil {
		return nil, err
	}
	known := req.GetVersion()
	if known == noVersion {
		known = ""
	}
	version, err := s.router.Home.SetBindings(ctx, list, known)
	if errors.Is(err, store.ErrMoved) || fault.Is(err, fault.BindingsChanged) {
		return nil, fault.New(codes.Aborted, fault.BindingsChanged, fmt.Sprintf("the bindings are not those of version %.40s any more", req.GetVersion()), "read them again and repeat the change")
	}
	if err != nil {
		return nil, err
	}
	// The new revision is stored before the answer: from then on no registry stores a message by
	// the old one.
	_, done, err := s.router.hold(ctx, 0)
	if err != nil {
		return nil, err
	}
	done()
	return &registryv1.SetBindingsResponse{Version: version}, nil
}
