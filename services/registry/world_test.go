package registry_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/obs/agentlog"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/serve"
	"github.com/theclaw/agents/internal/store/postgres"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/store/sqlite"
	"github.com/theclaw/agents/internal/store/transfer"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// world is the real registry behind a real gRPC server, in memory.
type world struct {
	*testing.T
	home       string
	agents     registryv1.AgentServiceClient
	threads    registryv1.ThreadServiceClient
	leases     registryv1.LeaseServiceClient
	turns      registryv1.TurnServiceClient
	deliveries registryv1.DeliveryServiceClient
	approvals  registryv1.ApprovalServiceClient
	svc        *registry.Service
	stop       func()
	requests   int
}

// setup is what a test may change of a registry.
type setup struct {
	registry.Deps
	dsn    string // of the database that it shares; "": it is alone with its home
	sqlite sqlite.Options
}

func (s setup) open(ctx context.Context, cfg registry.Config) (*registry.Service, error) {
	if s.dsn == "" {
		s.sqlite.Home = s.Home.RegistryDB()
		return registry.NewStandalone(ctx, sqlite.New(s.sqlite), cfg, s.Deps)
	}
	e, err := postgres.New(ctx, postgres.Options{DSN: s.dsn, Logger: s.Logger})
	if err != nil {
		return nil, err
	}
	s.Copies = transfer.Of(e)
	return registry.NewCluster(ctx, e, cfg, s.Deps)
}

func newWorld(t *testing.T, home string, cfg registry.Config, more ...func(*setup)) *world {
	t.Helper()
	h, err := agentdir.OpenHome(home)
	if err != nil {
		t.Fatal(err)
	}
	log := agentlog.New(nil)
	s := setup{Deps: registry.Deps{Home: h, Logger: slog.New(slog.DiscardHandler), Metrics: obs.NewRegistryMetrics(nil), Log: log}}
	for _, set := range more {
		set(&s)
	}
	svc := must(t, must2(s.open(t.Context(), cfg)), nil)
	l := bufconn.Listen(1 << 20)
	srv, err := serve.New(serve.Options{Listener: l, Insecure: true, Services: []serve.Registrar{svc.Register}, Policy: registry.Policy(), Audit: svc.Auditor(), Grace: -1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- srv.Run(ctx) }()
	go func() { done <- svc.Run(ctx) }()
	conn, err := rpc.Dial("passthrough:///registry", rpc.DialOptions{
		Insecure: true, Dialer: func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) },
	})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		T: t, home: home, svc: svc,
		agents: registryv1.NewAgentServiceClient(conn), threads: registryv1.NewThreadServiceClient(conn),
		leases: registryv1.NewLeaseServiceClient(conn), turns: registryv1.NewTurnServiceClient(conn), deliveries: registryv1.NewDeliveryServiceClient(conn),
		approvals: registryv1.NewApprovalServiceClient(conn),
	}
	stopped := false
	w.stop = func() {
		if stopped {
			return
		}
		stopped = true
		_ = conn.Close()
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if err := svc.Close(); err != nil {
			t.Error(err)
		}
		_ = log.Close()
		_ = h.Close()
	}
	t.Cleanup(w.stop)
	return w
}

// release gives a lease back, as its holder does.
func (w *world) release(l *registryv1.Lease) {
	w.Helper()
	r, err := w.leases.ReleaseLease(w.Context(), &registryv1.ReleaseLeaseRequest{Resource: l.GetResource(), Token: l.GetToken()})
	must(w.T, r, err)
}

// must unwraps the answer of a call that has to succeed.
func must[T any](t testing.TB, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (w *world) create(id string) {
	w.Helper()
	must(w.T, must2(w.agents.CreateAgent(w.Context(), &registryv1.CreateAgentRequest{AgentId: id})), nil)
	must(w.T, must2(w.agents.StartAgent(w.Context(), &registryv1.StartAgentRequest{AgentId: id})), nil)
}

func must2[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

const telegram = "external:telegram:main:dm:%s:%s"

func (w *world) push(agent, peer, text, key string) *registryv1.PushEventsResponse {
	w.Helper()
	r, err := w.threads.PushEvents(w.Context(), pushRequest(agent, peer, text, key))
	return must(w.T, r, err)
}

func pushRequest(agent, peer, text, key string) *registryv1.PushEventsRequest {
	return &registryv1.PushEventsRequest{
		Thread: &registryv1.ThreadRef{AgentId: agent, ThreadId: "inbox"}, IdempotencyKey: key,
		Events: []*registryv1.NewEvent{{Source: fmt.Sprintf(telegram, peer, peer), Type: "message", Content: fmt.Sprintf(`{"text":%q}`, text)}},
	}
}

// beside are two registries over one database.
func beside(t *testing.T) (url string, w, other *world) {
	t.Helper()
	url = pgtest.Start(t, "fsync = off").Database(t)
	over := func(s *setup) { s.dsn = url }
	return url, newWorld(t, t.TempDir(), registry.Config{}, over), newWorld(t, t.TempDir(), registry.Config{}, over)
}

// due asks for work like a runner or deliverer named holder, under leases that outlast
// the test on any machine.
func (w *world) due(kind registryv1.LeaseKind, holder string, wait time.Duration) []*registryv1.DueWork {
	w.Helper()
	return w.granted(kind, holder, wait, 10*time.Minute)
}

// brief is due under leases that a test lets run out. What it does under one before is
// no more than a few calls.
func (w *world) brief(kind registryv1.LeaseKind, holder string) []*registryv1.DueWork {
	w.Helper()
	return w.granted(kind, holder, time.Minute, 5*time.Second)
}

func (w *world) granted(kind registryv1.LeaseKind, holder string, wait, ttl time.Duration) []*registryv1.DueWork {
	w.Helper()
	w.requests++
	r, err := w.leases.AcquireDueLease(w.Context(), &registryv1.AcquireDueLeaseRequest{
		Kind: kind, Holder: holder, RequestId: fmt.Sprint(holder, w.requests), MaxNew: 8, Wait: durationOf(wait), Ttl: durationOf(ttl),
	})
	return must(w.T, r, err).GetDue()
}

func under(ctx context.Context, l *registryv1.Lease) context.Context {
	return rpc.WithFence(ctx, l.GetResource(), l.GetToken(), l.GetHolder())
}

func depsOf(t *testing.T, home string) setup {
	h, err := agentdir.OpenHome(home)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return setup{Deps: registry.Deps{Home: h, Logger: slog.New(slog.DiscardHandler), Metrics: obs.NewRegistryMetrics(nil)}}
}
