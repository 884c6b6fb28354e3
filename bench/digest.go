package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/theclaw/agents/bench/load"
	"github.com/theclaw/agents/bench/server"
	"github.com/theclaw/agents/bench/table"
)

// digests measures whether a reply waits for a digest: a conversation that is digested every tenth
// message, with a model that takes its time, has no message that takes longer than the others.
func (r *run) digests(ctx context.Context) error {
	const delay = 300 * time.Millisecond
	return r.withProvider(ctx, "digests", provider{Delay: delay}, func(s *server.Server, _ *fakeServer) error { return r.digestsOf(ctx, s, delay) })
}

func (r *run) digestsOf(ctx context.Context, s *server.Server, model time.Duration) error {
	const messages, conversations = 31, 3
	if err := s.AgentWith(ctx, "digests", providerName, [2]string{"outbound", "[]"}); err != nil {
		return err
	}
	// At the same time, since they mostly wait for the model.
	took, err := askAtOnce(ctx, s, "digests", "say: hello", "hello", "d", conversations, messages)
	if err != nil {
		return err
	}
	for _, one := range took {
		slices.Sort(one)
	}
	ratio := func(one []time.Duration) float64 {
		return float64(one[len(one)-1]) / float64(load.Percentile(one, .5))
	}
	slices.SortFunc(took, func(a, b []time.Duration) int { return int(1000 * (ratio(a) - ratio(b))) })
	m := took[conversations/2]
	r.Below(fmt.Sprintf("%d messages, a model of %s: slowest %s / median %s", messages, model, table.Short(m[len(m)-1]), table.Short(load.Percentile(m, .5))), ratio(m), 1.15)
	return nil
}
