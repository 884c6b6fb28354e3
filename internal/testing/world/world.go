// Package world provides the test world: the real services of one home, on
// real Unix sockets or in processes of their own, and a client's view of them.
//
// It exists for tests, drills and benchmarks, which is why it may import services. It
// promises that what it starts ends with the test, and that nothing in it waits by
// sleeping: every wait is a call that the registry answers when the condition holds. It
// fakes none of our services; models and channels that a test scripts are real HTTP
// servers on loopback.
package world

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
	_ "modernc.org/sqlite" // for programs beside ours

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/netguard"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/obs/agentlog"
	"github.com/theclaw/agents/internal/obs/redact"
	"github.com/theclaw/agents/internal/obs/tracing"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/direct"
	"github.com/theclaw/agents/internal/rpc/runs"
	"github.com/theclaw/agents/internal/rpc/serve"
	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/store/postgres"
	"github.com/theclaw/agents/internal/store/sqlite"
	"github.com/theclaw/agents/internal/store/transfer"
	delivererv1 "github.com/theclaw/agents/proto/gen/theclaw/deliverer/v1"
	gatewayv1 "github.com/theclaw/agents/proto/gen/theclaw/gateway/v1"
	"github.com/theclaw/agents/services/deliverer"
	"github.com/theclaw/agents/services/gateway"
	"github.com/theclaw/agents/services/registry"
	"github.com/theclaw/agents/services/runner"
)

// Options of a world; the zero value is right.
type Options struct {
	Home     string // default: a directory of the test
	Registry registry.Config
	Runner   runner.Config
	Deliver  deliverer.Config
	Runners  int    // default 1
	DSN      string // of the database that registries share; "": one is alone with Home
	// Registries is how many serve the database; default 1. Runners are spread over
	// them, and the deliverer is at the last.
	Registries int
	MaxOpen    int               // databases of a home that stay open at rest; default 256
	Idle       time.Duration     // how long one stays open at rest; default 30 s
	Env        map[string]string // environment of runners and secrets of deliverers
	Environ    []string          // environment of the programs that deliverers start
	Notifier   func() (home string, ok bool)
	TTL        time.Duration // of leases; default 15 s, so that a busy machine loses none
	Logger     *slog.Logger
	// GatewayMetrics are those of the gateway; nil: they are not collected.
	GatewayMetrics *obs.GatewayMetrics
	Metrics        prometheus.Registerer // counts the calls that all services answer; nil: they are not counted
	// Traces answers what a service needs to be traced, by its name; nil: none are.
	Traces func(name string) (t *tracing.Tracer, server, client stats.Handler)
	Direct bool // workers call the registry without a socket, as in `agentd all`
	// HTTP is the address of a gateway, such as 127.0.0.1:0; empty: there is none.
	HTTP string
	// Gateways is how many there are with HTTP, default 1: gateway at the last registry, gateway-2 at the one before.
	Gateways int
	// PublicURL and TrustedProxies are those of the gateway.
	PublicURL      string
	TrustedProxies []netip.Prefix
	// Guard of the gateway, for attachments.
	Guard netguard.Guard
}

// World is a running home.
type World struct {
	Client
	Home      string
	Registry  *registry.Service
	Engine    *sqlite.Engine // of a home
	Runners   []*runner.Service
	Deliverer delivererv1.DelivererServiceClient
	Gateway   gatewayv1.GatewayServiceClient // of a world with one; the first of Gateways
	Gateways  []Gateway
	At        []Client // what a user calls at each registry; the first is Client

	places []*place

	o     Options
	stops []func()
	once  sync.Once
}

