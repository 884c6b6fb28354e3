package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/backup"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/obs/agentlog"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite"
	"github.com/theclaw/agents/internal/store/sqlite/homedb"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/directory"
	"github.com/theclaw/agents/services/registry/internal/dispatch"
	"github.com/theclaw/agents/services/registry/internal/hub"
	"github.com/theclaw/agents/services/registry/internal/runfile"
)

// Service is the registry.
type Service struct {
	registryv1.UnimplementedAgentServiceServer
	registryv1.UnimplementedThreadServiceServer
	registryv1.UnimplementedLeaseServiceServer
	registryv1.UnimplementedTurnServiceServer
	registryv1.UnimplementedDeliveryServiceServer

	cfg     Config
	home    *agentdir.Home
	log     *slog.Logger
	metrics *obs.RegistryMetrics
	agents  *agentlog.Log

	lock     *flock.Flock
	homeDB   *homedb.DB
	store    *sqlite.Engine
	dir      *directory.Directory
	leases   *lease.Table
	run      *dispatch.Board
	deliver  *dispatch.Board
	events   hub.Hub[store.Ref]
	fates    hub.Hub[string]
	polls    polls
	watch    *watcher
	runFiles runfile.Files
	counted  [2]int64 // commits the metrics know of: full, lazy; the sweep's own
	sweeping sync.Mutex
	looks    chan string   // agents whose inbox another program may have written
	reap     chan struct{} // a holder may have died
}

// New takes the home's lock, opens the registry's tables, and learns which
// agents there are; what their inboxes hold is read in Run, after it serves.
// Errors: HOME_LOCKED names the process that has the home.
func New(ctx context.Context, cfg Config, d Deps) (*Service, error) {
	s := &Service{
		cfg: cfg.withDefaults(), home: d.Home, log: d.Logger, metrics: d.Metrics, agents: d.Log,
		run: dispatch.New(), deliver: dispatch.New(),
		looks: make(chan string, 1024), reap: make(chan struct{}, 1),
	}
	s.dir = directory.New(d.Home)
	s.polls.last = map[string]poll{}
	if err := s.takeLock(ctx); err != nil {
		return nil, err
	}
	err := func() error {
		err := backup.Sweep(d.Home)
		if err != nil {
			return agentdir.Fault(err)
		}
		if s.homeDB, err = homedb.Open(ctx, d.Home.RegistryDB()); err != nil {
			return agentdir.Fault(err)
		}
		holders := d.Home.HoldersDir()
		if s.leases, err = lease.NewTable(ctx, s.homeDB, func(h string) bool { return lease.HolderDead(holders, h) }); err != nil {
			return fmt.Errorf("load leases: %w", err)
		}
		s.store = sqlite.New(sqlite.Options{
			Path: s.dir.Path, Live: s.leases.Check, OnCommit: s.committed, OnFault: s.broken, MaxOpen: cfg.MaxOpen, Idle: s.cfg.Idle,
		})
		s.watch = newWatcher(s)
		_, _, err = s.dir.Scan()
		return err
	}()
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// lockPatience is how long a start waits for the home's lock. A process that was
// killed while it forked leaves a child that has the lock for milliseconds more.
const lockPatience = 500 * time.Millisecond

// takeLock takes run/registry.lock and leaves the pid in it for the next one's
// message. The lock is the OS's: it goes with the process, however that ends.
func (s *Service) takeLock(ctx context.Context) error {
	path := s.home.LockFile()
	s.lock = flock.New(path, flock.SetPermissions(0o600))
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	ok, err := s.lock.TryLockContext(ctx, 5*time.Millisecond)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return agentdir.Fault(fmt.Errorf("lock home: %w", err))
	}
	if !ok {
		pid, _ := os.ReadFile(path)
		return fault.New(codes.FailedPrecondition, fault.HomeLocked,
			fmt.Sprintf("another registry serves %s (pid %s)", s.home.Path(), strings.TrimSpace(string(pid))),
			"use that one, or stop it first")
	}
	return os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())), 0o600)
}

// Register adds the five services to a server.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	registryv1.RegisterAgentServiceServer(r, s)
	registryv1.RegisterThreadServiceServer(r, s)
	registryv1.RegisterLeaseServiceServer(r, s)
	registryv1.RegisterTurnServiceServer(r, s)
	registryv1.RegisterDeliveryServiceServer(r, s)
}

