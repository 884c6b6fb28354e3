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

	"github.com/theclaw/agents/bench/limits"
	"github.com/theclaw/agents/bench/load"
	"github.com/theclaw/agents/bench/postgres/bare"
	"github.com/theclaw/agents/bench/postgres/quota"
	"github.com/theclaw/agents/bench/table"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// bench is what is asked for, and the table that becomes of it.
type bench struct {
	agentd, dsn, only string
	quick             bool
	many, messages    int // agents; messages of a conversation: 0 is as many as the run has
	say               func(format string, a ...any)
	table             table.Table

	cluster *pgtest.Cluster // nil: the database is somebody's
	f       time.Duration   // F: overwriting 4 KiB and waiting for the disk
	cost    cost            // of a message with two registries and two runners
}

// Of the load: the conversations of so many agents.
const (
	conversations = 32
	talkers       = 8
)

// pick is the size of a thing in the whole run and in the quick one.
func pick[T any](b *bench, whole, quick T) T {
	if b.quick {
		return quick
	}
	return whole
}

func (b *bench) wants(what string) bool {
	return b.only == "" || slices.Contains(strings.Split(b.only, ","), what)
}

func (b *bench) measure(r *run) {
	if b.dsn == "" {
		b.cluster = pgtest.Start(r)
	}
	if b.wants("limits") {
		r.part(b.limits)
	}
	if b.wants("throughput") {
		b.matrix(r)
		b.cost.tell(&b.table)
	}
	if b.cluster != nil && b.wants("standby") {
		r.part(b.standby)
	}
	if b.cluster != nil && b.wants("quota") {
		r.part(b.quota)
	}
	if b.wants("dispatch") || b.wants("many") {
		b.sync(r)
		r.part(b.agents)
	}
	b.table.Notes = append(b.table.Notes,
		fmt.Sprintf("All of it shares %s; every message was answered once and in its order. Bare messages and units: see `go doc ./bench/postgres`.", table.Where()),
		"us of a processor by class: registries / runners / deliverer / PostgreSQL / client; of a bare message or unit: PostgreSQL.")
}

func (b *bench) sync(r *run) {
	if b.f > 0 {
		return
	}
	var err error
	b.f, err = limits.Sync(r.TempDir(), 300)
	r.check(err)
	b.table.Figure("F: overwrite 4 KiB and fdatasync, p50", table.Short(b.f))
}

// writers prepares a database for bare transactions; each connection has prepared its
// statements then.
func (b *bench) writers(r *run, url string, n int) *bare.Writers {
	w, err := bare.Open(r.ctx, url, n)
	r.check(err)
	r.Cleanup(w.Close)
	_, err = w.Drive(r.ctx, n, "on", pick(b, time.Second, 300*time.Millisecond), w.Message)
	r.check(err)
	return w
}

// bare measures some bare transactions.
func (b *bench) bare(r *run, w *bare.Writers, c *pgtest.Cluster, what string, n int, mode string, one bare.One, how string) {
	before := served(c)
	got, err := w.Drive(r.ctx, n, mode, pick(b, 3*time.Second, 700*time.Millisecond), one)
	r.check(err)
	b.table.Figure(fmt.Sprintf("bare %s, %d writers, %s", what, n, how),
		fmt.Sprintf("%.0f/s, p50 %s; %d us", got.Rate(), table.Short(load.Percentile(got.Reply, .5)), ((served(c)-before)/time.Duration(got.Messages)).Microseconds()))
}

// limits measures the bare transactions.
func (b *bench) limits(r *run) {
	b.sync(r)
	b.say("bare transactions")
	w := b.writers(r, b.within(r, b.cluster), 64)
	for _, n := range []int{1, 8, 32, 64} {
		b.bare(r, w, b.cluster, "units", n, "on", w.Unit, "synchronous_commit = on")
	}
	b.bare(r, w, b.cluster, "messages", conversations, "off", w.Message, "synchronous_commit = off")
	for _, n := range []int{1, 8, conversations, 64} {
		b.bare(r, w, b.cluster, "messages", n, "on", w.Message, "synchronous_commit = on")
	}
}

// matrix measures the services in each number.
func (b *bench) matrix(r *run) {
	for _, n := range pick(b, [][2]int{{1, 1}, {1, 2}, {1, 4}, {2, 1}, {2, 2}, {2, 4}, {4, 1}, {4, 2}, {4, 4}}, [][2]int{{1, 1}, {2, 2}, {4, 4}}) {
		r.part(func(r *run) { b.throughput(r, b.cluster, n[0], n[1], "") })
	}
}

// standby measures what a synchronous standby costs.
func (b *bench) standby(r *run) {
	b.say("with a synchronous standby")
	c := pgtest.Start(r)
	c.Standby(r)
	b.throughput(r, c, 2, 2, ", synchronous standby")
}

// narrow is the share of a processor that PostgreSQL has where it shall be what limits:
// so little that everything else has time to spare on two cores.
const narrow = .5

// quota measures both where PostgreSQL alone is short of a processor, as it is when each
// class has machines of its own, and the others have enough of them.
func (b *bench) quota(r *run) {
	b.say("with a share of a processor for PostgreSQL")
	c := pgtest.Start(r)
	held, err := quota.Hold(c.Pids(), narrow)
	if err != nil {
		b.table.Notes = append(b.table.Notes, fmt.Sprintf("PostgreSQL cannot be given a share of a processor here, so the rows of that are left out: %v.", err))
		return
	}
	r.Cleanup(func() {
		if err := held.Release(); err != nil {
			r.Error(err)
		}
	})
	how := fmt.Sprintf(", PostgreSQL has %.1f cores", narrow)
	for _, n := range [][2]int{{1, 1}, {2, 2}, {4, 4}} {
		r.part(func(r *run) { b.throughput(r, c, n[0], n[1], how) })
	}
}

// throughput drives conversations through registries and runners, and compares with
// the bare messages and those of the engine just before.
func (b *bench) throughput(r *run, c *pgtest.Cluster, registries, runners int, how string) {
	b.say("%d registries, %d runners%s", registries, runners, how)
	limit := b.yardsticks(r, c)
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
	drive := func(n int, tag string) load.Result {
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
	drive(warm, "warm")
	before, logged, kept := b.used(s, c), written(r, dsn), stored(r, dsn)
	got := drive(per, "load")
	after := b.used(s, c)
	account(r, dsn, agentName(registries, runners, 0), conversations*(per+warm))
	b.table.Share(fmt.Sprintf("turns/s, %d registries, %d runners%s / engine (%.0f/s)", registries, runners, how, limit.engine), got.Rate(), limit.engine, .5)
	b.table.Share(fmt.Sprintf("    the same / bare messages (%.0f/s)", limit.bare), got.Rate(), limit.bare, .5)
	var cpu []string
	for i := range after {
		after[i] = (after[i] - before[i]) / time.Duration(got.Messages)
		cpu = append(cpu, fmt.Sprint(after[i].Microseconds()))
	}
	if registries == 2 && runners == 2 && how == "" {
		n := float64(got.Messages)
		b.cost = cost{after[0], after[1], after[3], float64(written(r, dsn)-logged) / n, float64(stored(r, dsn)-kept) / n}
	}
	b.table.Figure("    p50 / p99; us by class; cores of PostgreSQL in use",
		fmt.Sprintf("%s / %s; %s; %.2f", table.Short(load.Percentile(got.Reply, .5)), table.Short(load.Percentile(got.Reply, .99)), strings.Join(cpu, " / "),
			after[3].Seconds()*got.Rate()))
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
