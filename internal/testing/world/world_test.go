package world_test

import (
	"os"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	os.Exit(m.Run())
}

// The main job: a message in, a thought, a sandboxed tool, an answer out.
func TestMainJob(t *testing.T) {
	w := world.Start(t, world.Options{})
	w.Create(t, "a1", "")
	turn := w.Say(t, "a1", world.Peer("bob"), "hello")
	if got := w.Reply(t, turn); !strings.Contains(got, "hello") {
		t.Fatalf("reply %q, turn %v", got, turn)
	}
	turn = w.Say(t, "a1", world.Peer("bob"), "run: echo from $(pwd | xargs basename)")
	if got := w.Reply(t, turn); !strings.Contains(got, "from workdir") {
		t.Fatalf("reply %q, turn %v", got, turn)
	}
	if n := len(w.Events(t, "a1", turn.GetThreadId(), "type = 'record' AND subtype = 'toolcall'")); n != 1 {
		t.Fatalf("%d toolcall records", n)
	}
	if turn.GetFate() != registryv1.Fate_FATE_REPLIED {
		t.Fatalf("fate %v", turn.GetFate())
	}
}
