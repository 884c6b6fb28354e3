package live_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/world"
	"github.com/theclaw/agents/proofs/drill"
	"github.com/theclaw/agents/proofs/program"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// TestPoison sends a message whose turn kills the process each time, among others
// that do nothing bad. It dies alone, after five crashes; the others are answered.
func TestPoison(t *testing.T) {
	peers := drill.Size(t, "N", 4)
	site := world.NewSite(t, program.Agentd(t))
	var mu sync.Mutex
	var p *world.Process
	start := func() { p = site.Start(t, "all", "--lease-ttl", "1s") }
	kills := 0
	m := &model{}
	m.before = func(body string) {
		if last(body, "poison") {
			mu.Lock()
			defer mu.Unlock()
			p.Kill()
			kills++
			start()
		}
	}
	m.with(t, site.Home)
	start()
	site.Serving(t, p, "registry", "runner", "deliverer")
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
	end := await(bad)
	good := 0
	for _, id := range others {
		if turn := await(id); turn.GetFate() == replied {
			good++
		} else {
			t.Errorf("an innocent: %v", turn)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if end.GetFate() != registryv1.Fate_FATE_DEAD || kills != 5 {
		t.Errorf("after %d kills: %v", kills, end)
	}
	drill.Line("poison kills=%d dead=%v answered=%d/%d", kills, end.GetFate() == registryv1.Fate_FATE_DEAD, good, len(others))
}
