package world_test

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/theclaw/agents/internal/testing/world"
)

// What a message costs is counted, not timed: fsyncs, transactions, calls and
// allocations of all services and of the client together.
func TestCostOfAMessage(t *testing.T) {
	// As agentd does: each collection empties the pools, and what they lose is allocated again.
	defer debug.SetGCPercent(debug.SetGCPercent(200))
	calls := prometheus.NewRegistry()
	w := world.Start(t, world.Options{Metrics: calls, TTL: time.Minute, Direct: true})
	w.Create(t, "a1", "")
	const messages, source = 100, "external:console:cli:dm:cli:cli"
	for i := range 30 { // past the context of a prompt, whose length counts too
		w.Say(t, "a1", source, fmt.Sprint("say: warm ", i))
	}
	// What the services do next to messages is counted too, and is more on a busy machine: the first of three rounds
	// that is within the bounds decides.
	for round := 1; ; round++ {
		over := costs(t, w, calls, func() {
			for i := range messages {
				w.Say(t, "a1", source, fmt.Sprint("say: ", i))
			}
		}, messages)
		if len(over) == 0 {
			return
		}
		if round == 3 {
			t.Fatal(strings.Join(over, "; "))
		}
	}
}

// costs logs what each of the messages of a run costs, and returns what is over its bound.
func costs(t *testing.T, w *world.World, calls *prometheus.Registry, run func(), messages float64) (over []string) {
	t.Helper()
	var before, after runtime.MemStats
	was := w.Engine.Stats()
	answered := handled(t, calls)
	runtime.ReadMemStats(&before)
	run()
	runtime.ReadMemStats(&after)
	is := w.Engine.Stats()
	for _, c := range []struct {
		what      string
		got, most float64
	}{
		{"fsyncs", float64(is.Durable - was.Durable), 2.1},
		{"transactions", float64(is.Durable - was.Durable + is.Lazy - was.Lazy), 5.2},
		{"operations", float64(is.Ops - was.Ops), 5.2},
		{"calls", handled(t, calls) - answered, 5.5},
		{"allocations", float64(after.Mallocs - before.Mallocs), 1750},
		{"bytes allocated", float64(after.TotalAlloc - before.TotalAlloc), 148 << 10},
	} {
		per := c.got / messages
		t.Logf("%s per message: %.2f", c.what, per)
		if per > c.most {
			over = append(over, fmt.Sprintf("%s per message: %.2f, want at most %.1f", c.what, per, c.most))
		}
	}
	return over
}

// handled counts the calls that were answered; streams end once.
func handled(t *testing.T, from *prometheus.Registry) float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	n := 0.0
	for _, f := range families {
		if f.GetName() != "grpc_server_handled_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			n += m.GetCounter().GetValue()
		}
	}
	return n
}

// An agent at rest costs no goroutine, nor does one that was looked at a while ago.
func TestIdleAgentsHaveNoGoroutines(t *testing.T) {
	const agents = 100 // one goroutine for each would show as clearly as with a thousand
	w := world.Start(t, world.Options{TTL: time.Minute, Idle: 100 * time.Millisecond, MaxOpen: 16})
	w.Create(t, "first", "")
	w.Say(t, "first", "external:console:cli:dm:cli:cli", "say: hello")
	before := runtime.NumGoroutine()
	for i := range agents {
		w.Create(t, fmt.Sprint("idle", i), "")
	}
	const slack = 8 // databases that are just being closed
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for until := time.Now().Add(time.Minute); runtime.NumGoroutine() > before+slack && time.Now().Before(until); {
		<-look.C
	}
	if n := runtime.NumGoroutine(); n > before+slack {
		buf := make([]byte, 64<<10)
		t.Errorf("%d goroutines with %d more agents, %d before\n%s", n, agents, before, buf[:runtime.Stack(buf, true)])
	}
}
