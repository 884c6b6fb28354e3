//go:build proof

package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// A message of a load, and what is known about it.
type message struct {
	agent, peer string
	n           int
	kind        string // echo, run, fail or refuse

	id   int64 // in the inbox, once accepted
	turn *registryv1.Turn
	err  error // why there is no turn
}

// key names the message: it is its idempotency key, is in its text, and is what
// its tool writes.
func (m *message) key() string { return fmt.Sprintf("%s-%s-%d", m.agent, m.peer, m.n) }

// text is what it says. Each holds the key, so that it can be found again.
func (m *message) text() string {
	switch m.kind {
	case "run":
		return "run: echo " + m.key() + " $TOOL_IDEMPOTENCY_KEY >> ran.txt"
	case "fail":
		return "fail: auth " // ends dead at once (T9); found by its turn
	case "refuse":
		return "say: " + m.key() + " " + world.Refused
	}
	return "say: " + m.key()
}

// load is messages on their way through a site whose processes come and go.
type load struct {
	site *world.Site
	mode string // of the queue; empty: followup
	sent []*message
	wg   sync.WaitGroup

	resets bool // each send begins a new epoch of each conversation that there is
	mu     sync.Mutex
	asked  map[string]int // epochs, by agent/peer

	dsn   string   // where several registries keep the agents; empty: in the site's home
	homes []string // where tools run; none: the site's home
}

// send pushes messages, each conversation in its order and all conversations at
// once, and follows each to its end. A call cut off by a kill is repeated; the
// push carries a key. It returns at once; wait for wg.
func (l *load) send(ctx context.Context, ms ...*message) {
	l.sent = append(l.sent, ms...)
	lanes := map[string][]*message{}
	for _, m := range ms {
		lane := m.agent + "/" + m.peer
		lanes[lane] = append(lanes[lane], m)
	}
	for name, lane := range lanes {
		l.wg.Go(func() {
			if err := l.reset(ctx, name, lane[0]); err != nil {
				lane[0].err = err
				return
			}
			for _, m := range lane {
				if m.id, m.err = world.Again(ctx, func(ctx context.Context) (int64, error) {
					return l.site.Push(ctx, m.agent, world.Peer(m.peer), m.text(), m.key())
				}); m.err != nil {
					return
				}
				l.wg.Go(func() { m.turn, m.err = l.follow(ctx, m) })
			}
		})
	}
}

// reset lets the next message of a conversation begin an epoch, where there is one yet.
func (l *load) reset(ctx context.Context, name string, m *message) error {
	if !l.resets {
		return nil
	}
	_, err := world.Again(ctx, func(ctx context.Context) (*registryv1.ResetSessionResponse, error) {
		return l.site.Sessions.ResetSession(ctx, &registryv1.ResetSessionRequest{Key: "agent:" + m.agent + ":telegram:main:dm:" + m.peer})
	})
	if fault.Is(err, fault.SessionNotFound) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked == nil {
		l.asked = map[string]int{}
	}
	l.asked[name]++
	return err
}

// follow waits for the fate, and for the end of the delivery where there is one.
func (l *load) follow(ctx context.Context, m *message) (*registryv1.Turn, error) {
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		r, err := world.Again(ctx, func(ctx context.Context) (*registryv1.GetTurnResponse, error) {
			return l.site.Turns.GetTurn(ctx, &registryv1.GetTurnRequest{AgentId: m.agent, InboxId: m.id, Wait: durationpb.New(20 * time.Second)})
		})
		if err != nil {
			return nil, err
		}
		t := r.GetTurn()
		switch {
		case t.GetFate() == registryv1.Fate_FATE_UNSPECIFIED:
			continue
		case t.GetReplyEventId() == 0, t.GetDelivery().GetState() >= registryv1.DeliveryState_DELIVERY_STATE_SENT:
			return t, nil
		}
		// Nothing tells when a delivery has ended, so it is asked for.
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return t, ctx.Err()
		}
	}
}

// led tells whether the turn has answered other messages too: then the last of
// them, not its own, decides what a model does.
func (m *message) led() bool {
	return slices.ContainsFunc(m.turn.GetSteps(), func(s *registryv1.Step) bool {
		return s.GetKind() == registryv1.StepKind_STEP_KIND_STEER
	})
}

func (m *message) merged() bool { return m.turn.GetFate() == registryv1.Fate_FATE_MERGED }

// done is closed when every message sent so far has come to its end.
func (l *load) done() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		l.wg.Wait()
		close(done)
	}()
	return done
}

// figures are what a drill counts; those of the last row must be zero.
type figures struct {
	messages, merged, epochs, inDoubt  int
	lost, dup, stuck, dead, violations int
}

func (f *figures) add(o figures) {
	f.messages += o.messages
	f.merged += o.merged
	f.epochs += o.epochs
	f.inDoubt += o.inDoubt
	f.lost += o.lost
	f.dup += o.dup
	f.stuck += o.stuck
	f.dead += o.dead
	f.violations += o.violations
}

func (f *figures) clean() bool { return f.lost+f.dup+f.stuck+f.dead+f.violations == 0 }

// finding reports one broken promise and counts it.
func finding(t testing.TB, count *int, format string, args ...any) {
	t.Helper()
	*count++
	t.Errorf(format, args...)
}
