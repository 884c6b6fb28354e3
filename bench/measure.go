package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/theclaw/agents/bench/limits"
	"github.com/theclaw/agents/bench/load"
	"github.com/theclaw/agents/bench/server"
	"github.com/theclaw/agents/bench/table"
)

// run is one measurement: its place, its sizes, and the machine's limits in it.
type run struct {
	*table.Table
	dir, agentd string
	before      string // the program to compare with; empty: none
	quick       bool
	f, p0       time.Duration
	raw         map[int]float64 // two-record group commits/s by writers
	say         func(format string, a ...any)
}

// size is the small one in a quick run.
func (r *run) size(whole, small int) int {
	if r.quick {
		return small
	}
	return whole
}

// measure runs everything, or the parts that are named and the limits, and answers the table.
func measure(agentd, before, only string, quick bool, progress io.Writer) (*table.Table, error) {
	dir, err := os.MkdirTemp("", "theclaw-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	r := &run{Table: &table.Table{}, dir: dir, agentd: agentd, before: before, quick: quick, raw: map[int]float64{}}
	began := time.Now()
	r.say = func(format string, a ...any) {
		fmt.Fprintf(progress, "%4.0fs "+format+"\n", append([]any{time.Since(began).Seconds()}, a...)...)
	}
	for i, part := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"the machine's limits", r.limits},
		{"", r.section("With a model provider on loopback that answers at once, and with a real shell:")},
		{"provider", r.providers},
		{"provider, the build before", r.compare},
		{"tools", r.tools},
		{"tools, the build before", r.compareTools},
		{"tools alone", r.toolsAlone},
		{"tools that wait", r.waits},
		{"tools that are aborted", r.aborts},
		{"stream", r.stream},
		{"memory and bytes written", r.memory},
		{"digests", r.digests},
		{"runs", r.runs},
		{"start", r.start},
		{"size of the programs", r.sizes},
		{"what tests count", r.counts},
		{"", r.section("With the built-in model, which costs no time:")},
		{"the storage engine alone", r.storage},
		{"conversations", r.conversations},
		{"the way in and out", r.ways},
		{"channels", r.channels},
		{"long threads", r.lengths},
		{"many agents", r.agents},
	} {
		if i > 0 && only != "" && (part.what == "" || !strings.Contains(part.what, only)) {
			continue
		}
		if part.what != "" {
			r.say("%s", part.what)
		}
		if err := part.do(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", part.what, err)
		}
	}
	r.Notes = append(r.Notes, fmt.Sprintf("Measured in %.0fs. F, P0, X0 and U are of this run. PostgreSQL has a\ntable of its own: make bench-postgres, docs/scaling.md.", time.Since(began).Seconds()))
	return r.Table, nil
}

// section is a part that measures nothing: the heading of the next ones.
func (r *run) section(name string) func(context.Context) error {
	return func(context.Context) error { r.Section(name); return nil }
}

// limits measures the machine, in the directory where the rest is measured.
func (r *run) limits(context.Context) (err error) {
	if r.f, err = limits.Sync(r.dir, 500); err != nil {
		return err
	}
	r.Figure("F: overwrite 4 KiB and fdatasync, p50", table.Short(r.f))
	if r.p0, err = limits.PingPong(r.dir, 2000); err != nil {
		return err
	}
	r.Figure("P0: a byte there and back over a Unix socket, p50", table.Short(r.p0))
	for _, w := range []int{1, 8, 64} {
		a, err := limits.Commits(r.dir, w, 1000/w, 1)
		if err != nil {
			return err
		}
		if r.raw[w], err = limits.Commits(r.dir, w, 1000/w, 2); err != nil {
			return err
		}
		r.Figure(fmt.Sprintf("A(%d), U(%d): raw group commits of 1 and 2 records/s", w, w), fmt.Sprintf("%.0f, %.0f", a, r.raw[w]))
	}
	return nil
}

// storage measures what a message costs with nothing around it: the embedded rows.
func (r *run) storage(ctx context.Context) error {
	push, err := limits.Push(ctx, r.dir, r.size(2000, 300))
	if err != nil {
		return err
	}
	r.Within("push committed, one writer, no calls, p50", push, 2, "F", r.f)
	one, err := limits.Engine(ctx, r.dir, 1, r.size(1500, 200))
	if err != nil {
		return err
	}
	r.Within("push -> reply on disk, no calls, no model, p50", load.Percentile(one.Each, .5), 4, "F", r.f)
	for _, g := range []struct {
		conversations int
		share         float64
	}{{8, .2}, {64, .03}} {
		b, err := limits.Engine(ctx, r.dir, g.conversations, r.size(4000, 640)/g.conversations)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("messages of the storage alone, %d conversations: ", g.conversations)
		r.AtLeast(name+fmt.Sprintf("%.0f/s / U(%d)", b.Rate, g.conversations), b.Rate/r.raw[g.conversations], g.share)
		r.Within(name+"p99", load.Percentile(b.Each, .99), 150, "F", r.f)
	}
	return nil
}

