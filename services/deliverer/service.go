package deliverer

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"

	delivererv1 "github.com/theclaw/agents/proto/gen/theclaw/deliverer/v1"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/deliverer/internal/breaker"
	"github.com/theclaw/agents/services/deliverer/internal/channel"
	"github.com/theclaw/agents/services/deliverer/internal/channel/catalog"
	"github.com/theclaw/agents/services/deliverer/internal/drain"
)

// Service is one deliverer.
type Service struct {
	delivererv1.UnimplementedDelivererServiceServer

	cfg      Config
	deps     Deps
	leases   registryv1.LeaseServiceClient
	threads  registryv1.ThreadServiceClient
	breakers *breaker.Set
	pool     *drain.Pool
	born     time.Time

	starts  chan start    // grants that DeliverBatch got, for Run to work on
	stopped chan struct{} // closed when Run takes no more of them

	mu      sync.Mutex
	closing bool
	terms   map[string]*term    // the newest of each agent
	all     map[*term]struct{}  // those that gave their lease not back yet
	asking  map[string]int      // DeliverBatch calls that ask for the lease, by agent
	owed    map[string][]string // threads that came up meanwhile
	wg      sync.WaitGroup
}

// New makes a deliverer. It does nothing before Run.
func New(cfg Config, deps Deps) *Service {
	cfg, deps = cfg.withDefaults(), deps.withDefaults()
	s := &Service{
		cfg: cfg, deps: deps, born: time.Now(),
		leases:   registryv1.NewLeaseServiceClient(deps.Registry),
		threads:  registryv1.NewThreadServiceClient(deps.Registry),
		breakers: &breaker.Set{Probe: cfg.Probe},
		starts:   make(chan start), stopped: make(chan struct{}),
		terms: make(map[string]*term), all: make(map[*term]struct{}), asking: make(map[string]int), owed: make(map[string][]string),
	}
	s.breakers.OnChange = func(channel string) { deps.Metrics.SetBreaker(channel, s.breakers.State(channel)) }
	ways := catalog.Deps{Pusher: pusher{s.threads, deps.Redactor}, Resolve: deps.resolve, Env: deps.Environ}
	s.pool = drain.NewPool(drain.Config{Concurrency: cfg.Concurrency, Keep: cfg.Keep}, drain.Deps{
		Journal:  journal{registryv1.NewDeliveryServiceClient(deps.Registry), cfg.BootID, cfg.XGW.settings(), deps.Trace != nil},
		Open:     func(settings channel.Settings) (drain.Ways, error) { return open(settings, ways) },
		Breakers: s.breakers, Metrics: deps.Metrics, Logger: deps.Logger, Redactor: deps.Redactor, Trace: deps.Trace,
	})
	return s
}

// open keeps a nil catalog from becoming a non-nil interface.
func open(s channel.Settings, d catalog.Deps) (drain.Ways, error) {
	c, err := catalog.Open(s, d)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Register serves the deliverer's API on r.
func (s *Service) Register(r grpc.ServiceRegistrar) { delivererv1.RegisterDelivererServiceServer(r, s) }

// Run dispatches until ctx ends, then drains: no send begins, those under way
// finish within the grace or are stopped, the leases are given back. It answers
// nil then. It may be called once.
func (s *Service) Run(ctx context.Context) error {
	if s.deps.Holder == "" {
		return errors.New("run deliverer: no holder id")
	}
	// Work under a lease outlives ctx by the grace.
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	s.wg.Go(func() { s.dispatch(ctx, base) })
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case st := <-s.starts:
			st.reply <- s.start(base, st.grant, st.sent)
		}
	}
	close(s.stopped)
	s.drain()
	return nil
}

// drain ends all terms and waits for them.
func (s *Service) drain() {
	s.mu.Lock()
	s.closing = true
	for t := range s.all {
		t.drain.Close()
	}
	s.mu.Unlock()
	grace := time.NewTimer(s.cfg.Grace)
	defer grace.Stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.wg.Wait()
		s.pool.Wait()
	}()
	select {
	case <-done:
		return
	case <-grace.C:
	case <-s.deps.Abort:
	}
	s.mu.Lock()
	for t := range s.all {
		t.drain.Abort()
	}
	s.mu.Unlock()
	<-done
}
