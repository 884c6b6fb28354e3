package live_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/world"
	"github.com/theclaw/agents/proofs/drill"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// TestPoison sends a message whose turn kills the process each time, among others
// that do nothing bad. It dies alone, after five crashes; the others are answered.
func TestPoison(t *testing.T) {
	peers := drill.Size(t, "N", 4)
	site := world.NewSite(t, drill.Program(t))
	var p atomic.Pointer[world.Process]
	kills := 0
	killed := make(chan struct{})
	m := &model{}
	m.before = func(body string) {
		if last(body, "poison") {
			p.Load().Kill()
			killed <- struct{}{}
		}
	}
	m.with(t, site.Home)
	start := func() { p.Store(site.Start(t, "all", "--lease-ttl", "1s")) }
	start()
	site.Serving(t, p.Load(), "registry", "runner", "deliverer")
	site.Create(t, agent, quiet)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var others []int64
	for i := range peers {
		others = append(others, push(ctx, t, site.Client, string(rune('a'+i)), "harmless 1"))
	}
	bad := push(ctx, t, site.Client, "eve", "poison")
	for i := range peers {
		others = append(others, push(ctx, t, site.Client, string(rune('a'+i)), "harmless 2"))
	}
	await := func(id int64) *registryv1.Turn {
		for {
			r, err := world.Again(ctx, func(ctx context.Context) (*registryv1.GetTurnResponse, error) {
				return site.Turns.GetTurn(ctx, &registryv1.GetTurnRequest{AgentId: agent, InboxId: id, Wait: durationpb.New(20 * time.Second)})
			})
			if err != nil {
				t.Errorf("event %d: %v", id, err)
				return nil
			}
			if r.GetTurn().GetFate() != registryv1.Fate_FATE_UNSPECIFIED {
				return r.GetTurn()
			}
		}
	}
	done := make(chan *registryv1.Turn, 1)
	go func() { done <- await(bad) }()
	var end *registryv1.Turn
	for end == nil && ctx.Err() == nil {
		select {
		case <-killed:
			kills++
			start()
		case end = <-done:
		case <-ctx.Done():
		}
	}
	good := 0
	for _, id := range others {
		if turn := await(id); turn.GetFate() == replied {
			good++
		} else {
			t.Errorf("an innocent: %v", turn)
		}
	}
	if end.GetFate() != registryv1.Fate_FATE_DEAD || kills != 5 {
		t.Errorf("after %d kills: %v", kills, end)
	}
	drill.Line("poison kills=%d dead=%v answered=%d/%d", kills, end.GetFate() == registryv1.Fate_FATE_DEAD, good, len(others))
}
