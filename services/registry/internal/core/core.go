// Package core owns what the edges of the registry share: where threads, leases and
// agents are kept, what is known of each agent, who has work, and who is to be woken
// when something changes.
//
//	agentapi  threadapi  leaseapi  turnapi  deliveryapi  watch
//	    \         |          \       /         |          /
//	     +--------+----------- core ----------+----------+
//
// There are two of it. Alone with its home (New), the registry has the databases, the
// table of leases and the lists of work in its own hands, and what it knows of an agent
// is so. With others over one database (NewShared) all of that is in there: leases,
// files, quotas and who has work are rows that each transaction judges by, and what is
// known here of an agent is a hint that nothing rests on.
//
//	               alone                     with others
//	threads        sqlite, a file each       postgres
//	leases         lease.Table + registry.db table lease
//	agents, files  directories (local)       rows (package rows)
//	who has work   dispatch.Board            tables due, outbox; dispatch.Hints say: look
//	waking         hub, watch                hub, notify; and a look now and then (Again)
//	a stop         directory.Agent.Life      the lease's row, see store/postgres
//
// It promises that each commit wakes those who wait for it and makes its agent
// due, that an agent whose database breaks is marked and nobody else is, and that
// every error leaves with a reason and what to do. It answers no call, starts no
// goroutine and knows no message but the log line.
package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/lease/authority"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/obs/agentlog"
	"github.com/theclaw/agents/internal/obs/tracing"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite"
	"github.com/theclaw/agents/internal/store/sqlite/homedb"
	"github.com/theclaw/agents/internal/thread"
	"github.com/theclaw/agents/services/registry/internal/directory"
	"github.com/theclaw/agents/services/registry/internal/dispatch"
	"github.com/theclaw/agents/services/registry/internal/hub"
	"github.com/theclaw/agents/services/registry/internal/local"
	"github.com/theclaw/agents/services/registry/internal/quota"
)

// Options of a core.
type Options struct {
	Home    *agentdir.Home
	Logger  *slog.Logger
	Metrics *obs.RegistryMetrics
	Log     *agentlog.Log // agents' logs/agent.log; nil writes none
	MaxOpen int           // databases open at rest
	Idle    time.Duration // how long one stays open at rest
	MinFree int64         // bytes free on disk below which pushes are refused
}

// Core is what the edges share.
type Core struct {
	Home    *agentdir.Home
	Log     *slog.Logger
	Metrics *obs.RegistryMetrics
	Store   store.Engine
	Dir     *directory.Directory
	Quota   *quota.Quota
	Agents  Agents
	// Approvals keeps what was asked of people.
	Approvals store.Approvals
	// Workdirs keeps working directories; nil where they are directories of the home.
	Workdirs store.Workdirs
	Leases   authority.Authority
	Embedded *sqlite.Engine  // the store of a registry that is alone; else nil
	Shared   *Shared         // of one that is not; else nil
	Trace    *tracing.Tracer // nil: no traces

	DueRuns       *dispatch.Board   // alone: agents with events without a fate
	DueDeliveries *dispatch.Board   // alone: agents with replies to send
	Fates         hub.Hub[string]   // who waits for a turn or a delivery of an agent
	Questions     hub.Hub[struct{}] // who waits for a question or an answer

	Events hub.Feed[store.Ref, thread.Event] // who follows a thread

	// Told is told of each commit too, by the goroutine that writes; nil: nobody.
	// It is set before the first call.
	Told func(store.Commit)

	homeDB    *homedb.DB
	agentLogs *agentlog.Log
	minFree   int64
}

// New makes the core of a registry that is alone, and opens its own tables. The home's
// lock is held by the caller.
func New(ctx context.Context, o Options) (*Core, error) {
	c := &Core{
		Home: o.Home, Log: o.Logger, Metrics: o.Metrics, Dir: directory.New(o.Home), Agents: local.New(o.Home),
		DueRuns: dispatch.New(), DueDeliveries: dispatch.New(), agentLogs: o.Log, minFree: o.MinFree,
	}
	var err error
	if c.homeDB, err = homedb.Open(ctx, o.Home.RegistryDB()); err != nil {
		return nil, agentdir.Fault(err)
	}
	c.Approvals = c.homeDB
	holders := o.Home.HoldersDir()
	table, err := lease.NewTable(ctx, c.homeDB, func(h string) bool { return lease.HolderDead(holders, h) })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("load leases: %w", err), c.homeDB.Close())
	}
	if c.Quota, err = quota.New(ctx, c.homeDB); err != nil {
		return nil, errors.Join(err, c.homeDB.Close())
	}
	c.Leases = authority.Embedded(table)
	c.Embedded = sqlite.New(sqlite.Options{
		Path: c.Dir.Path, Live: table.Check, OnCommit: c.committed, OnFault: c.broken, OnRest: c.Dir.Rested, MaxOpen: o.MaxOpen, Idle: o.Idle,
	})
	c.Store = c.Embedded
	c.Metrics.LookForLag(c.Dir.Lags)
	return c, nil
}

// Close closes every database. No call may be under way.
func (c *Core) Close() error {
	c.Metrics.LookForLag(nil)
	if c.Shared != nil {
		c.Shared.Story.Flush()
		return c.Store.Close()
	}
	err := c.Store.Close()
	c.saveInboxes()
	return errors.Join(err, c.Quota.Close(), c.homeDB.Close())
}

// committed is told by the store, from the database's own goroutine, of events
// that became visible.
func (c *Core) committed(commit store.Commit) {
	if c.Shared != nil {
		c.Shared.committed(commit)
	} else if commit.Ref.IsInbox() {
		a, err := c.Dir.Get(commit.Ref.Agent)
		if err == nil {
			a.Wrote()
			c.pushed(a, commit.Events[len(commit.Events)-1].ID)
		}
	}
	c.Events.Give(commit.Ref, commit.Events)
	if c.Told != nil {
		c.Told(commit)
	}
}

// broken is told of a database that cannot be used: its agent alone is marked.
func (c *Core) broken(r store.Ref, err error) {
	c.Log.Error("database broke", "agent_id", r.Agent, "thread_id", r.Thread, "error", err)
	a, getErr := c.Dir.Get(r.Agent)
	switch {
	case getErr != nil:
	case errors.Is(err, store.ErrCorrupt):
		c.quarantine(a, r, err)
	default:
		Trouble(a, c.Fault(r.Agent, r.Thread, err))
	}
}

// Trouble notes what is wrong with an agent. One that can only not be written is
// degraded: it takes up its work when it can be written again.
func Trouble(a *directory.Agent, err error) {
	f := fault.From(err)
	a.Fail(f.What, f.Reason == fault.ReadOnly || f.Reason == fault.DiskFull)
}
