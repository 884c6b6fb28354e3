package cluster_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/world"
)

// every is how long the faults are apart.
const every = 2 * time.Second

// setting is a number from the environment: the size of the proof.
func setting(t testing.TB, name string, def int64) int64 {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return def
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// prove keeps a site busy while strike does harm to it, and takes stock.
func prove(t *testing.T, what string, s *site, strike func(r *rand.Rand) (done bool)) {
	t.Helper()
	seed := setting(t, "SEED", time.Now().UnixNano())
	seconds := time.Duration(setting(t, "SECONDS", 6)) * time.Second
	l := &load{c: s.client(t), sink: world.NewSink(t)}
	for a := range agents {
		l.c.Create(t, agentID(a), l.sink.Config())
	}
	ctx, cancel := context.WithTimeout(t.Context(), seconds)
	defer cancel()
	done := l.start(ctx, t)
	r := rand.New(rand.NewPCG(uint64(seed), 0)) //nolint:gosec // a proof is replayed
	begun, strikes := time.Now(), 0
	for more := true; more; {
		select {
		case <-ctx.Done():
			more = false
		case <-time.After(every):
			strikes++
			more = !strike(r)
		}
	}
	<-ctx.Done()
	cancel()
	<-done
	f := l.account(t)
	fmt.Printf("cluster %s: %d messages in %.0f s, %d strikes, 2 registries, 4 runners, 2 deliverers: lost=%d dup=%d stuck=%d; %d sends repeated under their key, %d calls answered an error (seed %d)\n",
		what, f.messages, time.Since(begun).Seconds(), strikes, f.lost, f.dup, f.stuck, f.repeats, l.failed.Load(), seed)
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
