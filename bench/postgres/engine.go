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

// yardstick is what the services are compared with.
type yardstick struct {
	writers *bare.Writers
	engine  *postgres.Engine
	refs    []store.Ref // the conversations of the engine
}

// yardstick makes them ready, each in a database of its own.
func (b *bench) yardstick(r *run, c *pgtest.Cluster) *yardstick {
	y := &yardstick{writers: b.writers(r, b.within(r, c), conversations)}
	e, err := postgres.New(r.ctx, postgres.Options{DSN: bare.Pooled(b.within(r, c), conversations)})
	r.check(err)
	r.Cleanup(func() {
		if err := e.Close(); err != nil {
			r.Error(err)
		}
	})
	y.engine = e
	run := "engine-" + strings.ToLower(rand.Text()) + "-" // a database of somebody's has those of other runs
	for i := range talkers {
		id := fmt.Sprint(run, i)
		r.check(holdAgent(r.ctx, e, id))
		for j := range conversations / talkers {
			y.refs = append(y.refs, store.Ref{Agent: id, Thread: fmt.Sprintf("threads/peers/c%d", j)})
		}
	}
	y.messages(r, pick(b, 30, 12)) // prepares the statements of each connection
	return y
}

// bare measures bare messages for a while.
func (y *yardstick) bare(r *run, lasts time.Duration) load.Result {
	got, err := y.writers.Drive(r.ctx, conversations, "on", lasts, y.writers.Message)
	r.check(err)
	return got
}

// messages measures those of as many conversations and agents as the services are to
// have, by the storage engine itself.
func (y *yardstick) messages(r *run, each int) load.Result {
	got, err := limits.Drive(r.ctx, y.engine, y.refs, each)
	r.check(err)
	return load.Result{Messages: len(got.Each), Took: got.Took}
}

// within answers the URL of an empty database of a cluster, or of somebody else's.
func (b *bench) within(r *run, c *pgtest.Cluster) string {
	if c == nil {
		return b.dsn
	}
	return c.Database(r)
}

// holdAgent makes an agent that works, and takes the first term of its lease.
func holdAgent(ctx context.Context, e *postgres.Engine, id string) error {
	if err := agents.New(e.Pool()).Create(ctx, id, nil); err != nil {
		return err
	}
	if _, err := e.SetStarted(ctx, id, true, "bench"); err != nil {
		return err
	}
	_, err := leases.New(e.Pool(), nil).Acquire(ctx, lease.AcquireRequest{Resource: lease.AgentResource(id), Holder: "bench", Address: "bench", RequestID: "bench", TTL: time.Hour})
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
