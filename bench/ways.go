package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/theclaw/agents/bench/curve"
	"github.com/theclaw/agents/bench/load"
	"github.com/theclaw/agents/bench/server"
	"github.com/theclaw/agents/bench/table"
	runnerv1 "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// ways measures the way of a reply to its peer, of a model's first token to who
// watches, and conversations that do not wait for each other.
func (r *run) ways(ctx context.Context) (err error) {
	home := filepath.Join(r.dir, "ways")
	begin := make(chan struct{})
	provider, err := newProvider(begin)
	if err != nil {
		return err
	}
	defer provider.Close()
	receiver, err := newReceiver()
	if err != nil {
		return err
	}
	defer receiver.Close()
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	providers := "providers:\n  scripted: {api: openai, base_url: \"" + provider.URL + "/v1\", models: [m1]}\n"
	if err := os.WriteFile(filepath.Join(home, "providers.yaml"), []byte(providers), 0o600); err != nil {
		return err
	}
	s, err := server.Start(ctx, r.agentd, home)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if err := r.delivery(ctx, s, receiver); err != nil {
		return err
	}
	if err := r.stream(ctx, s, provider, begin); err != nil {
		return err
	}
	return r.lanes(ctx, s)
}

// delivery: push -> channel driver called, seen by a receiver.
func (r *run) delivery(ctx context.Context, s *server.Server, receiver *fakeServer) error {
	err := s.AgentWith(ctx, "sends", "offline",
		[2]string{"channels.sink", `{type: webhook, url: "` + receiver.URL + `", allow_private: true}`},
		[2]string{"outbound", `[{thread_pattern: "**", via: sink}]`})
	if err != nil {
		return err
	}
	took, err := load.Sent(ctx, s.Conn, "sends", r.size(600, 120), receiver.Seen)
	if err != nil {
		return err
	}
	slices.Sort(took)
	r.AtMost("push -> receiver of the reply called, p50", load.Percentile(took, .5), 5*time.Millisecond)
	return nil
}

// stream: how much later than the provider said it a watcher has the first token.
func (r *run) stream(ctx context.Context, s *server.Server, provider *fakeServer, begin chan<- struct{}) error {
	if err := s.AgentWith(ctx, "streams", "scripted", [2]string{"outbound", "[]"}); err != nil {
		return err
	}
	conn, err := server.Dial(s.Home, "runner")
	if err != nil {
		return err
	}
	defer conn.Close()
	runner := runnerv1.NewRunnerServiceClient(conn)
	var took []time.Duration
	for i := range r.size(200, 40) {
		one, err := firstToken(ctx, runner, fmt.Sprint("s", i), provider, begin)
		if err != nil {
			return err
		}
		took = append(took, one)
	}
	slices.Sort(took)
	r.AtMost("first token of a streamed reply behind the provider's, p50", load.Percentile(took, .5), 2*time.Millisecond)
	return nil
}

// firstToken watches one run in a conversation of its own, where nothing is digested
// meanwhile; the provider speaks once the watcher is there.
func firstToken(ctx context.Context, runner runnerv1.RunnerServiceClient, peer string, provider *fakeServer, begin chan<- struct{}) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	started, err := runner.StartRun(ctx, &runnerv1.StartRunRequest{AgentId: "streams", Text: "hello", Source: "external:bench:bench:dm:" + peer + ":" + peer})
	if err != nil {
		return 0, fmt.Errorf("start run: %w", err)
	}
	watch, err := runner.StreamRun(ctx, &runnerv1.StreamRunRequest{AgentId: "streams", RunId: started.GetRunId()})
	if err != nil {
		return 0, fmt.Errorf("stream run: %w", err)
	}
	said, heard := time.Time{}, time.Time{}
	for {
		i, err := watch.Recv()
		if err != nil {
			return 0, fmt.Errorf("stream run: %w", err)
		}
		switch {
		case said.IsZero():
			select {
			case begin <- struct{}{}:
			case <-ctx.Done():
				return 0, ctx.Err()
			}
			said = <-provider.Seen
		case i.GetStream() == runnerv1.RunStream_RUN_STREAM_ASSISTANT && heard.IsZero():
			heard = time.Now()
		case i.GetPhase() == "error":
			return 0, fmt.Errorf("the run failed: %s", i.GetText())
		case i.GetPhase() == "end" && i.GetStream() == runnerv1.RunStream_RUN_STREAM_LIFECYCLE:
			if heard.IsZero() {
				return 0, errors.New("a run ended without a token")
			}
			return heard.Sub(said), nil
		}
	}
}

// lanes: many conversations of one agent, each with a model that takes its time. If one
// waited for another's call, the last reply would take two of them.
func (r *run) lanes(ctx context.Context, s *server.Server) error {
	const model = 3 * time.Second
	const n = 200
	if err := s.AgentWith(ctx, "lanes", "offline", [2]string{"outbound", "[]"}, [2]string{"run.concurrency", fmt.Sprint(n)}); err != nil {
		return err
	}
	took, err := load.Lanes(ctx, s.Conn, "lanes", "slow: 3", n)
	if err != nil {
		return err
	}
	r.Below(fmt.Sprintf("%d conversations at once, all replied after %s / model call of %s", n, table.Short(took), model), took.Seconds()/model.Seconds(), 1.9)
	return nil
}

// lengths: a turn costs the same however long its thread is.
func (r *run) lengths(ctx context.Context) error {
	var first time.Duration
	most, text := 0.0, ""
	lengths := []int{10, 1000, r.size(100_000, 10_000)}
	for _, n := range lengths {
		cpu, _, err := curve.TurnAt(ctx, r.agentd, filepath.Join(r.dir, fmt.Sprint("length", n)), n, r.size(400, 150))
		if err != nil {
			return err
		}
		if first == 0 {
			first = cpu
		}
		most = max(most, float64(cpu)/float64(first))
		text += fmt.Sprintf(" %.1f", float64(cpu.Microseconds())/1000)
	}
	r.Below(fmt.Sprintf("CPU of a turn over %v events:%s ms", lengths, text), most, 1.5)
	return nil
}
