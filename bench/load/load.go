// Package load owns the closed-loop load: conversations that each send a message
// and wait for the committed reply, over gRPC against running services.
//
// It checks while it measures: every message gets exactly one reply, and the
// replies of a conversation come in the order of its messages. Latency is from
// the acknowledged push to the reply being seen by a client that watches the
// conversation, so it includes the way back. The package starts no services.
package load

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Plan of a load.
type Plan struct {
	Agent         string
	Conversations int
	Messages      int // per conversation
	Bytes         int // of text; 0: a short word
}

// Result of a load.
type Result struct {
	Messages int
	Took     time.Duration
	Push     []time.Duration // one acknowledged push
	Reply    []time.Duration // acknowledged push to reply seen
}

// Rate in messages per second.
func (r Result) Rate() float64 { return float64(r.Messages) / r.Took.Seconds() }

// Percentile of a sorted list; p from 0 to 1.
func Percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)]
}

// Run drives the plan. Each run uses peers of its own, named by tag.
func Run(ctx context.Context, conn grpc.ClientConnInterface, p Plan, tag string) (Result, error) {
	var mu sync.Mutex
	out := Result{Messages: p.Conversations * p.Messages}
	var first error
	start := time.Now()
	var g sync.WaitGroup
	for c := range p.Conversations {
		g.Go(func() {
			push, reply, err := converse(ctx, conn, p, fmt.Sprintf("%s%d", tag, c))
			mu.Lock()
			defer mu.Unlock()
			out.Push, out.Reply = append(out.Push, push...), append(out.Reply, reply...)
			if err != nil && first == nil {
				first = err
			}
		})
	}
	g.Wait()
	out.Took = time.Since(start)
	slices.Sort(out.Push)
	slices.Sort(out.Reply)
	return out, first
}

func converse(ctx context.Context, conn grpc.ClientConnInterface, p Plan, peer string) (push, reply []time.Duration, err error) {
	threads := registryv1.NewThreadServiceClient(conn)
	ref := &registryv1.ThreadRef{AgentId: p.Agent, ThreadId: "threads/peers/bench-" + peer}
	if _, err := threads.EnsureThread(ctx, &registryv1.EnsureThreadRequest{Thread: ref}); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch, err := threads.WatchEvents(ctx, &registryv1.WatchEventsRequest{Thread: ref, Filter: "source = 'self' AND type = 'message'"})
	if err != nil {
		return nil, nil, err
	}
	if _, err := watch.Recv(); err != nil { // from here on nothing is missed
		return nil, nil, err
	}
	for i := range p.Messages {
		text := fmt.Sprintf("say: %s-%d", peer, i)
		if n := p.Bytes - len(text); n > 0 {
			text += string(slices.Repeat([]byte{'.'}, n))
		}
		content, err := json.Marshal(map[string]string{"text": text})
		if err != nil {
			return push, reply, err
		}
		sent := time.Now()
		if _, err := threads.PushEvents(ctx, &registryv1.PushEventsRequest{
			Thread:         &registryv1.ThreadRef{AgentId: p.Agent, ThreadId: "inbox"},
			IdempotencyKey: fmt.Sprintf("%s-%d", peer, i),
			Events:         []*registryv1.NewEvent{{Source: "external:bench:bench:dm:" + peer + ":" + peer, Type: "message", Content: string(content)}},
		}); err != nil {
			return push, reply, err
		}
		acked := time.Now()
		ev, err := next(watch)
		if err != nil {
			return push, reply, err
		}
		if want := text[len("say: "):]; ev != want {
			return push, reply, fmt.Errorf("conversation %s: reply %d is %.40q, want %.40q", peer, i, ev, want)
		}
		push, reply = append(push, acked.Sub(sent)), append(reply, time.Since(acked))
	}
	return push, reply, nil
}

// next answers the text of the next reply; more than one at a time is a double
// answer, since nothing else was asked.
func next(watch grpc.ServerStreamingClient[registryv1.WatchEventsResponse]) (string, error) {
	for {
		r, err := watch.Recv()
		if err != nil {
			return "", err
		}
		switch len(r.GetEvents()) {
		case 0:
			continue
		case 1:
			var v struct{ Text string }
			err := json.Unmarshal([]byte(r.GetEvents()[0].GetContent()), &v)
			return v.Text, err
		}
		return "", fmt.Errorf("%d replies to one message", len(r.GetEvents()))
	}
}
