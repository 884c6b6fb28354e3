package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/stats"

	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/direct"
	"github.com/theclaw/agents/internal/rpc/socket"
)

const (
	defaultGrace = 30 * time.Second
	slowCall     = time.Second
	// Local callers hold many long polls on one connection; outside ones get few.
	localStreams, outsideStreams = 1000, 100
	// What one identity may call over TCP: a worker makes a handful of calls for a
	// message, so this is thousands of messages a second; a loop that calls without
	// end is slowed down to it.
	outsideRate, outsideBurst = 10_000, 20_000 // calls a second, and at once
	// workers are goroutines that keep their stacks from call to call; a call that
	// finds none, because streams stay on them, gets a new one.
	workers = 64
	// stuckWait is how long after Stop a handler that ignores its context is waited for.
	stuckWait = 5 * time.Second
)

// Registrar registers one service, e.g.
//
//	func(r grpc.ServiceRegistrar) { registrypb.RegisterAgentServiceServer(r, svc) }
type Registrar func(grpc.ServiceRegistrar)

// Options say what is served, where, and to whom.
type Options struct {
	Addr     string       // "unix:///absolute/path"; see socket.Listen
	Listener net.Listener // takes the place of Addr; the server closes it
	// Creds serve a Listener that is not a Unix socket: each caller is who its
	// certificate says, and no token is asked for. See rpc/mtls.
	Creds credentials.TransportCredentials
	// Insecure allows a Listener that is not a Unix socket (there is no peer to
	// ask for its user id) and a nil Token (every caller is the owner): tests only.
	Insecure bool

	Services []Registrar
	Policy   Policy        // every method of Services needs a rule
	Token    func() string // the present root token; see rpc.NewToken

	Able    func(context.Context) error // whether the services can work, or why not; nil: always
	Audit   Auditor                     // nil: nothing is written down
	Logger  *slog.Logger                // nil discards
	Metrics prometheus.Registerer       // nil: no call metrics
	Stats   stats.Handler               // sees each call, for traces; nil: none
	Grace   time.Duration               // of a drain; 0: 30 s, negative: none
	Abort   <-chan struct{}             // closed: a drain ends at once (second SIGTERM); nil never
	Direct  *direct.Server              // takes calls of other services of this process; nil: none
}

// Auditor writes down who was refused, what was let through and how that failed.
// req is nil for streams. An error of Admitted refuses the call: what must be
// written down does not happen otherwise.
type Auditor interface {
	Refused(ctx context.Context, method, origin string, err error)
	Admitted(ctx context.Context, method string, req any) error
	Failed(ctx context.Context, method string, req any, err error)
}

// Server is a bound, not yet serving, server.
type Server struct {
	o      Options
	l      net.Listener
	grpc   *grpc.Server
	health *health.Server
	drain  context.CancelFunc
}

