// Package cluster implements one of several registries over one PostgreSQL database
// (Engine). Each has a home of its own, which holds only sockets, certificates and the
// audit log.
//
// Every decision is made by a transaction over rows of the database; what this process
// knows of an agent is a hint, and no decision depends on it:
//
//	threads         rows; a step is two round trips
//	leases          the table lease; the database's clock decides
//	agents, files   rows with a version (Files)
//	due agents      the tables due and outbox; dispatch.Hints says which agents to query
//	wakes           hub.Wakes for local changes, notices from the other registries, and
//	                a recheck now and then (Again), because a notice may be lost
//	stopping        the thread's row, which each claim reads
//	agent log       rows
//
// It promises that a call at any of the registries has the result that a single one would
// give, that each commit wakes the waiters here and notifies the other
// registries, and that while an agent is leased only the holder is notified of its new
// events. It serves no RPC: the packages of the gRPC services do, and declare what they
// need of it. Package standalone is the other implementation.
package cluster

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/lease/authority"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/obs/agentlog"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/services/registry/internal/admission"
	"github.com/theclaw/agents/services/registry/internal/dispatch"
	"github.com/theclaw/agents/services/registry/internal/state"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// Engine is a database that several registries share, as package postgres opens it.
type Engine interface {
	store.Engine
	Attach(h store.Hooks)
	// Able returns nil when the database can be worked with.
	Able(ctx context.Context) error
	Agents() store.AgentRows
	Leases() store.Leases
	Counts() store.Counts
	Lines() store.LogLines
	Workdirs() store.Workdirs
	Notices() store.Notices
	// Lag returns by agent the messages of its inbox behind the ack, the ack, and the
	// conversations that have something to send.
	Lag(ctx context.Context) (inbox, acked, outbound map[string]int64, err error)
}

// Copies takes agents out of the database into a home where nobody works, and back, for
// backups; see package store/transfer.
type Copies interface {
	Lay(ctx context.Context, home *agentdir.Home, agent string, withWorkdir bool) (tokens map[string]uint64, err error)
	Put(ctx context.Context, home *agentdir.Home, agents []string) (left map[string]string, err error)
	// Absent returns nil when there is no agent of the name. Errors: AGENT_EXISTS.
	Absent(ctx context.Context, agent string) error
}

// Options of a registry.
type Options struct {
	Home    *agentdir.Home
	Logger  *slog.Logger
	Metrics *obs.RegistryMetrics
	Log     *agentlog.Log // takes secrets out of agents' logs; nil writes none
	Copies  Copies
}

// Registry is what the services of gRPC work with.
type Registry struct {
	*Files
	*central
	wire.Faults
	Engine    Engine
	Approvals store.Approvals
	Questions store.Questions
	Pins      store.Pins
	Channels  store.Channels
	Revisions store.Revisions
	Workdirs  store.Workdirs
	Quota     *admission.Quota
	Table     authority.Authority // who may act
	Leases    *Leases
	Wakes     Wakes
	Aborts    Aborts
	Log       *Log

	log     *slog.Logger
	metrics *obs.RegistryMetrics
	copies  Copies
	table   store.Leases
	notices store.Notices
	making  sync.RWMutex // keeps a name that is being removed from getting a new agent

	mu     sync.RWMutex
	agents map[string]*state.Agent // what this registry knows of them

	runs, deliveries dispatch.Hints   // where there may be work
	follows          dispatch.Follows // those who read the inbox of their agent here as it comes
	lapses           dispatch.Lapses
}

const (
	// maxKnown is the most agents that are remembered: the database has the rest.
	maxKnown = 100_000
	// missingTimeout bounds the query for an agent that only chooses the text of an error.
	missingTimeout = 5 * time.Second
)

// New returns a registry over an engine, which it closes.
func New(e Engine, o Options) *Registry {
	r := &Registry{
		Engine: e, Workdirs: e.Workdirs(), log: o.Logger, metrics: o.Metrics, copies: o.Copies, agents: map[string]*state.Agent{},
	}
	holders := o.Home.HoldersDir()
	e.Attach(store.Hooks{
		OnCommit: r.committed, OnNotices: r.receive, OnMissed: r.missed,
		Dead: func(h string) bool { return lease.HolderDead(holders, h) },
	})
	r.table, r.notices = e.Leases(), e.Notices()
	counts := e.Counts()
	r.Table, r.Approvals, r.Questions, r.Pins, r.Quota = r.table, counts, counts, counts, admission.New(counts)
	r.Channels, r.Revisions = counts, counts
	r.central = &central{rows: counts, over: o.Home, notify: func() { r.notify(store.NoticeSettings, "") }}
	r.Files = newFiles(e.Agents(), o.Home, r.central, func(id string) { r.notify(store.NoticeSettings, id) })
	r.Faults = wire.Faults{Missing: r.Missing, Engine: unreachable}
	r.Leases = &Leases{Authority: r.table, of: r, changed: make(chan struct{}, 1)}
	r.Wakes.notify = r.notify
	r.Aborts.notify = r.notify
	r.Log = &Log{lines: e.Lines(), clean: o.Log}
	r.metrics.SetLagSource(func(ctx context.Context) (l obs.Lags, err error) {
		l.Inbox, l.Acked, l.Outbound, err = e.Lag(ctx)
		return l, err
	})
	return r
}

