//go:build proof

package soak_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/invariant/running"
	"github.com/theclaw/agents/internal/store/sqlite"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Some invariants are seen in the databases at any time; some need what clients,
// receivers and tools know, which is whole only when everything has come to rest.
var (
	atAnyTime = strings.Fields("I1 I2 I3 I4 I5 I6 I7 I11 I12 I14 I16 I17 I21 I23 I24")
	atRest    = strings.Fields("I8 I9 I10 I15")
)

func (l *life) checked(ids ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		l.count[id]++
	}
}

func (l *life) report(found []invariant.Finding) {
	for _, f := range found {
		if f.Severity == invariant.Violation {
			l.violations.Add(1)
			l.t.Error(f)
		}
	}
}

// look examines the home at work. At rest it knows in addition what has arrived,
// what has run and what was said, and nothing may be open any more.
func (l *life) look(ctx context.Context, rest bool) {
	o := invariant.Options{Live: true, Acks: l.acks, Canaries: l.canaries, History: &invariant.History{Grants: l.grants}}
	o.Prompts, _, _ = l.model.seen()
	l.mu.Lock()
	o.History.Pushes = slices.Clone(l.history.Pushes)
	l.mu.Unlock()
	if rest {
		o.Drained, o.Sink, o.Runs = true, l.arrivals(), l.ran()
		o.Secrets, o.Texts = l.secrets, l.staff.outputs()
	}
	found, stats, err := invariant.Check(ctx, layout.At(l.site.Home), o)
	if err != nil {
		l.t.Errorf("check: %v", err)
		return
	}
	l.report(found)
	l.acks, l.stats = stats.Acks, stats
	l.checked(atAnyTime...)
	if rest {
		l.checked(atRest...)
	}
}

// arrivals are what the receiver saw. A repeat may overtake the send of a killed
// deliverer on its way through the receiver: one of the two carries the flag, and
// it does not matter which.
func (l *life) arrivals() []invariant.Arrival {
	var out []invariant.Arrival
	all, plain, seen := l.sink.Arrivals(""), map[string]int{}, map[string]bool{}
	for _, a := range all {
		if !a.MaybeDuplicate {
			plain[a.Key]++
		}
	}
	for _, a := range all {
		flag := seen[a.Key] && plain[a.Key] <= 1
		seen[a.Key] = true
		out = append(out, invariant.Arrival{Key: a.Key, MaybeDuplicate: flag, Agent: a.AgentID, Thread: a.ThreadID, EventID: a.EventID})
	}
	return out
}

// ran are the keys of the tools that ran: each has left its own.
func (l *life) ran() []string {
	out := []string{}
	for _, agent := range l.agents {
		data, err := os.ReadFile(filepath.Join(l.site.Home, "agents", agent, "workdir", "ran.txt"))
		if err != nil && !os.IsNotExist(err) {
			l.t.Error(err)
		}
		for line := range strings.Lines(string(data)) {
			_, key, _ := strings.Cut(strings.TrimSpace(line), " ")
			out = append(out, key)
		}
	}
	return out
}

// leases notes who holds what, for I6: a token has one holder for ever.
func (l *life) leases(ctx context.Context) (live int) {
	r, err := world.Again(ctx, func(ctx context.Context) (*registryv1.ListLeasesResponse, error) {
		return l.site.Leases.ListLeases(ctx, &registryv1.ListLeasesRequest{})
	})
	if err != nil {
		l.t.Errorf("list leases: %v", err)
		return 0
	}
	for _, held := range r.GetLeases() {
		if held.GetLive() {
			live++
		}
		if was, ok := l.holders[held.GetResource()]; held.GetHolder() != "" && (!ok || was.Token != held.GetToken() || was.Holder != held.GetHolder()) {
			g := invariant.Grant{Resource: held.GetResource(), Holder: held.GetHolder(), Token: held.GetToken()}
			l.holders[held.GetResource()] = g
			l.grants = append(l.grants, g)
		}
	}
	return live
}