// New checks the options and binds the address, so that a caller may dial as soon
// as it returns. It fails when a registered method has no rule.
func New(o Options) (*Server, error) {
	if o.Token == nil && o.Creds == nil && !o.Insecure {
		return nil, errors.New("make server: no token")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Grace == 0 {
		o.Grace = defaultGrace
	}
	o.Policy = o.Policy.with()
	local := o.Listener == nil || o.Listener.Addr().Network() == "unix"
	if local && o.Creds != nil {
		return nil, errors.New("make server: TLS is for a listener that is not a Unix socket")
	}
	if !local && o.Creds == nil && !o.Insecure {
		return nil, fmt.Errorf("make server: a %s listener needs TLS", o.Listener.Addr().Network())
	}
	metrics, err := callMetrics(o.Metrics)
	if err != nil {
		return nil, fmt.Errorf("make server: %w", err)
	}
	draining, drain := context.WithCancel(context.Background()) // ends with the server, not with a caller
	c := &chain{o: o, draining: draining, local: local}
	if o.Creds != nil {
		c.rate = newRateLimit(outsideRate, outsideBurst)
	}
	s := &Server{o: o, health: health.NewServer(), drain: drain, grpc: grpc.NewServer(c.options(metrics)...)}
	for _, register := range o.Services {
		register(s.grpc)
		register(o.Direct)
	}
	for name := range s.grpc.GetServiceInfo() {
		s.health.SetServingStatus(name, healthpb.HealthCheckResponse_NOT_SERVING)
	}
	s.health.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	healthpb.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	if err := o.Policy.check(s.grpc.GetServiceInfo()); err != nil {
		drain()
		return nil, fmt.Errorf("make server: %w", err)
	}
	if s.l = o.Listener; s.l == nil {
		if s.l, err = socket.Listen(o.Addr); err != nil {
			drain()
			return nil, fmt.Errorf("make server: %w", err)
		}
	}
	o.Direct.Open(c.unary(metrics)...)
	return s, nil
}

// options are the limits of docs/spec/security.md and the chain of the package comment.
func (c *chain) options(m *calls) []grpc.ServerOption {
	streams := uint32(outsideStreams)
	creds := insecure.NewCredentials()
	alive := keepalive.ServerParameters{Time: 2 * time.Minute, Timeout: 20 * time.Second}
	switch {
	case c.local:
		streams, creds = localStreams, rpc.PeerCredentials()
	case c.o.Creds != nil:
		// A connection ends now and then, so that a new certificate comes into use;
		// calls on it may finish, the next one goes over a new connection.
		streams, creds = localStreams, c.o.Creds
		alive.MaxConnectionAge, alive.MaxConnectionAgeGrace = 30*time.Minute, 30*time.Minute
	}
	unary, stream := c.unary(m), []grpc.StreamServerInterceptor{c.recoverStream, c.callStream}
	if m != nil {
		stream = append(stream, m.stream)
	}
	stream = append(stream, c.edgeStream, c.accessStream, c.deadlineStream, validateStream)
	options := []grpc.ServerOption{
		grpc.Creds(creds),
		grpc.MaxRecvMsgSize(rpc.MaxMessage),
		grpc.MaxConcurrentStreams(streams),
		grpc.ConnectionTimeout(5 * time.Second),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(alive),
		grpc.NumStreamWorkers(workers),
		grpc.WaitForHandlers(true),
		grpc.UnaryInterceptor(direct.Chained(unary)),
		grpc.ChainStreamInterceptor(stream...),
	}
	if c.local {
		options = append(options, grpc.StaticStreamWindowSize(rpc.StreamWindow), grpc.StaticConnWindowSize(rpc.ConnectionWindow))
	}
	if c.o.Stats != nil {
		options = append(options, grpc.StatsHandler(c.o.Stats))
	}
	return options
}

// unary is what a unary call passes, outermost first.
func (c *chain) unary(m *calls) []grpc.UnaryServerInterceptor {
	all := []grpc.UnaryServerInterceptor{c.recoverUnary, c.callUnary}
	if m != nil {
		all = append(all, m.unary)
	}
	return append(all, c.edgeUnary, c.accessUnary, c.deadlineUnary, validateUnary)
}

// Serve is New and Run.
func Serve(ctx context.Context, o Options) error {
	s, err := New(o)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// Ready answers nil while the server serves, before it drains.
func (s *Server) Ready(ctx context.Context) error {
	r, err := s.health.Check(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		return err
	}
	if r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		return fmt.Errorf("%s is %s", s.l.Addr(), r.GetStatus())
	}
	return nil
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.l.Addr() }

// Close gives the address back when Run is never called.
func (s *Server) Close() error {
	s.drain()
	s.o.Direct.Close()
	s.grpc.Stop()
	return s.l.Close()
}

// Run serves until ctx ends, then drains and answers nil. It fails when the
// listener fails, or when a handler still runs five seconds after the request to
// stop.
func (s *Server) Run(ctx context.Context) error {
	s.health.Resume() // all SERVING
	var g errgroup.Group
	failed := make(chan struct{})
	g.Go(func() error {
		defer close(failed)
		if err := s.grpc.Serve(s.l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			return fmt.Errorf("serve %s: %w", s.l.Addr(), err)
		}
		return nil
	})
	attending, leave := context.WithCancel(ctx)
	left := make(chan struct{})
	go func() {
		defer close(left)
		if s.o.Able != nil {
			watchService(attending, s.o.Able, s.able)
		}
	}()
	select {
	case <-ctx.Done():
	case <-failed:
	}
	leave()
	<-left // before the drain: what it says is for good
	err := s.stop()
	closed := s.l.Close()
	if errors.Is(closed, net.ErrClosed) { // grpc closed it, as it should
		closed = nil
	}
	if err != nil { // grpc's Serve also waits for the stuck call; the process is about to exit
		return errors.Join(err, closed)
	}
	return errors.Join(g.Wait(), closed)
}

// able lets the health say whether the services can work: callers who know of others go
// there.
func (s *Server) able(err error) {
	if err != nil {
		s.o.Logger.Error("not serving until this is over", "address", s.l.Addr().String(), "error", err)
		s.health.Shutdown()
		return
	}
	s.o.Logger.Info("serving again", "address", s.l.Addr().String())
	s.health.Resume()
}

// stop drains: first say so, then let calls finish, then end them.
func (s *Server) stop() error {
	s.health.Shutdown() // NOT_SERVING, for good
	s.drain()
	s.o.Direct.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.grpc.GracefulStop()
		s.o.Direct.Wait()
	}()
	if s.o.Grace > 0 {
		grace := time.NewTimer(s.o.Grace)
		defer grace.Stop()
		select {
		case <-done:
			return nil
		case <-grace.C:
		case <-s.o.Abort:
		}
	}
	stopped := make(chan struct{})
	go func() { // ends every context; then both wait for the handlers
		defer close(stopped)
		s.o.Direct.End()
		s.grpc.Stop()
	}()
	stuck := time.NewTimer(stuckWait)
	defer stuck.Stop()
	select {
	case <-stopped:
		<-done
		return nil
	case <-stuck.C:
		return fmt.Errorf("stop %s: a call does not end", s.l.Addr())
	}
}
