//go:build proof

package cluster_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/drill"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

const (
	agents = 6
	peers  = 3
	bound  = 3 * time.Minute // for what is left when the faults have stopped
)

// load is messages of people who each say one after the other.
type load struct {
	c    world.Client
	sink *world.Sink

	failed   atomic.Int64 // calls that answered an error although they were repeated
	answered atomic.Int64 // messages that have their fate

	mu   sync.Mutex
	sent []*message
}

type message struct {
	agent, key string
	id         int64
	turn       *registryv1.Turn
}

func agentID(i int) string { return fmt.Sprintf("agent-%d", i) }

// start lets people talk until ctx ends; all they said is worked on when done is closed.
func (l *load) start(ctx context.Context, t *testing.T) (done <-chan struct{}) {
	end := make(chan struct{})
	var g sync.WaitGroup
	for a := range agents {
		for p := range peers {
			g.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					l.say(t, agentID(a), fmt.Sprintf("peer%d", p), n)
				}
			})
		}
	}
	go func() { g.Wait(); close(end) }()
	return end
}

// say pushes one message and waits for its fate. The push has a key: repeated, it is
// the same message.
func (l *load) say(t *testing.T, agent, peer string, n int) {
	m := &message{agent: agent, key: fmt.Sprintf("%s-%s-%d", agent, peer, n)}
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	var id int64
	for id == 0 && ctx.Err() == nil {
		var err error
		if id, err = l.c.Push(ctx, agent, world.Peer(peer), "say: "+m.key, m.key); err != nil {
			l.failed.Add(1)
			rest(ctx)
		}
	}
	if id == 0 {
		return // never acknowledged
	}
	m.id = id
	l.mu.Lock()
	l.sent = append(l.sent, m)
	l.mu.Unlock()
	for ctx.Err() == nil {
		r, err := l.c.Turns.GetTurn(ctx, &registryv1.GetTurnRequest{AgentId: agent, InboxId: id, Wait: durationpb.New(10 * time.Second)})
		if err != nil {
			l.failed.Add(1)
			rest(ctx)
		} else if r.GetTurn().GetFate() != registryv1.Fate_FATE_UNSPECIFIED {
			m.turn = r.GetTurn()
			l.answered.Add(1)
			return
		}
	}
}

// during lets people talk for a while, and then on until some were answered.
func (l *load) during(t *testing.T, d time.Duration) {
	t.Helper()
	least := l.answered.Load() + peers
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	for ; l.answered.Load() < least; rest(ctx) {
		if ctx.Err() != nil {
			t.Fatal("nobody is answered any more")
		}
	}
}

// rest is what a person does when nobody answers.
func rest(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Millisecond):
	}
}

// figures of a proof.
type figures struct{ messages, lost, dup, stuck, repeats, violations int }

// account compares what was acknowledged with what was answered and what arrived.
func (l *load) account(t *testing.T) figures {
	t.Helper()
	f := l.replied(t)
	return l.arrived(t, f)
}

// replied compares what was acknowledged with what was answered.
func (l *load) replied(t *testing.T) figures {
	t.Helper()
	replies := map[string]int{}
	for a := range agents {
		for p := range peers {
			for _, e := range l.c.Events(t, agentID(a), fmt.Sprintf("threads/peers/main-peer%d", p), "source = 'self' AND type = 'message'") {
				replies[word(world.Text(e))]++
			}
		}
	}
	f := figures{messages: len(l.sent)}
	for _, m := range l.sent {
		switch n := replies[m.key]; {
		case m.turn == nil:
			f.stuck++
			t.Errorf("%s has no fate", m.key)
		case m.turn.GetFate() != registryv1.Fate_FATE_REPLIED || n == 0:
			f.lost++
			t.Errorf("%s: %v, %d replies", m.key, m.turn, n)
		case n > 1:
			f.dup++
			t.Errorf("%s has %d replies", m.key, n)
		}
	}
	return f
}

// arrived adds what came of the replies.
func (l *load) arrived(t *testing.T, f figures) figures {
	t.Helper()
	// A send may be made again under its key (window B); two keys are two messages.
	for end := time.Now().Add(bound); ; {
		keys, sends := map[string]map[string]bool{}, 0
		for _, a := range l.sink.Arrivals("") {
			w := word(a.Text)
			if keys[w] == nil {
				keys[w] = map[string]bool{}
			}
			keys[w][a.Key] = true
			sends++
		}
		if len(keys) < len(l.sent) && time.Now().Before(end) {
			rest(t.Context())
			continue
		}
		for _, m := range l.sent {
			if n := len(keys[m.key]); n == 0 {
				f.lost++
				t.Errorf("the reply to %s was never sent", m.key)
			} else if n > 1 {
				f.dup++
				t.Errorf("the reply to %s was sent under %d keys", m.key, n)
			}
		}
		f.repeats = sends - len(keys)
		return f
	}
}

// judge waits until nothing is left to do and lets the checker look at the databases
// themselves (I1 to I20 as far as they are about messages).
func (l *load) judge(t *testing.T, home, dsn string) (violations int) {
	t.Helper()
	o := invariant.Options{Live: true, Drained: true, DSN: dsn, Sink: drill.Arrivals(l.sink), History: &invariant.History{}}
	for _, m := range l.sent {
		o.History.Pushes = append(o.History.Pushes, invariant.Push{Agent: m.agent, Key: m.key, IDs: []int64{m.id}})
	}
	for a := range agents {
		l.settled(t, agentID(a))
	}
	found, stats, err := invariant.Check(t.Context(), layout.At(home), o)
	if err != nil {
		t.Fatalf("check invariants: %v", err)
	}
	if stats.Agents != agents || stats.Turns < len(l.sent) || stats.Deliveries < len(l.sent) {
		t.Errorf("the checker looked at too little: %+v", stats)
	}
	for _, f := range found {
		if f.Severity == invariant.Violation {
			violations++
			t.Error(f)
		}
	}
	return violations
}

// settled waits for the last acknowledgements of an agent (T8, D3): the fate of a
// message stands a moment earlier.
func (l *load) settled(t *testing.T, agent string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	for {
		r, err := l.c.Agents.GetAgentStatus(ctx, &registryv1.GetAgentStatusRequest{AgentId: agent})
		if err == nil && r.GetInbox().GetPending() == 0 && r.GetOutboundPending() == 0 {
			return
		}
		if ctx.Err() != nil {
			t.Errorf("%s does not come to rest: %v, %v", agent, r, err)
			return
		}
		rest(ctx)
	}
}

// word finds the key of a message in what was answered.
func word(text string) string {
	for w := range strings.FieldsSeq(text) {
		if strings.HasPrefix(w, "agent-") {
			return w
		}
	}
	return text
}
