package runner_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	server "github.com/theclaw/agents/internal/testing/world"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner"
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

// H2: a wait for a run that ends before it says what the run waits for, and the runner which
// providers it does not call; both have the cause. Asking costs the message nothing.
func TestAWaitSaysWhatItIsFor(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "")
	file := filepath.Join(t.TempDir(), "providers.yaml")
	text := "providers:\n  down: {base_url: '" + modeltest.RefusedURL(t) + "', models: [m1]}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := w.runner(nil, func(c *runner.Config) { c.ProvidersFile = file })
	run := w.say(r, "a1", "hi")
	var waiting *runnerpb.RunWaiting
	for waiting == nil {
		end, err := r.WaitRun(t.Context(), &runnerpb.WaitRunRequest{AgentId: "a1", RunId: run, Timeout: durationpb.New(10 * time.Millisecond)})
		if err != nil || end.GetStatus() != runnerpb.RunStatus_RUN_STATUS_TIMEOUT {
			t.Fatalf("%v %v", end, err)
		}
		waiting = end.GetWaiting()
	}
	if !strings.HasPrefix(waiting.GetError(), "provider unreachable: down: ") || waiting.GetNextAt() == nil || waiting.GetCounted() {
		t.Errorf("%v", waiting)
	}
	var info *runnerpb.GetRunnerInfoResponse
	for len(info.GetOutages()) == 0 { // the breaker opens at the third call
		var err error
		if info, err = r.GetRunnerInfo(t.Context(), &runnerpb.GetRunnerInfoRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	if o := info.GetOutages()[0]; o.GetProvider() != "down" || !strings.HasPrefix(o.GetError(), "provider unreachable: down: ") {
		t.Errorf("%v", o)
	}
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
