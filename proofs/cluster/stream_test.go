//go:build proof

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/runs"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/drill"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerv1 "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// finder is a client of runs that knows registries and no runner.
func (s *site) finder(t *testing.T, reach bool) *runs.Client {
	t.Helper()
	o := runs.Options{Registry: s.dial(t, s.registries(), "registry"), Near: s.dial(t, "dns:///127.0.0.1:1", "runner"), Stranger: true}
	if how := s.options(t, "runner"); reach {
		o.Dial = func(address string) (*grpc.ClientConn, error) { return rpc.Dial(address, how) }
	}
	c := runs.New(o)
	t.Cleanup(c.Close)
	return c
}

// watched is what a reader of a run was told.
type watched struct {
	text           string // as a person sees it: what is said anew takes back what was said before
	items, ends    int
	repeats, moved int
	after          uint64
}

func (w *watched) take(i *runnerv1.StreamRunResponse) {
	if w.items++; i.GetSeq() <= w.after {
		w.repeats++
	}
	w.after = i.GetSeq()
	switch {
	case i.GetStream() == runnerv1.RunStream_RUN_STREAM_ASSISTANT:
		w.text += i.GetText()
	case i.GetStream() != runnerv1.RunStream_RUN_STREAM_LIFECYCLE: // a compaction has an end too
	case i.GetPhase() == "restart":
		w.text = ""
		w.moved++
	case i.GetPhase() == "end" || i.GetPhase() == "error":
		w.ends++
	}
}

// read reads a run to its end through one stream; when the registries cannot be asked it
// goes on after the last item.
func (w *watched) read(ctx context.Context, c runnerv1.RunnerServiceClient, agent, run string) (errs int, err error) {
	for {
		in, err := c.StreamRun(ctx, &runnerv1.StreamRunRequest{AgentId: agent, RunId: run, AfterSeq: w.after})
		for err == nil {
			var i *runnerv1.StreamRunResponse
			if i, err = in.Recv(); err == nil {
				w.take(i)
			}
		}
		if errors.Is(err, io.EOF) || ctx.Err() != nil {
			return errs, ctx.Err()
		}
		if errs++; errs > 100 {
			return errs, err
		}
		rest(ctx)
	}
}

// A stream finds its runner: people who know two registries and no runner start runs,
// watch them and wait for them, while runners are killed. Each word is seen once, in its
// order, and what a killed runner had said is taken back where it is sent again (S1-15).
func TestStreamsFollow(t *testing.T) {
	lasts, every := drill.Span(t, "DURATION", 6*time.Second), drill.Span(t, "KILL_EVERY", 2*time.Second)
	seed, r := drill.Seed(t)
	m := newTeller(t, 60, 25*time.Millisecond)
	s := build(t, plan{dsn: pgtest.Start(t).Database(t), registries: 2, runners: 4, providers: m.providers()})
	c := s.client(t)
	for a := range agents {
		c.Create(t, agentID(a), "")
	}
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var told, moved, repeats, wrong, failed atomic.Int64
	var g sync.WaitGroup
	for a := range agents {
		f := s.finder(t, a > 0) // the first cannot reach any runner: it gets the end alone
		g.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				key := fmt.Sprintf("tell-%d-%d-end", a, n)
				w, end, err := follow(t.Context(), f, agentID(a), key)
				told.Add(1)
				moved.Add(int64(max(w.moved, 0)))
				repeats.Add(int64(w.repeats))
				want := strings.TrimSpace(m.tale(key))
				if err != nil {
					failed.Add(1)
					t.Errorf("%s: %v", key, err)
				} else if strings.TrimSpace(w.text) != want || w.ends != 1 || strings.TrimSpace(end.GetText()) != want || end.GetStatus() != runnerv1.RunStatus_RUN_STATUS_OK {
					wrong.Add(1)
					t.Errorf("%s: %d ends, waited for %v, watched\n%s", key, w.ends, end, w.text)
				}
			}
		})
	}
	kills := 0
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(every):
			p := s.holder(t, agentID(1+r.IntN(agents-1)), s.of("runner")[r.IntN(4)])
			p.Kill()
			kills++
			s.start(t, p)
		}
	}
	g.Wait()
	drill.Line("streams runs=%d kills=%d moved=%d repeats=%d gaps=%d errors=%d seed=%d", told.Load(), kills, moved.Load(), repeats.Load(), wrong.Load(), failed.Load(), seed)
	if kills == 0 || moved.Load() == 0 || repeats.Load() > 0 {
		t.Error("no stream was moved, or one repeated itself")
	}
	s.byHand(t, m)
	m.pause.Store(int64(time.Second)) // none of these shall end before it is aborted
	s.aborts(t)
}