// patrol looks at everything again and again until done is closed: the home, one
// agent that is stopped and started, and one as the external tool sees it.
func (l *life) patrol(ctx context.Context, every time.Duration, done <-chan struct{}) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		l.leases(ctx)
		l.look(ctx, false)
		l.outside(ctx, l.agents[l.eye.IntN(len(l.agents))], n)
		l.stopStart(ctx, l.agents[l.eye.IntN(len(l.agents))], n)
		l.looks++
	}
}

// stopStart is I20 under load, and under kills: cut off, it begins again.
func (l *life) stopStart(ctx context.Context, agent string, n int) {
	try := 0
	found, err := world.Again(ctx, func(ctx context.Context) ([]invariant.Finding, error) {
		try++
		push := func(ctx context.Context) (int64, error) {
			return l.push(ctx, agent, "p0", "say: still there "+canaryOf(agent, "p0"), fmt.Sprintf("stop %s %d %d", agent, n, try))
		}
		return running.StopStart(ctx, l.client, agent, push, 200*time.Millisecond, patience)
	})
	if err != nil {
		l.t.Errorf("stop and start %s: %v", agent, err)
		return
	}
	l.report(found)
	l.checked("I20")
}

// rest waits until every reply is out and every lease has been given back.
func (l *life) rest(ctx context.Context) {
	for _, agent := range l.agents {
		l.until(ctx, agent+" has nothing to send", func() bool {
			r, err := world.Again(ctx, func(ctx context.Context) (*registryv1.GetAgentStatusResponse, error) {
				return l.site.Agents.GetAgentStatus(ctx, &registryv1.GetAgentStatusRequest{AgentId: agent})
			})
			return err == nil && r.GetInbox().GetPending() == 0 && r.GetOutboundPending() == 0
		})
	}
	l.until(ctx, "no lease is held", func() bool { return l.leases(ctx) == 0 })
}

// patience is when something is said never to happen. It bounds nothing that is measured,
// and a busy machine takes longer.
const patience = 5 * time.Minute

// until asks for what nothing tells of.
func (l *life) until(ctx context.Context, what string, is func() bool) {
	end := time.Now().Add(patience)
	for !is() {
		if time.Now().After(end) || ctx.Err() != nil {
			l.t.Errorf("it never comes to it that %s", what)
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// perDatabase is how many descriptors an open database has at most: its file, log and
// shared memory, and the mirror once an event was written.
const perDatabase = 4

// back is I19: what every process holds is again what it held at rest before. Which
// databases stay open at rest, and which of them were written, follows the load; their
// bound is that of the pool.
func (l *life) back(ctx context.Context, base map[string]sample) map[string]sample {
	// Idle connections of the last calls; and the log of each agent, of which a
	// process holds up to 64 open.
	slack := running.Resources{Goroutines: 12, Descriptors: 12 + 64}
	var now map[string]sample
	var found []invariant.Finding
	l.until(ctx, "every process is back at its baseline", func() bool {
		found, now = nil, l.staff.measure()
		for name, was := range base {
			was.Databases = perDatabase * sqlite.MaxOpen
			for _, f := range running.Compare(was.Resources, now[name].Resources, slack) {
				f.What = name + ": " + f.What
				found = append(found, f)
			}
		}
		return len(found) == 0 && len(now) == len(base)
	})
	l.report(found)
	for range base {
		l.checked("I19")
	}
	return now
}

// table is how often each invariant was looked at, whole; one that never was fails.
func (l *life) table() string {
	var out []string
	for n := 1; n <= 24; n++ {
		if n == 22 { // of a service that is not there yet
			continue
		}
		id := fmt.Sprint("I", n)
		if l.count[id] == 0 {
			l.t.Errorf("%s was never looked at", id)
		}
		out = append(out, fmt.Sprintf("%s=%d", id, l.count[id]))
	}
	return strings.Join(out, " ")
}

func compared(a, b running.Resources) string {
	return fmt.Sprintf("goroutines=%d->%d descriptors=%d->%d databases=%d->%d children=%d->%d temp_files=%d->%d",
		a.Goroutines, b.Goroutines, a.Descriptors, b.Descriptors, a.Databases, b.Databases, a.Children, b.Children, a.TempFiles, b.TempFiles)
}
