package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/theclaw/agents/bench/limits"
	"github.com/theclaw/agents/bench/load"
	"github.com/theclaw/agents/bench/postgres/bare"
	"github.com/theclaw/agents/bench/table"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
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
	handed  []figures       // of the hand-over, each time it was measured
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
	b.sync(r)
	r.part(b.handOver)
	if b.wants("limits") {
		r.part(b.limits)
	}
	if b.wants("throughput") {
		b.matrix(r)
		b.cost.tell(&b.table)
	}
	r.part(b.handOver)
	if b.cluster != nil && b.wants("standby") {
		r.part(b.standby)
	}
	if b.cluster != nil && b.wants("quota") {
		r.part(b.quota)
	}
	r.part(b.handOver)
	b.dispatch()
	if b.wants("many") {
		r.part(b.agents)
	}
	b.table.Notes = append(b.table.Notes,
		fmt.Sprintf("All of it shares %s, GODEBUG=%s; every message was answered once and in its order. Bare messages and units: see `go doc ./bench/postgres`.", table.Where(), os.Getenv("GODEBUG")),
		"us of a processor by class: registries / runners / deliverer / PostgreSQL / client; of a bare message or unit: PostgreSQL.")
}

func (b *bench) sync(r *run) {
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
	held, err := limitCPU(c.Pids(), narrow)
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
