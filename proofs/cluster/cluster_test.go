//go:build proof

package cluster_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/drill"
)

// prove keeps a site busy while strike does harm to it, and takes stock.
func prove(t *testing.T, what string, s *site, strike func(r *rand.Rand) (done bool)) {
	t.Helper()
	seed, chance := drill.Seed(t)
	lasts, every := drill.Span(t, "DURATION", 6*time.Second), drill.Span(t, "KILL_EVERY", 2*time.Second)
	l := &load{c: s.client(t), sink: world.NewSink(t)}
	for a := range agents {
		l.c.Create(t, agentID(a), l.sink.Config())
	}
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	done := l.start(ctx, t)
	begun, strikes := time.Now(), 0
	for more := true; more; {
		select {
		case <-ctx.Done():
			more = false
		case <-time.After(every):
			strikes++
			more = !strike(chance)
		}
	}
	<-ctx.Done()
	cancel()
	<-done
	f := l.account(t)
	f.violations = l.judge(t, s.parts[0].home, s.dsn)
	drill.Line("cluster of=%s messages=%d seconds=%.0f strikes=%d lost=%d dup=%d stuck=%d violations=%d resent=%d errors=%d seed=%d",
		what, f.messages, time.Since(begun).Seconds(), strikes, f.lost, f.dup, f.stuck, f.violations, f.repeats, l.failed.Load(), seed)
	if f.messages == 0 || strikes == 0 {
		t.Errorf("nothing was proved: %+v, %d strikes", f, strikes)
	}
}

// P1 among machines: any process may die at any time.
func TestClusterKill(t *testing.T) {
	s := newSite(t, pgtest.Start(t).Database(t))
	prove(t, "kill", s, func(r *rand.Rand) bool {
		p := s.parts[r.IntN(len(s.parts))]
		p.Kill()
		s.start(t, p)
		return false
	})
}

// The same of the database itself: what it has acknowledged is there when it is back.
func TestClusterDatabase(t *testing.T) {
	c := pgtest.Start(t)
	s := newSite(t, c.Database(t))
	prove(t, "database", s, func(*rand.Rand) bool {
		c.Kill(t)
		c.Up(t)
		return false
	})
}

// A database that dies for good is followed by the one that acknowledged with it.
func TestClusterFailover(t *testing.T) {
	first := pgtest.Start(t)
	db := first.Database(t)
	second := first.Standby(t)
	s := newSite(t, pgtest.Failover(first, second, pgtest.Name(t, db)))
	prove(t, "failover", s, func(*rand.Rand) bool {
		first.Kill(t)
		second.Promote(t)
		return true
	})
}
