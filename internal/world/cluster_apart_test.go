package world_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/store/postgres/shard"
	"github.com/theclaw/agents/internal/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// One of two databases ends, each of them once, the first being the one over which
// registries tell each other. Agents in it are refused, and say so at once; an agent in the
// other one is answered at both registries for longer than any lease lasts, by runners that
// look for work in both. When it is back, what it has kept is worked on by itself.
func TestDatabasesFailApart(t *testing.T) {
	clusters := []*pgtest.Cluster{pgtest.Start(t, "fsync = off"), pgtest.Start(t, "fsync = off")}
	const ttl = 2 * time.Second
	w := world.Start(t, world.Options{
		Runners: 2, Registries: 2, TTL: ttl,
		Registry: registry.Config{DSNs: []string{clusters[0].Database(t), clusters[1].Database(t)}},
	})
	agents := [2]string{}
	for i := 0; agents[0] == "" || agents[1] == ""; i++ {
		id := fmt.Sprint("agent-", i)
		agents[shard.Index(id, 2)] = id
	}
	for _, id := range agents {
		w.At[0].Create(t, id, "")
		w.At[1].Say(t, id, world.Peer("bob"), "before")
	}
	for down, db := range clusters {
		here, there := agents[1-down], agents[down]
		// Nobody works on it while it is stopped: this waits in its database.
		if _, err := w.At[0].Agents.StopAgent(t.Context(), &registryv1.StopAgentRequest{AgentId: there}); err != nil {
			t.Fatal(err)
		}
		kept, err := w.At[0].Push(t.Context(), there, world.Peer("bob"), "kept", fmt.Sprint("kept ", down))
		if err != nil {
			t.Fatal(err)
		}
		db.Kill(t)
		answered := 0
		for end := time.Now().Add(2 * ttl); time.Now().Before(end); answered++ {
			turn := w.At[answered%2].Say(t, here, world.Peer("bob"), fmt.Sprint("meanwhile ", down, " ", answered))
			if turn.GetFate() != registryv1.Fate_FATE_REPLIED {
				t.Fatalf("database %d is gone, and in the other one: %v", down+1, turn)
			}
		}
		if err := w.Registry.Able(t.Context()); err != nil {
			t.Errorf("database %d is gone, and the registry cannot work: %v", down+1, err)
		}
		for i, at := range w.At {
			if _, err := at.Push(t.Context(), there, world.Peer("bob"), "lost", ""); fault.From(err).Reason != fault.RegistryUnavailable {
				t.Errorf("registry %d takes a message for database %d, which is gone: %v", i, down+1, err)
			}
		}
		db.Up(t)
		if _, err := w.At[1].Agents.StartAgent(t.Context(), &registryv1.StartAgentRequest{AgentId: there}); err != nil {
			t.Fatal(err)
		}
		if turn := w.At[0].Await(t, there, kept); turn.GetFate() != registryv1.Fate_FATE_REPLIED {
			t.Errorf("what was kept in database %d: %v", down+1, turn)
		}
		t.Logf("database %d: %d messages answered while it was gone", down+1, answered)
	}
}
