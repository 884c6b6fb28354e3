package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/theclaw/agents/bench/curve"
	"github.com/theclaw/agents/bench/load"
	"github.com/theclaw/agents/bench/server"
	"github.com/theclaw/agents/bench/table"
)

// ways measures the way of a reply to its peer, and conversations that do not wait for
// each other.
func (r *run) ways(ctx context.Context) (err error) {
	receiver, err := newReceiver()
	if err != nil {
		return err
	}
	defer receiver.Close()
	s, err := server.Start(ctx, r.agentd, filepath.Join(r.dir, "ways"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if err := r.delivery(ctx, s, receiver); err != nil {
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
