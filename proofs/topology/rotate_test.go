//go:build proof

package topology_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/need"
	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/drill"
	"github.com/theclaw/agents/proofs/program"
	"github.com/theclaw/agents/proofs/topology"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

func TestMain(m *testing.M) { program.Main(m) }

// S3: certificates, and every fifth time the authority, are replaced while people talk to
// agents, over a connection that stays and over a new one for each call. No call is
// repeated by anybody here, so one that fails is seen. No call fails, nobody is refused,
// no lease is lost and every message is answered. N is how often they are replaced.
func TestRotation(t *testing.T) {
	kind := topology.Kind(cmp.Or(os.Getenv("TOPOLOGY"), "split"))
	if kind == topology.Embedded {
		need.Inapplicable(t, "agentd all shows no certificate to itself")
	}
	kind.Check(t)
	rotations := drill.Size(t, "N", 5)
	o := topology.Options{Kind: kind, Programs: topology.Reachable(t, program.Agentd(t).Path), Root: topology.Root(t)}
	if kind == topology.Cluster {
		o.Database = pgtest.Start(t).Database(t)
	}
	s := topology.New(t, filepath.Join(o.Root, "home"), o)
	s.Up(t)
	l := talk(t, s)
	for n := range rotations {
		if n%5 == 4 {
			s.RotateAuthority(t)
		} else {
			s.Rotate(t)
		}
		l.more(t)
	}
	l.stop()
	if l.messages.Load() == 0 || rotations == 0 {
		t.Error("nothing was replaced under load")
	}
	for _, p := range s.Parts {
		for _, bad := range []string{`msg="connection refused"`, "lease lost", "cannot be used"} {
			if _, at, found := strings.Cut(p.Log(), bad); found {
				t.Errorf("%s says: %s%.300s", p.Name, bad, at)
			}
		}
	}
	if bad := s.Down(); bad != "" {
		t.Error(bad)
	}
	drill.Line("rotation topology=%s rotations=%d calls=%d connections=%d messages=%d failed=%d",
		kind, rotations, l.calls.Load(), l.connections.Load(), l.messages.Load(), l.failed.Load())
}

// people talk and look until they are stopped.
type people struct {
	calls, connections, messages, failed atomic.Int64

	stop func()
	came chan struct{} // one for each connection and each message
}

func talk(t *testing.T, s *topology.Site) *people {
	ctx, cancel := context.WithCancel(t.Context())
	var g sync.WaitGroup
	p := &people{came: make(chan struct{}), stop: func() { cancel(); g.Wait() }}
	t.Cleanup(p.stop)
	stays := s.Dial(t, s.Parts[0], "registry")
	c, sink := world.NewClient(stays, stays), world.NewSink(t)
	tell := func() {
		select {
		case p.came <- struct{}{}:
		case <-ctx.Done():
		}
	}
	failed := func(what string, err error) {
		p.failed.Add(1)
		t.Errorf("%s: %v", what, err)
	}
	for _, agent := range []string{"a1", "a2"} {
		c.Create(t, agent, sink.Config())
		g.Go(func() {
			for n := 0; ctx.Err() == nil && p.failed.Load() == 0; n++ {
				p.calls.Add(2)
				id, err := c.Push(t.Context(), agent, world.Peer("bob"), fmt.Sprintf("say: %d", n), "")
				if err != nil {
					failed("push", err)
					return
				}
				if turn := c.Ask(t, agent, id, time.Minute); turn.GetFate() != registryv1.Fate_FATE_REPLIED {
					failed("message", fmt.Errorf("%d of %s: %v", id, agent, turn))
				}
				p.messages.Add(1)
				tell()
			}
		})
	}
	for _, part := range s.Parts {
		g.Go(func() {
			for ctx.Err() == nil && p.failed.Load() == 0 {
				if err := s.Ask(t.Context(), part); err != nil {
					failed("a new connection to "+part.Name, err)
					return
				}
				p.calls.Add(1)
				p.connections.Add(1)
				tell()
			}
		})
	}
	return p
}

// more returns when many have called since.
func (p *people) more(t *testing.T) {
	t.Helper()
	for range 40 {
		select {
		case <-p.came:
		case <-time.After(time.Minute):
			t.Fatal("nobody calls any more")
		}
	}
}
