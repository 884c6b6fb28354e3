package claim

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/pause"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/batch"
)

const (
	firstWait = 50 * time.Millisecond
	lastWait  = 2 * time.Second
	// fullPoll is the wait of a call that asks for nothing new: its answer tells
	// whether others wait.
	fullPoll = 250 * time.Millisecond
	// maxNew is the most leases one call may grant.
	maxNew = 256
)

// dispatch asks for work until ctx ends. A call whose answer was lost is made
// again under the same id, and gets the same leases.
func (s *Set) dispatch(ctx context.Context) {
	request, sent, wait := ulid.Make().String(), time.Now(), firstWait
	for ctx.Err() == nil {
		room, changed := s.room()
		poll := s.cfg.Poll
		asked := time.Now()
		call, cancel := context.WithTimeout(ctx, poll+10*time.Second)
		if room == 0 {
			poll = min(poll, fullPoll)
			s.wg.Go(func() { cutShort(call, cancel, changed) })
		}
		r, err := s.deps.Leases.AcquireDueLease(call, &registrypb.AcquireDueLeaseRequest{
			Kind: registrypb.LeaseKind_LEASE_KIND_RUN, Holder: s.cfg.Holder, Address: s.cfg.Address, RequestId: request,
			Ttl: durationpb.New(s.cfg.TTL), MaxNew: room, Wait: durationpb.New(poll), News: true,
		})
		cut := err != nil && room == 0 && errors.Is(call.Err(), context.Canceled)
		cancel()
		if cut {
			continue // there may be room now: the same call with another bound
		}
		if err != nil && ctx.Err() == nil {
			s.deps.Logger.WarnContext(ctx, "no answer about due work", "error", fault.Chain(err))
		}
		if err == nil {
			for _, due := range r.GetDue() {
				s.due(due, sent)
			}
			s.giveWay(int(r.GetWaiting()))
			if s.news(r.GetNews()) {
				request, sent = ulid.Make().String(), time.Now()
			}
		}
		// An empty answer long before its time: the registry is ending.
		early := err == nil && len(r.GetDue())+len(r.GetNews()) == 0 && time.Since(asked) < poll/2
		if err == nil && !early {
			wait = firstWait
			continue
		}
		_ = pause.For(ctx, wait/2+rand.N(wait/2))
		wait = min(2*wait, lastWait)
	}
}

// room is how many more agents can be worked on, and what is closed when it changes.
func (s *Set) room() (int32, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int32(min(max(s.cfg.Agents-len(s.claims), 0), maxNew)), s.changed
}

// cutShort ends a call that asks for nothing new when there is room.
func cutShort(call context.Context, cancel context.CancelFunc, changed <-chan struct{}) {
	select {
	case <-call.Done():
	case <-changed:
		cancel()
	}
}

// giveWay ends as many claims as agents wait for a place here: first those that
// have nothing to do, then those that had their share, the oldest first. What they
// leave is due again at once, behind those who wait.
func (s *Set) giveWay(waiting int) {
	if waiting <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var idle, had []*claim
	for _, c := range s.claims {
		if s.panics.left(c.agentID) > 0 {
			continue // set aside: its place is not free soon
		}
		if c.leaving() {
			waiting--
			continue
		}
		switch c.current().Share() {
		case batch.Idle:
			idle = append(idle, c)
		case batch.Had:
			had = append(had, c)
		case batch.Working:
		}
	}
	slices.SortFunc(had, func(a, b *claim) int { return a.since.Compare(b.since) })
	for _, c := range append(idle, had...) {
		if waiting--; waiting < 0 {
			return
		}
		c.stop()
	}
}

// due begins or wakes the claim of an agent. sent is the instant before the
// registry was asked first.
func (s *Set) due(w *registrypb.DueWork, sent time.Time) {
	l := w.GetLease()
	s.mu.Lock()
	c := s.claims[w.GetAgentId()]
	asking := s.asking[w.GetAgentId()] > 0
	switch {
	case c != nil && c.token == l.GetToken():
		s.mu.Unlock()
		c.poke()
	case w.GetFresh():
		s.startLocked(w.GetAgentId(), l, sent)
		s.mu.Unlock()
	case asking:
		s.mu.Unlock() // RunBatch has it, or will: its claim reads the inbox anyway
	default:
		s.mu.Unlock() // nobody here works under it any more
		s.wg.Go(func() { s.release(w.GetAgentId(), l.GetResource(), l.GetToken()) })
	}
}

// news wakes the claims of agents, and answers whether all of them are held here: of one
// that is not, a repeat of the question tells the lease.
func (s *Set) news(agents []string) (all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all = true
	for _, id := range agents {
		if c := s.claims[id]; c != nil {
			c.poke()
		} else if s.asking[id] == 0 { // RunBatch reads the inbox anyway
			all = false
		}
	}
	return all
}

// release gives a lease back. What cannot be given back ends by its ttl.
func (s *Set) release(agentID, resource string, token uint64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.life), 5*time.Second)
	defer cancel()
	if _, err := s.deps.Leases.ReleaseLease(ctx, &registrypb.ReleaseLeaseRequest{Resource: resource, Token: token}); err != nil {
		s.deps.Logger.Warn("lease not given back", "agent_id", agentID, "fencing_token", token, "error", fault.Chain(err))
	}
}
