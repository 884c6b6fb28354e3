// Package curve measures how figures grow and draws them: turns over conversations,
// memory and start time over agents, a turn over the length of its thread. Each is drawn
// with the line of its limit.
//
// It also writes the curves into a page, with the figures in words. It compares nothing
// with a goal.
package curve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/theclaw/agents/bench/limits"
	"github.com/theclaw/agents/bench/load"
	"github.com/theclaw/agents/bench/plot"
	"github.com/theclaw/agents/bench/server"
	"github.com/theclaw/agents/bench/table"
	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/sqlite/schema"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// sizes of the curves: those of a night's run, and small ones that show that the
// drawing works.
type sizes struct {
	conversations, agents, lengths []int
	messages                       int // per point of a load
}

// pictures are what is drawn.
var pictures = []string{"turns.svg", "latency.svg", "memory.svg", "start.svg", "length.svg"}

var (
	whole = sizes{[]int{1, 2, 4, 8, 16, 32, 64, 128, 256}, []int{1, 10, 100, 1000, 10_000}, []int{10, 100, 1000, 10_000, 100_000}, 4000}
	small = sizes{[]int{1, 4, 16}, []int{1, 10, 100}, []int{10, 100, 1000}, 300}
)

// Draw measures how figures grow, and draws each with the line of its limit; the page
// shows the pictures.
func Draw(ctx context.Context, agentd, out, page string, quick bool, progress io.Writer) error {
	dir, err := os.MkdirTemp("", "theclaw-curves-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	n := whole
	if quick {
		n = small
	}
	var told strings.Builder
	say := func(format string, a ...any) {
		fmt.Fprintf(io.MultiWriter(progress, &told), format+"\n", a...)
	}
	for _, draw := range []func(context.Context, string, string, string, sizes, func(string, ...any)) error{overConversations, overAgents, overLength} {
		if err := draw(ctx, agentd, dir, out, n, say); err != nil {
			return err
		}
	}
	if page == "" {
		return nil
	}
	text := table.Where() + "\n\n"
	for _, name := range pictures {
		at, err := filepath.Rel(filepath.Dir(page), filepath.Join(out, name))
		if err != nil {
			return err
		}
		text += "![" + strings.TrimSuffix(name, ".svg") + "](" + filepath.ToSlash(at) + ")\n"
	}
	return table.Put(page, "curves", text+"\n```text\n"+told.String()+"```\n")
}

// line is a limit that is the same everywhere.
func line(name string, y float64, xs []int) plot.Series {
	return plot.Series{Name: name, Limit: true, Points: []plot.Point{{X: float64(xs[0]), Y: y}, {X: float64(xs[len(xs)-1]), Y: y}}}
}

func add(s *plot.Series, x int, y float64) {
	s.Points = append(s.Points, plot.Point{X: float64(x), Y: y})
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func overConversations(ctx context.Context, agentd, dir, out string, n sizes, say func(string, ...any)) (err error) {
	s, err := server.Start(ctx, agentd, filepath.Join(dir, "conversations"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if err := s.Agent(ctx, "bench"); err != nil {
		return err
	}
	if _, err := load.Run(ctx, s.Conn, load.Plan{Agent: "bench", Conversations: 4, Messages: 50}, "warm"); err != nil {
		return err
	}
	rate, bare := plot.Series{Name: "agentd"}, plot.Series{Name: "bare engine", Limit: true}
	p50, p99 := plot.Series{Name: "p50"}, plot.Series{Name: "p99"}
	for _, c := range n.conversations {
		per := max(n.messages/c, 20)
		r, err := load.Run(ctx, s.Conn, load.Plan{Agent: "bench", Conversations: c, Messages: per}, fmt.Sprintf("n%dx", c))
		if err != nil {
			return err
		}
		limit, err := limits.Engine(ctx, dir, c, per)
		if err != nil {
			return err
		}
		say("%d conversations: %.0f turns/s, p99 %s; the bare engine %.0f/s", c, r.Rate(), table.Short(load.Percentile(r.Reply, .99)), limit.Rate)
		add(&rate, c, r.Rate())
		add(&bare, c, limit.Rate)
		add(&p50, c, millis(load.Percentile(r.Reply, .5)))
		add(&p99, c, millis(load.Percentile(r.Reply, .99)))
	}
	return errors.Join(
		plot.Chart{Title: "Turns per second over conversations at once", X: "conversations", Y: "turns/s", Series: []plot.Series{rate, bare}}.Write(out, "turns.svg"),
		plot.Chart{
			Title: "Acknowledged push to reply seen, everybody asking as fast as answered", X: "conversations", Y: "ms", LogY: true,
			Series: []plot.Series{p50, p99, line("goal of p99 at one conversation", 20, n.conversations)},
		}.Write(out, "latency.svg"))
}

func overAgents(ctx context.Context, agentd, dir, out string, n sizes, say func(string, ...any)) error {
	rss, ready := plot.Series{Name: "idle"}, plot.Series{Name: "start"}
	for _, agents := range n.agents {
		home := filepath.Join(dir, fmt.Sprint("agents", agents))
		took, err := makeAgents(home, agents)
		if err != nil {
			return err
		}
		idle, start, err := idleWith(ctx, agentd, home, agents)
		if err != nil {
			return err
		}
		say("%d agents: made in %s, start %s, %.1f MB at rest", agents, table.Short(took), table.Short(start), idle)
		add(&rss, agents, idle)
		add(&ready, agents, millis(start))
		if err := os.RemoveAll(home); err != nil {
			return err
		}
	}
	limit := plot.Series{Name: "goal", Limit: true, Points: []plot.Point{{X: 1, Y: 40}, {X: 1000, Y: 45}, {X: 10_000, Y: 60}}}
	limit.Points = limit.Points[:max(2, min(3, len(n.agents)-2))]
	return errors.Join(
		plot.Chart{Title: "Resident memory at rest over agents", X: "agents, all started", Y: "MB", Series: []plot.Series{rss, limit}}.Write(out, "memory.svg"),
		plot.Chart{Title: "Start to serving over agents", X: "agents, all started", Y: "ms", Series: []plot.Series{ready, line("goal", 200, n.agents)}}.Write(out, "start.svg"))
}

// makeAgents makes a home with agents in it, as `agentctl init` does without a daemon.
func makeAgents(home string, n int) (time.Duration, error) {
	h, err := agentdir.OpenHome(home)
	if err != nil {
		return 0, err
	}
	defer func() { _ = h.Close() }()
	began := time.Now()
	var g errgroup.Group
	g.SetLimit(16)
	for i := range n {
		g.Go(func() error {
			_, err := h.Create(agentName(i), agentdir.Spec{Prepare: func(dir string) error {
				_, err := db.Make(filepath.Join(dir, thread.Inbox), schema.Prepare)
				return err
			}})
			return err
		})
	}
	err = g.Wait()
	return time.Since(began), err
}

func agentName(i int) string { return fmt.Sprintf("agent-%05d", i) }

// idleWith starts all agents of a home, starts agentd anew, and answers what it holds
// at rest and how long that start took.
func idleWith(ctx context.Context, agentd, home string, n int) (rss float64, ready time.Duration, err error) {
	s, err := server.Start(ctx, agentd, home)
	if err != nil {
		return 0, 0, err
	}
	agents := registryv1.NewAgentServiceClient(s.Conn)
	g, all := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for i := range n {
		g.Go(func() error {
			_, err := agents.StartAgent(all, &registryv1.StartAgentRequest{AgentId: agentName(i)})
			return err
		})
	}
	if err := errors.Join(g.Wait(), s.Stop()); err != nil {
		return 0, 0, err
	}
	if s, err = server.Start(ctx, agentd, home); err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if err := s.Settle(ctx); err != nil {
		return 0, 0, err
	}
	if err := server.WaitIdle(ctx); err != nil {
		return 0, 0, err
	}
	rss, err = s.RSS()
	return rss, s.Ready, err
}

func overLength(ctx context.Context, agentd, dir, out string, n sizes, say func(string, ...any)) error {
	cpu, reply := plot.Series{Name: "CPU of a turn"}, plot.Series{Name: "p50 to the reply"}
	for _, length := range n.lengths {
		home := filepath.Join(dir, fmt.Sprint("length", length))
		took, p50, err := TurnAt(ctx, agentd, home, length, 200)
		if err != nil {
			return err
		}
		say("a thread of %d events: %s CPU per message, p50 %s", length, table.Short(took), table.Short(p50))
		add(&cpu, length, millis(took))
		add(&reply, length, millis(p50))
		if err := os.RemoveAll(home); err != nil {
			return err
		}
	}
	return plot.Chart{
		Title: "Cost of a turn over the length of its thread", X: "events in the thread", Y: "ms",
		Series: []plot.Series{cpu, reply, line("1.5 times the CPU at first", 1.5*cpu.Points[0].Y, n.lengths)},
	}.Write(out, "length.svg")
}

// TurnAt measures messages to a conversation that has so many events.
func TurnAt(ctx context.Context, agentd, home string, length, messages int) (cpu, p50 time.Duration, err error) {
	s, err := server.Start(ctx, agentd, home)
	if err != nil {
		return 0, 0, err
	}
	err = errors.Join(s.Agent(ctx, "bench"), s.Stop())
	if err != nil {
		return 0, 0, err
	}
	if err := fill(ctx, filepath.Join(home, "agents", "bench"), "threads/peers/bench-long0", length); err != nil {
		return 0, 0, err
	}
	if s, err = server.Start(ctx, agentd, home); err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	plan := load.Plan{Agent: "bench", Conversations: 1, Messages: messages}
	if _, err := load.Run(ctx, s.Conn, plan, "warm"); err != nil {
		return 0, 0, err
	}
	before, err := s.CPU()
	if err != nil {
		return 0, 0, err
	}
	r, err := load.Run(ctx, s.Conn, plan, "long")
	if err != nil {
		return 0, 0, err
	}
	after, err := s.CPU()
	return (after - before) / time.Duration(messages), load.Percentile(r.Reply, .5), err
}

// fill puts a past into a thread, in turns of both sides.
func fill(ctx context.Context, agent, id string, length int) (err error) {
	e := sqlite.New(sqlite.Options{
		Path: func(r store.Ref) (string, error) { return filepath.Join(agent, r.Thread), nil },
		Live: func(string, uint64) error { return nil },
	})
	defer func() { err = errors.Join(err, e.Close()) }()
	r := store.Ref{Agent: "bench", Thread: id}
	if _, err := e.Ensure(ctx, r, ""); err != nil {
		return err
	}
	who := []string{"external:bench:bench:dm:long0:long0", thread.SourceSelf}
	for done := 0; done < length; {
		var page []store.NewEvent
		for ; done < length && len(page) < 1000; done++ {
			page = append(page, store.NewEvent{Source: who[done%2], Type: thread.TypeMessage, Content: fmt.Sprintf(`{"text":"what was said as number %d"}`, done)})
		}
		if _, err := e.Append(ctx, r, page, store.AppendOptions{}); err != nil {
			return err
		}
	}
	return nil
}