// Start starts the services; they end with the test, or with Stop.
func Start(t testing.TB, o Options) *World {
	t.Helper()
	if o.Home == "" {
		o.Home = filepath.Join(t.TempDir(), "home")
	}
	if o.TTL == 0 {
		o.TTL = lease.DefaultTTL
	}
	if o.Runners == 0 {
		o.Runners = 1
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Traces == nil {
		o.Traces = func(string) (*tracing.Tracer, stats.Handler, stats.Handler) { return nil, nil, nil }
	}
	env := make([]string, 0, len(o.Env))
	for name, value := range o.Env {
		env = append(env, name+"="+value)
	}
	if err := chooseOffline(o.Home, env, nil); err != nil {
		t.Fatal(err)
	}
	w := &World{Home: o.Home, o: o}
	if err := w.start(t.Context()); err != nil {
		w.Stop()
		t.Fatalf("start world: %v", err)
	}
	t.Cleanup(w.Stop)
	return w
}

// Stop drains and closes everything, in the order a server would.
func (w *World) Stop() {
	w.once.Do(func() {
		for i := len(w.stops) - 1; i >= 0; i-- {
			w.stops[i]()
		}
	})
}

func (w *World) getenv(name string) string { return w.o.Env[name] }

func (w *World) start(ctx context.Context) error {
	for i := range max(w.o.Registries, 1) {
		p := &place{home: w.Home}
		if w.o.Registries > 1 {
			p.home = filepath.Join(w.Home, fmt.Sprint(i))
		}
		if err := w.startRegistry(ctx, p); err != nil {
			return err
		}
		w.places = append(w.places, p)
	}
	w.Registry = w.places[0].registry
	for i := range w.o.Runners {
		if err := w.startRunner(w.places[i%len(w.places)], fmt.Sprintf("runner%d", i)); err != nil {
			return err
		}
	}
	last := w.places[len(w.places)-1]
	if err := w.startDeliverer(last); err != nil {
		return err
	}
	rconn, err := w.dial(w.places[0], "runner0", rpc.Identity{}, nil)
	if err != nil {
		return err
	}
	dconn, err := w.dial(last, "deliverer", rpc.Identity{}, nil)
	if err != nil {
		return err
	}
	for _, p := range w.places {
		owner, err := w.dial(p, "registry", rpc.Identity{}, nil)
		if err != nil {
			return err
		}
		w.At = append(w.At, NewClient(owner, rconn))
	}
	if w.o.HTTP != "" {
		for i := range max(w.o.Gateways, 1) {
			name := "gateway"
			if i > 0 {
				name = fmt.Sprint("gateway-", i+1)
			}
			n := len(w.places)
			if err := w.startGateway(w.places[(2*n-1-i%n)%n], name); err != nil {
				return err
			}
		}
		w.Gateway = w.Gateways[0]
	}
	w.Client = w.At[0]
	w.Deliverer = delivererv1.NewDelivererServiceClient(dconn)
	return nil
}

// place is a registry with its home; of several each has its own.
type place struct {
	home     string
	dir      *agentdir.Home
	token    string
	registry *registry.Service
	desk     *direct.Server // nil: none
}

func (p *place) addr(name string) string {
	return "unix://" + filepath.Join(p.dir.RunDir(), name+".sock")
}

func (w *World) dial(p *place, name string, as rpc.Identity, stats stats.Handler) (*grpc.ClientConn, error) {
	c, err := rpc.Dial(p.addr(name), rpc.DialOptions{TokenPath: p.dir.TokenFile(), As: as, Stats: stats})
	if err == nil {
		w.stops = append(w.stops, func() { _ = c.Close() })
	}
	return c, err
}

func (w *World) startRegistry(ctx context.Context, p *place) error {
	h, err := agentdir.OpenHome(p.home)
	if err != nil {
		return err
	}
	p.dir = h
	log := agentlog.New(redact.New())
	w.stops = append(w.stops, func() { _ = log.Close(); _ = h.Close() })
	trace, server, _ := w.o.Traces("registry")
	p.registry, err = w.open(ctx, registry.Deps{Home: h, Trace: trace, Logger: w.o.Logger, Metrics: obs.NewRegistryMetrics(nil), Log: log, Notifier: w.o.Notifier})
	if err != nil {
		return err
	}
	w.stops = append(w.stops, func() { _ = p.registry.Close() })
	if p.token, err = rpc.NewToken(h.TokenFile()); err != nil {
		return err
	}
	if w.o.Direct {
		p.desk = direct.NewServer()
	}
	return w.serve(p, "registry", server, p.registry.Register, registry.Policy(), p.registry.Run)
}

// open opens the storage engine and makes a registry over it.
func (w *World) open(ctx context.Context, d registry.Deps) (*registry.Service, error) {
	if w.o.DSN == "" {
		w.Engine = sqlite.New(sqlite.Options{Home: d.Home.RegistryDB(), MaxOpen: w.o.MaxOpen, Idle: w.o.Idle})
		return registry.NewStandalone(ctx, w.Engine, w.o.Registry, d)
	}
	e, err := postgres.New(ctx, postgres.Options{DSN: w.o.DSN, Logger: d.Logger})
	if err != nil {
		return nil, err
	}
	d.Copies = transfer.Of(e)
	return registry.NewCluster(ctx, e, w.o.Registry, d)
}

// worker is the connection to a registry and the name in its leases.
func (w *World) worker(p *place, name string, stats stats.Handler) (grpc.ClientConnInterface, string, error) {
	id := rpc.Identity{Kind: rpc.Service, Name: name}
	conn, err := w.dial(p, "registry", id, stats)
	if err != nil {
		return nil, "", err
	}
	holder, err := lease.NewHolder(p.dir.HoldersDir(), name)
	if err != nil {
		return nil, "", err
	}
	w.stops = append(w.stops, func() { _ = holder.Close() })
	if p.desk != nil {
		return &direct.Conn{Server: p.desk, As: id, Far: conn}, holder.ID(), nil
	}
	return conn, holder.ID(), nil
}

// runners finds the runners of a world for a service.
func (w *World) runners(p *place, name string, registry grpc.ClientConnInterface) (*runs.Client, error) {
	as := rpc.Identity{Kind: rpc.Service, Name: name}
	near, err := w.dial(w.places[0], "runner0", as, nil)
	if err != nil {
		return nil, err
	}
	c := runs.New(runs.Options{Registry: registry, Near: near, Dial: func(address string) (*grpc.ClientConn, error) {
		return rpc.Dial(address, rpc.DialOptions{TokenPath: p.dir.TokenFile(), As: as})
	}})
	w.stops = append(w.stops, c.Close)
	return c, nil
}

func (w *World) startRunner(p *place, name string) error {
	trace, server, client := w.o.Traces(name)
	conn, holder, err := w.worker(p, name, client)
	if err != nil {
		return err
	}
	c := w.o.Runner
	c.TTL, c.ProvidersFile = w.o.TTL, filepath.Join(w.Home, "providers.yaml")
	c.Home, c.Address = w.Home, p.addr(name)
	c.Sandbox = sandbox.Options{Forbidden: []string{p.dir.RunDir()}}
	if w.o.DSN != "" {
		c.Root = filepath.Join(w.Home, "agents")
	}
	s, err := runner.New(c, runner.Deps{Registry: conn, Holder: holder, Getenv: w.getenv, Logger: w.o.Logger, Trace: trace})
	if err != nil {
		return err
	}
	w.Runners = append(w.Runners, s)
	return w.serve(p, name, server, s.Register, runner.Policy(), s.Run)
}

func (w *World) startDeliverer(p *place) error {
	trace, server, client := w.o.Traces("deliverer")
	conn, holder, err := w.worker(p, "deliverer", client)
	if err != nil {
		return err
	}
	c := w.o.Deliver
	c.TTL = w.o.TTL
	r, err := w.runners(p, "deliverer", conn)
	if err != nil {
		return err
	}
	d := deliverer.New(c, deliverer.Deps{Registry: conn, Holder: holder, Runners: r, Logger: w.o.Logger, Resolve: w.resolve, Environ: w.o.Environ, Trace: trace})
	return w.serve(p, "deliverer", server, d.Register, deliverer.Policy(), d.Run)
}

// Gateway is one of a world.
type Gateway struct {
	gatewayv1.GatewayServiceClient
	// Stop ends it in good order, which takes nothing else with it.
	Stop func()
}

func (w *World) startGateway(p *place, name string) error {
	trace, server, client := w.o.Traces("gateway")
	conn, holder, err := w.worker(p, name, client)
	if err != nil {
		return err
	}
	r, err := w.runners(p, name, conn)
	if err != nil {
		return err
	}
	g, err := gateway.New(gateway.Config{HTTP: w.o.HTTP, TTL: w.o.TTL, PublicURL: w.o.PublicURL, TrustedProxies: w.o.TrustedProxies}, gateway.Deps{Registry: conn, Holder: holder, Runners: r, Version: w.o.Runner.Version, Logger: w.o.Logger, Resolve: w.resolve, Guard: w.o.Guard, Metrics: w.o.GatewayMetrics, Trace: trace})
	if err != nil {
		return err
	}
	if err := w.serve(p, name, server, g.Register, gateway.Policy(), g.Run); err != nil {
		return err
	}
	stop := w.stops[len(w.stops)-1]
	c, err := w.dial(p, name, rpc.Identity{}, nil)
	w.Gateways = append(w.Gateways, Gateway{gatewayv1.NewGatewayServiceClient(c), stop})
	return err
}

func (w *World) resolve(_ context.Context, ref string) (string, error) {
	if v, ok := w.o.Env[ref]; ok {
		return v, nil
	}
	return "", errors.New("no such secret")
}

// serve starts one service; its stop waits until it has drained.
func (w *World) serve(p *place, name string, stats stats.Handler, reg serve.Registrar, policy serve.Policy, run func(context.Context) error) error {
	o := serve.Options{Addr: p.addr(name), Services: []serve.Registrar{reg}, Policy: policy, Token: func() string { return p.token }, Logger: w.o.Logger, Metrics: w.o.Metrics, Stats: stats, Grace: time.Second}
	if name == "registry" {
		o.Direct, o.Able = p.desk, p.registry.Able
	}
	srv, err := serve.New(o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var g sync.WaitGroup
	g.Go(func() { _ = srv.Run(ctx) })
	g.Go(func() { _ = run(ctx) })
	w.stops = append(w.stops, func() { cancel(); g.Wait() })
	return nil
}

// InsertOutside adds an event to the inbox of an agent of a home as a program does
// that writes the file itself, and answers its id.
func (w *World) InsertOutside(t testing.TB, agent, insert string, args ...any) int64 {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(w.Home, "agents", agent, "inbox", "events.db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	r, err := db.ExecContext(t.Context(), insert, args...)
	if err != nil {
		t.Fatal(err)
	}
	id, err := r.LastInsertId()
	if err != nil {
		t.Fatal(err)
	}
	return id
}
