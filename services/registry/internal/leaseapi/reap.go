package leaseapi

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/theclaw/agents/internal/store/postgres/notify"
)

const (
	// lookForDead is how often dead holders are looked for: a death announces itself by
	// the end of a long poll, or not at all.
	lookForDead = time.Second
	idle        = time.Minute
	// idleShared is for registries that are not told of grants by the others.
	idleShared = 2 * time.Second
)

// Run frees the leases of dead holders and ends expired ones at their time.
func (s *Service) Run(ctx context.Context) {
	for ctx.Err() == nil {
		ended, next, err := s.Leases.Reap(ctx)
		if err != nil && ctx.Err() == nil {
			s.Log.Warn("leases not looked at", "error", err)
		}
		for _, r := range ended {
			s.Log.Info("lease ended", "agent_id", agentOf(r.Resource), "holder", r.Holder, "fencing_token", r.Token)
			s.polls.lapsed(r.Holder)
			if s.Shared != nil {
				s.Shared.Tell(notify.Item{Kind: notify.Lapse, Name: r.Holder})
			}
			s.ended(ctx, agentOf(r.Resource))
		}
		wait := idle
		switch {
		case next > 0:
			wait = min(max(next, 10*time.Millisecond), lookForDead)
		case s.Shared != nil:
			wait = idleShared/2 + rand.N(idleShared)
		}
		if s.Shared == nil {
			if live, err := s.Leases.List(ctx, "", math.MaxInt); err == nil {
				s.Metrics.Leases.WithLabelValues("held").Set(float64(len(live)))
			}
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-s.reap:
		case <-t.C:
		}
		t.Stop()
	}
}

func (s *Service) reapSoon() {
	select {
	case s.reap <- struct{}{}:
	default:
	}
}
