package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/theclaw/agents/bench/load"
	"github.com/theclaw/agents/bench/server"
	"github.com/theclaw/agents/bench/table"
	runnerv1 "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// measureStart times how long a caller waits for the durable id of a run whose model
// takes its time (S1-02), n times in conversations of their own.
func measureStart(ctx context.Context, home, agent string, n int, t *table.Table) error {
	conn, err := server.Dial(home, "runner")
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	runner := runnerv1.NewRunnerServiceClient(conn)
	took := make([]time.Duration, 0, n)
	for i := range n {
		began := time.Now()
		r, err := runner.StartRun(ctx, &runnerv1.StartRunRequest{
			AgentId: agent, Source: fmt.Sprintf("external:console:cli:dm:start%d:start%d", i, i), Text: "slow: 600",
		})
		if err != nil {
			return fmt.Errorf("start run: %w", err)
		}
		took = append(took, time.Since(began))
		if _, err := runner.AbortRun(ctx, &runnerv1.AbortRunRequest{AgentId: agent, RunId: r.GetRunId()}); err != nil {
			return fmt.Errorf("abort run: %w", err)
		}
	}
	slices.Sort(took)
	t.Figure("a run is accepted while its model sleeps, p50", table.Short(load.Percentile(took, .5)))
	t.AtMost("a run is accepted while its model sleeps, p99", load.Percentile(took, .99), 50*time.Millisecond)
	return nil
}
