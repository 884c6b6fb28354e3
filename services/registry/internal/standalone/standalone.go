// Package standalone implements a registry that serves a home alone: one process, one
// directory for each agent and each thread, a SQLite database in each (Engine).
//
// It holds the databases, the table of leases and the lists of work in its own process:
//
//	threads         a database each, opened on demand
//	leases          lease.Table in memory above registry.db; run.lock in the directory
//	agents, files   directories of the home, as people and other programs edit them
//	due agents      dispatch.Board, marked by each commit and by the watch
//	wakes           hub.Wakes, for changes made by this process
//	stopping        state.Agent.Life: no claim after StopAgent has returned
//	foreign pushes  fsnotify and a sweep (watch); the notifier is asked for a dispatch
//	                where other programs have subscribed
//	agent log       logs/agent.log
//
// It promises that each commit makes its agent due and wakes its waiters, that
// an agent whose database breaks or whose directory vanishes is marked and no other is
// affected, and that its own writes are not taken for foreign ones. It serves no RPC: the
// packages of the gRPC services do, and declare what they need of it. Package cluster is
// the other implementation.
package standalone

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/lease/authority"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/obs/agentlog"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/services/registry/internal/admission"
	"github.com/theclaw/agents/services/registry/internal/dispatch"
	"github.com/theclaw/agents/services/registry/internal/hub"
	"github.com/theclaw/agents/services/registry/internal/state"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// Engine is the storage of one home, as package sqlite makes it.
type Engine interface {
	store.Engine
	Attach(h store.Hooks)
	// Home opens the tables of the home.
	Home(ctx context.Context) (store.Home, error)
	// MakeInbox makes the inbox of a new agent in its directory.
	MakeInbox(dir string) error

	// IsOpen reports whether the database of a thread is open, Open how many are; Forget
	// closes some.
	IsOpen(r store.Ref) bool
	Open() int
	Forget(match func(store.Ref) bool)
	Stats() store.Commits
}

// Options of a registry.
type Options struct {
	Home    *agentdir.Home
	Logger  *slog.Logger
	Metrics *obs.RegistryMetrics
	Log     *agentlog.Log // agents' logs/agent.log; nil writes none
	MinFree int64         // bytes free on disk below which pushes are refused
	Sweep   time.Duration // how often inboxes are scanned
	// Notifier returns where the external notifier keeps its tasks, if there is one;
	// nil: there is none.
	Notifier func() (home string, ok bool)
}

// Registry is what the services of gRPC work with.
type Registry struct {
	Files
	*state.Agents
	wire.Faults
	Engine    Engine
	Approvals store.Approvals
	Questions store.Questions
	Pins      store.Pins
	Channels  store.Channels
	Revisions store.Revisions
	Quota     *admission.Quota
	Table     authority.Authority // of leases; Leases takes run.lock too
	Leases    *Leases
	Wakes     hub.Wakes
	Aborts    dispatch.AbortRequests
	Log       *Log
	// Generation ends when a database has an I/O error.
	Generation *store.Generation

	log     *slog.Logger
	metrics *obs.RegistryMetrics
	minFree int64
	tables  store.Home
	counts  *admission.Memory
	making  sync.RWMutex // keeps a name that is being removed from getting a new agent

	blockedMu sync.Mutex
	blocked   map[string]int // removals under way, by agent: see Block

	runs       *dispatch.Board // agents with events without a fate
	deliveries *dispatch.Board // agents with replies to send
	lapses     dispatch.Lapses
	polls      polls

	watch   *watch
	foreign *foreign
}

