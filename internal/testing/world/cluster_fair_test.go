package world_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner"
)

// Fairness over agents among registries: two runners, each at a registry of its own and
// with a place for one agent, have two agents with long queues. A third one, whose
// message comes last and at the other registry, waits for a share of a place, not for
// all of a queue; and both runners are given work.
func TestFairAcrossRegistries(t *testing.T) {
	const queue = 150
	w := cluster(t, world.Options{Runners: 2, Runner: runner.Config{Agents: 1, Poll: 50 * time.Millisecond}})
	busy := []string{"busy0", "busy1"}
	for _, id := range busy {
		w.Create(t, id, "")
		if _, err := w.Agents.StopAgent(t.Context(), &registryv1.StopAgentRequest{AgentId: id}); err != nil {
			t.Fatal(err)
		}
		var events []*registryv1.NewEvent
		for n := range queue {
			events = append(events, &registryv1.NewEvent{Source: world.Peer("bob"), Type: "message", Content: world.Message(fmt.Sprint("flood ", n))})
		}
		if _, err := w.Threads.PushEvents(t.Context(), &registryv1.PushEventsRequest{Thread: &registryv1.ThreadRef{AgentId: id, ThreadId: "inbox"}, Events: events}); err != nil {
			t.Fatal(err)
		}
	}
	w.At[1].Create(t, "waits", "")
	holders := map[string]bool{}
	for _, id := range busy {
		if _, err := w.Agents.StartAgent(t.Context(), &registryv1.StartAgentRequest{AgentId: id}); err != nil {
			t.Fatal(err)
		}
		w.Await(t, id, 1)
		l, err := w.At[1].Leases.FindRunner(t.Context(), &registryv1.FindRunnerRequest{AgentId: id})
		if err != nil {
			t.Fatal(err)
		}
		holders[l.GetLease().GetHolder()] = true
	}
	if turn := w.At[1].Say(t, "waits", world.Peer("bob"), "me too"); turn.GetFate() != registryv1.Fate_FATE_REPLIED {
		t.Errorf("%v", turn)
	}
	done := begun(t, w.Client, "busy0", queue) + begun(t, w.Client, "busy1", queue)
	if done == 2*queue {
		t.Error("the one who waits was answered last of all")
	}
	t.Logf("answered after %d of %d, by %d runners", done, 2*queue, len(holders))
	for _, id := range busy {
		for n := int64(1); n <= queue; n++ {
			if turn := w.At[n%2].Await(t, id, n); turn.GetFate() != registryv1.Fate_FATE_REPLIED {
				t.Fatalf("message %d of %s: %v", n, id, turn)
			}
		}
	}
}
