//go:build proof

package main

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/world"
)

// A blow is one way to kill: at the hit-th passing of a label, and then at its
// next one after each restart, so often in a row.
type blow struct {
	label string
	hit   int
	row   int
	split bool // three processes, of which only the label's own one dies; in a cluster: it stays away until all is done
}

// owner is the service a label is passed in.
func (b blow) owner() string {
	switch step, _, _ := strings.Cut(b.label, "."); step {
	case "T3", "T5":
		return "runner"
	case "compaction":
		if strings.HasSuffix(b.label, ".before") || strings.HasSuffix(b.label, ".after") {
			return "runner"
		}
	case "D2":
		return "deliverer"
	}
	return "registry"
}

// blows are the blows of a drill in their order, without end: every one of the labels at its
// first, second and third hit, alone and two in a row, and then what chance
// gives.
func blows(chance *rand.Rand, labels []string) iter.Seq[blow] {
	return func(yield func(blow) bool) {
		for round := 0; ; round++ {
			for i, label := range labels {
				b := blow{label: label, hit: 1 + round%3, row: 1 + round/3%2, split: (i+round)%2 == 1}
				if round >= 6 {
					b = blow{label: label, hit: 1 + chance.IntN(6), row: 1 + chance.IntN(3), split: chance.IntN(2) == 1}
				}
				if !yield(b) {
					return
				}
			}
		}
	}
}

// matrix is what all workers of the drill share.
type matrix struct {
	mu     sync.Mutex
	next   func() (blow, bool)
	want   int // kills
	open   int // kills that are handed out
	kills  int
	labels map[string]int
	sites  int
	figures
}

// part hands out the blows for one home; none when there are enough.
func (m *matrix) part() []blow {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []blow
	for len(out) < 14 && m.kills+m.open < m.want {
		b, _ := m.next()
		m.open += b.row
		out = append(out, b)
	}
	return out
}

// mode is how the next home answers messages that come together: there is one way
// to be killed while others join a turn, and a message that shall end dead must not be
// answered as a part of another one.
func (m *matrix) mode(part []blow) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sites++
	if slices.ContainsFunc(part, func(b blow) bool { return strings.HasPrefix(b.label, "steer") }) {
		return "steer"
	}
	if slices.ContainsFunc(part, func(b blow) bool { return strings.HasPrefix(b.label, "T9") }) {
		return "followup"
	}
	return []string{"steer", "followup", "collect"}[m.sites%3]
}

// dealt counts a blow that is over and how often it has killed.
func (m *matrix) dealt(b blow, kills int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open -= b.row
	m.kills += kills
	if kills > 0 {
		m.labels[b.label]++
	}
}

// TestCrashMatrix kills the real program at every labelled instant of a message's
// and a delivery's life and lets it recover (RELIABILITY 4; S0-57, S0-82, S0-85). KILLS
// and SEED in the environment size and replay it.
func TestCrashMatrix(t *testing.T) {
	seed, chance := seed(t)
	next, stop := iter.Pull(blows(chance, fault.Labels()))
	defer stop()
	m := &matrix{labels: map[string]int{}, next: next, want: int(setting(t, "KILLS", 42))}
	store, one := "", m.site
	if onPostgres(t) {
		store, one = "store=postgres ", m.cluster(server(t))
	}
	var g sync.WaitGroup
	for range 3 {
		g.Go(func() {
			for part := m.part(); len(part) > 0 && !t.Failed(); part = m.part() {
				one(t, part)
			}
		})
	}
	g.Wait()
	fmt.Fprintf(os.Stdout, "crash-matrix %skills=%d labels=%d/%d messages=%d merged=%d epochs=%d in_doubt=%d lost=%d dup=%d stuck=%d violations=%d seed=%d\n",
		store, m.kills, len(m.labels), len(fault.Labels()), m.messages, m.merged, m.epochs, m.inDoubt, m.lost, m.dup, m.stuck, m.violations+m.dead, seed)
	for _, label := range fault.Labels() {
		if m.labels[label] == 0 && m.want >= len(fault.Labels()) {
			t.Errorf("nothing was ever killed at %s", label)
		}
	}
}

