package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/theclaw/agents/bench/load"
	"github.com/theclaw/agents/bench/server"
)

// start measures how long the program takes to serve a home that has been used: some agents with
// messages, stopped in order.
func (r *run) start(ctx context.Context) error {
	model, err := provider{}.serve()
	if err != nil {
		return err
	}
	defer model.Close()
	home := filepath.Join(r.dir, "start")
	s, err := r.startWithProvider(ctx, home, model.URL)
	if err != nil {
		return err
	}
	const agents, conversations, messages = 8, 4, 20
	for a := range agents {
		id := fmt.Sprint("agent", a)
		err = s.AgentWith(ctx, id, providerName, [2]string{"outbound", "[]"})
		if err == nil {
			_, err = load.Run(ctx, s.Conn, load.Plan{Agent: id, Conversations: conversations, Messages: messages}, "start")
		}
		if err != nil {
			_ = s.Stop()
			return err
		}
	}
	if err := s.Stop(); err != nil {
		return err
	}
	var took []time.Duration
	for range r.size(15, 7) {
		s, err := server.Start(ctx, r.agentd, home)
		if err != nil {
			return err
		}
		took = append(took, s.Ready)
		if err := s.Stop(); err != nil {
			return err
		}
	}
	slices.Sort(took)
	r.AtMost(fmt.Sprintf("start to SERVING, %d agents with %d messages, p50 of %d", agents, agents*conversations*messages, len(took)), load.Percentile(took, .5), 40*time.Millisecond)
	return nil
}
