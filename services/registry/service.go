package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/audit"
	"github.com/theclaw/agents/internal/backup"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease/authority"
	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/admission"
	"github.com/theclaw/agents/services/registry/internal/agents"
	"github.com/theclaw/agents/services/registry/internal/approvals"
	"github.com/theclaw/agents/services/registry/internal/channels"
	"github.com/theclaw/agents/services/registry/internal/cluster"
	"github.com/theclaw/agents/services/registry/internal/decisions"
	"github.com/theclaw/agents/services/registry/internal/deliveries"
	"github.com/theclaw/agents/services/registry/internal/leases"
	"github.com/theclaw/agents/services/registry/internal/media"
	"github.com/theclaw/agents/services/registry/internal/memory"
	"github.com/theclaw/agents/services/registry/internal/peer"
	"github.com/theclaw/agents/services/registry/internal/pins"
	"github.com/theclaw/agents/services/registry/internal/prune"
	"github.com/theclaw/agents/services/registry/internal/routing"
	"github.com/theclaw/agents/services/registry/internal/sessions"
	"github.com/theclaw/agents/services/registry/internal/settings"
	"github.com/theclaw/agents/services/registry/internal/standalone"
	"github.com/theclaw/agents/services/registry/internal/threads"
	"github.com/theclaw/agents/services/registry/internal/turns"
	"github.com/theclaw/agents/services/registry/internal/wire"
	"github.com/theclaw/agents/services/registry/internal/workdirs"
)

// Service is the registry.
type Service struct {
	lock    *flock.Flock
	auditor *auditor
	backend backend

	agents     *agents.Service
	threads    *threads.Service
	leases     *leases.Service
	turns      *turns.Service
	deliveries *deliveries.Service
	approvals  *approvals.Service
	questions  *approvals.Questions
	pins       *pins.Service
	workdirs   registryv1.WorkdirServiceServer
	media      *media.Service
	routing    *routing.Service
	channels   *channels.Service
	sessions   *sessions.Service
	settings   *settings.Service
	listed     *listed
}

// backend runs and ends with the service: standalone.Registry or cluster.Registry.
type backend interface {
	Run(ctx context.Context)
	Able(ctx context.Context) error
	Close() error
}

// parts are what the services of gRPC are made from.
type parts struct {
	wire.Faults
	backend   backend
	engine    store.Engine
	starts    agents.Store
	approvals store.Approvals
	questions store.Questions
	pins      store.Pins
	accounts  store.Channels
	quota     *admission.Quota
	workdirs  registryv1.WorkdirServiceServer
	table     authority.Authority
	leases    leases.Leases
	due       leases.Due
	aborts    leases.Aborts
	log       agents.Log
	revisions store.Revisions
	agents    interface {
		routing.Home
		settings.Home
		routing.Agents
		agents.Agents
		threads.Agents
		turns.Agents
		turns.Turns
		turns.Replies
		deliveries.Agents
		prune.Agents
		peer.Agents
		agents.Backups
		memory.Agents
		agents.Files
		Term(f store.Fence) uint64
	}
	generation *store.Generation
	wakes      interface {
		approvals.Wakes
		threads.Wakes
		turns.Wakes
		leases.Wakes
		deliveries.Wakes
		peer.Wakes
		channels.Wakes
	}
}

// NewStandalone makes the registry that serves a home alone: it takes the home's lock,
// opens the registry's tables, and learns which agents there are; Run reads
// their inboxes later, when the registry already serves. It closes the engine, also when it fails.
// Errors: HOME_LOCKED names the process that has the home.
func NewStandalone(ctx context.Context, e HomeEngine, cfg Config, d Deps) (*Service, error) {
	cfg = cfg.withDefaults()
	s, err := begin(ctx, d)
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	r, err := standalone.New(ctx, e, standalone.Options{
		Home: d.Home, Logger: d.Logger, Metrics: d.Metrics, Log: d.Log, MinFree: cfg.MinFree, Sweep: cfg.Sweep, Notifier: d.Notifier,
	})
	if err != nil {
		return nil, errors.Join(err, s.end())
	}
	s.serve(ctx, cfg, d, parts{
		Faults: r.Faults, backend: r, engine: e, starts: r, approvals: r.Approvals, questions: r.Questions, pins: r.Pins, accounts: r.Channels, quota: r.Quota, workdirs: workdirs.None{},
		table: r.Table, leases: r.Leases, due: r, aborts: &r.Aborts, log: r.Log, agents: r, wakes: &r.Wakes,
		generation: r.Generation, revisions: r.Revisions,
	})
	return s, nil
}

