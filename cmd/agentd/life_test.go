package main

import (
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/world"
)

var everything = []string{"registry", "runner", "deliverer"}

func TestProcessServes(t *testing.T) {
	s := world.NewSite(t, program(t))
	p := s.Start(t, "all", "--lease-ttl", "1s", "--log-level", "debug")
	s.Serving(t, p, everything...)
	sink := world.NewSink(t)
	s.Create(t, "a1", sink.Config())
	turn := s.Say(t, "a1", world.Peer("bob"), "run: echo hi")
	if got := s.Reply(t, turn); !strings.Contains(got, "hi") {
		t.Fatalf("reply %q", got)
	}
	p.Kill()
	p = s.Start(t, "all", "--lease-ttl", "1s")
	s.Serving(t, p, everything...)
	turn = s.Say(t, "a1", world.Peer("bob"), "run: echo hi")
	t.Log(turn.GetDelivery(), sink.Arrivals(""))
}
