package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/batch"
	"github.com/theclaw/agents/services/runner/internal/model/provider"
	"github.com/theclaw/agents/services/runner/internal/model/retry"
	"github.com/theclaw/agents/services/runner/internal/run"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

var errDrained = errors.New("the runner is ending")

// Service is the runner.
type Service struct {
	runnerpb.UnimplementedRunnerServiceServer

	cfg  Config
	deps Deps

	agents  registrypb.AgentServiceClient
	threads registrypb.ThreadServiceClient
	leases  registrypb.LeaseServiceClient
	turns   registrypb.TurnServiceClient

	models   *models
	boxes    *boxes
	driver   *turn.Driver
	slots    *batch.Slots
	hub      run.Hub
	panics   *quarantine
	began    time.Time
	active   atomic.Int32
	underway underway

	// life is what claims live in: it ends when a drain is over, not when it
	// begins, so it belongs to no call.
	life context.Context //nolint:containedctx // see above
	end  context.CancelCauseFunc

	mu       sync.Mutex
	claims   map[string]*claim // by agent
	asking   map[string]int    // agents for which RunBatch is asking for the lease
	draining bool
	changed  chan struct{} // closed when claims change
	wg       sync.WaitGroup
}

// New reads the providers and makes a runner; it calls nobody. The error is a
// providers.yaml that cannot be used.
func New(c Config, d Deps) (*Service, error) {
	c, d = c.withDefaults(), d.withDefaults()
	settings, err := provider.Load(c.ProvidersFile, d.Getenv, c.PaiConfig)
	if err != nil {
		return nil, fmt.Errorf("load providers: %w", err)
	}
	s := &Service{
		cfg: c, deps: d,
		agents: registrypb.NewAgentServiceClient(d.Registry), threads: registrypb.NewThreadServiceClient(d.Registry),
		leases: registrypb.NewLeaseServiceClient(d.Registry), turns: registrypb.NewTurnServiceClient(d.Registry),
		models: &models{settings, retry.NewPool()}, boxes: newBoxes(c.Sandbox, d.Sandbox),
		slots: batch.NewSlots(c.Slots), panics: newQuarantine(c.Quarantine), began: time.Now(),
		claims: map[string]*claim{}, asking: map[string]int{}, changed: make(chan struct{}),
	}
	s.driver = &turn.Driver{Journal: s.turns, Models: s.models, Sandbox: s.boxes.box, Meter: d.Metrics, Logger: d.Logger}
	s.life, s.end = context.WithCancelCause(context.Background())
	return s, nil
}

// Register adds the service to a server.
func (s *Service) Register(r grpc.ServiceRegistrar) { runnerpb.RegisterRunnerServiceServer(r, s) }

// Hint is one line about the model that answers when an agent names none.
func (s *Service) Hint() string { return s.models.settings.Hint() }

// Run takes work until ctx ends, then drains: turns under way finish within the
// grace, the rest is left to the next holder, and every lease is given back.
func (s *Service) Run(ctx context.Context) error {
	if report, ok := s.boxes.report(); ok {
		s.deps.Metrics.SetSandboxLevel(string(report.Level))
	}
	s.dispatch(ctx)
	s.drain()
	return nil
}

func (s *Service) drain() {
	s.mu.Lock()
	s.draining = true
	for _, c := range s.claims {
		c.stop()
	}
	s.mu.Unlock()
	ended := make(chan struct{})
	go func() { defer close(ended); s.wg.Wait() }()
	grace := time.NewTimer(s.cfg.Grace)
	defer grace.Stop()
	select {
	case <-ended:
	case <-grace.C:
	case <-s.deps.Abort:
	}
	s.end(errDrained)
	<-ended
	s.models.settings.Close()
	s.boxes.close()
}

// changedLocked wakes those who wait for a claim. The caller holds mu.
func (s *Service) changedLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}
