package world_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/world"
	delivererv1 "github.com/theclaw/agents/proto/gen/theclaw/deliverer/v1"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// cluster starts two registries over one database, with a runner at each and the
// deliverer at the second.
func cluster(t *testing.T, o world.Options) *world.World {
	t.Helper()
	o.DSN = pgtest.Database(t)
	o.Registries = 2
	return world.Start(t, o)
}

// A message that is pushed at one registry is worked on by a runner at the other, its
// reply is sent by the deliverer, and whoever waits at either is told.
func TestAcrossRegistries(t *testing.T) {
	sink := world.NewSink(t)
	w := cluster(t, world.Options{Runners: 1})
	w.At[1].Create(t, "one", sink.Config())
	for i := range 5 {
		at := w.At[i%2]
		begun := time.Now()
		turn := at.Say(t, "one", world.Peer("bob"), fmt.Sprint("hello ", i))
		if turn.GetFate() != registryv1.Fate_FATE_REPLIED {
			t.Fatalf("message %d: %v", i, turn)
		}
		t.Logf("message %d: answered in %v", i, time.Since(begun))
	}
	for end := time.Now().Add(time.Minute); len(sink.Arrivals("one")) < 5; <-time.After(5 * time.Millisecond) {
		if _, err := w.Deliverer.DeliverBatch(t.Context(), &delivererv1.DeliverBatchRequest{AgentId: "one", ThreadId: "threads/peers/main-bob"}); err != nil && time.Now().After(end) {
			t.Fatalf("%d of 5 replies were sent, %v", len(sink.Arrivals("one")), err)
		}
	}
	var texts []string
	for _, at := range w.At {
		var got []string
		for _, e := range at.Events(t, "one", "threads/peers/main-bob", "source = 'self'") {
			got = append(got, world.Text(e))
		}
		if texts == nil {
			texts = got
		} else if !slices.Equal(texts, got) {
			t.Errorf("%v and %v", texts, got)
		}
	}
	if len(texts) != 5 {
		t.Errorf("replies %v", texts)
	}
}
