package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/theclaw/agents/bench/limits"
	"github.com/theclaw/agents/bench/load"
	"github.com/theclaw/agents/bench/postgres/bare"
	"github.com/theclaw/agents/bench/table"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres"
	"github.com/theclaw/agents/internal/store/postgres/agents"
	"github.com/theclaw/agents/internal/store/postgres/leases"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
)

// rates are what the services are compared with, in messages/s.
type rates struct{ bare, engine float64 }

// yardsticks measures what the services are compared with where they are to run.
func (b *bench) yardsticks(r *run, c *pgtest.Cluster, how string) rates {
	w := b.writers(r, b.within(r, c), conversations)
	return rates{b.bare(r, w, c, "messages", conversations, "on", w.Message, how), b.engine(r, c, how)}
}

// within answers the URL of an empty database of a cluster, or of somebody else's.
func (b *bench) within(r *run, c *pgtest.Cluster) string {
	if c == nil {
		return b.dsn
	}
	return c.Database(r)
}

// engine measures the messages of as many conversations and agents as the services are
// to have, by the storage engine itself.
func (b *bench) engine(r *run, c *pgtest.Cluster, how string) float64 {
	b.say("the engine, %s", how)
	e, err := postgres.New(r.ctx, postgres.Options{DSNs: []string{bare.Pooled(b.within(r, c), conversations)}})
	r.check(err)
	defer func() { r.check(e.Close()) }()
	var refs []store.Ref
	for i := range talkers {
		id := fmt.Sprint("engine-", i)
		r.check(holdAgent(r.ctx, e, id))
		for j := range conversations / talkers {
			refs = append(refs, store.Ref{Agent: id, Thread: fmt.Sprintf("threads/peers/c%d", j)})
		}
	}
	_, err = limits.Drive(r.ctx, e, refs, pick(b, 30, 12)) // prepares the statements of each connection
	r.check(err)
	served0, own0 := served(c), ours()
	got, err := limits.Drive(r.ctx, e, refs, pick(b, 120, 25))
	r.check(err)
	each := func(d time.Duration) int64 { return (d / time.Duration(len(got.Each))).Microseconds() }
	b.table.Figure(fmt.Sprintf("engine messages, %d conversations of %d agents, %s", conversations, talkers, how),
		fmt.Sprintf("%.0f/s, p50 %s; %d + %d us", got.Rate, table.Short(load.Percentile(got.Each, .5)), each(served(c)-served0), each(ours()-own0)))
	return got.Rate
}

// holdAgent makes an agent that works, and takes the first term of its lease.
func holdAgent(ctx context.Context, e *postgres.Engine, id string) error {
	if err := agents.New(e.Shards()).Create(ctx, id, nil); err != nil {
		return err
	}
	if _, err := e.SetStarted(ctx, id, true, "bench"); err != nil {
		return err
	}
	_, err := leases.New(e.Shards(), nil).Acquire(ctx, lease.AcquireRequest{Resource: lease.AgentResource(id), Holder: "bench", Address: "bench", RequestID: "bench", TTL: time.Hour})
	return err
}

// ours is the processor time of this process.
func ours() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
