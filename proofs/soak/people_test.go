//go:build proof

package soak_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// talkers is how many people talk to each agent, rate how many messages all
// people together send in a second: less than two cores can do, or a proof of hours
// would be a proof of the reader of its databases.
const (
	talkers = 2
	rate    = 40
)

// said is one message of a person: every fifth runs a tool, which leaves a trace,
// and now and then shows what it can see of its environment.
func said(key, mark string, n int) string {
	trace := "run: echo " + key + " $TOOL_IDEMPOTENCY_KEY >> ran.txt; echo " + mark
	switch {
	case n%23 == 7:
		return trace + "; env"
	case n%5 == 4:
		return trace
	}
	return "say: " + key + " " + mark
}

// talk is one person who says something, waits for the answer, thinks, and goes on.
func (l *life) talk(ctx context.Context, agent, who string, chance *rand.Rand, done <-chan struct{}) {
	think := time.Duration(len(l.agents)*talkers) * time.Second / rate
	for n := chance.IntN(23); ; n++ {
		timer := time.NewTimer(time.Duration(chance.Int64N(int64(2*think) + 1)))
		select {
		case <-done:
			timer.Stop()
			return
		case <-timer.C:
		}
		key := fmt.Sprintf("%s-%s-%x", agent, who, chance.Uint64())
		id, err := l.push(ctx, agent, who, said(key, canaryOf(agent, who), n), key)
		if err == nil {
			_, err = l.fate(ctx, agent, id)
		}
		if err != nil {
			l.t.Errorf("%s: %v", key, err)
			return
		}
	}
}

// push is repeated until it is answered, and noted.
func (l *life) push(ctx context.Context, agent, who, text, key string) (int64, error) {
	id, err := world.Again(ctx, func(ctx context.Context) (int64, error) {
		return l.site.Push(ctx, agent, world.Peer(who), text, key)
	})
	if err == nil {
		l.note(invariant.Push{Agent: agent, Key: key, IDs: []int64{id}})
	}
	return id, err
}

func (l *life) note(p invariant.Push) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history.Pushes = append(l.history.Pushes, p)
}

// fate waits for the reply to an inbox event.
func (l *life) fate(ctx context.Context, agent string, id int64) (*registryv1.Turn, error) {
	for {
		r, err := world.Again(ctx, func(ctx context.Context) (*registryv1.GetTurnResponse, error) {
			return l.site.Turns.GetTurn(ctx, &registryv1.GetTurnRequest{AgentId: agent, InboxId: id, Wait: durationpb.New(20 * time.Second)})
		})
		if err != nil {
			return nil, err
		}
		switch r.GetTurn().GetFate() {
		case registryv1.Fate_FATE_REPLIED:
			return r.GetTurn(), nil
		case registryv1.Fate_FATE_UNSPECIFIED:
		default:
			return r.GetTurn(), fmt.Errorf("fate %v", r.GetTurn())
		}
	}
}

// crowd lets everybody talk until done is closed; the group is done when all
// have their last answer.
func (l *life) crowd(ctx context.Context, done <-chan struct{}) *sync.WaitGroup {
	var all sync.WaitGroup
	for _, agent := range l.agents {
		for i := range talkers {
			mine := rand.New(rand.NewPCG(l.chance.Uint64(), 1))
			all.Go(func() { l.talk(ctx, agent, fmt.Sprint("p", i), mine, done) })
		}
	}
	return &all
}

// queue puts n messages into the inboxes while nobody works on them.
func (l *life) queue(ctx context.Context, n int) {
	each := n / (len(l.agents) * talkers)
	for _, agent := range l.agents {
		for i := range talkers {
			who := fmt.Sprint("p", i)
			req := &registryv1.PushEventsRequest{
				Thread: &registryv1.ThreadRef{AgentId: agent, ThreadId: "inbox"}, IdempotencyKey: "queue " + agent + who,
			}
			for k := range each {
				req.Events = append(req.Events, &registryv1.NewEvent{
					Source: world.Peer(who), Type: "message", Content: world.Message(fmt.Sprintf("say: queued %d %s", k, canaryOf(agent, who))),
				})
			}
			r, err := world.Again(ctx, func(ctx context.Context) (*registryv1.PushEventsResponse, error) {
				return l.site.Threads.PushEvents(ctx, req)
			})
			if err != nil {
				l.t.Fatal(err)
			}
			l.note(invariant.Push{Agent: agent, Key: req.GetIdempotencyKey(), IDs: r.GetEventIds()})
		}
	}
}
