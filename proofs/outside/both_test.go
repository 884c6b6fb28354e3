//go:build proof

package outside_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/theclaw/agents/internal/notifier"
	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/drill"
)

// TestBothWays lets the external tool read and write the very directories on which
// the services work: it pops our consumers to and fro, subscribes, looks and pushes,
// and what it made before us is taken over. S0-51, S0-56, S0-60, S0-63, I18.
func TestBothWays(t *testing.T) {
	n := min(drill.Size(t, "N", 10), 100)
	seed, chance := drill.Seed(t)
	m := newMachine(t, t.TempDir())
	w := m.serve(nil)
	w.Create(t, agent, "")
	inbox, ann := m.thread("inbox"), m.thread("threads/peers/tui-main-ann")
	// A conversation that the external tool made, with a consumer and an event.
	m.must("thread", "init", ann)
	m.must("thread", "subscribe", "--thread", ann, "--consumer", "audit", "--handler", "true")
	m.must("thread", "push", "--thread", ann, "--source", "external:tui:tui-main:dm:ann:ann", "--type", "message", "--content", "before us")

	var g sync.WaitGroup
	g.Go(func() {
		for i := range n {
			m.push("ann", fmt.Sprint("say: ", i))
		}
	})
	moves := rand.New(rand.NewPCG(chance.Uint64(), 0))
	for range n {
		m.must("thread", "pop", "--thread", inbox, "--consumer", "inbox", "--last-event-id", fmt.Sprint(moves.IntN(2*n)))
		m.must("thread", "info", "--thread", inbox, "--json")
		m.must("thread", "peek", "--thread", ann, "--last-event-id", "0", "--filter", "source = 'self'")
		if out, code := m.run("thread", "pop", "--thread", ann, "--consumer", "outbound", "--last-event-id", fmt.Sprint(moves.IntN(2*n))); code != 0 && !strings.Contains(out, "no subscription") {
			t.Errorf("pop: exit %d %s", code, out)
		}
	}
	g.Wait()
	m.delivered(n)
	m.push("ann", "say: last")
	all := m.delivered(n + 1)
	for i, s := range all {
		want := fmt.Sprint(i)
		if i == n {
			want = "last"
		}
		if s.Text != want || !s.OK {
			t.Errorf("send %d is %+v", i, s)
		}
	}
	// Both see the same events (I18).
	ours := w.Events(t, agent, "threads/peers/tui-main-ann", "")
	theirs := strings.Count(m.must("thread", "peek", "--thread", ann, "--last-event-id", "0", "--limit", "100000"), "\n")
	if len(ours) != theirs || len(ours) != 2*(n+1)+1 {
		t.Errorf("we see %d events, the external tool %d, want %d", len(ours), theirs, 2*(n+1)+1)
	}
	info := m.must("thread", "info", "--thread", inbox)
	if !strings.Contains(info, "  - inbox\n    handler: agent run "+agent+"\n    filter:  (none)\n") {
		t.Errorf("the inbox subscription: %s", info)
	}
	info = m.must("thread", "info", "--thread", ann)
	if !strings.Contains(info, "  - outbound\n    handler: agent deliver --thread "+ann+" --consumer outbound\n    filter:  type = 'message' AND source = 'self'\n") {
		t.Errorf("the outbound subscription: %s", info)
	}
	drill.Line("outside-both moves=%d messages=%d answered_once=%d seed=%d", 2*n, n+1, len(all), seed)
}

// TestForeignConsumer subscribes a program of somebody else to a conversation: it is
// started for what we write there, and a filter that does not work stops neither it
// nor us. CONTRACTS 1.5, S0-61, S0-120.
func TestForeignConsumer(t *testing.T) {
	m := newMachine(t, t.TempDir())
	m.notifier(0, 0)
	w := m.serve(func(o *world.Options) {
		o.Notifier = func() (string, bool) {
			return notifier.Home(func(name string) string { return map[string]string{"HOME": m.user}[name] })
		}
	})
	w.Create(t, agent, "")
	ann, bob, inbox := m.thread("threads/peers/tui-main-ann"), m.thread("threads/peers/tui-main-bob"), m.thread("inbox")
	heard := filepath.Join(m.user, "heard")
	tell := func(who string) string { return "echo " + who + " >> " + heard }
	for _, dir := range []string{ann, bob} {
		m.must("thread", "init", dir)
	}
	m.must("thread", "subscribe", "--thread", ann, "--consumer", "audit", "--handler", tell("ann"), "--filter", "source = 'self'")
	m.must("thread", "subscribe", "--thread", ann, "--consumer", "broken", "--handler", "true", "--filter", "type=message AND source=self")
	m.must("thread", "subscribe", "--thread", bob, "--consumer", "audit", "--handler", tell("bob"), "--filter", "source = 'self'")
	m.must("thread", "subscribe", "--thread", inbox, "--consumer", "broken", "--handler", "true", "--filter", "type=message AND source=self")
	for _, peer := range []string{"ann", "bob"} {
		m.push(peer, "say: hello "+peer)
	}
	m.delivered(2)
	m.await("the foreign handlers", func() bool {
		s := m.read(heard)
		return strings.Contains(s, "ann\n") && strings.Contains(s, "bob\n")
	})
	drill.Line("outside-foreign consumers=4 broken=2 received=2 sent=%d", len(m.journal()))
}
