package core

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres"
	"github.com/theclaw/agents/internal/store/postgres/agents"
	"github.com/theclaw/agents/internal/store/postgres/home"
	"github.com/theclaw/agents/internal/store/postgres/lag"
	"github.com/theclaw/agents/internal/store/postgres/leases"
	"github.com/theclaw/agents/internal/store/postgres/notify"
	"github.com/theclaw/agents/internal/store/postgres/story"
	"github.com/theclaw/agents/internal/store/postgres/workdirs"
	"github.com/theclaw/agents/internal/thread"
	"github.com/theclaw/agents/services/registry/internal/directory"
	"github.com/theclaw/agents/services/registry/internal/dispatch"
	"github.com/theclaw/agents/services/registry/internal/quota"
	"github.com/theclaw/agents/services/registry/internal/rows"
)

// Shared is what a registry has that is not alone over its database.
type Shared struct {
	*notify.Bus
	Leases *leases.Table
	Agents *rows.Agents
	// Story keeps what is said of agents.
	Story *story.Book
	// Runs and Deliveries say where there may be work.
	Runs, Deliveries dispatch.Hints
	// Follows are those who read the inbox of their agent here as it comes.
	Follows dispatch.Follows
	// Lapsed is told of a holder that let a lease run out, as another registry saw. It
	// is set before Run.
	Lapsed func(holder string)
	// Abort is told of a run that somebody wants ended, as another registry was told.
	Abort func(what string)
	Able  func(context.Context) error // nil when there is a database that can be worked with

	c      *Core
	engine *postgres.Engine
}

// NewShared makes the core of one of several registries over a database; Run of its
// Shared must run. Nothing of the home but sockets, certificates and the audit log is
// used.
func NewShared(ctx context.Context, o Options, dsn string) (*Core, error) {
	c := &Core{Home: o.Home, Log: o.Logger, Metrics: o.Metrics, agentLogs: o.Log}
	s := &Shared{c: c, Lapsed: func(string) {}, Abort: func(string) {}}
	c.Shared = s
	e, err := postgres.New(ctx, postgres.Options{DSN: dsn, OnCommit: c.committed, Absent: func(err error) {
		o.Logger.Warn("the database does not answer: waiting for it, a minute at most", "error", err)
	}})
	if err != nil {
		return nil, err
	}
	s.engine, s.Able = e, e.Able
	db, holders := e.Pool(), o.Home.HoldersDir()
	kept := agents.New(db)
	s.Leases = leases.New(db, func(h string) bool { return lease.HolderDead(holders, h) })
	s.Agents = rows.New(kept, o.Home, func(id string) { s.Tell(notify.Item{Kind: notify.Settings, Name: id}) })
	s.Bus = notify.New(notify.Options{Pool: db, Logger: o.Logger, On: s.told, Lost: s.lost})
	beside := home.New(db)
	s.Story = story.New(db, func(err error) { o.Logger.Warn("agent log not written", "error", err) })
	o.Metrics.LookForLag(func(ctx context.Context) (l obs.Lags, err error) {
		l.Inbox, l.Acked, l.Outbound, err = lag.Look(ctx, db)
		return l, err
	})
	c.Store, c.Leases, c.Agents, c.Approvals, c.Quota = e, s.Leases, s.Agents, beside, quota.Shared(beside)
	c.Workdirs = workdirs.New(db)
	c.Dir = directory.NewShared(o.Home, func(id string) bool {
		ctx, cancel := context.WithTimeout(context.Background(), lookPatience)
		defer cancel()
		return !errors.Is(kept.Has(ctx, id), store.ErrNotFound)
	})
	return c, nil
}

// Engine is where the agents are.
func (s *Shared) Engine() *postgres.Engine { return s.engine }

// lookPatience bounds the look whether an agent is there, which only words an error.
const lookPatience = 5 * time.Second

// committed wakes who waits for a thread, here and at the other registries. What came to
// an agent that somebody works on concerns nobody else who waits for work: when that one
// gives it back, or dies, all are told.
func (s *Shared) committed(c store.Commit) {
	r := c.Ref
	switch {
	case r.IsInbox() && c.Holder != "":
		if s.Follows.Mark(r.Agent, c.Holder) {
			s.Tell(notify.Item{Kind: notify.Read, Name: r.Agent})
			return
		}
		kind := notify.Held
		if s.Runs.MarkFor(c.Holder, r.Agent) {
			kind = notify.Heard
		}
		s.Tell(notify.Item{Kind: kind, Name: r.Agent + " " + c.Holder})
		return
	case r.IsInbox():
		s.Runs.Mark(r.Agent)
		s.Tell(notify.Item{Kind: notify.Inbox, Name: r.Agent})
		return
	}
	s.Tell(notify.Item{Kind: notify.Thread, Name: r.String()})
}

// mayWork says that an agent may be free, or shall work now.
func (s *Shared) mayWork(id string) {
	s.Runs.Mark(id)
	s.Deliveries.Mark(id)
	s.Tell(notify.Item{Kind: notify.Work, Name: id})
}

// replies says that an agent has something to send.
func (s *Shared) replies(id string) {
	s.Deliveries.Mark(id)
	s.Tell(notify.Item{Kind: notify.Replies, Name: id})
}

// told takes what other registries say.
func (s *Shared) told(items []notify.Item) {
	for _, i := range items {
		switch i.Kind {
		case notify.Inbox:
			s.Runs.Mark(i.Name)
			s.c.Events.Wake(store.Inbox(i.Name))
		case notify.Read:
			s.c.Events.Wake(store.Inbox(i.Name))
		case notify.Held, notify.Heard:
			if agent, holder, ok := strings.Cut(i.Name, " "); ok {
				s.Runs.MarkFor(holder, agent)
				s.c.Events.Wake(store.Inbox(agent))
			}
		case notify.Thread:
			if agent, id, ok := strings.Cut(i.Name, "/"); ok {
				s.c.Events.Wake(store.Ref{Agent: agent, Thread: id})
			}
		case notify.Work:
			s.Runs.Mark(i.Name)
			s.Deliveries.Mark(i.Name)
		case notify.Replies:
			s.Deliveries.Mark(i.Name)
		case notify.Fate:
			s.c.Fates.Wake(i.Name)
		case notify.Settings:
			s.Agents.Forget(i.Name)
		case notify.Approvals:
			s.c.Questions.Wake(struct{}{})
		case notify.Lapse:
			s.Lapsed(i.Name)
		case notify.Abort:
			s.Abort(i.Name)
		}
	}
}

// lost lets everybody look who waits for something.
func (s *Shared) lost() {
	s.Runs.MarkAll()
	s.Deliveries.MarkAll()
	s.Agents.Forget("")
	s.c.Events.WakeAll()
	s.c.Fates.WakeAll()
	s.c.Questions.WakeAll()
}

// List answers a page of the agents with what is known of each.
func (s *Shared) List(ctx context.Context, after string, limit int) ([]*directory.Agent, error) {
	all, err := s.Agents.List(ctx, after, limit)
	if err != nil {
		return nil, s.c.Fault("", thread.Inbox, err)
	}
	out := make([]*directory.Agent, 0, len(all))
	for _, e := range all {
		a, err := s.c.Dir.Get(e.ID)
		if err != nil {
			return nil, err
		}
		a.SetStarted(e.Started)
		out = append(out, a)
	}
	return out, nil
}
