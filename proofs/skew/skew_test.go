//go:build proof

package skew_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/testing/need"
	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/drill"
	"github.com/theclaw/agents/proofs/program"
	"github.com/theclaw/agents/proofs/topology"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

func TestMain(m *testing.M) { program.Main(m) }

const (
	agent = "a1"
	peers = 20 // each has its conversation
)

// TestSkew sends N messages through each pair. PREVIOUS is the directory of the programs
// of the other revision.
func TestSkew(t *testing.T) {
	previous := os.Getenv("PREVIOUS")
	if previous == "" {
		need.Missing(t, "the programs of another revision", "run make skew, which builds them")
	}
	topology.Split.Check(t)
	present := topology.Reachable(t, program.Agentd(t).Path)
	earlier := topology.Reachable(t, filepath.Join(previous, "agentd"))
	for _, pair := range []struct{ name, registry, workers string }{
		{"old-workers", present, earlier},
		{"old-registry", earlier, present},
	} {
		t.Run(pair.name, func(t *testing.T) {
			f := run(t, drill.Size(t, "N", 20), pair.registry, pair.workers)
			drill.Line("skew pair=%s previous=%s messages=%d replied=%d tools=%d lost=%d dup=%d violations=%d",
				pair.name, filepath.Base(previous), f.messages, f.replied, f.tools, f.lost, f.dup, f.violations)
		})
	}
}

// figures are what a pair counts; the last three must be zero.
type figures struct{ messages, replied, tools, lost, dup, violations int }

func (f *figures) bad(t testing.TB, count *int, format string, args ...any) {
	t.Helper()
	*count++
	t.Errorf(format, args...)
}

// message is one that a peer sends.
type message struct {
	peer, text, key string
	id              int64
	turn            *registryv1.Turn
}

func run(t *testing.T, n int, registry, workers string) (f figures) {
	o := topology.Options{Kind: topology.Split, Programs: registry, Root: topology.Root(t)}
	s := topology.New(t, filepath.Join(o.Root, "home"), o)
	for _, p := range s.Parts {
		if p.Service != "registry" {
			p.Programs = workers
		}
	}
	s.Up(t)
	conn := s.Dial(t, s.Parts[0], "registry")
	c, sink := world.NewClient(conn, conn), world.NewSink(t)
	c.Create(t, agent, sink.Config())
	messages := make([]message, n)
	var g sync.WaitGroup
	for peer := range min(peers, n) {
		g.Go(func() {
			for i := peer; i < n; i += peers {
				m := &messages[i]
				m.peer, m.key = fmt.Sprintf("p%d", peer), fmt.Sprintf("m%d", i)
				if m.text = "say: " + m.key; i%10 == 0 {
					m.text = "run: echo $TOOL_IDEMPOTENCY_KEY >> ran.txt"
				}
				var err error
				if m.id, err = c.Push(t.Context(), agent, world.Peer(m.peer), m.text, m.key); err != nil {
					t.Errorf("push %s: %v", m.key, err)
					return
				}
				if i%3 == 0 { // others wait in the inbox with it
					m.turn = c.Ask(t, agent, m.id, time.Minute)
				}
			}
		})
	}
	g.Wait()
	if t.Failed() {
		return f
	}
	f.account(t, s, c, sink, messages)
	return f
}

// account waits for each message and looks for its one fate, its one reply event and its
// one arrival, and then checks the databases.
func (f *figures) account(t *testing.T, s *topology.Site, c world.Client, sink *world.Sink, messages []message) {
	f.messages = len(messages)
	threads, history := map[string][]int64{}, &invariant.History{}
	for i := range messages {
		m := &messages[i]
		if m.turn = c.Ask(t, agent, m.id, time.Minute); m.turn.GetFate() != registryv1.Fate_FATE_REPLIED || m.turn.GetReplyEventId() == 0 {
			f.bad(t, &f.lost, "%s: %v", m.key, m.turn)
			continue
		}
		f.replied++
		threads[m.turn.GetThreadId()] = append(threads[m.turn.GetThreadId()], m.turn.GetReplyEventId())
		history.Pushes = append(history.Pushes, invariant.Push{Agent: agent, Key: m.key, IDs: []int64{m.id}})
	}
	for thread, want := range threads {
		var got []int64
		for _, e := range c.Events(t, agent, thread, "type = 'message' AND source = 'self'") {
			got = append(got, e.GetId())
		}
		if slices.Sort(want); !slices.Equal(got, want) {
			f.bad(t, &f.dup, "%s has the replies %v, its turns %v", thread, got, want)
		}
	}
	for deadline := time.Now().Add(time.Minute); ; <-time.After(5 * time.Millisecond) {
		r, err := c.Agents.GetAgentStatus(t.Context(), &registryv1.GetAgentStatusRequest{AgentId: agent})
		if err == nil && r.GetInbox().GetPending() == 0 && r.GetOutboundPending() == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not all is delivered: %v %v", r, err)
		}
	}
	if bad := s.Down(); bad != "" {
		t.Error(bad)
	}
	arrived := map[string]int{}
	for _, a := range sink.Arrivals(agent) {
		arrived[a.Key]++
	}
	for key, n := range arrived {
		if n > 1 {
			f.bad(t, &f.dup, "%s arrived %d times", key, n)
		}
	}
	if len(arrived) < f.replied {
		f.bad(t, &f.lost, "%d arrived of %d replies", len(arrived), f.replied)
	}
	found, stats, err := invariant.Check(t.Context(), layout.At(s.Parts[0].Home), invariant.Options{
		Drained: true, History: history, Runs: f.runs(t, s), Sink: drill.Arrivals(sink),
	})
	if err != nil || stats.Turns < len(messages) {
		t.Fatal(stats, err)
	}
	for _, v := range found {
		if v.Severity == invariant.Violation {
			f.bad(t, &f.violations, "%s", v)
		}
	}
}

// runs are the keys that tools wrote on the machine of the runner.
func (f *figures) runs(t *testing.T, s *topology.Site) []string {
	t.Helper()
	i := slices.IndexFunc(s.Parts, func(p *topology.Part) bool { return p.Service == "runner" })
	b, err := os.ReadFile(filepath.Join(s.Parts[i].Home, "agents", agent, "workdir", "ran.txt"))
	if err != nil {
		t.Fatal(err)
	}
	keys := strings.Fields(string(b))
	f.tools = len(keys)
	return keys
}
