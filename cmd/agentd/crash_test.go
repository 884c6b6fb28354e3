//go:build proof

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/testing/world"
)

// seed answers the seed of a drill, SEED in the environment or a new one, and a
// source of chance made of it. It is printed with the figures.
func seed(t testing.TB) (uint64, *rand.Rand) {
	s := uint64(setting(t, "SEED", int64(rand.Uint32())))
	return s, rand.New(rand.NewPCG(s, 0))
}

// P1 under a load: agentd is killed at random instants while messages come in,
// and started again each time. Every message is answered once, in its order, and
// no finished tool runs again.
func TestKillDuringLoad(t *testing.T) {
	n := int(setting(t, "KILLS", 50))
	seed, chance := seed(t)
	site, sink := world.NewSite(t, program(t)), world.NewSink(t)
	agents := []string{"a1", "a2", "a3"}
	all := append([]string{"all"}, flags...)
	p := site.Start(t, all...)
	for _, id := range agents {
		site.Create(t, id, sink.Config())
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute+time.Duration(n)*time.Second)
	defer cancel()
	l := &load{site: site}
	kills, sent := 0, 0
	for range n {
		var ms []*message
		for range 4 {
			ms = append(ms, &message{
				agent: agents[chance.IntN(3)], peer: fmt.Sprintf("p%d", chance.IntN(10)), n: sent,
				kind: []string{"echo", "echo", "run"}[chance.IntN(3)],
			})
			sent++
		}
		l.send(ctx, ms...)
		select { // the injury, not a wait: any instant will do
		case <-time.After(time.Duration(chance.Int64N(int64(250 * time.Millisecond)))):
		case <-p.Done():
			t.Fatalf("agentd ended without a kill; its log:\n%s", p.Log())
		}
		p.Kill()
		kills++
		p = site.Start(t, all...)
	}
	<-l.done()
	a := &audit{TB: t, load: l, sink: sink}
	a.check()
	fmt.Fprintf(os.Stdout, "kill-load kills=%d %s seed=%d\n", kills, &a.figures, seed)
	if t.Failed() {
		t.Log(strings.TrimSpace(p.Log()))
	}
}
