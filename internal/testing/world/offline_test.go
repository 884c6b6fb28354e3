package world_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// F17: when providers.yaml is gone at a start, an agent does not answer the peers of its
// channels by the offline model: their messages wait, with the reason in its log, and are
// answered when there is a provider again. The console is answered as before, and so are peers
// where the offline model was chosen, in the settings of the agent or of the home.
func TestPeersAreNotAnsweredOffline(t *testing.T) {
	sink := world.NewSink(t)
	o := world.Options{Home: filepath.Join(t.TempDir(), "home"), Env: map[string]string{world.NoModel: "1"}}
	o.Runner.Probe = 50 * time.Millisecond // between its tries
	w := world.Start(t, o)
	w.Create(t, "a1", sink.Config())
	w.Create(t, "chose", sink.Config()+"\npai: {provider: offline}")
	push := func(agent, source, text string) int64 {
		t.Helper()
		id, err := w.Push(t.Context(), agent, source, text, text)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	const console = "external:console:cli:dm:cli:cli"
	held := push("a1", world.Peer("bob"), "say: held")
	if turn := w.Ask(t, "a1", push("a1", console, "say: to the owner"), time.Minute); turn.GetFate() != registryv1.Fate_FATE_REPLIED {
		t.Errorf("the console: %v", turn)
	}
	if turn := w.Ask(t, "chose", push("chose", world.Peer("bob"), "say: chosen"), time.Minute); turn.GetFate() != registryv1.Fate_FATE_REPLIED {
		t.Errorf("by choice: %v", turn)
	}
	waits := func() *registryv1.Turn {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for {
			r, err := w.Turns.GetTurn(ctx, &registryv1.GetTurnRequest{AgentId: "a1", InboxId: held, Wait: durationpb.New(100 * time.Millisecond)})
			if err != nil {
				t.Fatal(err)
			}
			if turn := r.GetTurn(); turn.GetFate() != 0 || strings.Contains(turn.GetError(), "no model provider is set up") {
				return turn
			}
		}
	}
	if turn := waits(); turn.GetFate() != 0 || turn.GetState() == registryv1.TurnState_TURN_STATE_DONE {
		t.Errorf("the peer: %v", turn)
	}
	if got := sink.Arrivals("a1"); len(got) != 0 {
		t.Errorf("sent to the peer: %v", got)
	}
	log, err := os.ReadFile(filepath.Join(w.Home, "agents", "a1", "logs", "agent.log"))
	if err != nil || !strings.Contains(string(log), "no model provider is set up") {
		t.Errorf("agent.log: %v\n%s", err, log)
	}
	w.Stop()

	if err := os.WriteFile(filepath.Join(w.Home, "providers.yaml"), []byte("default: offline\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w = world.Start(t, o)
	if turn := w.Ask(t, "a1", held, 2*time.Minute); turn.GetFate() != registryv1.Fate_FATE_REPLIED || w.Reply(t, turn) != "held" {
		t.Errorf("with a model again: %v", turn)
	}
}
