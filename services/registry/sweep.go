package registry

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/homedb"
	"github.com/theclaw/agents/services/registry/internal/directory"
)

// sweepLoop looks at every inbox at the start and then once per interval. The
// first round reads only what has changed since the last run: the others are
// known from registry.db.
func (s *Service) sweepLoop(ctx context.Context) {
	s.recall(ctx)
	tick := time.NewTicker(s.cfg.Sweep)
	defer tick.Stop()
	for {
		s.sweep(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *Service) recall(ctx context.Context) {
	known, err := s.homeDB.Inboxes(ctx)
	if err != nil {
		s.log.Warn("nothing is known of the inboxes", "error", err)
	}
	s.dir.Each(ctx, func(a *directory.Agent) {
		i, ok := known[a.ID]
		if ok {
			a.RecallPlace(i.Settings, i.Path)
		}
		s.watch.add(a)
		if !ok || i.Head != i.Acked {
			return
		}
		if path, err := s.dir.Path(store.Inbox(a.ID)); err == nil && directory.Stamp(path) == i.Signature {
			a.Recall(i.Started, i.Head, i.Acked, i.Dead, i.Signature)
		}
	})
}

// sweep finds what no watch and no call has told: pushes by other programs,
// directories that came, went or broke, and work that lost its mark.
func (s *Service) sweep(ctx context.Context) {
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	if err := s.rescan(); err != nil {
		s.log.Error("agents not scanned", "error", err)
	}
	s.dir.Each(ctx, func(a *directory.Agent) {
		if _, live := s.leases.Get(lease.AgentResource(a.ID)); !live {
			a.Rest()
		}
		path, err := s.dir.Path(store.Inbox(a.ID))
		if err != nil {
			a.Fail(fault.From(err).What, false)
			return
		}
		if sig := directory.Stamp(path); sig != a.Signature() || !a.Known().Loaded {
			open := s.store.IsOpen(store.Inbox(a.ID))
			if err := s.lookAt(ctx, a, sig); err != nil && ctx.Err() == nil {
				s.log.Warn("inbox not read", "agent_id", a.ID, "error", err)
				return
			}
			if !open && !a.HasWork() { // only read: a thousand of these need not stay open
				s.store.Forget(func(r store.Ref) bool { return r == store.Inbox(a.ID) })
				a.Sign(directory.Stamp(path))
			}
		}
		s.markDue(a)
	})
	s.metrics.OpenDatabases.Set(float64(s.store.Open()))
	durable, lazy, _ := s.Stats()
	s.metrics.Commits.WithLabelValues("full").Add(float64(durable - s.counted[0]))
	s.metrics.Commits.WithLabelValues("lazy").Add(float64(lazy - s.counted[1]))
	s.counted = [2]int64{durable, lazy}
}

// look asks for an inbox to be read soon; the sweep finds what is dropped here.
func (s *Service) look(agentID string) {
	select {
	case s.looks <- agentID:
	default:
	}
}

// lookLoop reads inboxes that another program may have written.
func (s *Service) lookLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-s.looks:
			a, err := s.dir.Get(id)
			if err != nil {
				continue
			}
			path, err := s.dir.Path(store.Inbox(id))
			if err != nil {
				continue
			}
			if err := s.lookAt(ctx, a, directory.Stamp(path)); err != nil && ctx.Err() == nil {
				s.log.Warn("inbox not read", "agent_id", id, "error", err)
			}
		}
	}
}

// lookAt reads the head of an inbox and makes the agent due if it has risen. Our
// own writes come by here too and are dropped by the head they are known under.
func (s *Service) lookAt(ctx context.Context, a *directory.Agent, sig string) error {
	if !a.Known().Loaded {
		if err := s.load(ctx, a); err != nil {
			return err
		}
		return s.reconcile(ctx, a)
	}
	p, err := s.store.Read(ctx, store.Inbox(a.ID), store.Query{After: 1<<62 - 1, Limit: 1})
	if err != nil {
		err = s.edge(a.ID, thread0, err)
		if !errors.Is(err, context.Canceled) {
			a.Fail(fault.From(err).What, false)
		}
		return err
	}
	a.Sign(sig)
	if a.Pushed(p.Head) {
		if a.Started() {
			s.run.Mark(a.ID)
		}
		s.events.Wake(store.Inbox(a.ID))
	}
	return nil
}

// reconcile makes the subscription agree with the desired state.
func (s *Service) reconcile(ctx context.Context, a *directory.Agent) error {
	st, err := s.store.State(ctx, a.ID)
	if err != nil || st.Started == st.Subscribed {
		return err
	}
	_, err = s.store.SetStarted(ctx, a.ID, st.Started, handler(a.ID))
	return err
}

// saveInboxes keeps what is known for the next start. The databases are closed
// by now, so that the files look as they will then.
func (s *Service) saveInboxes() {
	var put []homedb.Inbox
	s.dir.Each(context.Background(), func(a *directory.Agent) {
		k := a.Known()
		path, err := s.dir.Path(store.Inbox(a.ID))
		if err != nil || !k.Loaded || k.Outbound > 0 || k.Problem != "" {
			return
		}
		sig, place := a.Place()
		put = append(put, homedb.Inbox{Agent: a.ID, Settings: sig, Path: place, Signature: directory.Stamp(path), Started: k.Started, Head: k.Head, Acked: k.Acked, Dead: k.Dead})
	})
	if err := s.homeDB.SaveInboxes(context.Background(), put); err != nil {
		s.log.Warn("what is known of the inboxes is not kept", "error", err)
	}
}

// checkDisk refuses work that needs space while there is little: what was
// accepted must still be answered.
func (s *Service) checkDisk() error {
	var st unix.Statfs_t
	if err := unix.Statfs(s.home.Path(), &st); err != nil {
		return agentdir.Fault(err)
	}
	if int64(st.Bavail)*st.Bsize >= s.cfg.MinFree {
		return nil
	}
	f := fault.New(codes.ResourceExhausted, fault.DiskFull, "the disk has too little free space to accept a message", "free some space; nothing was stored and nothing is lost")
	f.RetryAfter = full
	return f
}
