package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/obs/redact"
	"github.com/theclaw/agents/internal/obs/tracing/export"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/balance"
	"github.com/theclaw/agents/internal/rpc/direct"
	"github.com/theclaw/agents/internal/rpc/mtls"
	"github.com/theclaw/agents/internal/rpc/serve"
	"github.com/theclaw/agents/internal/rpc/socket"
)

// env is what services are made of.
type env struct {
	options
	homeDir  *agentdir.Home
	log      *slog.Logger
	redactor *redact.Redactor
	metrics  *prometheus.Registry
	process  *processService
	traces   *export.Export            // nil: off
	traced   map[string]export.Service // by the name of the service
	abort    <-chan struct{}
	listener net.Listener // of --listen; nil: there is none
	// metricsListener listens at --metrics-listen; nil: there is none.
	metricsListener net.Listener
	desk            *direct.Server // of the registry in this process; nil: there is none, or its calls are traced

	starterOnce sync.Once
	starterPath string

	served chan struct{} // closed when every service of this process serves

	mu      sync.Mutex
	servers []*serve.Server
}

// component is a made service: what is served, what runs, what is closed.
type component struct {
	register serve.Registrar
	policy   serve.Policy
	token    func() string
	audit    serve.Auditor // nil: none
	able     func(context.Context) error
	run      func(context.Context) error
	close    func() error
}

// run makes and serves the chosen services until drain ends, then ends them in
// the reverse order, so that a worker always has its registry while it finishes.
func run(drain context.Context, abort <-chan struct{}, o options, stderr io.Writer) error {
	e, err := newEnv(o, stderr)
	if err != nil {
		return err
	}
	e.abort = abort
	defer func() { _ = e.homeDir.Close() }()
	defer e.closeTraces()
	if err := e.bind(); err != nil {
		return err
	}
	defer e.unbind() // served or not, they are done with
	var stages []*stage
	stop := func() error {
		var errs []error
		for i := len(stages) - 1; i >= 0; i-- {
			stages[i].cancel()
			errs = append(errs, stages[i].wait())
		}
		return errors.Join(errs...)
	}
	failed := make(chan struct{}, len(o.services)+1)
	// First, so that it ends last: who asks during a drain is told of it.
	stages = append(stages, e.serveMetrics(failed))
	for _, s := range o.services {
		st, err := e.start(s, failed)
		if err != nil {
			return errors.Join(err, stop())
		}
		stages = append(stages, st)
	}
	close(e.served)
	e.log.Info("serving", "home", o.home)
	e.supervisor("READY=1")
	var trim sync.WaitGroup
	defer trim.Wait()
	trim.Go(func() { trimMemory(drain) })
	select {
	case <-drain.Done():
		e.log.Info("draining")
		e.supervisor("STOPPING=1")
	case <-failed:
	}
	return stop()
}

