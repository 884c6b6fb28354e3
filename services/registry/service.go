package registry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/audit"
	"github.com/theclaw/agents/internal/backup"
	"github.com/theclaw/agents/internal/fault"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/agentapi"
	"github.com/theclaw/agents/services/registry/internal/approvalapi"
	"github.com/theclaw/agents/services/registry/internal/core"
	"github.com/theclaw/agents/services/registry/internal/deliveryapi"
	"github.com/theclaw/agents/services/registry/internal/leaseapi"
	"github.com/theclaw/agents/services/registry/internal/outside"
	"github.com/theclaw/agents/services/registry/internal/threadapi"
	"github.com/theclaw/agents/services/registry/internal/turnapi"
	"github.com/theclaw/agents/services/registry/internal/watch"
	"github.com/theclaw/agents/services/registry/internal/workdirapi"
)

// Service is the registry.
type Service struct {
	lock    *flock.Flock
	auditor *auditor
	core    *core.Core
	watch   *watch.Watch

	outside    *outside.Outside
	agents     *agentapi.Service
	threads    *threadapi.Service
	leases     *leaseapi.Service
	turns      *turnapi.Service
	deliveries *deliveryapi.Service
	approvals  *approvalapi.Service
	workdirs   *workdirapi.Service
}

// New takes the home's lock, opens the registry's tables, and learns which
// agents there are; what their inboxes hold is read in Run, after it serves.
// With Config.DSN the agents are in a database that others serve too, and the home has
// the sockets, certificates and the audit log of this registry alone.
// Errors: HOME_LOCKED names the process that has the home.
func New(ctx context.Context, cfg Config, d Deps) (*Service, error) {
	cfg = cfg.withDefaults()
	lock, err := takeLock(ctx, d.Home)
	if err != nil {
		return nil, err
	}
	if err := backup.Sweep(d.Home); err != nil {
		return nil, errors.Join(agentdir.Fault(err), lock.Unlock())
	}
	log, err := audit.Open(d.Home.AuditDir(), d.Redact)
	if err != nil {
		return nil, errors.Join(agentdir.Fault(err), lock.Unlock())
	}
	o := core.Options{
		Home: d.Home, Logger: d.Logger, Metrics: d.Metrics, Log: d.Log, MaxOpen: cfg.MaxOpen, Idle: cfg.Idle, MinFree: cfg.MinFree,
	}
	var c *core.Core
	if cfg.DSN != "" {
		c, err = core.NewShared(ctx, o, cfg.DSN)
	} else {
		c, err = core.New(ctx, o)
	}
	if err != nil {
		return nil, errors.Join(err, log.Close(), lock.Unlock())
	}
	c.Trace = d.Trace
	s := &Service{lock: lock, core: c, auditor: &auditor{log: log, warn: c.Log}}
	if c.Shared == nil { // nobody writes rows behind our back
		s.watch, s.outside = watch.New(c, cfg.Sweep), outside.New(c, cfg.Sweep, d.Notifier)
	}
	s.serve(cfg)
	if c.Shared != nil {
		return s, nil
	}
	if err := c.Settle(ctx); err != nil { // an agent that is gone stops nobody
		c.Log.Error("what is left of a removed agent stays", "error", err)
	}
	if _, _, err := c.Dir.Scan(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// serve makes the edges.
func (s *Service) serve(cfg Config) {
	c := s.core
	s.agents = agentapi.New(c, s.watch)
	s.threads = threadapi.New(c, threadapi.Limits{Pending: cfg.MaxPending, PerPeer: cfg.MaxPerPeer})
	s.leases = leaseapi.New(c)
	s.turns = turnapi.New(c, cfg.BootID)
	s.deliveries = deliveryapi.New(c, cfg.DeliveryWaits)
	s.workdirs = workdirapi.New(c)
	s.approvals = approvalapi.New(c, cfg.ApprovalLife, s.makeFor)
}

// lockPatience is how long a start waits for the home's lock. A process that was
// killed while it forked leaves a child that has the lock for milliseconds more.
const lockPatience = 500 * time.Millisecond

// takeLock takes run/registry.lock and leaves the pid in it for the next one's
// message. The lock is the OS's: it goes with the process, however that ends.
func takeLock(ctx context.Context, home *agentdir.Home) (*flock.Flock, error) {
	path := home.LockFile()
	lock := flock.New(path, flock.SetPermissions(0o600))
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	ok, err := lock.TryLockContext(ctx, 5*time.Millisecond)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, agentdir.Fault(fmt.Errorf("lock home: %w", err))
	}
	if !ok {
		pid, _ := os.ReadFile(path)
		return nil, fault.New(codes.FailedPrecondition, fault.HomeLocked,
			fmt.Sprintf("another registry serves %s (pid %s)", home.Path(), strings.TrimSpace(string(pid))),
			"use that one, or stop it first")
	}
	if err := os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	return lock, nil
}

// Register adds the eight services to a server.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	registryv1.RegisterAgentServiceServer(r, s.agents)
	registryv1.RegisterThreadServiceServer(r, s.threads)
	registryv1.RegisterLeaseServiceServer(r, s.leases)
	registryv1.RegisterTurnServiceServer(r, s.turns)
	registryv1.RegisterDeliveryServiceServer(r, s.deliveries)
	registryv1.RegisterApprovalServiceServer(r, s.approvals)
	registryv1.RegisterWorkdirServiceServer(r, s.workdirs)
	registryv1.RegisterIdentityServiceServer(r, identities{})
}

// Run watches, sweeps, reaps and tells others until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	var g sync.WaitGroup
	g.Go(func() { s.leases.Run(ctx) })
	if s.core.Shared != nil {
		g.Go(func() { s.core.Shared.Run(ctx) })
	} else {
		g.Go(func() { s.watch.Run(ctx) })
		g.Go(func() { s.outside.Run(ctx) })
	}
	g.Wait()
	return nil
}

// Able answers nil when the registry can do its work: a database of its own answers. One
// that is alone with its home always can; what is wrong with an agent is that agent's.
func (s *Service) Able(ctx context.Context) error {
	if s.core.Shared == nil {
		return nil
	}
	return s.core.Shared.Able(ctx)
}

// Close closes every database and gives the home back. No call may be under way.
func (s *Service) Close() error {
	var watching error
	if s.watch != nil {
		watching = s.watch.Close()
	}
	return errors.Join(watching, s.core.Close(), s.leases.Close(), s.auditor.log.Close(), s.lock.Unlock())
}

// Stats answers the store's commit counters: durable ones cost an fsync each.
func (s *Service) Stats() (durable, lazy, ops int64) {
	if s.core.Embedded == nil {
		return 0, 0, 0 // the database counts its own
	}
	st := s.core.Embedded.Stats()
	return st.Durable, st.Lazy, st.Ops
}
