package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/bench/load"
	"github.com/theclaw/agents/bench/server"
	"github.com/theclaw/agents/bench/table"
	runnerv1 "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// A way to get an answer: it sends n messages of a new conversation one after the other and
// returns how long each took. What it opens once it opens before it calls begin.
type way struct {
	name string
	do   func(peer string, n int, begin func() error) ([]time.Duration, error)
	p50  []float64 // of each round, in ns
	cpu  []float64 // of a message, in each round
}

// runs compares the calls that a program may answer a person with: a push and a watch on the
// conversation, and a run that is streamed or waited for. The ways take turns, so that what
// happens to the machine meanwhile happens to all of them.
func (r *run) runs(ctx context.Context) error {
	return r.withProvider(ctx, "runs", provider{}, func(s *server.Server, _ *fakeServer) error { return r.runsOf(ctx, s) })
}

func (r *run) runsOf(ctx context.Context, s *server.Server) error {
	const agent = "runs"
	if err := s.AgentWith(ctx, agent, providerName, [2]string{"outbound", "[]"}); err != nil {
		return err
	}
	conn, err := server.Dial(s.Home, "runner")
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	runner := runnerv1.NewRunnerServiceClient(conn)
	started := func(wait func(id string) (string, error)) func(string, int, func() error) ([]time.Duration, error) {
		return func(peer string, n int, begin func() error) (took []time.Duration, err error) {
			if err := begin(); err != nil {
				return nil, err
			}
			for i := range n {
				began, want := time.Now(), fmt.Sprintf("%s-%d", peer, i)
				one, err := runner.StartRun(ctx, &runnerv1.StartRunRequest{AgentId: agent, Source: benchSource(peer), Text: "say: " + want, IdempotencyKey: want})
				if err != nil {
					return nil, fmt.Errorf("start run: %w", err)
				}
				got, err := wait(one.GetRunId())
				if err != nil {
					return nil, err
				}
				if got != want {
					return nil, fmt.Errorf("run %d of %s: the reply is %.40q", i, peer, got)
				}
				took = append(took, time.Since(began))
			}
			return took, nil
		}
	}
	ways := []*way{
		{name: "PushEvents, WatchEvents", do: func(peer string, n int, begin func() error) ([]time.Duration, error) {
			t, err := load.Open(ctx, s.Conn, load.Plan{Agent: agent, Conversations: 1}, peer)
			if err != nil {
				return nil, err
			}
			defer t.Close()
			if err := begin(); err != nil {
				return nil, err
			}
			out, err := t.Drive(ctx, n)
			return out.Whole, err
		}},
		{name: "StartRun, StreamRun", do: started(func(id string) (string, error) { return streamedText(ctx, runner, agent, id) })},
		{name: "StartRun, WaitRun", do: started(func(id string) (string, error) {
			end, err := runner.WaitRun(ctx, &runnerv1.WaitRunRequest{AgentId: agent, RunId: id, Timeout: durationpb.New(time.Minute)})
			if err == nil && end.GetStatus() != runnerv1.RunStatus_RUN_STATUS_OK {
				err = fmt.Errorf("run %s: %s %s", id, end.GetStatus(), end.GetError())
			}
			return end.GetText(), err
		})},
	}
	rounds, n := r.size(15, 5), r.size(150, 100)
	for round := range rounds + 1 {
		for i := range ways {
			w := ways[(i+round)%len(ways)] // none is always the first
			var cpu0 time.Duration
			took, err := w.do(fmt.Sprintf("w%dr%d", (i+round)%len(ways), round), n, func() (err error) { cpu0, err = s.CPU(); return err })
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			cpu1, err := s.CPU()
			if err != nil {
				return err
			}
			if round > 0 { // the first warms up
				slices.Sort(took)
				w.p50, w.cpu = append(w.p50, float64(load.Percentile(took, .5))), append(w.cpu, float64(cpu1-cpu0)/float64(n))
			}
		}
	}
	push := ways[0]
	for i, w := range ways {
		shown := table.Short(time.Duration(middle(slices.Clone(w.p50)))) + ", " + table.Short(time.Duration(middle(slices.Clone(w.cpu))))
		if i == 0 {
			r.Figure(w.name+": message -> reply, p50, CPU", shown)
			continue
		}
		r.Below(w.name+": p50 / of push and watch ("+shown+")", middle(ratios(w.p50, push.p50)), 1.05)
		r.Below(w.name+": CPU / of push and watch", middle(ratios(w.cpu, push.cpu)), 1.05)
	}
	return nil
}

// ratios of figures that were measured one right after the other.
func ratios(list, of []float64) (out []float64) {
	for i := range list {
		out = append(out, list[i]/of[i])
	}
	return out
}

// streamedText is what a run said, from its stream.
func streamedText(ctx context.Context, runner runnerv1.RunnerServiceClient, agent, id string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	stream, err := runner.StreamRun(ctx, &runnerv1.StreamRunRequest{AgentId: agent, RunId: id})
	if err != nil {
		return "", fmt.Errorf("stream run: %w", err)
	}
	text := ""
	for {
		i, err := stream.Recv()
		switch {
		case err != nil:
			return "", fmt.Errorf("stream run: %w", err)
		case i.GetStream() == runnerv1.RunStream_RUN_STREAM_ASSISTANT:
			text += i.GetText()
		case i.GetPhase() == "restart": // what came is void and comes again
			text = ""
		case i.GetPhase() == "error":
			return "", fmt.Errorf("the run failed: %s", i.GetText())
		case i.GetPhase() == "end" && i.GetStream() == runnerv1.RunStream_RUN_STREAM_LIFECYCLE:
			return text, nil
		}
	}
}
