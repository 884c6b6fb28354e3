package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/theclaw/agents/bench/limits"
	"github.com/theclaw/agents/bench/load"
	"github.com/theclaw/agents/bench/table"
)

// measureShim starts the dispatch shim of a home whose inbox is empty, and an empty
// program beside it, in turns: what a dispatcher waits for against the least there is.
func measureShim(ctx context.Context, shim, home, agent string, runs int, t *table.Table) error {
	if _, err := os.Stat(shim); errors.Is(err, os.ErrNotExist) {
		t.Figure("shim: there is no "+shim, "not measured")
		return nil
	}
	empty, err := limits.Empty(ctx, filepath.Join(home, "..", "empty"))
	if err != nil {
		return err
	}
	var least, whole []time.Duration
	for range runs {
		d, err := timed(ctx, home, empty)
		if err != nil {
			return err
		}
		least = append(least, d)
		if d, err = timed(ctx, home, shim, "run", agent); err != nil {
			return err
		}
		whole = append(whole, d)
	}
	slices.Sort(least)
	slices.Sort(whole)
	x0, p50 := load.Percentile(least, .5), load.Percentile(whole, .5)
	t.Figure("X0: an empty Go program, whole process, p50", table.Short(x0))
	t.Figure("shim: agent run on an empty inbox, whole process, p50", table.Short(p50))
	t.Below("shim / X0", float64(p50)/float64(x0), 6)
	return nil
}

// timed runs a program to its end, in a daemon's environment.
func timed(ctx context.Context, home, program string, args ...string) (time.Duration, error) {
	c := exec.CommandContext(ctx, program, args...)
	c.Env = []string{"PATH=/usr/bin:/bin", "THECLAW_HOME=" + home}
	began := time.Now()
	err := c.Run()
	took := time.Since(began)
	if err != nil {
		return took, fmt.Errorf("run %s: %w", program, err)
	}
	return took, nil
}
