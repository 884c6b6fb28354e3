package registry_test

import (
	"fmt"
	"testing"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// S1-23, queue.drop new: a message beyond the cap is refused with a notice and not stored. Commands, other people and
// what programs push are taken in.
func TestQueueDropNew(t *testing.T) { backendtest.Each(t, testQueueDropNew) }

func testQueueDropNew(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("main")
	setHome(t, o, w, account+"agents: {defaults: {queue: {cap: 2, drop: new}}}\n")
	for i, want := range []registryv1.AcceptOutcome{accepted, accepted, refused} {
		r := accept(t, w, inbound(fmt.Sprint(i), "ann", "hello"))
		if r.GetOutcome() != want || r.GetNotify() != (want == refused) || want == refused && r.GetReason() != fault.QueueFull {
			t.Errorf("message %d: %v", i, r)
		}
	}
	if r := accept(t, w, inbound("0", "ann", "hello")); r.GetOutcome() != duplicate {
		t.Errorf("a repeat: %v", r)
	}
	if r := accept(t, w, inbound("b", "bob", "hello")); r.GetOutcome() != accepted {
		t.Errorf("of another person: %v", r)
	}
	stop := inbound("s", "ann", "/stop")
	stop.Command = &registryv1.ChatCommand{Name: "stop"}
	if r := accept(t, w, stop); r.GetOutcome() != accepted {
		t.Errorf("a command: %v", r)
	}
	for i := range 3 {
		w.Push("main", "ann", fmt.Sprint("hello ", i), "")
	}
}
