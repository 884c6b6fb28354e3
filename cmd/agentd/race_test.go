package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/world"
)

// TestRaceRunners lets four runner processes race for the agents of fresh homes,
// and kills one of them on the way. ROUNDS in the environment is how often.
func TestRaceRunners(t *testing.T) {
	rounds := int(setting(t, "ROUNDS", 1))
	seed, chance := seed(t)
	var sum figures
	busy, shared := 0, 0
	for range rounds {
		site, sink := world.NewSite(t, program(t)), world.NewSink(t)
		all := []*world.Process{site.Start(t, append([]string{"registry"}, flags...)...), site.Start(t, append([]string{"deliverer"}, flags...)...)}
		var runners []*world.Process
		for _, name := range []string{"runner-1", "runner-2", "runner-3", "runner-4"} {
			runners = append(runners, site.Start(t, append([]string{"runner", "--name", name}, flags...)...))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var ms []*message
		for agent := range 6 {
			id := fmt.Sprintf("a%d", agent)
			site.Create(t, id, sink.Config())
			for n := range 6 {
				ms = append(ms, &message{agent: id, peer: fmt.Sprintf("p%d", n%3), n: n, kind: []string{"run", "echo"}[n%2]})
			}
		}
		l := &load{site: site}
		half := len(ms) / 2
		l.send(ctx, ms[:half]...)
		runners[chance.IntN(4)].Kill()
		l.send(ctx, ms[half:]...)
		<-l.done()
		cancel()
		a := &audit{TB: t, load: l, sink: sink}
		a.check()
		sum.add(a.figures)
		for _, p := range append(all, runners...) {
			p.Kill()
			if strings.Contains(p.Log(), "SQLITE_BUSY") || strings.Contains(p.Log(), "database is locked") {
				finding(t, &busy, "a busy database came to light:\n%s", p.Log())
			}
		}
		for _, p := range runners {
			if strings.Contains(p.Log(), "lease taken") {
				shared++
			}
		}
	}
	fmt.Fprintf(os.Stdout, "race-runners rounds=%d runners_at_work=%d/%d messages=%d lost=%d dup=%d stuck=%d violations=%d busy=%d seed=%d\n",
		rounds, shared, 4*rounds, sum.messages, sum.lost, sum.dup, sum.stuck, sum.violations+sum.dead, busy, seed)
}
