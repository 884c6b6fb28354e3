package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/theclaw/agents/bench/load"
	"github.com/theclaw/agents/bench/server"
	"github.com/theclaw/agents/bench/table"
	"github.com/theclaw/agents/internal/pause"
)

// idleFor is how long nothing is done before the memory at rest is measured: databases
// close after half a minute, and the process gives memory back while nothing uses the
// processor.
const idleFor = time.Minute

// memory measures what messages leave in memory, and what each writes. The middle of three new
// processes is taken after few messages; the last of them then gets many.
func (r *run) memory(ctx context.Context) (err error) {
	model, err := provider{}.serve()
	if err != nil {
		return err
	}
	defer model.Close()
	var few []footprint
	for i := range 3 {
		last := i == 2
		err := r.memoryOf(ctx, filepath.Join(r.dir, fmt.Sprint("memory", i)), model.URL, func(s *server.Server) error {
			one, err := footprintOf(ctx, s, 8, 1000)
			if err != nil {
				return err
			}
			if few = append(few, one); !last {
				return nil
			}
			r.footprint(footprint{
				one.what, middle([]float64{few[0].rss, few[1].rss, few[2].rss}), middle([]float64{few[0].written, few[1].written, few[2].written}),
			}, 45)
			many, err := footprintOf(ctx, s, 185, r.size(15000, 1850))
			if err != nil {
				return err
			}
			r.footprint(many, 70)
			return r.atRest(ctx, s)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// memoryOf measures a new process with one agent.
func (r *run) memoryOf(ctx context.Context, home, url string, do func(s *server.Server) error) (err error) {
	s, err := r.startWithProvider(ctx, home, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if err := s.AgentWith(ctx, "bench", providerName, [2]string{"outbound", "[]"}); err != nil {
		return err
	}
	if err := server.WaitIdle(ctx); err != nil {
		return err
	}
	return do(s)
}

// footprint is what messages left in memory, in MB, and wrote, in KB for each.
type footprint struct {
	what         string
	rss, written float64
}

func footprintOf(ctx context.Context, s *server.Server, conversations, messages int) (footprint, error) {
	f := footprint{what: fmt.Sprintf("%d messages in %d conversations", messages, conversations)}
	before, err := s.Written()
	if err != nil {
		return f, err
	}
	done, err := load.Run(ctx, s.Conn, load.Plan{Agent: "bench", Conversations: conversations, Messages: messages / conversations}, fmt.Sprintf("m%dx", conversations))
	if err != nil {
		return f, err
	}
	if f.rss, err = s.RSS(); err != nil {
		return f, err
	}
	after, err := s.Written()
	f.written = float64(after-before) / float64(done.Messages) / 1000
	return f, err
}

func (r *run) footprint(f footprint, rss float64) {
	r.Below("RSS after "+f.what+", MB", f.rss, rss)
	r.Below("KB written per message, "+f.what, f.written, 60)
}

// atRest measures the memory after nothing was done for a while.
func (r *run) atRest(ctx context.Context, s *server.Server) error {
	if r.quick {
		return nil
	}
	if err := pause.For(ctx, idleFor); err != nil {
		return err
	}
	rss, err := s.RSS()
	if err != nil {
		return err
	}
	r.Below(fmt.Sprintf("RSS after %s without a message, MB", idleFor), rss, 30)
	return nil
}

// bareShell is how long a shell takes that is started with nothing around it.
func bareShell(ctx context.Context, n int) ([]time.Duration, error) {
	var took []time.Duration
	for range n {
		began := time.Now()
		if err := exec.CommandContext(ctx, "bash", "-c", "echo hi").Run(); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took, nil
}

// toolQuestion has the model call a tool once.
const toolQuestion = "run: echo hi"

// tools measures a turn with one `echo`, with the sandbox and without: the middle of three rounds,
// each next to a bare shell.
func (r *run) tools(ctx context.Context) error {
	return r.withProvider(ctx, "tools", provider{}, func(s *server.Server, _ *fakeServer) error { return r.toolsOf(ctx, s) })
}

func (r *run) toolsOf(ctx context.Context, s *server.Server) error {
	modes := []struct {
		mode      string
		goal, cpu time.Duration // 0: none
		rate      float64       // of 8 conversations; 0: none
	}{{"required", 10 * time.Millisecond, 8 * time.Millisecond, 150}, {"off", 6 * time.Millisecond, 0, 0}}
	for _, m := range modes {
		agent := "tools-" + m.mode
		if err := s.AgentWith(ctx, agent, providerName, [2]string{"outbound", "[]"}, [2]string{"sandbox.mode", m.mode}); err != nil {
			return err
		}
		if _, err := load.Ask(ctx, s.Conn, agent, toolQuestion, toolReply, "warm", 5); err != nil {
			return err
		}
	}
	n := r.size(200, 40)
	var bare []time.Duration
	p50, cpu, rates := map[string][]time.Duration{}, map[string][]time.Duration{}, map[string][]float64{}
	for round := range 3 {
		alone, err := bareShell(ctx, n)
		if err != nil {
			return err
		}
		bare = append(bare, load.Percentile(alone, .5))
		for _, m := range modes {
			cpu0, err := s.CPUOfTree()
			if err != nil {
				return err
			}
			took, err := load.Ask(ctx, s.Conn, "tools-"+m.mode, toolQuestion, toolReply, fmt.Sprint("one", round), n)
			if err != nil {
				return err
			}
			cpu1, err := s.CPUOfTree()
			if err != nil {
				return err
			}
			slices.Sort(took)
			p50[m.mode], cpu[m.mode] = append(p50[m.mode], load.Percentile(took, .5)), append(cpu[m.mode], (cpu1-cpu0)/time.Duration(n))
			began := time.Now()
			if _, err := askAtOnce(ctx, s, "tools-"+m.mode, toolQuestion, toolReply, fmt.Sprint("at", round), 8, n/4); err != nil {
				return err
			}
			rates[m.mode] = append(rates[m.mode], float64(8*(n/4))/time.Since(began).Seconds())
		}
	}
	r.Figure("bash -c 'echo hi' alone, p50", table.Short(middle(bare)))
	for _, m := range modes {
		name := fmt.Sprintf("tool turn `echo hi`, sandbox %s: ", m.mode)
		r.AtMost(name+"push -> reply, p50", middle(p50[m.mode]), m.goal)
		if m.cpu > 0 {
			r.AtMost(name+"CPU", middle(cpu[m.mode]), m.cpu)
			r.AtLeast(name+"turns/s, 8 conversations", middle(rates[m.mode]), m.rate)
			continue
		}
		r.Figure(name+"CPU", table.Short(middle(cpu[m.mode])))
		r.Figure(name+"turns/s, 8 conversations", fmt.Sprintf("%.0f", middle(rates[m.mode])))
	}
	return nil
}

// compareTools has this build and an earlier one make turns with one tool call, in turns, and adds the
// median of the ratios of neighboring rounds.
func (r *run) compareTools(ctx context.Context) error {
	return r.bothBuilds(ctx, "compare-tools", func(builds [2]*server.Server) error {
		const rounds = 7
		n := r.size(100, 20)
		var p50 [2][]float64
		for i := range rounds + 1 {
			for b, s := range builds {
				took, err := load.Ask(ctx, s.Conn, "asks", toolQuestion, toolReply, fmt.Sprint("t", i), n)
				if err != nil {
					return err
				}
				slices.Sort(took)
				if i > 0 { // the first warms up
					p50[b] = append(p50[b], float64(load.Percentile(took, .5)))
				}
			}
		}
		ratio := ratios(p50[1], p50[0])
		r.Below(fmt.Sprintf("tool turn `echo hi`, / of the build before (%s): push -> reply, p50", table.Short(time.Duration(middle(p50[0])))), middle(ratio), 1.05)
		return nil
	})
}

// askAtOnce asks n times in each of some conversations, and returns how long each answer took.
func askAtOnce(ctx context.Context, s *server.Server, agent, question, reply, tag string, conversations, n int) ([][]time.Duration, error) {
	took := make([][]time.Duration, conversations)
	var g errgroup.Group
	for c := range took {
		g.Go(func() (err error) {
			took[c], err = load.Ask(ctx, s.Conn, agent, question, reply, fmt.Sprint(tag, "c", c), n)
			return err
		})
	}
	return took, g.Wait()
}

// middle is the median of a few values, which it sorts.
func middle[T cmp.Ordered](list []T) T {
	slices.Sort(list)
	return list[len(list)/2]
}