// Run watches, sweeps and reaps until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	var g sync.WaitGroup
	for _, loop := range []func(context.Context){s.sweepLoop, s.reapLoop, s.lookLoop, s.watch.loop} {
		g.Go(func() { loop(ctx) })
	}
	g.Wait()
	return nil
}

// Close closes every database and gives the home back. No call may be under way.
func (s *Service) Close() error { return s.close() }

func (s *Service) close() error {
	var errs []error
	if s.watch != nil {
		errs = append(errs, s.watch.close())
	}
	if s.store != nil {
		errs = append(errs, s.store.Close())
		s.saveInboxes()
	}
	if s.homeDB != nil {
		errs = append(errs, s.homeDB.Close())
	}
	return errors.Join(append(errs, s.runFiles.Close(), s.lock.Unlock())...)
}

// Stats answers the store's commit counters: durable ones cost an fsync each.
func (s *Service) Stats() (durable, lazy, ops int64) {
	st := s.store.Stats()
	return st.Durable, st.Lazy, st.Ops
}

// committed is told by the store, from the database's own goroutine, of events
// that became visible.
func (s *Service) committed(c store.Commit) {
	if c.Ref.IsInbox() {
		a, err := s.dir.Get(c.Ref.Agent)
		if err == nil {
			a.Wrote()
		}
		if err == nil && a.Pushed(c.Events[len(c.Events)-1].ID) && a.Started() {
			s.run.Mark(a.ID)
		}
	}
	s.events.Wake(c.Ref)
}

// broken is told of a database that cannot be used: its agent alone is marked.
func (s *Service) broken(r store.Ref, err error) {
	s.log.Error("database broke", "agent_id", r.Agent, "thread_id", r.Thread, "error", err)
	a, getErr := s.dir.Get(r.Agent)
	switch {
	case getErr != nil:
	case errors.Is(err, store.ErrCorrupt):
		s.quarantine(a, r, err)
	default:
		a.Fail(err.Error(), errors.Is(err, store.ErrReadOnly) || errors.Is(err, store.ErrDiskFull))
	}
}

// agent answers a known agent whose inbox has been read.
func (s *Service) agent(ctx context.Context, id string) (*directory.Agent, error) {
	a, err := s.dir.Get(id)
	if err != nil {
		return nil, err
	}
	if a.Known().Loaded {
		return a, nil
	}
	return a, s.load(ctx, a)
}

// present tells the truth about a directory that may be gone while its database
// is still open here: a file that has no name any more takes writes gladly.
func (s *Service) present(id string) error {
	if !s.dir.Missing(id) {
		return nil
	}
	s.forget(id)
	_, err := s.dir.Get(id)
	return err
}

// load reads an agent's inbox and makes it due if it has work.
func (s *Service) load(ctx context.Context, a *directory.Agent) error {
	r := store.Inbox(a.ID)
	path, err := s.dir.Path(r)
	if err == nil {
		sig := directory.Stamp(path)
		var st store.InboxState
		if st, err = s.store.State(ctx, a.ID); err == nil {
			a.Load(st, sig)
			s.markDue(a)
			return nil
		}
	}
	if gone := s.present(a.ID); gone != nil {
		return gone
	}
	err = s.edge(a.ID, thread0, err)
	a.Fail(fault.From(err).What, false)
	return err
}

func (s *Service) markDue(a *directory.Agent) {
	if a.HasWork() {
		s.run.Mark(a.ID)
	}
	if out := a.Outbox(); len(out) > 0 {
		s.deliver.Mark(a.ID, out...)
	}
}

// forget drops everything about an agent whose directory is gone.
func (s *Service) forget(id string) {
	s.dir.Forget(id)
	s.run.Drop(id)
	s.deliver.Drop(id)
	s.store.Forget(func(r store.Ref) bool { return r.Agent == id })
	for _, res := range []string{lease.AgentResource(id), lease.DeliverResource(id)} {
		if rec, ok := s.leases.Get(res); ok {
			// The holder's next call is told; the row costs nothing.
			_ = s.leases.Release(context.Background(), res, rec.Token)
		}
	}
	s.metrics.SetInboxLag(id, 0)
	s.metrics.SetOutboundLag(id, 0)
	s.log.Warn("agent directory is gone", "agent_id", id)
}

func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "boot-" + strconv.FormatInt(time.Now().Unix(), 36)
	}
	return strings.TrimSpace(string(b))
}
