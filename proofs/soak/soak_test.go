//go:build proof

package soak_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/invariant/running"
	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/drill"
	"github.com/theclaw/agents/proofs/program"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

func TestMain(m *testing.M) { program.Main(m) }

// drainWithin is I13's minute.
const drainWithin = time.Minute

// life is the home and everything that is known about it from outside.
type life struct {
	t        *testing.T
	site     *world.Site
	sink     *world.Sink
	model    *model
	staff    *staff
	client   running.Client
	agents   []string
	canaries []invariant.Canary
	secrets  []string
	chance   *rand.Rand // of the load
	eye      *rand.Rand // of the looks

	mu         sync.Mutex
	history    invariant.History // Pushes
	count      map[string]int    // looks, by invariant
	violations atomic.Int64

	// Only one look is under way at a time.
	acks    map[string]int64
	stats   invariant.Stats
	holders map[string]invariant.Grant
	grants  []invariant.Grant
	looks   int
	foreign int
}

// settle makes a home with a provider and agents; every fourth asks that provider,
// the others the built-in model.
func settle(t *testing.T, agents int, chance *rand.Rand) *life {
	t.Helper()
	l := &life{
		t: t, site: world.NewSite(t, program.Agentd(t)), sink: world.NewSink(t), model: &model{prompts: map[invariant.Prompt]int{}},
		chance: chance, eye: rand.New(rand.NewPCG(chance.Uint64(), 2)), count: map[string]int{}, holders: map[string]invariant.Grant{},
		secrets: []string{fmt.Sprintf("soak-model-key-%x", chance.Uint64()), fmt.Sprintf("soak-hook-secret-%x", chance.Uint64())},
	}
	l.client = running.Client{Agents: l.site.Agents, Turns: l.site.Turns}
	l.staff = newStaff(t, l.site, chance, []string{"SOAK_KEY=" + l.secrets[0], "SOAK_HOOK=" + l.secrets[1]})
	provider := httptest.NewServer(l.model)
	t.Cleanup(provider.Close)
	if err := os.MkdirAll(l.site.Home, 0o700); err != nil {
		t.Fatal(err)
	}
	text := "default: offline\nproviders: {work: {base_url: \"" + provider.URL + "/v1\", api_key: \"env:SOAK_KEY\"}}\n"
	if err := os.WriteFile(filepath.Join(l.site.Home, "providers.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l.staff.start(l.staff.posts...)
	for _, p := range l.staff.posts {
		l.site.Serving(t, p.p, p.name)
	}
	config := strings.Replace(l.sink.Config(), "allow_private: true", "allow_private: true, secret: \"env:SOAK_HOOK\"", 1)
	for i := range agents {
		agent, extra := fmt.Sprint("a", i), config+"\nquota: {tokens_per_day: 1000000000000}" // for more than a day of a person
		if i%4 == 0 {
			extra += "\npai: {provider: work, model: m-" + agent + "}"
			l.mark(agent)
		}
		l.site.Create(t, agent, extra)
		if i%4 == 0 {
			l.identity(agent)
		}
		l.agents = append(l.agents, agent)
	}
	return l
}

// mark watches the canaries of an agent; those of a few are enough, since every
// text of every agent is searched for each of them.
func (l *life) mark(agent string) {
	if len(l.canaries) >= 40 {
		return
	}
	l.canaries = append(l.canaries, invariant.Canary{Text: canaryOf(agent, "self"), Agent: agent})
	for _, who := range []string{"p0", "p1", "ext"} {
		l.canaries = append(l.canaries, invariant.Canary{Text: canaryOf(agent, who), Agent: agent, Thread: threadOf(who), Peer: who})
	}
}

// identity puts the agent's own canary into its prompt.
func (l *life) identity(agent string) {
	ctx, name := l.t.Context(), "IDENTITY.md"
	f, err := l.site.Agents.ReadAgentFile(ctx, &registryv1.ReadAgentFileRequest{AgentId: agent, Name: name})
	if err == nil {
		_, err = l.site.Agents.WriteAgentFile(ctx, &registryv1.WriteAgentFileRequest{
			AgentId: agent, Name: name, Content: append(f.GetContent(), []byte("\nYour mark is "+canaryOf(agent, "self")+".\n")...),
		})
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// trouble kills one process every few seconds until the time is over, and starts
// it again.
func (l *life) trouble(every time.Duration, until <-chan time.Time) {
	kills := time.NewTicker(every)
	defer kills.Stop()
	for {
		select {
		case <-until:
			return
		case <-kills.C:
			p := l.staff.posts[l.chance.IntN(len(l.staff.posts))]
			l.staff.kill(p)
			l.staff.start(p)
		}
	}
}

// backlog is I13: with nobody at work messages queue up; everything dies once
// more, the faults end, and all of it is done within a minute.
func (l *life) backlog(ctx context.Context, n int) time.Duration {
	posts := l.staff.posts
	l.staff.kill(posts[2:]...) // the runners
	l.queue(ctx, n)
	l.staff.kill(posts[:2]...)
	l.staff.start(posts...)
	begin := time.Now()
	found, err := world.Again(ctx, func(ctx context.Context) ([]invariant.Finding, error) {
		return running.Drain(ctx, l.client, drainWithin-time.Since(begin), l.agents...)
	})
	if err != nil {
		l.t.Errorf("drain: %v", err)
	}
	took := time.Since(begin)
	l.report(found)
	l.checked("I13")
	return took
}

// calm is the load without kills, while what the processes hold is sampled.
func (l *life) calm(ctx context.Context, span time.Duration) {
	done, sampled := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sampled)
		l.staff.sampling(done, min(time.Second, span/24))
	}()
	people := l.crowd(ctx, done)
	<-time.After(span) // it is the length of the proof
	close(done)
	people.Wait()
	<-sampled
}

// TestSoak lives for DURATION, two thirds of it with a kill every KILL_EVERY;
// AGENTS agents have two people each.
func TestSoak(t *testing.T) {
	duration, every := drill.Span(t, "DURATION", 4*time.Second), drill.Span(t, "KILL_EVERY", time.Second)
	agents := drill.Size(t, "AGENTS", 8)
	queued := min(1000, 50*agents)
	seed, chance := drill.Seed(t)
	l := settle(t, agents, chance)
	ctx, cancel := context.WithTimeout(t.Context(), duration+15*time.Minute)
	defer cancel()

	bad, patrolled := make(chan struct{}), make(chan struct{})
	people := l.crowd(ctx, bad)
	go func() {
		defer close(patrolled)
		l.patrol(ctx, min(10*time.Second, duration/5), bad)
	}()
	l.trouble(every, time.After(duration*2/3))
	close(bad)
	people.Wait()
	<-patrolled

	took := l.backlog(ctx, queued)
	l.rest(ctx)
	l.look(ctx, true)
	base := l.staff.measure()
	l.calm(ctx, duration/3)
	l.rest(ctx)
	now := l.back(ctx, base)
	l.look(ctx, true)

	_, calls, failed := l.model.seen()
	kills, by := 0, ""
	for _, p := range l.staff.posts {
		kills, by = kills+p.kills, by+fmt.Sprintf(" %s:%d", p.name, p.kills)
		drill.Line("soak under_load=%s", p.flat(t, agents))
	}
	l.staff.end()
	for _, p := range l.staff.posts {
		drill.Line("soak at_rest=%s %s", p.name, compared(base[p.name].Resources, now[p.name].Resources))
	}
	drill.Line("soak %s", l.table())
	drill.Line("soak duration=%v agents=%d kills=%d (%s) messages=%d foreign=%d arrivals=%d model_calls=%d (%d failed) looks=%d databases=%d events=%d queued=%d drained=%v violations=%d seed=%d",
		duration, agents, kills, strings.TrimSpace(by), len(l.history.Pushes), l.foreign, len(l.sink.Arrivals("")), calls, failed,
		l.looks+2, l.stats.Databases, l.stats.Events, queued, took.Round(10*time.Millisecond), l.violations.Load(), seed)
	if t.Failed() {
		for _, p := range l.staff.posts {
			log := p.p.Log()
			t.Logf("%s: ...%s", p.name, log[max(0, len(log)-4000):])
		}
	}
}
