package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/catalog"
	"github.com/theclaw/agents/internal/channel/webhook"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/hook"
	"github.com/theclaw/agents/internal/pause"
	gatewayv1 "github.com/theclaw/agents/proto/gen/theclaw/gateway/v1"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/gateway/internal/accounts"
	"github.com/theclaw/agents/services/gateway/internal/intake"
	"github.com/theclaw/agents/services/gateway/internal/stream"
)

// Service is one gateway.
type Service struct {
	gatewayv1.UnimplementedGatewayServiceServer

	deps      Deps
	accounts  *accounts.Set
	homes     registryv1.HomeServiceClient
	intake    intake.Deps
	streams   *stream.Streams
	decisions *intake.Decisions
	resolve   channel.Resolve
	handler   http.Handler
	server    server
	problem   string // why it does not listen although it should
	public    string // the address of the proxy before it; empty: there is none
	born      time.Time

	known chan struct{} // closed when the settings are known
	first sync.Once     // closes it

	mu      sync.Mutex
	home    layer.HomeSettings
	unknown string // why the settings are not watched; empty: they are
}

// New makes a gateway. It binds its address and serves nothing before Run; an address that
// cannot be bound is reported by GetGatewayInfo and is no error.
func New(cfg Config, deps Deps) (*Service, error) {
	deps = deps.withDefaults()
	s := &Service{
		deps: deps, born: time.Now(), known: make(chan struct{}), public: cfg.PublicURL,
		homes: registryv1.NewHomeServiceClient(deps.Registry), streams: stream.New(deps.Runners),
	}
	s.resolve = deps.Redactor.Learn(deps.Resolve)
	set := accounts.Config{
		Silent: "gateway.http is off in the settings of this home", Resolve: s.resolve, Receive: s.receive, Metrics: deps.Metrics, Changed: s.changed, Logger: deps.Logger,
		Leases: registryv1.NewLeaseServiceClient(deps.Registry), Holder: deps.Holder, TTL: cfg.TTL,
	}
	f := front{proxies: cfg.TrustedProxies, refused: deps.Metrics.AddRefused}
	if cfg.PublicURL != "" {
		u, err := url.Parse(cfg.PublicURL)
		if err != nil {
			return nil, fmt.Errorf("read the public address: %w", err)
		}
		f.host = u.Hostname()
	}
	s.problem = cfg.Problem
	fix := "correct it, and restart agentd"
	if cfg.HTTP != "" {
		if err := s.server.listen(cfg.HTTP, f.permitted); err != nil {
			s.problem = fmt.Sprintf("%s cannot be bound: %v", cfg.HTTP, err)
			fix = "end what uses it or set gateway.http, and restart agentd"
		} else {
			addr := s.server.listener.Addr().String()
			set.Address = cmp.Or(cfg.PublicURL, "http://"+addr)
			deps.Logger.Info("serving HTTP", "address", addr, "public_url", cfg.PublicURL)
		}
	}
	if s.problem != "" {
		set.Silent = s.problem + "; " + fix
		deps.Logger.Warn("the gateway does not listen, everything else works", "problem", s.problem, "fix", fix)
	}
	s.accounts = accounts.New(set)
	s.intake = intake.Deps{
		Accounts: s.accounts, Channels: registryv1.NewChannelServiceClient(deps.Registry), Turns: registryv1.NewTurnServiceClient(deps.Registry),
		Media: registryv1.NewMediaServiceClient(deps.Registry), Files: webhook.NewFetcher(deps.Guard), Agents: registryv1.NewAgentServiceClient(deps.Registry),
		Sessions: registryv1.NewSessionServiceClient(deps.Registry), Approvals: registryv1.NewApprovalServiceClient(deps.Registry),
		Questions: registryv1.NewQuestionServiceClient(deps.Registry), Models: deps.Runners, Version: deps.Version, Streams: s.streams, Trace: deps.Trace, Metrics: deps.Metrics, Logger: deps.Logger,
		Hooks: &hook.Caller{Run: hook.At(deps.Runners), Clean: deps.Redactor.Clean, Meter: deps.Metrics, Logger: deps.Logger},
	}.ForAll()
	s.decisions = intake.NewDecisions(s.intake)
	var err error
	if s.handler, err = handler(s.routes(), f, deps.Logger); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// changed logs the state of an account that changed.
func (s *Service) changed(a accounts.Status) {
	level := slog.LevelInfo
	if a.State != accounts.Up && a.State != accounts.Off && a.State != accounts.Standby {
		level = slog.LevelWarn
	}
	s.deps.Logger.Log(context.Background(), level, "account "+string(a.State), "account", a.Name, "what", a.What)
}

// receive takes in the updates of an account that connects to its platform.
func (s *Service) receive(ctx context.Context, a layer.Account, l accounts.Lease, connected func(identity, name string) error) error {
	t, _ := catalog.Find(a.Type)
	deps := channel.Deps{Resolve: s.resolve}
	out, err := t.Open(a.Name, a.Definition, deps)
	if err != nil {
		return err
	}
	in, err := t.Receive(a.Name, a.Definition, deps)
	if err != nil {
		return err
	}
	return s.intake.Receive(ctx, a, l, t, in, out, connected)
}

// Close gives the address back.
func (s *Service) Close() error {
	if s.server.listener == nil {
		return nil
	}
	if err := s.server.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil // the end of Run closed it
}

// Register serves the gateway's API on r.
func (s *Service) Register(r grpc.ServiceRegistrar) { gatewayv1.RegisterGatewayServiceServer(r, s) }

// Run receives until ctx ends. It returns nil then. It may be called once.
func (s *Service) Run(ctx context.Context) error {
	if s.deps.Holder == "" {
		return errors.New("run gateway: no holder id")
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { <-ctx.Done(); s.accounts.Close(); return nil })
	g.Go(func() error { return s.server.serve(ctx, s.handler, s.deps.Metrics, s.deps.Logger) })
	g.Go(func() error { s.follow(ctx); return nil })
	g.Go(func() error { s.decisions.Run(ctx); return nil })
	g.Go(func() error {
		select {
		case <-s.known:
			s.event(ctx, hook.GatewayStart)
		case <-ctx.Done():
		}
		return nil
	})
	err := g.Wait()
	s.event(context.WithoutCancel(ctx), hook.GatewayStop)
	return err
}

// event calls the hooks of an event of this gateway. They take at most [hook.EventLimit].
func (s *Service) event(ctx context.Context, name string) {
	s.mu.Lock()
	home := s.home
	s.mu.Unlock()
	s.intake.Event(ctx, home, name, s.deps.Holder)
}

// took takes over settings: hooks before the accounts, whose messages they see.
func (s *Service) took(ctx context.Context, h layer.HomeSettings) {
	s.mu.Lock()
	s.home = h
	s.mu.Unlock()
	s.decisions.Owners(h.Owners)
	s.intake.Commands(h.Commands)
	s.intake.SetHooks(h.Hooks)
	s.accounts.Apply(ctx, h.Accounts)
	s.first.Do(func() { close(s.known) })
}

// again says when the settings are watched again after a failure.
var again = pause.Backoff{First: 200 * time.Millisecond, Last: 10 * time.Second}

// follow takes over the settings as they change, until ctx ends.
func (s *Service) follow(ctx context.Context) {
	for try := 0; ctx.Err() == nil; try++ {
		err := s.watch(ctx, func() { try = 0; s.watched("") })
		if ctx.Err() != nil {
			return
		}
		if try > 0 { // the end of a registry that starts again is none
			s.watched(fault.From(err).What)
		}
		if pause.For(ctx, again.Wait(try)) != nil {
			return
		}
	}
}

// watched notes why the settings are not watched, and logs it once.
func (s *Service) watched(problem string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if problem != "" && problem != s.unknown {
		s.deps.Logger.Warn("the settings are not watched; the accounts stay as they are", "problem", problem)
	}
	s.unknown = problem
}

// watch takes over settings until the registry ends the stream.
func (s *Service) watch(ctx context.Context, received func()) error {
	w, err := s.homes.WatchHomeConfig(ctx, &registryv1.WatchHomeConfigRequest{})
	if err != nil {
		return err
	}
	for {
		m, err := w.Recv()
		if err != nil {
			return err
		}
		received()
		h, err := layer.ReadHome(layer.File{Name: m.GetName(), Data: []byte(m.GetText())})
		if err != nil { // the registry has read it: by a version that knows more
			s.deps.Logger.Warn("the settings cannot be read here; the accounts stay as they are", "error", fault.Chain(err))
			continue
		}
		s.took(ctx, h)
	}
}

// GetGatewayInfo answers what this gateway does.
func (s *Service) GetGatewayInfo(context.Context, *gatewayv1.GetGatewayInfoRequest) (*gatewayv1.GetGatewayInfoResponse, error) {
	out := &gatewayv1.GetGatewayInfoResponse{
		Holder: s.deps.Holder, HttpProblem: s.problem, PublicUrl: s.public, Connections: s.server.open.Load(), Uptime: durationpb.New(time.Since(s.born)),
	}
	if s.server.listener != nil {
		out.Http = s.server.listener.Addr().String()
	}
	s.mu.Lock()
	out.SettingsProblem = s.unknown
	s.mu.Unlock()
	for _, c := range s.streams.Clients() {
		out.Clients = append(out.Clients, &gatewayv1.Client{Kind: c.Kind, Account: c.Account, Since: timestamppb.New(c.Since)})
	}
	return out, nil
}

// ListChannels answers every account with its state.
func (s *Service) ListChannels(context.Context, *gatewayv1.ListChannelsRequest) (*gatewayv1.ListChannelsResponse, error) {
	out := &gatewayv1.ListChannelsResponse{}
	for _, a := range s.accounts.Statuses() {
		out.Channels = append(out.Channels, wire(a))
	}
	return out, nil
}

// RestartChannel starts an account again.
func (s *Service) RestartChannel(ctx context.Context, req *gatewayv1.RestartChannelRequest) (*gatewayv1.RestartChannelResponse, error) {
	a, ok := s.accounts.Restart(ctx, req.GetName())
	if !ok {
		return nil, fault.New(codes.NotFound, fault.ChannelNotFound, fmt.Sprintf("there is no channel account %.80q", req.GetName()), "'agentctl channels list' lists them")
	}
	return &gatewayv1.RestartChannelResponse{Channel: wire(a)}, nil
}

// TestChannel sends a notice over an account.
func (s *Service) TestChannel(ctx context.Context, req *gatewayv1.TestChannelRequest) (*gatewayv1.TestChannelResponse, error) {
	list := s.accounts.Statuses()
	i := slices.IndexFunc(list, func(a accounts.Status) bool { return a.Name == req.GetName() })
	if i < 0 {
		return nil, fault.New(codes.NotFound, fault.ChannelNotFound, fmt.Sprintf("there is no channel account %.80q", req.GetName()), "'agentctl channels list' lists them")
	}
	id, err := s.intake.Test(ctx, req.GetName(), req.GetTo(), cmp.Or(req.GetText(), "This is a test."))
	if errors.Is(err, intake.ErrNotUp) {
		return nil, fault.New(codes.Unavailable, fault.ChannelUnavailable, fmt.Sprintf("%s is not connected to a platform here: %s", req.GetName(), list[i].State), "'agentctl channels status' shows why")
	}
	if e := channel.AsError(err); e != nil {
		code, reason := codes.Unavailable, fault.ChannelUnavailable
		switch {
		case e.Reason == channel.ReasonAuth:
			code, reason = codes.FailedPrecondition, fault.ChannelAuth
		case e.Reason == channel.ReasonConflict:
			code, reason = codes.Aborted, fault.ChannelConflict
		case e.Class == channel.Rejected || e.Class == channel.Failed:
			code, reason = codes.FailedPrecondition, fault.ChannelRejected
		}
		return nil, fault.New(code, reason, e.What, cmp.Or(e.Fix, "correct it and try again"))
	}
	return &gatewayv1.TestChannelResponse{ProviderId: id}, nil
}

var states = map[accounts.State]gatewayv1.ChannelState{
	accounts.Off: gatewayv1.ChannelState_CHANNEL_STATE_OFF, accounts.Starting: gatewayv1.ChannelState_CHANNEL_STATE_STARTING,
	accounts.Conflict: gatewayv1.ChannelState_CHANNEL_STATE_CONFLICT, accounts.Up: gatewayv1.ChannelState_CHANNEL_STATE_UP, accounts.Auth: gatewayv1.ChannelState_CHANNEL_STATE_AUTH,
	accounts.Failed: gatewayv1.ChannelState_CHANNEL_STATE_ERROR, accounts.Stopped: gatewayv1.ChannelState_CHANNEL_STATE_STOPPED,
	accounts.Standby: gatewayv1.ChannelState_CHANNEL_STATE_STANDBY,
}

func wire(a accounts.Status) *gatewayv1.Channel {
	c := &gatewayv1.Channel{
		Name: a.Name, Type: a.Type, State: states[a.State], Since: timestamppb.New(a.Since), In: a.In, What: a.What, Address: a.Address, Notices: a.Notices,
	}
	if a.Lag >= 0 {
		c.Lag = durationpb.New(a.Lag)
		c.Behind = durationpb.New(a.Behind)
	}
	return c
}