// follow starts a run, watches it and waits for it.
func follow(ctx context.Context, c *runs.Client, agent, key string) (w watched, end *runnerv1.WaitRunResponse, err error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	started, err := world.Again(ctx, func(ctx context.Context) (*runnerv1.StartRunResponse, error) {
		return c.StartRun(ctx, &runnerv1.StartRunRequest{AgentId: agent, Text: key, IdempotencyKey: key})
	})
	if err != nil {
		return w, nil, err
	}
	if _, err = w.read(ctx, c, agent, started.GetRunId()); err != nil {
		return w, nil, err
	}
	end, err = c.WaitRun(ctx, &runnerv1.WaitRunRequest{AgentId: agent, RunId: started.GetRunId(), Timeout: durationpb.New(time.Minute)})
	return w, end, err
}

// byHand does the same with agentctl, that is told of registries alone.
func (s *site) byHand(t *testing.T, m *teller) {
	t.Helper()
	ctl := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(filepath.Dir(s.program.Path), "agentctl"), append(args, "--registry", s.registries(), "--tls", filepath.Join(s.root, "tls"))...)
		cmd.Env = append(os.Environ(), "THECLAW_HOME="+t.TempDir())
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("agentctl %v: %v\n%s%s", args, err, out, errs.String())
		}
		return strings.TrimSpace(string(out))
	}
	want := strings.TrimSpace(m.tale("tell-hand-end"))
	run := ctl("agent", agentID(1), "--message", "tell-hand-end")
	// What a runner said that lost the run to a stall stands in a line before.
	told := strings.Split(ctl("run", "stream", agentID(1), run), "\n")
	for i, said := range told {
		if last := i == len(told)-1; last && said != want || !strings.HasPrefix(want, strings.TrimSpace(said)) {
			t.Errorf("agentctl run stream: line %d of %d: %s", i+1, len(told), said)
		}
	}
	if got := ctl("run", "wait", agentID(1), run); got != want {
		t.Errorf("agentctl run wait: %s", got)
	}
	run = ctl("agent", agentID(1), "--message", "tell-abort-end")
	if got := ctl("run", "abort", agentID(1), run); !strings.Contains(got, "aborted") {
		t.Errorf("agentctl run abort: %s", got)
	}
}

// aborts ends runs whose runner is gone: one that another runner has taken up, and one
// that nobody can.
func (s *site) aborts(t *testing.T) {
	t.Helper()
	f := s.finder(t, true)
	for name, left := range map[string]bool{"another": true, "nobody": false} {
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		key := "tell-" + name + "-end"
		started, err := f.StartRun(ctx, &runnerv1.StartRunRequest{AgentId: agentID(2), Text: key})
		if err != nil {
			t.Fatal(err)
		}
		in, err := f.StreamRun(ctx, &runnerv1.StreamRunRequest{AgentId: agentID(2), RunId: started.GetRunId()})
		if err == nil {
			_, err = in.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		doomed := s.of("runner")
		if left {
			doomed = []*part{s.holder(t, agentID(2), nil)}
		}
		for _, p := range doomed {
			p.Kill()
		}
		if _, err := f.AbortRun(ctx, &runnerv1.AbortRunRequest{AgentId: agentID(2), RunId: started.GetRunId()}); err != nil {
			t.Errorf("abort with %s: %v", name, err)
		}
		end, err := f.WaitRun(ctx, &runnerv1.WaitRunRequest{AgentId: agentID(2), RunId: started.GetRunId()})
		if err != nil || end.GetErrorCode() != runnerv1.RunError_RUN_ERROR_ABORTED {
			t.Errorf("aborted with %s: %v %v", name, end, err)
		}
		drill.Line("streams abort=%s error=%q", name, end.GetError())
		for _, p := range s.of("runner") {
			p.Kill()
			s.start(t, p)
		}
	}
}

// holder is the runner that works on an agent, or another when none does.
func (s *site) holder(t *testing.T, agent string, or *part) *part {
	t.Helper()
	r, err := s.client(t).Leases.FindRunner(t.Context(), &registryv1.FindRunnerRequest{AgentId: agent})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range s.of("runner") {
		if r.GetLease().GetAddress() == "dns:///"+p.address {
			return p
		}
	}
	return or
}
