//go:build proof

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/world"
	runnerv1 "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// A run of the drill, and how its caller saw it end.
type told struct {
	message
	run  string // its id
	end  *runnerv1.WaitRunResponse
	ends int // ends in its stream
}

// runs are the runs of one home through all kills.
type runs struct {
	*testing.T
	site  *world.Site
	kills int
	all   []*told
}

// TestRunIDs kills agentd at the labelled instants while runs are started,
// waited for and streamed (RELIABILITY 5). An id that was answered once can be
// waited for, is the same for the same key, and ends once; one that nobody was
// given is not found. KILLS and SEED in the environment size and replay it.
func TestRunIDs(t *testing.T) {
	seed, chance := seed(t)
	want := int(setting(t, "KILLS", 28))
	next, stop := iter.Pull(blows(chance, fault.StepLabels()))
	defer stop()
	site, sink := world.NewSite(t, program(t)), world.NewSink(t)
	p := start(t, site, blow{}, false)
	site.Create(t, "a1", sink.Config())
	p.kill()
	r := &runs{T: t, site: site}
	labels := map[string]bool{}
	for blows := 0; r.kills < want && !t.Failed() && blows < 2*want; blows++ {
		b, _ := next()
		before := r.kills
		r.strike(b)
		labels[b.label] = labels[b.label] || r.kills > before
	}
	hit := 0
	for _, ok := range labels {
		if ok {
			hit++
		}
	}
	p = start(t, site, blow{}, false)
	defer p.kill()
	lost, unknown := r.audit()
	fmt.Fprintf(os.Stdout, "run-ids kills=%d labels=%d/%d runs=%d ended_once=%d unknown=%d lost=%d seed=%d\n",
		r.kills, hit, len(fault.StepLabels()), len(r.all), len(r.all)-lost, unknown, lost, seed)
	if r.kills < min(want, 1) {
		t.Error("nothing was ever killed")
	}
}

// strike starts runs of all kinds while a blow is dealt, and waits for them.
func (r *runs) strike(b blow) {
	ctx, cancel := context.WithTimeout(r.Context(), 90*time.Second)
	defer cancel()
	p := start(r.T, r.site, b, true)
	defer func() { p.kill() }()
	var g sync.WaitGroup
	for i, kind := range []string{"run", "fail", "refuse", "run"} {
		m := &told{message: message{agent: "a1", peer: fmt.Sprint("p", i%3), n: len(r.all), kind: kind}}
		r.all = append(r.all, m)
		g.Go(func() { r.follow(ctx, m) })
	}
	done := make(chan struct{})
	go func() { g.Wait(); close(done) }()
	kills := 0
	for {
		select {
		case <-p.doomed.Done():
			if !p.doomed.Killed() {
				r.Errorf("%+v: agentd ended by itself; its log:\n%s", b, p.doomed.Log())
				cancel()
				<-done
				return
			}
			kills++
			r.kills++
			p.revive(r.T, r.site, b, 1, kills < b.row)
		case <-done:
			if ctx.Err() != nil {
				r.Errorf("%+v: stuck; the log:\n%s", b, p.doomed.Log())
			}
			return
		}
	}
}

// begin starts a run under its key.
func (r *runs) begin(ctx context.Context, m *told) (*runnerv1.StartRunResponse, error) {
	return world.Again(ctx, func(ctx context.Context) (*runnerv1.StartRunResponse, error) {
		return r.site.Runner.StartRun(ctx, &runnerv1.StartRunRequest{AgentId: m.agent, Source: world.Peer(m.peer), Text: m.text(), IdempotencyKey: m.key()})
	})
}

// wait waits for the end of a run through all kills.
func (r *runs) wait(ctx context.Context, agent, run string) (*runnerv1.WaitRunResponse, error) {
	for {
		end, err := world.Again(ctx, func(ctx context.Context) (*runnerv1.WaitRunResponse, error) {
			return r.site.Runner.WaitRun(ctx, &runnerv1.WaitRunRequest{AgentId: agent, RunId: run, Timeout: durationpb.New(10 * time.Second)})
		})
		if err != nil || end.GetStatus() != runnerv1.RunStatus_RUN_STATUS_TIMEOUT {
			return end, err
		}
	}
}