// counts are figures that tests and Go benchmarks of this source print.
func (r *run) counts(ctx context.Context) error {
	fsyncs, err := countPerMessage(ctx, "fsyncs")
	if err != nil {
		return err
	}
	r.Below("fsyncs per message without tools, counted", fsyncs, 2.1)
	times, err := benchmarkTimes(ctx, "./internal/rpc/serve", "^BenchmarkUnary$/^(bare|chain)$", r.size(5, 3), map[bool]string{true: "0.3s", false: "1s"}[r.quick])
	if err != nil {
		return err
	}
	bare, chain := times["BenchmarkUnary/bare"], times["BenchmarkUnary/chain"]
	r.Below(fmt.Sprintf("interceptor chain %.0fus / bare call %.0fus", chain/1000, bare/1000), chain/bare, 1.4)
	return nil
}

// conversations measures turns, from one conversation to 32, and the shim beside them.
func (r *run) conversations(ctx context.Context) (err error) {
	s, err := server.Start(ctx, r.agentd, filepath.Join(r.dir, "home"))
	if err != nil {
		return err
	}
	defer func() {
		if stop := s.Stop(); err == nil {
			err = stop
		}
	}()
	r.AtMost("start to SERVING, no agents", s.Ready, 200*time.Millisecond)
	if err := server.WaitIdle(ctx); err != nil {
		return err
	}
	rss, _ := s.RSS()
	r.Below("RSS idle, MB", rss, 40)
	if err := s.Agent(ctx, "bench"); err != nil {
		return err
	}
	if _, err := load.Run(ctx, s.Conn, load.Plan{Agent: "bench", Conversations: 4, Messages: 50}, "warm"); err != nil {
		return err
	}
	for _, g := range []struct {
		conversations int
		rate          float64
	}{{1, 250}, {8, 600}, {32, 800}} {
		if err := r.turns(ctx, s, g.conversations, g.rate); err != nil {
			return err
		}
	}
	rss, _ = s.RSS()
	r.Figure("RSS after the load, MB", fmt.Sprintf("%.0f", rss))
	if err := measureStart(ctx, s.Home, "bench", r.size(200, 50), r.Table); err != nil {
		return err
	}
	return measureShim(ctx, filepath.Join(filepath.Dir(r.agentd), "agent"), s.Home, "bench", r.size(200, 50), r.Table)
}

// turns measures one number of conversations: the middle of three rounds, each beside
// the bare engine.
func (r *run) turns(ctx context.Context, s *server.Server, conversations int, goal float64) error {
	per := max(r.size(1000, 150)/conversations, 10)
	type round struct {
		load.Result
		bare float64
		cpu  time.Duration // per message
	}
	var rounds []round
	for i := range 3 {
		cpu0, err := s.CPU()
		if err != nil {
			return err
		}
		one := round{}
		if one.Result, err = load.Run(ctx, s.Conn, load.Plan{Agent: "bench", Conversations: conversations, Messages: per}, fmt.Sprintf("c%dr%dx", conversations, i)); err != nil {
			return err
		}
		cpu1, err := s.CPU()
		if err != nil {
			return err
		}
		one.cpu = (cpu1 - cpu0) / time.Duration(one.Messages)
		bare, err := limits.Engine(ctx, r.dir, conversations, per)
		if err != nil {
			return err
		}
		one.bare = bare.Rate
		rounds = append(rounds, one)
	}
	slices.SortFunc(rounds, func(a, b round) int { return int(a.Rate()*1000 - b.Rate()*1000) })
	m, name := rounds[1], fmt.Sprintf("%d conversations: ", conversations)
	if conversations == 1 {
		r.AtMost(fmt.Sprintf("%spush acknowledged, p50 (2 F + 6 P0)", name), load.Percentile(m.Push, .5), 2*r.f+6*r.p0)
		r.AtMost(name+"acknowledged push -> reply seen, p50", load.Percentile(m.Reply, .5), 3*time.Millisecond)
		r.AtMost(name+"acknowledged push -> reply seen, p99", load.Percentile(m.Reply, .99), 20*time.Millisecond)
		r.Within(name+"push -> reply seen, end to end, p50", load.Percentile(m.Whole, .5), 15, "F", r.f)
	} else {
		r.Figure(name+"acknowledged push -> reply seen, p50 / p99", table.Short(load.Percentile(m.Reply, .5))+" / "+table.Short(load.Percentile(m.Reply, .99)))
	}
	r.AtLeast(name+"turns/s", m.Rate(), goal)
	r.AtLeast(fmt.Sprintf("%sturns/s / bare engine (%.0f/s)", name, m.bare), m.Rate()/m.bare, .5)
	r.AtMost(name+"CPU per message, all services", m.cpu, 2*time.Millisecond)
	return nil
}