// NewCluster makes one of several registries over a database. Its home has the sockets,
// certificates and the audit log of this registry alone. It closes the engine, also when
// it fails.
// Errors: HOME_LOCKED names the process that has the home.
func NewCluster(ctx context.Context, e ClusterEngine, cfg Config, d Deps) (*Service, error) {
	cfg = cfg.withDefaults()
	s, err := begin(ctx, d)
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	r := cluster.New(e, cluster.Options{Home: d.Home, Logger: d.Logger, Metrics: d.Metrics, Log: d.Log, Copies: d.Copies})
	s.serve(ctx, cfg, d, parts{
		Faults: r.Faults, backend: r, engine: e, starts: e, approvals: r.Approvals, questions: r.Questions, pins: r.Pins, accounts: r.Channels, quota: r.Quota,
		workdirs: workdirs.New(workdirs.Deps{Faults: r.Faults, Agents: r, Leases: r.Table, Workdirs: r.Workdirs}),
		table:    r.Table, leases: r.Leases, due: r, aborts: &r.Aborts, log: r.Log, agents: r, wakes: &r.Wakes,
		revisions: r.Revisions,
	})
	return s, nil
}

// begin locks the home and opens the audit log.
func begin(ctx context.Context, d Deps) (*Service, error) {
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
	return &Service{lock: lock, auditor: &auditor{log: log, warn: d.Logger}}, nil
}

// end closes the audit log and unlocks the home.
func (s *Service) end() error { return errors.Join(s.auditor.log.Close(), s.lock.Unlock()) }

// serve makes the services of gRPC, when what a restore left for the tables is in them.
func (s *Service) serve(ctx context.Context, cfg Config, d Deps, p parts) {
	s.backend, s.workdirs = p.backend, p.workdirs
	s.approvals = approvals.New(approvals.Deps{
		Faults: p.Faults, Home: d.Home, Agents: p.agents, Inboxes: p.engine, Leases: p.table, Approvals: p.approvals, Questions: p.questions, Meter: d.Metrics, Wakes: p.wakes, Life: cfg.ApprovalLife, Make: s.makeFor, Owners: p.accounts, Log: d.Logger,
	})
	s.questions = approvals.NewQuestions(approvals.QuestionDeps{
		Faults: p.Faults, Agents: p.agents, Inboxes: p.engine, Leases: p.table, Questions: p.questions, Approvals: p.approvals, Meter: d.Metrics, Wakes: p.wakes, Owners: p.accounts,
	})
	cancelWaits := func(ctx context.Context, agent, turn, by string) error {
		return errors.Join(s.approvals.Cancel(ctx, agent, turn), s.questions.Cancel(ctx, agent, turn, by))
	}
	s.pins = pins.New(pins.Deps{Faults: p.Faults, Home: p.agents, Pins: p.pins, Meter: d.Metrics})
	s.media = media.New(media.Deps{Faults: p.Faults, Agents: p.agents, Store: p.engine})
	sweeper := media.Sweeper{Store: p.engine, Threads: p.agents}
	s.agents = agents.New(agents.Deps{
		Faults: p.Faults, Store: p.starts, Agents: p.agents, Files: p.agents, Quota: p.quota, Leases: p.table, Log: p.log, Backups: p.agents, CancelWaits: cancelWaits,
		Peers: peer.Deps{Faults: p.Faults, Store: p.engine, Approvals: p.approvals, Questions: p.questions, Pairings: p.accounts, Agents: p.agents, Leases: p.table, Wakes: p.wakes, Log: p.log, Media: sweeper},
		Prune: prune.Deps{Faults: p.Faults, Store: p.engine, Agents: p.agents, Media: sweeper},
	})
	s.threads = threads.New(threads.Deps{
		Faults: p.Faults, Store: p.engine, Agents: p.agents, Leases: p.table, Wakes: p.wakes, Quota: p.quota,
		Limits: threads.Limits{Pending: cfg.MaxPending, PerPeer: cfg.MaxPerPeer}, Metrics: d.Metrics, Trace: d.Trace, Log: d.Logger,
	})
	s.leases = leases.New(leases.Deps{
		Faults: p.Faults, Agents: p.agents, Leases: p.leases, Due: p.due, Aborts: p.aborts, Wakes: p.wakes, Turns: p.engine, AgentLog: p.log, Log: d.Logger,
	})
	s.turns = turns.New(turns.Deps{
		Faults: p.Faults, Store: p.engine, Agents: p.agents, Turns: p.agents, Replies: p.agents, Wakes: p.wakes, Log: p.log, Generation: p.generation, Quota: p.quota, CancelWaits: cancelWaits,
		Approvals: s.approvals, Questions: p.questions, Pins: s.pins, Owners: p.accounts,
		Memory: &memory.Files{Faults: p.Faults, Store: p.engine, Agents: p.agents, Term: p.agents.Term, Log: d.Logger},
	})
	s.deliveries = deliveries.New(deliveries.Deps{Faults: p.Faults, Store: p.engine, Agents: p.agents, Wakes: p.wakes, Log: p.log, Waits: cfg.DeliveryWaits, Generation: p.generation})
	router := routing.NewRouter(routing.Deps{Faults: p.Faults, Home: p.agents, Agents: p.agents, Store: p.engine, Revisions: p.revisions})
	s.routing = routing.New(router)
	s.channels = channels.New(channels.Deps{
		Faults: p.Faults, Router: router, Agents: p.agents, Inbox: s.threads, Store: p.accounts, Leases: p.table, Rates: p.quota, Meter: d.Metrics, Wakes: p.wakes,
	})
	s.sessions = sessions.New(sessions.Deps{Faults: p.Faults, Store: p.engine, Agents: p.agents})
	decided := decisions.New(decisions.Deps{Faults: p.Faults, Pairings: p.accounts, Policies: p.approvals, Pins: p.pins, Log: d.Logger, Record: s.auditor.added})
	if err := decided.AddFile(ctx, d.Home.Path()); err != nil {
		d.Logger.Error("the decisions that a restore left in the home wait for the next start: who may write, the policy for commands, approved MCP tools",
			"file", filepath.Join(d.Home.Path(), layout.EdgeName), "error", fault.Chain(err), "fix", cmp.Or(fault.From(err).Fix, "make the file and the home readable and writable for agentd and start it again"))
	}
	s.settings = settings.New(p.agents, p.revisions, s.pins, p.agents, decided)
	s.listed = &listed{home: p.agents, agents: s.agents, pins: s.pins, people: s.channels, settings: s.settings, states: p.engine, log: d.Logger, metrics: d.Metrics}
}

