package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/theclaw/agents/bench/load"
	"github.com/theclaw/agents/bench/table"
)

// digests measures whether a reply waits for a digest: a conversation that is digested every tenth
// message, with a model that takes its time, has no message that takes longer than the others.
func (r *run) digests(ctx context.Context) (err error) {
	const model, messages, conversations = 300 * time.Millisecond, 31, 3
	slow, err := provider{Delay: model}.serve()
	if err != nil {
		return err
	}
	defer slow.Close()
	s, err := r.startWithProvider(ctx, filepath.Join(r.dir, "digests"), slow.URL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if err := s.AgentWith(ctx, "digests", providerName, [2]string{"outbound", "[]"}); err != nil {
		return err
	}
	// At the same time, since they mostly wait for the model.
	took, errs := make([][]time.Duration, conversations), make([]error, conversations)
	var g sync.WaitGroup
	for c := range took {
		g.Go(func() {
			took[c], errs[c] = load.Ask(ctx, s.Conn, "digests", "say: hello", "hello", fmt.Sprint("d", c), messages)
		})
	}
	g.Wait()
	if err := errors.Join(errs...); err != nil {
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
