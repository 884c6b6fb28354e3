package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/theclaw/agents/bench/table"
)

// cost is what a message takes: from it follows how far a database goes.
type cost struct {
	registry, runner, database time.Duration // of a processor
	logged, kept               float64       // bytes: of the write-ahead log; of tables and indexes
}

// usage is what was taken until some moment: time of a processor by class, and bytes.
type usage struct {
	cpu          [5]time.Duration // registries, runners, deliverer, PostgreSQL, client
	logged, kept int64
}

// add adds what was taken between two moments.
func (u *usage) add(from, to usage) {
	for i := range u.cpu {
		u.cpu[i] += to.cpu[i] - from.cpu[i]
	}
	u.logged, u.kept = u.logged+to.logged-from.logged, u.kept+to.kept-from.kept
}

// of is what one of n messages takes.
func (u usage) of(n int) cost {
	each := time.Duration(n)
	return cost{u.cpu[0] / each, u.cpu[1] / each, u.cpu[3] / each, float64(u.logged) / float64(n), float64(u.kept) / float64(n)}
}

// classes tells the time of a processor that one of n messages takes, in us.
func (u usage) classes(n int) string {
	var out []string
	for _, d := range u.cpu {
		out = append(out, fmt.Sprint((d / time.Duration(n)).Microseconds()))
	}
	return strings.Join(out, " / ")
}

// tell puts the arithmetic of docs/scaling.md into the table.
func (c cost) tell(t *table.Table) {
	if c.database <= 0 { // somebody's database: its processor is not ours to see
		return
	}
	const day, share, cores = 86400, 0.7, 16
	perCore := float64(time.Second) / float64(c.database)
	whole := perCore * cores * share
	t.Figure("P: messages/s of one core of PostgreSQL", fmt.Sprintf("%.0f", perCore))
	t.Figure("Q: the same of registries; of runners", fmt.Sprintf("%.0f; %.0f", float64(time.Second)/float64(c.registry), float64(time.Second)/float64(c.runner)))
	t.Figure("L: write-ahead log of a message; K: kept of it", fmt.Sprintf("%.1f kB; %.1f kB", c.logged/1e3, c.kept/1e3))
	t.Figure("a database of 16 cores at 70 %: messages/s; a day", fmt.Sprintf("%.0f; %.0f million", whole, whole*day/1e6))
	t.Figure("    its log; what it keeps of a day", fmt.Sprintf("%.0f MB/s; %.1f TB", whole*c.logged/1e6, whole*day*c.kept/1e12))
	t.Figure("    cores of registries; of runners, at 70 %", fmt.Sprintf("%.0f; %.0f", whole*c.registry.Seconds()/share, whole*c.runner.Seconds()/share))
}

// written is how far the log of a server is, in bytes.
func written(r *run, dsn string) int64 {
	return number(r, dsn, "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")
}

// stored is what a database takes on disk.
func stored(r *run, dsn string) int64 {
	return number(r, dsn, "SELECT sum(pg_total_relation_size(relid))::bigint FROM pg_stat_user_tables")
}

func number(r *run, dsn, sql string) (n int64) {
	c, err := pgx.Connect(r.ctx, dsn)
	r.check(err)
	defer func() { _ = c.Close(r.ctx) }()
	r.check(c.QueryRow(r.ctx, sql).Scan(&n))
	return n
}