// lockPatience is how long a start waits for the home's lock. A process that was
// killed while it forked leaves a child that has the lock for milliseconds more.
const lockPatience = 500 * time.Millisecond

// takeLock takes run/registry.lock and leaves the pid in it for the next one's
// message. The kernel releases the lock with the process, however that ends.
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

// Register adds the services to a server.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	registryv1.RegisterAgentServiceServer(r, s.agents)
	registryv1.RegisterThreadServiceServer(r, s.threads)
	registryv1.RegisterLeaseServiceServer(r, s.leases)
	registryv1.RegisterTurnServiceServer(r, s.turns)
	registryv1.RegisterDeliveryServiceServer(r, s.deliveries)
	registryv1.RegisterApprovalServiceServer(r, s.approvals)
	registryv1.RegisterQuestionServiceServer(r, s.questions)
	registryv1.RegisterPinServiceServer(r, s.pins)
	registryv1.RegisterWorkdirServiceServer(r, s.workdirs)
	registryv1.RegisterMediaServiceServer(r, s.media)
	registryv1.RegisterIdentityServiceServer(r, identities{})
	registryv1.RegisterRoutingServiceServer(r, s.routing)
	registryv1.RegisterChannelServiceServer(r, s.channels)
	registryv1.RegisterSessionServiceServer(r, s.sessions)
	registryv1.RegisterHomeServiceServer(r, s.settings)
}

// Run ends leases and does the background work of the registry until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	var g sync.WaitGroup
	g.Go(func() { s.leases.Run(ctx) })
	g.Go(func() { s.backend.Run(ctx) })
	g.Go(func() { s.listed.run(ctx) })
	g.Wait()
	return nil
}

// Able returns nil when the registry can do its work: the database that it shares responds.
// A problem of one agent does not count.
func (s *Service) Able(ctx context.Context) error { return s.backend.Able(ctx) }

// Close closes every database and unlocks the home. No call may be under way.
func (s *Service) Close() error { return errors.Join(s.backend.Close(), s.end()) }
