// Package soak_test lets agentd live for a while as it does with its users: many
// agents, steady messages, and a kill -9 now and then. The invariants are looked
// at all the time, and what the process holds must not grow.
package soak_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/invariant/running"
	"github.com/theclaw/agents/internal/world"
	"github.com/theclaw/agents/proofs/drill"
	"github.com/theclaw/agents/proofs/program"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

func TestMain(m *testing.M) { program.Main(m) }

// life is the home and what has been sent into it.
type life struct {
	t    *testing.T
	site *world.Site
	sink *world.Sink

	mu     sync.Mutex
	pushes []invariant.Push
	acks   map[string]int64
	checks int
	errs   atomic.Int64
}

// talk is one person who says something, waits for the answer, and goes on.
func (l *life) talk(ctx context.Context, agent string, peer, round int, until time.Time) {
	for n := 0; time.Now().Before(until); n++ {
		key := fmt.Sprintf("%s-p%d-%d-%d", agent, peer, round, n)
		text := "say: " + key
		if n%5 == 4 {
			text = "run: echo " + key
		}
		id, err := world.Again(ctx, func(ctx context.Context) (int64, error) {
			return l.site.Push(ctx, agent, world.Peer(fmt.Sprint("p", peer)), text, key)
		})
		if err != nil {
			l.t.Errorf("push %s: %v", key, err)
			return
		}
		l.mu.Lock()
		l.pushes = append(l.pushes, invariant.Push{Agent: agent, Key: key, IDs: []int64{id}})
		l.mu.Unlock()
		if err := l.await(ctx, agent, id); err != nil {
			l.t.Errorf("wait for %s: %v", key, err)
			return
		}
	}
}

func (l *life) await(ctx context.Context, agent string, id int64) error {
	for {
		r, err := world.Again(ctx, func(ctx context.Context) (*registryv1.GetTurnResponse, error) {
			return l.site.Turns.GetTurn(ctx, &registryv1.GetTurnRequest{AgentId: agent, InboxId: id, Wait: durationpb.New(20 * time.Second)})
		})
		if err != nil {
			return err
		}
		switch r.GetTurn().GetFate() {
		case registryv1.Fate_FATE_REPLIED:
			return nil
		case registryv1.Fate_FATE_UNSPECIFIED:
		default:
			return fmt.Errorf("fate %v", r.GetTurn())
		}
	}
}

// check looks at the home; every finding is an error.
func (l *life) check(o invariant.Options) {
	o.Acks = l.acks
	found, stats, err := invariant.Check(context.WithoutCancel(l.t.Context()), layout.At(l.site.Home), o)
	if err != nil {
		l.t.Errorf("check: %v", err)
		return
	}
	for _, f := range found {
		if f.Severity == invariant.Violation {
			l.errs.Add(1)
			l.t.Error(f)
		}
	}
	l.acks = stats.Acks
	l.checks++
}

// rss is the resident memory of a process in MiB.
func rss(pid int) int {
	b, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "statm"))
	if err != nil {
		return 0
	}
	var size, resident int
	_, _ = fmt.Sscan(string(b), &size, &resident)
	return resident * os.Getpagesize() >> 20
}

// TestSoak lives for DURATION and is killed each KILL_EVERY; AGENTS agents have
// two people each.
func TestSoak(t *testing.T) {
	duration, every := drill.Span(t, "DURATION", 3*time.Second), drill.Span(t, "KILL_EVERY", time.Second)
	agents := drill.Size(t, "AGENTS", 8)
	l := &life{t: t, site: world.NewSite(t, program.Agentd(t)), sink: world.NewSink(t)}
	start := func() *world.Process { return l.site.Start(t, "all", "--lease-ttl", "1s") }
	p := start()
	l.site.Serving(t, p, "registry", "runner", "deliverer")
	for a := range agents {
		l.site.Create(t, fmt.Sprint("a", a), l.sink.Config())
	}
	until := time.Now().Add(duration)
	ctx, cancel := context.WithTimeout(t.Context(), duration+2*time.Minute)
	defer cancel()
	var people sync.WaitGroup
	for a := range agents {
		for peer := range 2 {
			people.Go(func() { l.talk(ctx, fmt.Sprint("a", a), peer, 0, until) })
		}
	}
	kills, looks := time.NewTicker(every), time.NewTicker(min(10*time.Second, duration/3+1))
	defer kills.Stop()
	defer looks.Stop()
	killed := 0
	for end := time.After(time.Until(until)); end != nil; {
		select {
		case <-end:
			end = nil
		case <-kills.C:
			p.Kill()
			killed++
			p = start()
		case <-looks.C:
			l.check(invariant.Options{Live: true})
		}
	}
	people.Wait()
	// The last process works on alone: what it holds at rest must not grow.
	// The people are the same each time, since the thread of a new one stays open
	// for a while.
	burst := func(round int) {
		var all sync.WaitGroup
		for a := range agents {
			for peer := range 2 {
				all.Go(func() { l.talk(ctx, fmt.Sprint("a", a), peer, round, time.Now().Add(duration/10)) })
			}
		}
		all.Wait()
	}
	hold := func() (running.Resources, int) {
		r, err := running.Measure(p.Pid(), "")
		if err != nil {
			t.Error(err)
		}
		return r, rss(p.Pid())
	}
	burst(1)
	base, before := hold()
	for round := range 3 {
		burst(2 + round)
	}
	now, after := hold()
	slack := running.Resources{Descriptors: 16, Children: 4} // a send or a tool may be under way
	for _, f := range running.Compare(base, now, slack) {
		t.Error(f)
	}
	if after > 2*before+64 {
		t.Errorf("%d MiB resident, %d before", after, before)
	}
	p.Signal(syscall.SIGTERM) // the deliverer ends what it has begun
	if code := p.Exit(); code != 0 {
		t.Errorf("exit %d:\n%s", code, p.Log())
	}
	o := invariant.Options{History: &invariant.History{Pushes: l.pushes}}
	for _, a := range l.sink.Arrivals("") {
		o.Sink = append(o.Sink, invariant.Arrival{Key: a.Key, MaybeDuplicate: a.MaybeDuplicate, Agent: a.AgentID, Thread: a.ThreadID, EventID: a.EventID})
	}
	l.check(o)
	drill.Line("soak duration=%v agents=%d kills=%d messages=%d arrivals=%d checks=%d violations=%d descriptors=%d->%d rss_mib=%d->%d",
		duration, agents, killed, len(l.pushes), len(o.Sink), l.checks, l.errs.Load(), base.Descriptors, now.Descriptors, before, after)
	if t.Failed() {
		t.Log(strings.TrimSpace(p.Log()))
	}
}
