package runner_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	server "github.com/theclaw/agents/internal/testing/world"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

// F4: a provider that answers 503, as often as a breaker takes to open and more, costs a
// message no try.
func TestUnavailableProviderKillsNoMessage(t *testing.T) {
	w, script := play(t)
	w.Create(t, "a1", "")
	for range 6 {
		script.Push(modeltest.Fail(503, "overloaded"))
	}
	script.Push(modeltest.Say("back"))
	want(t, w, w.Say(t, "a1", server.Peer("bob"), "hi"), replied, "back")
}

// refusing is a connection to the registry whose encoding takes no reply.
type refusing struct{ grpc.ClientConnInterface }

func (r refusing) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	if in, ok := args.(*registrypb.FinishTurnRequest); ok && in.GetFate() == registrypb.Fate_FATE_REPLIED {
		return status.Error(codes.Internal, "grpc: error while marshaling: string field contains invalid UTF-8")
	}
	return r.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
}

// F1: a reply that cannot be journaled is paid for once, and its message dies of that, not of
// a crash.
func TestRefusedReplyIsPaidOnce(t *testing.T) {
	script := modeltest.New(t, modeltest.Step{Repeat: true, Text: []string{"hello"}})
	w := newWorld(t)
	w.wire = refusing{w.conn}
	w.agent("a1", "")
	r := w.runner(script)
	end := w.wait(r, "a1", w.say(r, "a1", "hi"))
	if n := len(script.Requests()); n != 1 || !strings.Contains(end.GetError(), "invalid UTF-8") || strings.Contains(end.GetError(), "the process died") {
		t.Errorf("%d paid calls, dead of %q", n, end.GetError())
	}
}