// follow starts a run, and waits for it and streams it at the same time.
func (r *runs) follow(ctx context.Context, m *told) {
	s, err := r.begin(ctx, m)
	if err != nil {
		r.Errorf("start %s: %v", m.key(), err)
		return
	}
	m.run, m.id = s.GetRunId(), s.GetInboxId()
	var g sync.WaitGroup
	g.Go(func() {
		ends, err := r.stream(ctx, m.agent, m.run)
		if m.ends = ends; err != nil {
			r.Errorf("stream %s: %v", m.key(), err)
		}
	})
	if m.end, err = r.wait(ctx, m.agent, m.run); err != nil {
		r.Errorf("wait for %s: %v", m.key(), err)
	}
	g.Wait()
}

// stream reads a run to its end, goes on where a kill has cut it off, and counts
// its ends.
func (r *runs) stream(ctx context.Context, agent, run string) (int, error) {
	ends, after := 0, uint64(0)
	for {
		in, err := r.site.Runner.StreamRun(ctx, &runnerv1.StreamRunRequest{AgentId: agent, RunId: run, AfterSeq: after})
		for err == nil {
			var i *runnerv1.StreamRunResponse
			if i, err = in.Recv(); err != nil {
				break
			}
			if i.GetSeq() <= after {
				return ends, fmt.Errorf("item %d came after item %d", i.GetSeq(), after)
			}
			after = i.GetSeq()
			if i.GetStream() == runnerv1.RunStream_RUN_STREAM_LIFECYCLE && (i.GetPhase() == "end" || i.GetPhase() == "error") {
				ends++
			}
		}
		switch code := status.Code(err); {
		case errors.Is(err, io.EOF), ends > 0:
			return ends, nil
		case ctx.Err() != nil, code != codes.Unavailable && code != codes.Unauthenticated && code != codes.Canceled:
			return ends, err
		}
	}
}

// audit asks again about everything when all is over, and about runs that never
// were; it answers how many did not end once as they should, and how many of the others
// were rightly not found.
func (r *runs) audit() (lost, unknown int) {
	ctx := r.Context()
	seen := map[string]bool{}
	for _, m := range r.all {
		want := runnerv1.RunStatus_RUN_STATUS_OK
		if m.kind == "fail" {
			want = runnerv1.RunStatus_RUN_STATUS_ERROR
		}
		if m.end.GetStatus() != want || m.ends != 1 || m.end.GetEndedAt() == nil || seen[m.run] {
			lost++
			r.Errorf("%s (run %s): %v with %d ends", m.key(), m.run, m.end, m.ends)
		}
		seen[m.run] = true
		if again, err := r.begin(ctx, m); err != nil || again.GetRunId() != m.run {
			r.Errorf("%s under its key again: %v, %v", m.key(), again, err)
		}
		if end, err := r.wait(ctx, m.agent, m.run); err != nil || end.GetStatus() != want || !end.GetEndedAt().AsTime().Equal(m.end.GetEndedAt().AsTime()) {
			r.Errorf("%s waited for again: %v, %v", m.key(), end, err)
		}
		if ends, err := r.stream(ctx, m.agent, m.run); err != nil || ends != 1 {
			r.Errorf("%s streamed again: %d ends, %v", m.key(), ends, err)
		}
		other := []byte(m.run)
		other[len(other)-1] ^= 1 // the hash of another event under this id
		if _, err := r.wait(ctx, m.agent, string(other)); !fault.Is(err, fault.RunNotFound) || status.Code(err) != codes.NotFound {
			r.Errorf("run %s: %v", other, err)
		} else {
			unknown++
		}
	}
	if n := len(r.site.Events(r.T, "a1", "inbox", "")); n != len(r.all) {
		r.Errorf("the inbox holds %d events of %d runs", n, len(r.all))
	}
	return lost, unknown
}
