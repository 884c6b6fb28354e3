// Package backendtest opens real registries behind real gRPC servers, in memory, over each
// of the two backends of a registry, and is their client, as workers and people are.
//
// A test that does not depend on one backend runs over both with Each. Helpers that fail a
// test fail the test of the registry they are called for.
package backendtest

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/obs/agentlog"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/direct"
	"github.com/theclaw/agents/internal/rpc/serve"
	"github.com/theclaw/agents/internal/store/postgres"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/store/sqlite"
	"github.com/theclaw/agents/internal/store/sqlite/conn"
	"github.com/theclaw/agents/internal/store/transfer"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// Options of a registry.
type Options struct {
	Home string // its directory
	DSN  string // of the database that it shares; "": it is alone with its home
	// MaxOpen and Idle are those of the engine of a home.
	MaxOpen int
	Idle    time.Duration
	// Connect opens the databases of a home; nil: conn.Open.
	Connect func(path string) (conn.Conn, error)
	Change  func(*registry.Deps) // nil: nothing
}

// Each runs a test over SQLite and over PostgreSQL. What is opened again with the same
// options finds what was there.
func Each(t *testing.T, test func(t *testing.T, o Options)) {
	t.Run("sqlite", func(t *testing.T) { test(t, Options{Home: filepath.Join(t.TempDir(), "h")}) })
	t.Run("postgres", func(t *testing.T) {
		test(t, Options{Home: filepath.Join(t.TempDir(), "h"), DSN: pgtest.Database(t)})
	})
}

// Open opens the storage engine and makes a registry over it.
func (o Options) Open(ctx context.Context, cfg registry.Config, d registry.Deps) (*registry.Service, error) {
	if o.DSN == "" {
		return registry.NewStandalone(ctx, sqlite.New(sqlite.Options{Home: d.Home.RegistryDB(), MaxOpen: o.MaxOpen, Idle: o.Idle, Connect: o.Connect}), cfg, d)
	}
	e, err := postgres.New(ctx, postgres.Options{DSN: o.DSN, Logger: d.Logger})
	if err != nil {
		return nil, err
	}
	d.Copies = transfer.Of(e)
	return registry.NewCluster(ctx, e, cfg, d)
}

// World is a registry behind a server.
type World struct {
	*testing.T
	Home       string
	Agents     registryv1.AgentServiceClient
	Threads    registryv1.ThreadServiceClient
	Leases     registryv1.LeaseServiceClient
	Turns      registryv1.TurnServiceClient
	Deliveries registryv1.DeliveryServiceClient
	Approvals  registryv1.ApprovalServiceClient
	Question   registryv1.QuestionServiceClient
	Pins       registryv1.PinServiceClient
	Routing    registryv1.RoutingServiceClient
	Channels   registryv1.ChannelServiceClient
	Sessions   registryv1.SessionServiceClient
	Homes      registryv1.HomeServiceClient
	Media      registryv1.MediaServiceClient
	Stop       func() // ends it before the test does
	as         func(rpc.Identity) grpc.ClientConnInterface
	requests   int
}

func (w *World) connect(conn grpc.ClientConnInterface) {
	w.Agents, w.Threads = registryv1.NewAgentServiceClient(conn), registryv1.NewThreadServiceClient(conn)
	w.Leases, w.Turns = registryv1.NewLeaseServiceClient(conn), registryv1.NewTurnServiceClient(conn)
	w.Deliveries, w.Approvals = registryv1.NewDeliveryServiceClient(conn), registryv1.NewApprovalServiceClient(conn)
	w.Question, w.Pins = registryv1.NewQuestionServiceClient(conn), registryv1.NewPinServiceClient(conn)
	w.Routing, w.Channels = registryv1.NewRoutingServiceClient(conn), registryv1.NewChannelServiceClient(conn)
	w.Sessions, w.Homes = registryv1.NewSessionServiceClient(conn), registryv1.NewHomeServiceClient(conn)
	w.Media = registryv1.NewMediaServiceClient(conn)
}

// As is the same registry for another caller than the owner; its streams stay the owner's.
func (w *World) As(id rpc.Identity) *World {
	other := *w
	other.connect(w.as(id))
	return &other
}

// Start opens a registry and serves it; it ends with the test.
func (o Options) Start(t *testing.T, cfg registry.Config) *World {
	t.Helper()
	h, err := agentdir.OpenHome(o.Home)
	if err != nil {
		t.Fatal(err)
	}
	log := agentlog.New(nil)
	deps := registry.Deps{Home: h, Logger: slog.New(slog.DiscardHandler), Metrics: obs.NewRegistryMetrics(nil), Log: log}
	if o.Change != nil {
		o.Change(&deps)
	}
	svc, err := o.Open(t.Context(), cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	l, desk := bufconn.Listen(1<<20), direct.NewServer()
	srv, err := serve.New(serve.Options{Direct: desk, Listener: l, Insecure: true, Services: []serve.Registrar{svc.Register}, Policy: registry.Policy(), Audit: svc.Auditor(), Grace: -1})
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
	w := &World{T: t, Home: o.Home}
	w.connect(conn)
	w.as = func(id rpc.Identity) grpc.ClientConnInterface {
		return &direct.Conn{Server: desk, As: id, Far: conn}
	}
	stopped := false
	w.Stop = func() {
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
	t.Cleanup(w.Stop)
	return w
}