// site deals some blows to one home and then audits all that happened in it.
func (m *matrix) site(t *testing.T, part []blow) {
	site, sink := world.NewSite(t, program(t)), world.NewSink(t)
	p := start(t, site, blow{}, false)
	site.Create(t, "a1", sink.Config())
	mode := m.mode(part)
	for key, value := range digesting {
		site.Set(t, "a1", key, value)
	}
	site.Set(t, "a1", "queue.mode", mode)
	p.kill()
	l := &load{site: site, mode: mode, resets: true}
	for _, b := range part {
		if !m.strike(t, l, b) {
			break
		}
	}
	p = start(t, site, blow{}, false)
	a := &audit{TB: t, load: l, sink: sink}
	a.check()
	p.kill()
	if !a.clean() {
		t.Errorf("%s, after %+v:\n%s", mode, part, &a.figures)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add(a.figures)
}

// digesting are the settings under which an agent without a model digests its memory
// all the time.
var digesting = map[string]string{"compaction.strategy": "truncate", "compaction.after_turns": "2", "compaction.agent_every": "1"}

// strike sends a small load of all kinds while a blow is dealt, and waits until
// all of it has come to its end. It answers false when something is stuck.
func (m *matrix) strike(t *testing.T, l *load, b blow) bool {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	p := start(t, l.site, b, true)
	defer func() { p.kill() }()
	l.send(ctx, some(l)...)
	done := l.done()
	kills := 0
	defer func() { m.dealt(b, kills) }()
	for {
		select {
		case <-p.doomed.Done():
			if !p.doomed.Killed() {
				t.Errorf("%+v: agentd ended by itself; its log:\n%s", b, p.doomed.Log())
				cancel()
				<-done
				return false
			}
			kills++
			p.revive(t, l.site, b, 1, kills < b.row)
		case <-done:
			ok := ctx.Err() == nil
			if !ok {
				t.Errorf("%+v: stuck; the log:\n%s", b, p.doomed.Log())
			}
			return ok
		}
	}
}

// some are messages of all kinds, three from each of three people; in a cluster each
// speaks to an agent of his own, which three runners work on at once.
func some(l *load) []*message {
	var ms []*message
	for peer := range 3 {
		kinds := []string{"run", "fail", "refuse"}
		if l.mode == "steer" {
			// A turn that dies after it has run what joined it leaves that to be
			// tried again: a repeat that is meant, which the audit cannot tell.
			kinds[1] = "echo"
		}
		for i := range kinds {
			kind := kinds[(i+peer+len(l.sent)/9)%3]
			m := &message{agent: "a1", peer: fmt.Sprintf("p%d", peer), n: len(l.sent) + len(ms), kind: kind}
			if l.dsn != "" {
				m.agent = fmt.Sprintf("a%d", peer+1)
			}
			ms = append(ms, m)
		}
	}
	return ms
}

// running is a whole runtime, in one process or in three.
type running struct {
	doomed *world.Process // the one with the failpoint
	others []*world.Process
}

func start(t *testing.T, site *world.Site, b blow, armed bool) *running {
	p := &running{}
	if b.split {
		for _, name := range everything {
			if name != b.owner() {
				p.others = append(p.others, site.Start(t, append([]string{name}, flags...)...))
			}
		}
	}
	p.revive(t, site, b, b.hit, armed)
	return p
}

// revive starts the process of the label, with its failpoint or without.
func (p *running) revive(t *testing.T, site *world.Site, b blow, hit int, armed bool) {
	var env []string
	if armed {
		env = []string{fmt.Sprintf("%s=%s:%d", failpoint, b.label, hit)}
	}
	name := "all"
	if b.split {
		name = b.owner()
	}
	p.doomed = site.StartWith(t, env, append([]string{name}, flags...)...)
}

func (p *running) kill() {
	p.doomed.Kill()
	for _, o := range p.others {
		o.Kill()
	}
}
