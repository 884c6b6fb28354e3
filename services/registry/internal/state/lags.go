package state

import (
	"context"

	"github.com/theclaw/agents/internal/obs"
)

// Lags returns the unfinished work of started agents, for the metrics.
func (d *Agents) Lags(ctx context.Context) (obs.Lags, error) {
	l := obs.Lags{Inbox: map[string]int64{}, Acked: map[string]int64{}, Outbound: map[string]int64{}}
	d.ForEach(ctx, func(a *Agent) {
		k := a.Known()
		if !k.Started {
			return
		}
		if k.Head > k.Acked {
			l.Inbox[a.ID], l.Acked[a.ID] = k.Head-k.Acked, k.Acked
		}
		if k.Outbound > 0 {
			l.Outbound[a.ID] = int64(k.Outbound)
		}
	})
	return l, ctx.Err()
}
