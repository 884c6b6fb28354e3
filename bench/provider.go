package main

import (
	"cmp"
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

// withProvider has do measure agentd on a new home with a provider on loopback. Both end with
// it.
func (r *run) withProvider(ctx context.Context, home string, p provider, do func(s *server.Server, model *fakeServer) error) (err error) {
	model, err := p.serve()
	if err != nil {
		return err
	}
	defer model.Close()
	s, err := r.startWithProvider(ctx, filepath.Join(r.dir, home), model.URL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	return do(s, model)
}

// provider measures turns whose model is asked over HTTP and answers at once, with the settings
// that an agent has by default.
func (r *run) providers(ctx context.Context) error {
	return r.withProvider(ctx, "provider", provider{}, func(s *server.Server, _ *fakeServer) error { return r.providersOf(ctx, s) })
}

func (r *run) providersOf(ctx context.Context, s *server.Server) error {
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

// loadRound is what one round of messages took.
type loadRound struct {
	load.Result
	cpu time.Duration // of a message
}

// asked is the middle of three rounds by rate, and the CPU of a message in it.
func (r *run) asked(ctx context.Context, s *server.Server, conversations int) (load.Result, time.Duration, error) {
	var rounds []loadRound
	for i := range 3 {
		one, err := r.once(ctx, s, conversations, fmt.Sprintf("p%dr%dx", conversations, i))
		if err != nil {
			return load.Result{}, 0, err
		}
		rounds = append(rounds, one)
	}
	slices.SortFunc(rounds, func(a, b loadRound) int { return cmp.Compare(a.Rate(), b.Rate()) })
	return rounds[1].Result, rounds[1].cpu, nil
}

// once is one round, with peers named by tag.
func (r *run) once(ctx context.Context, s *server.Server, conversations int, tag string) (loadRound, error) {
	cpu0, err := s.CPU()
	if err != nil {
		return loadRound{}, err
	}
	n := max(r.size(2000, 300)/conversations, 10)
	m, err := load.Run(ctx, s.Conn, load.Plan{Agent: "asks", Conversations: conversations, Messages: n}, tag)
	if err != nil {
		return loadRound{}, err
	}
	cpu1, err := s.CPU()
	return loadRound{m, (cpu1 - cpu0) / time.Duration(m.Messages)}, err
}

// bothBuilds calls fn with the build before and this one, each with an agent "asks" of one provider;
// it does nothing when there is none before.
func (r *run) bothBuilds(ctx context.Context, name string, fn func(builds [2]*server.Server) error) (err error) {
	if r.before == "" {
		return nil
	}
	model, err := provider{}.serve()
	if err != nil {
		return err
	}
	defer model.Close()
	var builds [2]*server.Server
	for i, agentd := range []string{r.before, r.agentd} {
		old := *r
		old.agentd = agentd
		s, err := old.startWithProvider(ctx, filepath.Join(r.dir, fmt.Sprint(name, i)), model.URL)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Stop()) }()
		if err := s.AgentWith(ctx, "asks", providerName, [2]string{"outbound", "[]"}); err != nil {
			return err
		}
		builds[i] = s
	}
	return fn(builds)
}

// compare runs 32 conversations in this build and in an earlier one in turns, and adds the
// medians of the ratios of neighboring rounds.
func (r *run) compare(ctx context.Context) error {
	return r.bothBuilds(ctx, "compare", func(builds [2]*server.Server) error { return r.compareBuilds(ctx, builds) })
}

func (r *run) compareBuilds(ctx context.Context, builds [2]*server.Server) error {
	const conversations, rounds = 32, 3
	var rate, cpu [2][]float64
	for i := range rounds + 1 {
		for b, s := range builds {
			one, err := r.once(ctx, s, conversations, fmt.Sprintf("b%dx", i))
			if err != nil {
				return err
			}
			if i > 0 { // the first warms up
				rate[b], cpu[b] = append(rate[b], one.Rate()), append(cpu[b], float64(one.cpu))
			}
		}
	}
	faster, cheaper := ratios(rate[1], rate[0]), ratios(cpu[1], cpu[0])
	name := fmt.Sprintf("provider, %d conversations, / of the build before ", conversations)
	r.AtLeast(fmt.Sprintf("%s(%.0f/s): turns/s", name, middle(rate[0])), middle(faster), 1.5)
	r.Below(fmt.Sprintf("%s(%s): CPU", name, table.Short(time.Duration(middle(cpu[0])))), middle(cheaper), .7)
	return nil
}