// unreachable are the faults that concern the one database of all agents.
func unreachable(err error) *fault.Error {
	switch {
	case errors.Is(err, store.ErrIO), errors.Is(err, store.ErrBusy):
		f := fault.New(codes.Unavailable, fault.RegistryUnavailable, "the registry cannot reach its database now", "try again; another registry may reach it")
		f.RetryAfter = time.Second
		return f
	case errors.Is(err, store.ErrMoved):
		return fault.New(codes.Aborted, fault.InvalidArgument, "it was changed meanwhile", "read it again and repeat the change")
	}
	return nil
}

// Run sends and receives the notices between registries until ctx ends.
func (r *Registry) Run(ctx context.Context) { r.notices.Run(ctx) }

// Able returns nil when the database responds.
func (r *Registry) Able(ctx context.Context) error { return r.Engine.Able(ctx) }

// Close closes the database. No call may be under way.
func (r *Registry) Close() error {
	r.metrics.SetLagSource(nil)
	r.Quota.Close()
	r.Log.lines.Flush()
	return r.Engine.Close()
}

func (r *Registry) notify(kind store.NoticeKind, name string) {
	r.notices.Publish(store.Notice{Kind: kind, Name: name})
}

// committed is called by the engine for events that became visible.
func (r *Registry) committed(c store.Commit) {
	r.announce(c)
	r.Wakes.Committed(c)
}

// announce notifies the workers that wait here and the other registries. A new event of a
// leased agent concerns its holder alone: when that releases the lease, or dies, all are
// notified.
func (r *Registry) announce(c store.Commit) {
	ref := c.Ref
	switch {
	case ref.IsInbox() && c.Holder != "":
		if r.follows.Mark(ref.Agent, c.Holder) {
			r.notify(store.NoticeRead, ref.Agent)
			return
		}
		kind := store.NoticeHeld
		if r.runs.MarkFor(c.Holder, ref.Agent) {
			kind = store.NoticeDelivered
		}
		r.notify(kind, ref.Agent+" "+c.Holder)
	case ref.IsInbox():
		r.runs.Mark(ref.Agent)
		r.notify(store.NoticeInbox, ref.Agent)
	default:
		r.notify(store.NoticeThread, ref.String())
	}
}

// receive handles the notices of other registries.
func (r *Registry) receive(news []store.Notice) {
	for _, n := range news {
		switch n.Kind {
		case store.NoticeInbox:
			r.runs.Mark(n.Name)
			r.Wakes.Changed(store.Inbox(n.Name))
		case store.NoticeRead:
			r.Wakes.Changed(store.Inbox(n.Name))
		case store.NoticeHeld, store.NoticeDelivered:
			if agent, holder, ok := strings.Cut(n.Name, " "); ok {
				r.runs.MarkFor(holder, agent)
				r.Wakes.Changed(store.Inbox(agent))
			}
		case store.NoticeThread:
			if agent, id, ok := strings.Cut(n.Name, "/"); ok {
				r.Wakes.Changed(store.Ref{Agent: agent, Thread: id})
			}
		case store.NoticeWork:
			r.runs.Mark(n.Name)
			r.deliveries.Mark(n.Name)
		case store.NoticeReplies:
			r.deliveries.Mark(n.Name)
		case store.NoticeFate:
			r.Wakes.Wakes.FateChanged(n.Name)
		case store.NoticeSettings:
			if n.Name == "" {
				r.central.forget()
			}
			r.Files.forget(n.Name)
		case store.NoticeApprovals:
			r.Wakes.Wakes.ApprovalChanged(n.Name)
		case store.NoticePairings:
			r.Wakes.Wakes.PairingChanged()
		case store.NoticeLapse:
			r.lapses.Note(n.Name)
		case store.NoticeAbort:
			r.Aborts.AddText(n.Name)
		}
	}
}

// missed makes all waiters recheck.
func (r *Registry) missed() {
	r.runs.MarkAll()
	r.deliveries.MarkAll()
	r.central.forget()
	r.Files.forget("")
	r.Wakes.WakeAll()
}
