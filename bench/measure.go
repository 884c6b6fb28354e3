package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/theclaw/agents/bench/limits"
	"github.com/theclaw/agents/bench/load"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// measure runs everything and answers the table.
func measure(agentd string, quick bool, progress io.Writer) (*table, error) {
	dir, err := os.MkdirTemp("", "theclaw-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	t := &table{}
	f, p0, err := measureLimits(dir, t)
	if err != nil {
		return nil, err
	}
	say := func(format string, a ...any) { fmt.Fprintf(progress, format+"\n", a...) }

	say("start with no agents")
	s, err := startServer(ctx, agentd, filepath.Join(dir, "home"))
	if err != nil {
		return nil, err
	}
	err = measureServer(ctx, s, t, dir, f, p0, quick, say)
	if err == nil {
		say("runs that take their time")
		err = measureStart(ctx, filepath.Join(dir, "home"), "bench", 200, t)
	}
	if err == nil {
		say("the dispatch shim")
		err = measureShim(ctx, filepath.Join(filepath.Dir(agentd), "agent"), filepath.Join(dir, "home"), "bench", 200, t)
	}
	if stop := s.stop(); err == nil {
		err = stop
	}
	if err != nil {
		return nil, err
	}
	n := 1000
	say("start with %d agents", n)
	return t, measureMany(ctx, agentd, filepath.Join(dir, "many"), n, t)
}

func measureServer(ctx context.Context, s *server, t *table, dir string, f, p0 time.Duration, quick bool, say func(string, ...any)) error {
	t.atMost("start to SERVING, no agents", s.ready, 200*time.Millisecond)
	if err := rest(ctx); err != nil {
		return err
	}
	rss, _ := s.rss()
	t.below("RSS idle, MB", rss, 40, "")
	if err := s.agent(ctx, "bench"); err != nil {
		return err
	}
	if _, err := load.Run(ctx, s.conn, load.Plan{Agent: "bench", Conversations: 4, Messages: 50}, "warm"); err != nil {
		return err
	}
	per := 2000
	if quick {
		per = 400
	}
	goals := []struct {
		conversations int
		rate          float64
	}{{1, 250}, {8, 600}, {32, 800}}
	for _, g := range goals {
		say("%d conversations", g.conversations)
		cpu0, err := s.cpu()
		if err != nil {
			return err
		}
		r, err := load.Run(ctx, s.conn, load.Plan{Agent: "bench", Conversations: g.conversations, Messages: max(per/g.conversations, 20)}, fmt.Sprintf("c%dx", g.conversations))
		if err != nil {
			return err
		}
		cpu1, err := s.cpu()
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%d conversations: ", g.conversations)
		if g.conversations == 1 {
			t.atMost(name+"push acknowledged, p50", load.Percentile(r.Push, .5), 2*f+6*p0)
			t.atMost(name+"acknowledged push -> reply seen, p50", load.Percentile(r.Reply, .5), 3*time.Millisecond)
			t.atMost(name+"acknowledged push -> reply seen, p99", load.Percentile(r.Reply, .99), 20*time.Millisecond)
		} else {
			t.figure(name+"acknowledged push -> reply seen, p50 / p99", short(load.Percentile(r.Reply, .5))+" / "+short(load.Percentile(r.Reply, .99)))
		}
		t.atLeast(name+"turns/s", r.Rate(), g.rate, "")
		bare, err := limits.Engine(ctx, dir, g.conversations, max(per/g.conversations, 20))
		if err != nil {
			return err
		}
		t.figure(name+"messages/s of the bare engine", fmt.Sprintf("%.0f", bare))
		t.ratio(name+"turns/s against it", r.Rate()/bare, .5)
		t.atMost(name+"CPU per message, all services", time.Duration(float64(cpu1-cpu0)/float64(r.Messages)), 2*time.Millisecond)
	}
	rss, _ = s.rss()
	t.figure("RSS after the load, MB", fmt.Sprintf("%.0f", rss))
	return nil
}

// measureLimits measures the machine, in the directory where the rest is measured.
func measureLimits(dir string, t *table) (f, p0 time.Duration, err error) {
	if f, err = limits.Sync(dir, 500); err != nil {
		return f, p0, err
	}
	t.figure("F: overwrite 4 KiB and fdatasync, p50", short(f))
	if p0, err = limits.PingPong(dir, 2000); err != nil {
		return f, p0, err
	}
	t.figure("P0: a byte there and back over a Unix socket, p50", short(p0))
	for _, w := range []int{1, 8, 64} {
		a, err := limits.Commits(dir, w, 1000/w, 1)
		if err != nil {
			return f, p0, err
		}
		u, err := limits.Commits(dir, w, 1000/w, 2)
		if err != nil {
			return f, p0, err
		}
		t.figure(fmt.Sprintf("A(%d), U(%d): raw group commits, units/s", w, w), fmt.Sprintf("%.0f, %.0f", a, u))
	}
	return f, p0, nil
}

// measureMany starts a home that has many agents.
func measureMany(ctx context.Context, agentd, home string, n int, t *table) error {
	s, err := startServer(ctx, agentd, home)
	if err != nil {
		return err
	}
	agents := registryv1.NewAgentServiceClient(s.conn)
	began := time.Now()
	for i := range n {
		id := fmt.Sprintf("agent-%05d", i)
		if _, err := agents.CreateAgent(ctx, &registryv1.CreateAgentRequest{AgentId: id}); err != nil {
			return err
		}
		if _, err := agents.StartAgent(ctx, &registryv1.StartAgentRequest{AgentId: id}); err != nil {
			return err
		}
	}
	t.figure(fmt.Sprintf("init and start of %d agents", n), short(time.Since(began)))
	if err := s.stop(); err != nil {
		return err
	}
	if s, err = startServer(ctx, agentd, home); err != nil {
		return err
	}
	t.atMost(fmt.Sprintf("start to SERVING, %d agents", n), s.ready, 200*time.Millisecond)
	if err := s.settle(ctx); err != nil {
		return err
	}
	cpu0, err := s.cpu()
	if err != nil {
		return err
	}
	const watch = 5 * time.Second
	select {
	case <-time.After(watch):
	case <-ctx.Done():
	}
	cpu1, err := s.cpu()
	if err != nil {
		return err
	}
	rss, err := s.rss()
	if err != nil {
		return err
	}
	t.below(fmt.Sprintf("RSS idle, %d agents, MB", n), rss, 45, "")
	t.figure(fmt.Sprintf("CPU idle over %s, %d agents", watch, n), short(cpu1-cpu0))
	t.note = "Latency is from the acknowledged push to a watching client; the model is the built-in offline one."
	return s.stop()
}