func newEnv(o options, stderr io.Writer) (*env, error) {
	e := &env{options: o, served: make(chan struct{}), redactor: redact.New(), metrics: obs.NewRegistry()}
	level := new(slog.LevelVar)
	level.Set(o.logLevel)
	var err error
	e.log, err = obs.NewLogger(stderr, obs.LogOptions{
		Format: o.logFormat, Level: level, Redactor: e.redactor,
		Attrs: func(ctx context.Context) []slog.Attr {
			if id := rpc.RequestID(ctx); id != "" {
				return []slog.Attr{slog.String(obs.KeyRequestID, id)}
			}
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	if err := e.openTraces(); err != nil {
		return nil, err
	}
	names := make([]string, len(o.services))
	for i, s := range o.services {
		names[i] = s.name
	}
	if len(o.services) > 1 && o.registry == "" && e.traces == nil {
		e.desk = direct.NewServer()
	}
	e.process = newProcessService(processOptions{Version: versionText(), Services: names, Level: level, Logger: e.log, Started: time.Now()})
	if e.homeDir, err = agentdir.OpenHome(o.home); err != nil {
		return nil, err
	}
	// While a service runs, a file that becomes invalid leaves the last good one in force.
	if err := e.homeDir.CheckDefaults(); err != nil {
		return nil, errors.Join(err, e.homeDir.Close())
	}
	e.homeDir.UserHome, _ = os.UserHomeDir() // only ~/ in a setting needs it, and that error names it
	return e, nil
}

// stage is one started service.
type stage struct {
	cancel context.CancelFunc
	g      errgroup.Group
	close  func() error
	once   sync.Once
}

func (s *stage) wait() error {
	err := s.g.Wait()
	s.once.Do(func() {
		if s.close != nil {
			err = errors.Join(err, s.close())
		}
	})
	return err
}

// start makes a service, binds its socket, and runs it.
func (e *env) start(s service, failed chan<- struct{}) (*stage, error) {
	addr, err := e.homeDir.Socket(s.name)
	if err != nil {
		return nil, err
	}
	// Not derived from the signal: each stage ends in its turn.
	ctx, cancel := context.WithCancel(context.Background())
	c, err := s.make(ctx, e, s.name)
	if err != nil {
		cancel()
		return nil, err
	}
	policy := maps.Clone(c.policy)
	maps.Copy(policy, processPolicy())
	o := serve.Options{
		Addr: "unix://" + addr, Services: []serve.Registrar{c.register, e.process.Register}, Policy: policy, Token: c.token, Audit: c.audit, Able: c.able,
		Logger: e.log, Metrics: prometheus.WrapRegistererWith(prometheus.Labels{"service": s.name}, e.metrics),
		Stats: e.traced[s.name].Server, Grace: e.grace, Abort: e.abort,
	}
	if s.name == "registry" {
		o.Direct = e.desk
	}
	srv, err := serve.New(o)
	if err != nil {
		cancel()
		if errors.Is(err, socket.ErrInUse) {
			err = fault.Wrap(fault.New(codes.FailedPrecondition, fault.InvalidArgument, "another process serves the "+s.name+" at "+addr,
				"end that process, or give this one another --home; a second runner, deliverer or gateway needs a --name"), err)
		}
		return nil, errors.Join(err, c.close())
	}
	e.mu.Lock()
	e.servers = append(e.servers, srv)
	e.mu.Unlock()
	runs := []func(context.Context) error{srv.Run}
	if e.listen != "" && (len(e.services) == 1 || s.name == "registry") {
		// Profiles and log levels are for who owns the socket.
		o.Services, o.Policy, o.Direct = []serve.Registrar{c.register}, c.policy, nil
		tcp, err := e.serveTCP(s.name, o)
		if err != nil {
			cancel()
			return nil, errors.Join(err, srv.Close(), c.close())
		}
		runs = append(runs, tcp.Run)
	}
	st := &stage{cancel: cancel, close: c.close}
	// Served before it runs, and that only when all serve: SERVING must not wait for what is read
	// at the start, which would take the processors from the services that are made next.
	work := func(ctx context.Context) error {
		select {
		case <-e.served:
		case <-ctx.Done():
		}
		return c.run(ctx)
	}
	for _, f := range append(runs, work) {
		st.g.Go(func() error {
			err := f(ctx)
			if ctx.Err() == nil {
				failed <- struct{}{}
				cancel()
			}
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			return nil
		})
	}
	return st, nil
}

func (e *env) serveMetrics(failed chan<- struct{}) *stage {
	ctx, cancel := context.WithCancel(context.Background())
	st := &stage{cancel: cancel}
	st.g.Go(func() error {
		if e.metricsListener == nil {
			return nil
		}
		err := obs.ServeMetrics(ctx, obs.MetricsOptions{Listener: e.metricsListener, Gatherer: e.metrics, Ready: e.ready, Remote: e.metricsRemote})
		if err != nil {
			failed <- struct{}{}
		}
		return err
	})
	return st
}

// ready answers nil while every service of this process serves.
func (e *env) ready(ctx context.Context) error {
	e.mu.Lock()
	servers := slices.Clone(e.servers)
	e.mu.Unlock()
	if len(servers) < len(e.services) {
		return errors.New("not all services have started")
	}
	for _, s := range servers {
		if err := s.Ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

// dialRegistry connects a worker to its registry.
func (e *env) dialRegistry(as string) (*grpc.ClientConn, error) {
	target := e.registry
	if target == "" {
		path, err := e.homeDir.Socket("registry")
		if err != nil {
			return nil, err
		}
		target = "unix://" + path
	}
	o := rpc.DialOptions{UserAgent: "agentd/" + versionText(), Stats: e.traced[as].Client}
	if e.remote {
		store, err := e.certificate(as)
		if err != nil {
			return nil, err
		}
		o.Creds = mtls.Client(store, "registry")
	} else {
		o.TokenPath, o.As = e.homeDir.TokenFile(), rpc.Identity{Kind: rpc.Service, Name: as}
	}
	o.Safe = safe
	return balance.Dial(target, o)
}

// certificate follows the certificate of one of our services.
func (e *env) certificate(name string) (*mtls.Store, error) {
	return mtls.Open(e.options.tls, name, func(err error) {
		e.log.Error("the changed certificate cannot be used; the previous one stays in use", "name", name, "error", fault.Line(err))
	})
}

// serveTCP binds the TCP address of a service. o is that of its socket.
func (e *env) serveTCP(name string, o serve.Options) (*serve.Server, error) {
	store, err := e.certificate(name)
	if err != nil {
		return nil, err
	}
	o.Addr, o.Token, o.Listener = "", nil, e.listener
	o.Creds = mtls.Server(store, func(from net.Addr, err error) {
		e.log.Warn("connection refused", "service", name, "from", from.String(), "error", err.Error())
		if o.Audit != nil {
			o.Audit.Refused(context.Background(), "", from.String(), err)
		}
	})
	srv, err := serve.New(o)
	if err != nil {
		return nil, errors.Join(err, o.Listener.Close())
	}
	e.log.Info("serving with TLS", "service", name, "address", o.Listener.Addr().String(), "identity", store.ID().String(), "until", store.NotAfter().Format(time.DateOnly))
	return srv, nil
}

// workerToken reads the token that the registry made; it may be rotated while
// the worker runs, and a worker may start first.
func (e *env) workerToken() func() string { return rpc.NewTokenFile(e.homeDir.TokenFile()).Token }
