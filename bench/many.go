package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/theclaw/agents/bench/server"
	"github.com/theclaw/agents/bench/table"
	"github.com/theclaw/agents/internal/pause"
)

// agents measures homes of many agents: what a person waits for, and what they cost
// at rest.
func (r *run) agents(ctx context.Context) error {
	sizes := []many{{1000, 45, 12 * time.Second}, {10_000, 60, time.Minute}}
	if r.quick {
		sizes = []many{{300, 45, 4 * time.Second}}
	}
	for _, m := range sizes {
		r.say("%d agents", m.n)
		if err := r.many(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// many is a number of agents, and its goals.
type many struct {
	n    int
	rss  float64
	made time.Duration
}

func (r *run) many(ctx context.Context, m many) (err error) {
	home := filepath.Join(r.dir, fmt.Sprint("many", m.n))
	s, err := server.Start(ctx, r.agentd, home)
	if err != nil {
		return err
	}
	defer func() {
		if stop := s.Stop(); err == nil {
			err = stop
		}
	}()
	name := fmt.Sprintf("%d agents: ", m.n)
	ids := []string{"init"}
	for i := range m.n {
		ids = append(ids, fmt.Sprintf("agent-%05d", i))
	}
	made, err := r.agentctl(ctx, home, ids...)
	if err != nil {
		return err
	}
	started, err := r.agentctl(ctx, home, "start", "--all")
	if err != nil {
		return err
	}
	r.AtMost(name+"init of all, start --all ("+table.Short(started)+")", made+started, m.made)
	for _, verb := range []string{"list", "status"} {
		took, err := r.agentctl(ctx, home, verb)
		if err != nil {
			return err
		}
		r.AtMost(name+verb, took, 10*time.Second)
	}
	if err := s.Stop(); err != nil {
		return err
	}
	if s, err = server.Start(ctx, r.agentd, home); err != nil {
		return err
	}
	r.AtMost(name+"start to SERVING", s.Ready, 200*time.Millisecond)
	for _, verb := range []string{"list", "status"} {
		took, err := r.agentctl(ctx, home, verb)
		if err != nil {
			return err
		}
		r.AtMost(name+verb+", right after the start", took, 10*time.Second)
	}
	if err := s.Stop(); err != nil {
		return err
	}
	return r.idle(ctx, home, m, &s)
}

// idle measures a process that nobody asked anything.
func (r *run) idle(ctx context.Context, home string, m many, s **server.Server) (err error) {
	if *s, err = server.Start(ctx, r.agentd, home); err != nil {
		return err
	}
	if err := (*s).Settle(ctx); err != nil {
		return err
	}
	if err := server.WaitIdle(ctx); err != nil {
		return err
	}
	rss, err := (*s).RSS()
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%d agents: ", m.n)
	r.Below(name+"RSS idle, MB", rss, m.rss)
	before, err := (*s).CPU()
	if err != nil {
		return err
	}
	const watch = 5 * time.Second
	if err := pause.For(ctx, watch); err != nil {
		return err
	}
	after, err := (*s).CPU()
	r.Figure(fmt.Sprintf("%sCPU idle over %s", name, watch), table.Short(after-before))
	return err
}

// agentctl runs the client as a person does, and answers how long that took.
func (r *run) agentctl(ctx context.Context, home string, args ...string) (time.Duration, error) {
	c := exec.CommandContext(ctx, filepath.Join(filepath.Dir(r.agentd), "agentctl"), args...)
	c.Env = []string{"PATH=/usr/bin:/bin", "THECLAW_HOME=" + home}
	var said bytes.Buffer
	c.Stderr = &said
	began := time.Now()
	if err := c.Run(); err != nil {
		return 0, fmt.Errorf("agentctl %s: %w\n%.2000s", args[0], err, said.String())
	}
	return time.Since(began), nil
}
