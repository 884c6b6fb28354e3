package leaseapi

import (
	"context"
	"time"
)

// Run frees the leases of dead holders and ends expired ones at their time.
func (s *Service) Run(ctx context.Context) {
	for {
		wait := time.Minute
		if at, ok := s.Leases.NextExpiry(); ok {
			wait = max(time.Until(at), 10*time.Millisecond)
		}
		// Deaths announce themselves by the end of a long poll; once a second is
		// for those that do not.
		if len(s.Leases.List()) > 0 {
			wait = min(wait, time.Second)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-s.reap:
		case <-t.C:
		}
		t.Stop()
		for _, r := range s.Leases.Reap(ctx) {
			s.Log.Info("lease ended", "agent_id", agentOf(r.Resource), "holder", r.Holder, "fencing_token", r.Token)
			s.polls.lapsed(r.Holder)
			s.ended(agentOf(r.Resource))
		}
		s.Metrics.Leases.WithLabelValues("held").Set(float64(len(s.Leases.List())))
	}
}

func (s *Service) reapSoon() {
	select {
	case s.reap <- struct{}{}:
	default:
	}
}
