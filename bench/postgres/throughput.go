package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"

	"github.com/theclaw/agents/bench/load"
	"github.com/theclaw/agents/bench/table"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// throughput compares what registries and runners do with the bare messages and those
// of the engine, each measured just before and just after.
func (b *bench) throughput(r *run, c *pgtest.Cluster, registries, runners int, how string) {
	b.say("%d registries, %d runners%s", registries, runners, how)
	var y yardstick
	var got driven
	y.take(b, r, c)
	r.part(func(r *run) { got = b.drive(r, c, registries, runners) })
	y.take(b, r, c)
	bare, engine := rate(y.bare), rate(y.engine)
	b.table.Share(fmt.Sprintf("turns/s, %d registries, %d runners%s / engine (%.0f/s)", registries, runners, how, engine), got.Rate(), engine, .5)
	b.table.Share(fmt.Sprintf("    the same / bare messages (%.0f/s)", bare), got.Rate(), bare, .5)
	var cpu []string
	for _, d := range got.cpu {
		cpu = append(cpu, fmt.Sprint(d.Microseconds()))
	}
	if registries == 2 && runners == 2 && how == "" {
		b.cost = got.cost
	}
	b.table.Figure("    p50 / p99; us by class; cores of PostgreSQL in use",
		fmt.Sprintf("%s / %s; %s; %.2f", table.Short(load.Percentile(got.Reply, .5)), table.Short(load.Percentile(got.Reply, .99)), strings.Join(cpu, " / "),
			got.cpu[3].Seconds()*got.Rate()))
}

// driven is what became of a load, and what a message of it took.
type driven struct {
	load.Result
	cost
	cpu []time.Duration // by class
}

// drive puts conversations through registries and runners of its own.
func (b *bench) drive(r *run, c *pgtest.Cluster, registries, runners int) driven {
	dsn := b.within(r, c)
	s := newSite(r, b.agentd, dsn)
	s.start("registry", registries)
	s.start("runner", runners)
	s.start("deliverer", 1)
	conn := s.registry(-1)
	for i := range talkers {
		r.check(makeAgent(r.ctx, conn, agentName(registries, runners, i)))
	}
	warm := pick(b, 30, 12) // prepares the statements of each connection
	per := pick(b, 120, 25)
	if b.messages > 0 {
		per = b.messages
	}
	talk := func(n int, tag string) load.Result {
		var mu sync.Mutex
		var out load.Result
		var errs []error
		var g sync.WaitGroup
		begun := time.Now()
		for i := range talkers {
			g.Go(func() {
				got, err := load.Run(r.ctx, conn, load.Plan{Agent: agentName(registries, runners, i), Conversations: conversations / talkers, Messages: n}, tag)
				mu.Lock()
				defer mu.Unlock()
				errs, out.Messages, out.Reply = append(errs, err), out.Messages+got.Messages, append(out.Reply, got.Reply...)
			})
		}
		g.Wait()
		out.Took = time.Since(begun)
		r.check(errors.Join(errs...))
		slices.Sort(out.Reply)
		return out
	}
	talk(warm, "warm")
	before, logged, kept := b.used(s, c), written(r, dsn), stored(r, dsn)
	out := driven{Result: talk(per, "load")}
	for i, d := range b.used(s, c) {
		out.cpu = append(out.cpu, (d-before[i])/time.Duration(out.Messages))
	}
	account(r, dsn, agentName(registries, runners, 0), conversations*(per+warm))
	n := float64(out.Messages)
	out.cost = cost{out.cpu[0], out.cpu[1], out.cpu[3], float64(written(r, dsn)-logged) / n, float64(stored(r, dsn)-kept) / n}
	return out
}

// used is the processor time by class.
func (b *bench) used(s *site, c *pgtest.Cluster) []time.Duration {
	out := []time.Duration{s.cpu("registry"), s.cpu("runner"), s.cpu("deliverer"), served(c)}
	return append(out, ours())
}

// served is the processor time of a server; that of somebody else is not ours to see.
func served(c *pgtest.Cluster) time.Duration {
	if c == nil {
		return 0
	}
	return c.CPU()
}

// account counts what the database has of a load: as many replies as messages, and no
// message without its fate. That they came in their order was seen on the way.
func account(r *run, dsn, like string, want int) {
	prefix := strings.TrimSuffix(like, "0") + "%"
	c, err := pgx.Connect(r.ctx, dsn)
	r.check(err)
	defer func() { _ = c.Close(r.ctx) }()
	var asked, replied, fates int
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) { // the last fate follows its reply
		r.check(c.QueryRow(r.ctx, `SELECT (SELECT count(*) FROM event WHERE agent_id LIKE $1 AND thread_id = 'inbox'),
			(SELECT count(*) FROM event WHERE agent_id LIKE $1 AND thread_id <> 'inbox' AND source = 'self' AND type = 'message'),
			(SELECT count(*) FROM fate WHERE agent_id LIKE $1 AND fate = 'replied')`, prefix).Scan(&asked, &replied, &fates))
		if asked == want && replied == want && fates == want {
			return
		}
		if time.Now().After(end) {
			r.Fatalf("%d messages were sent: %d are in the inboxes, %d replies, %d fates", want, asked, replied, fates)
		}
	}
}

func agentName(registries, runners, i int) string {
	return fmt.Sprintf("load-%d-%d-%d", registries, runners, i)
}

// makeAgent makes and starts one that answers by itself and sends nothing on.
func makeAgent(ctx context.Context, conn grpc.ClientConnInterface, id string) error {
	agents := registryv1.NewAgentServiceClient(conn)
	if _, err := agents.CreateAgent(ctx, &registryv1.CreateAgentRequest{AgentId: id, Provider: "offline"}); err != nil {
		return err
	}
	if _, err := agents.SetAgentConfig(ctx, &registryv1.SetAgentConfigRequest{AgentId: id, Key: "outbound", Value: "[]"}); err != nil {
		return err
	}
	_, err := agents.StartAgent(ctx, &registryv1.StartAgentRequest{AgentId: id})
	return err
}
