//go:build proof

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/world"
)

// TestRaceRunners lets four runner processes race for the agents of fresh homes,
// and kills one of them on the way. ROUNDS in the environment is how often.
func TestRaceRunners(t *testing.T) {
	rounds := int(setting(t, "ROUNDS", 1))
	seed, chance := seed(t)
	var sum figures
	busy, shared := 0, 0
	store, begin := "", race
	if onPostgres(t) {
		db := server(t)
		store, begin = "store=postgres ", func(t *testing.T) (*load, []*world.Process, []*world.Process) { return raceOver(t, db) }
	}
	for range rounds {
		sink := world.NewSink(t)
		l, runners, all := begin(t)
		site := l.site
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var ms []*message
		for agent := range 6 {
			id := fmt.Sprintf("a%d", agent)
			site.Create(t, id, sink.Config())
			for n := range 6 {
				ms = append(ms, &message{agent: id, peer: fmt.Sprintf("p%d", n%3), n: n, kind: []string{"run", "echo"}[n%2]})
			}
		}
		half := len(ms) / 2
		l.send(ctx, ms[:half]...)
		runners[chance.IntN(4)].Kill()
		l.send(ctx, ms[half:]...)
		<-l.done()
		cancel()
		a := &audit{TB: t, load: l, sink: sink}
		a.check()
		sum.add(a.figures)
		for _, p := range append(runners, all...) {
			p.Kill()
			if strings.Contains(p.Log(), "SQLITE_BUSY") || strings.Contains(p.Log(), "database is locked") || strings.Contains(p.Log(), "40P01") {
				finding(t, &busy, "a busy database came to light:\n%s", p.Log())
			}
		}
		for _, p := range runners {
			if strings.Contains(p.Log(), "lease taken") {
				shared++
			}
		}
	}
	fmt.Fprintf(os.Stdout, "race-runners %srounds=%d runners_at_work=%d/%d messages=%d lost=%d dup=%d stuck=%d violations=%d busy=%d seed=%d\n",
		store, rounds, shared, 4*rounds, sum.messages, sum.lost, sum.dup, sum.stuck, sum.violations+sum.dead, busy, seed)
}

// race is four runners at one home.
func race(t *testing.T) (l *load, runners, others []*world.Process) {
	site := world.NewSite(t, program(t))
	for _, name := range []string{"registry", "deliverer"} {
		others = append(others, site.Start(t, append([]string{name}, flags...)...))
	}
	for _, name := range []string{"runner-1", "runner-2", "runner-3", "runner-4"} {
		runners = append(runners, site.Start(t, append([]string{"runner", "--name", name}, flags...)...))
	}
	return &load{site: site}, runners, others
}

// raceOver is four runners and two deliverers at two registries over a new database.
func raceOver(t *testing.T, db *pgtest.Cluster) (l *load, runners, others []*world.Process) {
	c := newCluster(t, db.Database(t))
	for _, p := range c.parts {
		if p.kind == "runner" {
			runners = append(runners, p.Process)
		} else {
			others = append(others, p.Process)
		}
	}
	return c.load(""), runners, others
}
