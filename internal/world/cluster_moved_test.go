package world_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/store/postgres/relocate"
	"github.com/theclaw/agents/internal/store/postgres/shard"
	"github.com/theclaw/agents/internal/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// An agent of two databases is stopped, moved and started while two registries run that
// knew it where it was: each answers of it, a runner at either works on it, and both list
// it once. Then it goes back. Nobody receives its replies, so that a deliverer has it all
// the time: it gives it back when it is asked, and goes on where the agent is.
func TestMovedAcrossDatabases(t *testing.T) {
	c := pgtest.Start(t, "fsync = off")
	dsns := []string{c.Database(t), c.Database(t)}
	sink := world.NewSink(t)
	w := world.Start(t, world.Options{
		Runners: 1, Registries: 2, Registry: registry.Config{DSNs: dsns},
		TTL: 3 * time.Second, // a third of it is how soon the deliverer is asked
	})
	w.At[0].Create(t, "one", strings.ReplaceAll(sink.Config(), sink.URL, "http://127.0.0.1:1"))
	w.At[0].Create(t, "two", "")
	for i := range 4 {
		w.At[i%2].Say(t, "one", world.Peer("bob"), fmt.Sprint("before ", i))
	}
	home := shard.Index("one", 2)
	for lap, to := range []int{1 - home, home} {
		if _, err := w.At[lap].Agents.StopAgent(t.Context(), &registryv1.StopAgentRequest{AgentId: "one"}); err != nil {
			t.Fatal(err)
		}
		s, err := shard.Open(t.Context(), dsns)
		if err != nil {
			t.Fatal(err)
		}
		r, err := relocate.Move{Set: s, Agent: "one", To: to, Confirm: func(relocate.Report) bool { return true }}.Run(t.Context())
		s.Close()
		if err != nil || !r.Moved || r.To != to+1 || r.Events == 0 {
			t.Fatalf("lap %d: %+v, %v", lap, r, err)
		}
		t.Logf("lap %d: %+v", lap, r)
		if _, err := w.At[1-lap].Agents.StartAgent(t.Context(), &registryv1.StartAgentRequest{AgentId: "one"}); err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			turn := w.At[i%2].Say(t, "one", world.Peer("bob"), fmt.Sprint("after ", lap, " ", i))
			if turn.GetFate() != registryv1.Fate_FATE_REPLIED {
				t.Fatalf("lap %d, message %d: %v", lap, i, turn)
			}
		}
		for i, at := range w.At {
			if n := len(at.Events(t, "one", "threads/peers/main-bob", "source = 'self'")); n != 4*(lap+2) {
				t.Errorf("lap %d, registry %d: %d replies", lap, i, n)
			}
			l, err := at.Agents.ListAgents(t.Context(), &registryv1.ListAgentsRequest{})
			if err != nil || len(l.GetAgents()) != 2 {
				t.Errorf("lap %d, registry %d lists %v, %v", lap, i, l, err)
			}
		}
	}
}
