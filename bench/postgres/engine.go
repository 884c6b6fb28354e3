package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/theclaw/agents/bench/limits"
	"github.com/theclaw/agents/bench/load"
	"github.com/theclaw/agents/bench/postgres/bare"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres"
	"github.com/theclaw/agents/internal/store/postgres/agents"
	"github.com/theclaw/agents/internal/store/postgres/leases"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
)

// yardstick is what the services are compared with, measured where they run just before
// them and just after: a machine is not as fast all the time.
type yardstick struct{ bare, engine []load.Result }

// take measures it once more.
func (y *yardstick) take(b *bench, r *run, c *pgtest.Cluster) {
	r.part(func(r *run) {
		w := b.writers(r, b.within(r, c), conversations)
		got, err := w.Drive(r.ctx, conversations, "on", pick(b, 2*time.Second, 700*time.Millisecond), w.Message)
		r.check(err)
		y.bare = append(y.bare, got)
	})
	r.part(func(r *run) { y.engine = append(y.engine, b.engine(r, c)) })
}

// rate is that of all together.
func rate(list []load.Result) float64 {
	var sum load.Result
	for _, l := range list {
		sum.Messages, sum.Took = sum.Messages+l.Messages, sum.Took+l.Took
	}
	return sum.Rate()
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
func (b *bench) engine(r *run, c *pgtest.Cluster) load.Result {
	e, err := postgres.New(r.ctx, postgres.Options{DSNs: []string{bare.Pooled(b.within(r, c), conversations)}})
	r.check(err)
	defer func() { r.check(e.Close()) }()
	var refs []store.Ref
	run := "engine-" + strings.ToLower(rand.Text()) + "-" // a database of somebody's has those of other runs
	for i := range talkers {
		id := fmt.Sprint(run, i)
		r.check(holdAgent(r.ctx, e, id))
		for j := range conversations / talkers {
			refs = append(refs, store.Ref{Agent: id, Thread: fmt.Sprintf("threads/peers/c%d", j)})
		}
	}
	_, err = limits.Drive(r.ctx, e, refs, pick(b, 30, 12)) // prepares the statements of each connection
	r.check(err)
	got, err := limits.Drive(r.ctx, e, refs, pick(b, 60, 25))
	r.check(err)
	n := float64(len(got.Each))
	return load.Result{Messages: int(n), Took: time.Duration(n / got.Rate * float64(time.Second))}
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
