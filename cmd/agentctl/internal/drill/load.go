package drill

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/cmd/agentctl/internal/drill/site"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// message is one message of the load, and what is known of it.
type message struct {
	agent, peer, kind string
	n                 int

	hits map[state]time.Time // the last kill that found it in a state

	mu   sync.Mutex // guards the rest while the load runs
	id   int64      // in the inbox; 0: not acknowledged yet
	turn *registry.Turn
	err  error
}

// key names the message: in its push, in its text and in what its tool writes.
func (m *message) key() string { return fmt.Sprintf("drill-%d", m.n) }

func (m *message) text() string {
	switch m.kind {
	case "slow":
		return "slow: 0.03"
	case "run":
		return "run: echo " + m.key() + " >> ran.txt; sleep 0.02"
	}
	return "say: " + m.key()
}

func (m *message) inboxID() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.id
}

// load is messages on their way through a site whose services come and go.
type load struct {
	site   *site.Site
	sent   []*message
	wg     sync.WaitGroup
	cancel []context.CancelFunc
}

// send pushes messages, each conversation in its order and all at once, and
// follows each to its end. The channel is closed when one was acknowledged.
func (l *load) send(ctx context.Context, ms ...*message) <-chan struct{} {
	ctx, cancel := context.WithCancel(ctx)
	l.cancel = append(l.cancel, cancel)
	lanes := map[string][]*message{}
	for _, m := range ms {
		m.n = len(l.sent)
		l.sent = append(l.sent, m)
		lanes[m.agent+m.peer] = append(lanes[m.agent+m.peer], m)
	}
	var once sync.Once
	first := make(chan struct{})
	for _, lane := range lanes {
		l.wg.Go(func() {
			for _, m := range lane {
				id, err := site.Again(ctx, func(ctx context.Context) (int64, error) { return l.push(ctx, m) })
				m.mu.Lock()
				m.id, m.err = id, err
				m.mu.Unlock()
				once.Do(func() { close(first) })
				if err != nil {
					return
				}
				l.wg.Go(func() { l.follow(ctx, m) })
			}
		})
	}
	return first
}

func (l *load) push(ctx context.Context, m *message) (int64, error) {
	content, err := json.Marshal(map[string]string{"text": m.text()})
	if err != nil {
		return 0, err
	}
	r, err := l.site.Threads.PushEvents(ctx, &registry.PushEventsRequest{
		Thread: &registry.ThreadRef{AgentId: m.agent, ThreadId: "inbox"}, IdempotencyKey: m.key(),
		Events: []*registry.NewEvent{{Source: "external:drill:main:dm:" + m.peer + ":" + m.peer, Type: "message", Content: string(content)}},
	})
	if err != nil {
		return 0, err
	}
	return r.GetEventIds()[0], nil
}

// follow waits for the fate, and for the end of the delivery where there is one.
func (l *load) follow(ctx context.Context, m *message) {
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		r, err := site.Again(ctx, func(ctx context.Context) (*registry.GetTurnResponse, error) {
			return l.site.Turns.GetTurn(ctx, &registry.GetTurnRequest{AgentId: m.agent, InboxId: m.id, Wait: durationpb.New(20 * time.Second)})
		})
		m.mu.Lock()
		m.turn, m.err = r.GetTurn(), err
		m.mu.Unlock()
		t := r.GetTurn()
		switch {
		case err != nil:
			return
		case t.GetFate() == registry.Fate_FATE_UNSPECIFIED:
			continue
		case t.GetReplyEventId() == 0, t.GetDelivery().GetState() >= registry.DeliveryState_DELIVERY_STATE_SENT:
			return
		}
		// Nothing tells when a delivery has ended, so it is asked for.
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// done is closed when every message sent so far has come to its end.
func (l *load) done() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		l.wg.Wait()
		close(done)
	}()
	return done
}

// stop gives up on what has not come to its end.
func (l *load) stop() {
	for _, c := range l.cancel {
		c()
	}
	l.wg.Wait()
}
