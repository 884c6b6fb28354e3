package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/theclaw/agents/bench/load"
	"github.com/theclaw/agents/bench/server"
	"github.com/theclaw/agents/bench/table"
)

// providerName is the name of the loopback provider in the settings.
const providerName = "loopback"

// startWithProvider starts agentd on a new home whose providers file names a provider on
// loopback.
func (r *run) startWithProvider(ctx context.Context, home, url string) (*server.Server, error) {
	if err := os.MkdirAll(home, 0o700); err != nil {
		return nil, err
	}
	providers := "providers:\n  " + providerName + ": {api: openai, base_url: \"" + url + "/v1\", models: [m1]}\n"
	if err := os.WriteFile(filepath.Join(home, "providers.yaml"), []byte(providers), 0o600); err != nil {
		return nil, err
	}
	return server.Start(ctx, r.agentd, home)
}

// provider measures turns whose model is asked over HTTP and answers at once, with the settings
// that an agent has by default.
func (r *run) providers(ctx context.Context) (err error) {
	model, err := provider{}.serve()
	if err != nil {
		return err
	}
	defer model.Close()
	s, err := r.startWithProvider(ctx, filepath.Join(r.dir, "provider"), model.URL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if err := s.AgentWith(ctx, "asks", providerName, [2]string{"outbound", "[]"}); err != nil {
		return err
	}
	if _, err := load.Run(ctx, s.Conn, load.Plan{Agent: "asks", Conversations: 4, Messages: 50}, "warm"); err != nil {
		return err
	}
	for _, conversations := range []int{1, 8, 32} {
		m, cpu, err := r.asked(ctx, s, conversations)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("provider, %d conversations: ", conversations)
		switch conversations {
		case 1:
			r.Within(name+"push -> reply seen, p50", load.Percentile(m.Whole, .5), 25, "F", r.f)
			r.Figure(name+"turns/s", fmt.Sprintf("%.0f", m.Rate()))
			r.AtMost(name+"CPU per message", cpu, 2500*time.Microsecond)
		case 32:
			r.AtLeast(name+"turns/s", m.Rate(), 800)
			r.Figure(name+"push -> reply seen, p50", table.Short(load.Percentile(m.Whole, .5)))
			r.AtMost(name+"push -> reply seen, p99", load.Percentile(m.Whole, .99), 100*time.Millisecond)
			r.AtMost(name+"CPU per message", cpu, 1800*time.Microsecond)
		default:
			r.Figure(name+"turns/s", fmt.Sprintf("%.0f", m.Rate()))
			r.Figure(name+"CPU per message", table.Short(cpu))
		}
	}
	return nil
}

// asked is the middle of three rounds by rate, and the CPU of a message in it.
func (r *run) asked(ctx context.Context, s *server.Server, conversations int) (load.Result, time.Duration, error) {
	type round struct {
		load.Result
		cpu time.Duration
	}
	var rounds []round
	for i := range 3 {
		cpu0, err := s.CPU()
		if err != nil {
			return load.Result{}, 0, err
		}
		n := max(r.size(2000, 300)/conversations, 10)
		m, err := load.Run(ctx, s.Conn, load.Plan{Agent: "asks", Conversations: conversations, Messages: n}, fmt.Sprintf("p%dr%dx", conversations, i))
		if err != nil {
			return load.Result{}, 0, err
		}
		cpu1, err := s.CPU()
		if err != nil {
			return load.Result{}, 0, err
		}
		rounds = append(rounds, round{m, (cpu1 - cpu0) / time.Duration(m.Messages)})
	}
	slices.SortFunc(rounds, func(a, b round) int { return int(a.Rate()*1000 - b.Rate()*1000) })
	return rounds[1].Result, rounds[1].cpu, nil
}
