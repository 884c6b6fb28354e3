// Package world owns the test world: the three real services of one home, on
// real Unix sockets or in processes of their own, and a client's view of them.
//
// It exists for tests, drills and benchmarks, which is why it may import
// services. It promises that what it starts is ended with the test, and that
// nothing in it waits by sleeping: every wait is a call that the registry answers
// when the thing has happened. It fakes nothing of ours; models and channels that
// a test wants to script are real HTTP servers on loopback.
package world

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/obs/agentlog"
	"github.com/theclaw/agents/internal/obs/tracing"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/serve"
	"github.com/theclaw/agents/internal/sandbox"
	delivererv1 "github.com/theclaw/agents/proto/gen/theclaw/deliverer/v1"
	"github.com/theclaw/agents/services/deliverer"
	"github.com/theclaw/agents/services/registry"
	"github.com/theclaw/agents/services/runner"
)

// Options of a world; the zero value is right.
type Options struct {
	Home     string // default: a directory of the test
	Registry registry.Config
	Runner   runner.Config
	Deliver  deliverer.Config
	Runners  int               // default 1
	Env      map[string]string // environment of runners and secrets of deliverers
	Environ  []string          // environment of the programs that deliverers start
	Notifier func() (home string, ok bool)
	TTL      time.Duration // of leases; default 1 s
	Logger   *slog.Logger
	Metrics  prometheus.Registerer // counts the calls that all services answer; nil: nobody does
	// Traces answers what a service needs to be traced, by its name; nil: none are.
	Traces func(name string) (t *tracing.Tracer, server, client stats.Handler)
}

// World is a running home.
type World struct {
	Client
	Home      string
	Registry  *registry.Service
	Runners   []*runner.Service
	Deliverer delivererv1.DelivererServiceClient

	o     Options
	stops []func()
	once  sync.Once
}

// Start starts the three services; they end with the test, or with Stop.
func Start(t testing.TB, o Options) *World {
	t.Helper()
	if o.Home == "" {
		o.Home = filepath.Join(t.TempDir(), "home")
	}
	if o.TTL == 0 {
		o.TTL = time.Second
	}
	if o.Registry.BootID == "" {
		o.Registry.BootID = "boot"
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
	h, err := agentdir.OpenHome(w.Home)
	if err != nil {
		return err
	}
	log := agentlog.New(obs.NewRedactor())
	w.stops = append(w.stops, func() { _ = log.Close(); _ = h.Close() })
	trace, server, _ := w.o.Traces("registry")
	w.Registry, err = registry.New(ctx, w.o.Registry, registry.Deps{Home: h, Trace: trace, Logger: w.o.Logger, Metrics: obs.NewRegistryMetrics(nil), Log: log, Notifier: w.o.Notifier})
	if err != nil {
		return err
	}
	w.stops = append(w.stops, func() { _ = w.Registry.Close() })
	token, err := rpc.NewToken(h.TokenFile())
	if err != nil {
		return err
	}
	addr := func(name string) string { return "unix://" + filepath.Join(h.RunDir(), name+".sock") }
	part := func(name string, stats stats.Handler, reg serve.Registrar, p serve.Policy, run func(context.Context) error) error {
		return w.serve(addr(name), token, stats, reg, p, run)
	}
	if err := part("registry", server, w.Registry.Register, registry.Policy(), w.Registry.Run); err != nil {
		return err
	}
	dial := func(as rpc.Identity, stats stats.Handler) (*grpc.ClientConn, error) {
		c, err := rpc.Dial(addr("registry"), rpc.DialOptions{TokenPath: h.TokenFile(), As: as, Stats: stats})
		if err == nil {
			w.stops = append(w.stops, func() { _ = c.Close() })
		}
		return c, err
	}
	for i := range w.o.Runners {
		name := fmt.Sprintf("runner%d", i)
		trace, server, client := w.o.Traces(name)
		conn, err := dial(rpc.Identity{Kind: rpc.Service, Name: name}, client)
		if err != nil {
			return err
		}
		holder, err := lease.NewHolder(h.HoldersDir(), name)
		if err != nil {
			return err
		}
		w.stops = append(w.stops, func() { _ = holder.Close() })
		c := w.o.Runner
		c.TTL, c.ProvidersFile = w.o.TTL, filepath.Join(w.Home, "providers.yaml")
		c.Sandbox = sandbox.Options{Forbidden: []string{h.RunDir()}}
		s, err := runner.New(c, runner.Deps{Registry: conn, Holder: holder.ID(), Getenv: w.getenv, Logger: w.o.Logger, Trace: trace})
		if err != nil {
			return err
		}
		w.Runners = append(w.Runners, s)
		if err := part(name, server, s.Register, runner.Policy(), s.Run); err != nil {
			return err
		}
	}
	trace, server, client := w.o.Traces("deliverer")
	conn, err := dial(rpc.Identity{Kind: rpc.Service, Name: "deliverer"}, client)
	if err != nil {
		return err
	}
	holder, err := lease.NewHolder(h.HoldersDir(), "deliverer")
	if err != nil {
		return err
	}
	w.stops = append(w.stops, func() { _ = holder.Close() })
	dc := w.o.Deliver
	dc.TTL, dc.BootID = w.o.TTL, "boot"
	d := deliverer.New(dc, deliverer.Deps{Registry: conn, Holder: holder.ID(), Logger: w.o.Logger, Resolve: w.resolve, Environ: w.o.Environ, Trace: trace})
	if err := part("deliverer", server, d.Register, deliverer.Policy(), d.Run); err != nil {
		return err
	}
	owner, err := dial(rpc.Identity{}, nil)
	if err != nil {
		return err
	}
	rconn, err := rpc.Dial(addr("runner0"), rpc.DialOptions{TokenPath: h.TokenFile()})
	if err != nil {
		return err
	}
	w.stops = append(w.stops, func() { _ = rconn.Close() })
	dconn, err := rpc.Dial(addr("deliverer"), rpc.DialOptions{TokenPath: h.TokenFile()})
	if err != nil {
		return err
	}
	w.stops = append(w.stops, func() { _ = dconn.Close() })
	w.Client = NewClient(owner, rconn)
	w.Deliverer = delivererv1.NewDelivererServiceClient(dconn)
	return nil
}

func (w *World) resolve(_ context.Context, ref string) (string, error) {
	if v, ok := w.o.Env[ref]; ok {
		return v, nil
	}
	return "", errors.New("no such secret")
}

// serve starts one service; its stop waits until it has drained.
func (w *World) serve(addr, token string, stats stats.Handler, reg serve.Registrar, p serve.Policy, run func(context.Context) error) error {
	srv, err := serve.New(serve.Options{Addr: addr, Services: []serve.Registrar{reg}, Policy: p, Token: func() string { return token }, Logger: w.o.Logger, Metrics: w.o.Metrics, Stats: stats, Grace: time.Second})
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
