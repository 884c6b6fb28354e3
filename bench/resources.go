package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/theclaw/agents/bench/load"
	"github.com/theclaw/agents/bench/server"
	"github.com/theclaw/agents/bench/table"
	"github.com/theclaw/agents/internal/pause"
)

// idleFor is how long nothing is done before the memory at rest is measured: databases
// close after a minute, and the process gives memory back once nothing has used the
// processor for a quarter of a minute.
const idleFor = 100 * time.Second

// memory measures what messages leave in memory, and what each writes.
func (r *run) memory(ctx context.Context) (err error) {
	s, err := server.Start(ctx, r.agentd, filepath.Join(r.dir, "memory"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if err := s.Agent(ctx, "bench"); err != nil {
		return err
	}
	if err := server.WaitIdle(ctx); err != nil {
		return err
	}
	for _, g := range []struct {
		conversations, messages int
		goal                    float64
	}{{8, 1000, 45}, {185, r.size(15000, 1850), 70}} {
		before, err := s.Written()
		if err != nil {
			return err
		}
		if _, err := load.Run(ctx, s.Conn, load.Plan{Agent: "bench", Conversations: g.conversations, Messages: g.messages / g.conversations}, fmt.Sprintf("m%dx", g.conversations)); err != nil {
			return err
		}
		rss, err := s.RSS()
		if err != nil {
			return err
		}
		r.Below(fmt.Sprintf("RSS after %d messages in %d conversations, MB", g.messages, g.conversations), rss, g.goal)
		after, err := s.Written()
		if err != nil {
			return err
		}
		r.Below(fmt.Sprintf("KB written per message, %d conversations", g.conversations), float64(after-before)/float64(g.messages)/1000, 60)
	}
	if r.quick {
		return nil
	}
	if err := pause.For(ctx, idleFor); err != nil {
		return err
	}
	rss, err := s.RSS()
	if err != nil {
		return err
	}
	r.Below(fmt.Sprintf("RSS %s later, MB", idleFor), rss, 30)
	return nil
}

// tools measures a turn with one `echo`, with the sandbox and without.
func (r *run) tools(ctx context.Context) (err error) {
	s, err := server.Start(ctx, r.agentd, filepath.Join(r.dir, "tools"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	n := r.size(200, 40)
	var bare []time.Duration
	for range n {
		began := time.Now()
		if err := exec.CommandContext(ctx, "bash", "-c", "echo hi").Run(); err != nil {
			return err
		}
		bare = append(bare, time.Since(began))
	}
	slices.Sort(bare)
	r.Figure("bash -c 'echo hi' alone, p50", table.Short(load.Percentile(bare, .5)))
	for _, g := range []struct {
		mode string
		goal time.Duration
	}{{"required", 10 * time.Millisecond}, {"off", 6 * time.Millisecond}} {
		agent := "tools-" + g.mode
		if err := s.AgentWith(ctx, agent, "offline", [2]string{"outbound", "[]"}, [2]string{"sandbox.mode", g.mode}); err != nil {
			return err
		}
		if _, err := load.Ask(ctx, s.Conn, agent, "tools: 1", "warm", 5); err != nil {
			return err
		}
		cpu0, err := s.CPUOfTree()
		if err != nil {
			return err
		}
		took, err := load.Ask(ctx, s.Conn, agent, "tools: 1", "measured", n)
		if err != nil {
			return err
		}
		cpu1, err := s.CPUOfTree()
		if err != nil {
			return err
		}
		slices.Sort(took)
		name := fmt.Sprintf("a turn with one `echo`, sandbox %s: ", g.mode)
		r.AtMost(name+"push -> reply, p50", load.Percentile(took, .5), g.goal)
		if g.mode == "required" {
			r.AtMost(name+"CPU", (cpu1-cpu0)/time.Duration(n), 8*time.Millisecond)
		}
	}
	return nil
}
