package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"

	"github.com/theclaw/agents/bench/load"
	"github.com/theclaw/agents/bench/table"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// throughput compares what registries and runners do with the bare messages and those
// of the engine. A machine is not as fast all the time, so they take turns, many and short, and
// each rate is that of all its turns.
func (b *bench) throughput(r *run, c *pgtest.Cluster, registries, runners int, how string) {
	b.say("%d registries, %d runners%s", registries, runners, how)
	y, s := b.yardstick(r, c), b.services(r, c, registries, runners)
	per := pick(b, 25, 15)
	if b.messages > 0 {
		per = b.messages
	}
	var bare, engine, got load.Result
	var took usage
	for range pick(b, 12, 2) {
		bare.Add(y.bare(r, 300*time.Millisecond))
		engine.Add(y.messages(r, per))
		before := s.used(r)
		got.Add(s.talk(r, per))
		took.add(before, s.used(r))
	}
	s.account(r)
	b.table.Share(fmt.Sprintf("turns/s, %d registries, %d runners%s / engine (%.0f/s)", registries, runners, how, engine.Rate()), got.Rate(), engine.Rate(), .5)
	b.table.Share(fmt.Sprintf("    the same / bare messages (%.0f/s)", bare.Rate()), got.Rate(), bare.Rate(), .5)
	cost := took.of(got.Messages)
	if registries == 2 && runners == 2 && how == "" {
		b.cost = cost
	}
	b.table.Figure("    p50 / p99; us by class; cores of PostgreSQL in use",
		fmt.Sprintf("%s / %s; %s; %.2f", table.Short(load.Percentile(got.Reply, .5)), table.Short(load.Percentile(got.Reply, .99)), took.classes(got.Messages),
			cost.database.Seconds()*got.Rate()))
}

// services are registries, runners and a deliverer, and the conversations through them.
type services struct {
	*site
	cluster *pgtest.Cluster
	agents  string // begins their names
	talks   load.Talks
	sent    int
}

// services starts them; each connection has prepared its statements then.
func (b *bench) services(r *run, c *pgtest.Cluster, registries, runners int) *services {
	s := &services{site: newSite(r, b.agentd, b.within(r, c)), cluster: c, agents: fmt.Sprintf("load-%d-%d-", registries, runners)}
	s.env = []string{fmt.Sprint("GOMAXPROCS=", max(1, runtime.NumCPU()/(registries+runners)))}
	s.start("registry", registries)
	s.start("runner", runners)
	s.start("deliverer", 1)
	conn := s.registry(-1)
	for i := range talkers {
		id := fmt.Sprint(s.agents, i)
		r.check(makeAgent(r.ctx, conn, id))
		t, err := load.Open(r.ctx, conn, load.Plan{Agent: id, Conversations: conversations / talkers}, "load")
		r.check(err)
		r.Cleanup(t.Close)
		s.talks.Join(t)
	}
	s.talk(r, pick(b, 30, 12))
	return s
}

// talk sends so many messages in each conversation.
func (s *services) talk(r *run, messages int) load.Result {
	s.sent += messages * conversations
	out, err := s.talks.Drive(r.ctx, messages)
	r.check(err)
	return out
}

// used is what was taken so far.
func (s *services) used(r *run) usage {
	return usage{
		[...]time.Duration{s.cpu("registry"), s.cpu("runner"), s.cpu("deliverer"), served(s.cluster), ours()},
		written(r, s.dsn), stored(r, s.dsn),
	}
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
func (s *services) account(r *run) {
	c, err := pgx.Connect(r.ctx, s.dsn)
	r.check(err)
	defer func() { _ = c.Close(r.ctx) }()
	var asked, replied, fates int
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) { // the last fate follows its reply
		r.check(c.QueryRow(r.ctx, `SELECT (SELECT count(*) FROM event WHERE agent_id LIKE $1 AND thread_id = 'inbox'),
			(SELECT count(*) FROM event WHERE agent_id LIKE $1 AND thread_id <> 'inbox' AND source = 'self' AND type = 'message'),
			(SELECT count(*) FROM fate WHERE agent_id LIKE $1 AND fate = 'replied')`, s.agents+"%").Scan(&asked, &replied, &fates))
		if asked == s.sent && replied == s.sent && fates == s.sent {
			return
		}
		if time.Now().After(end) {
			r.Fatalf("%d messages were sent: %d are in the inboxes, %d replies, %d fates", s.sent, asked, replied, fates)
		}
	}
}

// makeAgent makes and starts one that answers by itself and sends nothing on.
func makeAgent(ctx context.Context, conn grpc.ClientConnInterface, id string) error {
	agents := registryv1.NewAgentServiceClient(conn)
	if _, err := agents.CreateAgent(ctx, &registryv1.CreateAgentRequest{AgentId: id, Provider: "offline"}); err != nil {
		return err
	}
	// It may use all that the load needs, and is counted as any agent.
	for key, value := range map[string]string{"outbound": "[]", "quota.tokens_per_day": "1000000000000"} {
		if _, err := agents.SetAgentConfig(ctx, &registryv1.SetAgentConfigRequest{AgentId: id, Key: key, Value: value}); err != nil {
			return err
		}
	}
	_, err := agents.StartAgent(ctx, &registryv1.StartAgentRequest{AgentId: id})
	return err
}
