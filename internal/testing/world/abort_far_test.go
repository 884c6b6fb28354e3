package world

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/runs"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerv1 "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// S1-16: who cannot reach the runner of a run aborts it all the same: the registry tells
// the runner, in a home and over a database that two registries share, where the runner
// renews its lease at the other one. A run that is at work ends at once and one that waits
// behind another is withdrawn; others go on, and a wish for one that has ended does nothing.
func TestAbortFromAfar(t *testing.T) {
	t.Run("home", func(t *testing.T) { abortFromAfar(t, Options{}) })
	t.Run("database", func(t *testing.T) {
		abortFromAfar(t, Options{Registries: 2, DSN: pgtest.Database(t)})
	})
}

func abortFromAfar(t *testing.T, o Options) {
	o.TTL = 3 * time.Second // a third of it is how soon the runner hears
	w := Start(t, o)
	w.Create(t, "a1", "outbound: []")
	asked, err := w.dial(w.places[len(w.places)-1], "registry", rpc.Identity{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	nobody, err := rpc.Dial("unix:///nobody/listens/here.sock", rpc.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nobody.Close() }()
	far := runs.New(runs.Options{Registry: asked, Near: nobody, Stranger: true, Dial: func(string) (*grpc.ClientConn, error) {
		return nil, errUnreachable
	}})
	defer far.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	start := func(peer, text string) string {
		t.Helper()
		r, err := w.Runner.StartRun(ctx, &runnerv1.StartRunRequest{AgentId: "a1", Source: Peer(peer), Text: text})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetRunId()
	}
	abort := func(run string) error {
		_, err := far.AbortRun(ctx, &runnerv1.AbortRunRequest{AgentId: "a1", RunId: run})
		return err
	}
	works, other := start("p", "slow: 600"), start("q", "slow: 600")
	for _, run := range []string{works, other} {
		in, err := w.Runner.StreamRun(ctx, &runnerv1.StreamRunRequest{AgentId: "a1", RunId: run})
		if err == nil {
			_, err = in.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	waits := start("p", "say: never")
	for _, run := range []string{waits, works} {
		begun := time.Now()
		if err := abort(run); err != nil {
			t.Fatalf("%s: %v", run, err)
		}
		t.Logf("aborted after %v", time.Since(begun).Round(time.Millisecond))
		end, err := w.Runner.WaitRun(ctx, &runnerv1.WaitRunRequest{AgentId: "a1", RunId: run})
		if err != nil || end.GetErrorCode() != runnerv1.RunError_RUN_ERROR_ABORTED {
			t.Errorf("%s: %v, %v", run, end, err)
		}
		if err := abort(run); !fault.Is(err, fault.RunNotFound) {
			t.Errorf("%s again: %v", run, err)
		}
	}
	leases := registryv1.NewLeaseServiceClient(asked)
	if r, err := leases.RequestAbort(ctx, &registryv1.RequestAbortRequest{AgentId: "a1", RunId: works}); err != nil || !r.GetEnded() || r.GetLease() != nil {
		t.Errorf("a wish for one that has ended: %v, %v", r, err)
	}
	if turn := w.Say(t, "a1", Peer("p"), "say: still here"); w.Reply(t, turn) != "still here" {
		t.Errorf("the next one: %v", turn)
	}
	if r, err := leases.FindRunner(ctx, &registryv1.FindRunnerRequest{AgentId: "a1", RunId: other}); err != nil || r.GetEnded() {
		t.Errorf("another conversation: %v, %v", r, err)
	}
	if err := abort(other); err != nil {
		t.Error(err)
	}
}

var errUnreachable = fault.New(codes.Unavailable, fault.ServiceUnavailable, "no way leads there", "ask from elsewhere")