// New returns a registry over an engine, which it closes, also when it fails. The caller
// holds the home's lock.
func New(ctx context.Context, e Engine, o Options) (*Registry, error) {
	tables, err := e.Home(ctx)
	if err != nil {
		return nil, errors.Join(agentdir.Fault(err), e.Close())
	}
	holders := o.Home.HoldersDir()
	table, err := lease.NewTable(ctx, tables, func(h string) bool { return lease.HolderDead(holders, h) })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("load leases: %w", err), tables.Close(), e.Close())
	}
	counts, err := admission.Load(ctx, tables)
	if err != nil {
		return nil, errors.Join(err, tables.Close(), e.Close())
	}
	r := &Registry{
		Files: NewFiles(o.Home), Agents: state.New(o.Home), Engine: e, Approvals: tables, Questions: tables, Pins: tables, Channels: tables, Revisions: tables, Quota: admission.New(counts), Table: authority.Of(table),
		log: o.Logger, metrics: o.Metrics, minFree: o.MinFree, tables: tables, counts: counts,
		blocked: map[string]int{}, runs: dispatch.New(), deliveries: dispatch.New(), polls: polls{last: map[string]poll{}},
	}
	r.Generation = store.NewGeneration()
	r.Faults = wire.Faults{Missing: r.Missing, Engine: func(error) *fault.Error { return nil }}
	r.Leases = &Leases{Authority: r.Table, of: r, changed: make(chan struct{}, 1)}
	r.Log = &Log{home: o.Home, lines: o.Log, log: o.Logger}
	e.Attach(store.Hooks{Path: r.Path, Live: table.Check, OnCommit: r.committed, OnFault: r.broken, OnRest: r.Agents.Closed})
	r.metrics.SetLagSource(r.Agents.Lags)
	r.watch, r.foreign = newWatch(r, o.Sweep), newForeign(r, o.Sweep, o.Notifier)
	if err := r.settle(ctx); err != nil { // an agent that is gone stops nobody
		r.log.Error("what is left of a removed agent cannot be removed", "error", err)
	}
	if _, _, err := r.Agents.Scan(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// Run watches and sweeps until ctx ends.
func (r *Registry) Run(ctx context.Context) {
	var g sync.WaitGroup
	g.Go(func() { r.watch.run(ctx) })
	g.Go(func() { r.foreign.run(ctx) })
	g.Wait()
}

// Able returns nil: a problem of one agent does not count.
func (r *Registry) Able(context.Context) error { return nil }

// Close closes every database and releases the agents' run.lock files. No call may be under
// way.
func (r *Registry) Close() error {
	err := r.watch.close()
	r.metrics.SetLagSource(nil)
	err = errors.Join(err, r.Engine.Close())
	r.saveInboxes()
	r.Quota.Close()
	return errors.Join(err, r.counts.Close(), r.tables.Close(), r.Leases.files.close())
}

// committed is called by the engine, from the database's own goroutine, for events that
// became visible.
func (r *Registry) committed(c store.Commit) {
	if c.Ref.IsInbox() {
		if a, err := r.Get(c.Ref.Agent); err == nil {
			a.NoteWrite()
			r.pushed(a, c.Events[len(c.Events)-1].ID)
		}
	}
	r.Wakes.Committed(c)
	r.foreign.committed(c)
}

// broken is called for a database that cannot be used: its agent alone is marked.
func (r *Registry) broken(ref store.Ref, err error) {
	if errors.Is(err, store.ErrIO) { // before it is opened again: see package pool
		r.Generation.End()
	}
	r.log.Error("database broke", "agent_id", ref.Agent, "thread_id", ref.Thread, "error", err)
	a, getErr := r.Get(ref.Agent)
	switch {
	case getErr != nil:
	case errors.Is(err, store.ErrCorrupt):
		r.quarantine(a, ref, err)
	default:
		a.SetError(r.Fault(ref.Agent, ref.Thread, err))
	}
}

// quarantine marks an agent whose database is damaged: it is FAILED and gets no work while
// this registry runs. All others continue.
//
// The file keeps its name here. A thread without events.db is one that the next
// message creates again, empty: what was answered and sent would be forgotten, and
// done again. Under its name the damage fails every call, also after a restart,
// until 'agentctl fsck --repair' renames it and puts the salvaged one in its
// place, with the home's lock held.
func (r *Registry) quarantine(a *state.Agent, ref store.Ref, err error) {
	f := fault.From(r.Fault(ref.Agent, ref.Thread, err))
	a.Damage(ref.Thread, f.What+": "+f.Fix)
	r.runs.Drop(a.ID)
}
