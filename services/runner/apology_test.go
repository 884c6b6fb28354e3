package runner_test

import (
	"strings"
	"testing"

	server "github.com/theclaw/agents/internal/testing/world"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

// apologies are those in the conversation of a turn.
func apologies(t *testing.T, w *server.World, turn *registrypb.Turn) int {
	t.Helper()
	n := 0
	for _, e := range w.Events(t, turn.GetAgentId(), turn.GetThreadId(), "source = 'self' AND type = 'message'") {
		if server.IsApology(e) {
			n++
		}
	}
	return n
}

// A9: a model that answers nothing ends the message dead; by default a person in a direct
// chat hears of it, and nobody else does.
func TestSilentModelIsNotedToPeople(t *testing.T) {
	w, _ := play(t, modeltest.Step{Repeat: true})
	for _, c := range []struct {
		agent, set, source string
		want               int
	}{
		{"person", "", server.Peer("bob"), 1},
		{"silenced", "false", server.Peer("bob"), 0},
		{"group", "", "external:telegram:main:group:g1:bob", 0},
		{"webhook", "", "external:webhook:main:dm:bob:bob", 0},
		{"console", "", "external:console:cli:dm:cli:cli", 0},
	} {
		w.Create(t, c.agent, "")
		if c.set != "" {
			w.Set(t, c.agent, "on_error.notify_peer", c.set)
		}
		turn := w.Say(t, c.agent, c.source, "hello")
		want(t, w, turn, dead, "")
		if !strings.Contains(turn.GetError(), "tried 3 times") {
			t.Errorf("%s: %v", c.agent, turn)
		}
		if got := apologies(t, w, turn); got != c.want {
			t.Errorf("%s: %d apologies", c.agent, got)
		}
		r, err := w.Deliveries.ListDeliveries(t.Context(), &registrypb.ListDeliveriesRequest{AgentId: c.agent})
		if err != nil || len(r.GetDeliveries()) != c.want {
			t.Errorf("%s: deliveries %v, %v", c.agent, r.GetDeliveries(), err)
		}
	}
}

// A9: a person hears of failures once in a while, and everybody of each where the setting is true.
func TestApologyIsNotRepeated(t *testing.T) {
	w, _ := play(t, filtering("hello"))
	for _, c := range []struct {
		agent, set, source string
		want               int // after three messages
	}{
		{"person", "auto", server.Peer("bob"), 1},
		{"always", "true", server.Peer("bob"), 3},
		{"webhook", "true", "external:webhook:main:dm:bob:bob", 3},
	} {
		w.Create(t, c.agent, "on_error: {notify_peer: "+c.set+"}")
		var turn *registrypb.Turn
		for range 3 {
			turn = w.Say(t, c.agent, c.source, "hello")
			want(t, w, turn, dead, "")
		}
		if got := apologies(t, w, turn); got != c.want {
			t.Errorf("%s: %d apologies", c.agent, got)
		}
	}
	// One peer's apology is not another's, also where they share a conversation.
	w.Create(t, "shared", "routing: {default: per-channel}")
	turn := w.Say(t, "shared", server.Peer("bob"), "hello")
	w.Say(t, "shared", server.Peer("ann"), "hello")
	if got := apologies(t, w, turn); got != 2 {
		t.Errorf("%d apologies to two peers", got)
	}
}
