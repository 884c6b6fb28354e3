// Package load generates a closed-loop load: conversations that each send a message
// and wait for the committed reply, over gRPC against running services.
//
// It checks while it measures: every message gets exactly one reply, and the replies of a
// conversation arrive in the order of its messages. Latency is from the acknowledged push
// until a client that watches the conversation sees the reply, so it includes the way
// back. The package starts no services.
package load

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
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
	Whole    []time.Duration // both
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

// Add joins what came of a load that was driven after.
func (r *Result) Add(o Result) {
	r.Messages, r.Took = r.Messages+o.Messages, r.Took+o.Took
	for _, of := range [][2]*[]time.Duration{{&r.Push, &o.Push}, {&r.Reply, &o.Reply}, {&r.Whole, &o.Whole}} {
		*of[0] = append(*of[0], *of[1]...)
		slices.Sort(*of[0])
	}
}

// Run drives the plan. Each run uses peers of its own, named by tag.
func Run(ctx context.Context, conn grpc.ClientConnInterface, p Plan, tag string) (Result, error) {
	start := time.Now()
	t, err := Open(ctx, conn, p, tag)
	if err != nil {
		return Result{}, err
	}
	defer t.Close()
	out, err := t.Drive(ctx, p.Messages)
	out.Took = time.Since(start)
	return out, err
}

// Talks are conversations that are open, so that they can be driven again and again.
type Talks struct {
	list  []*talk
	bytes int
}

// Open begins the conversations of a plan with peers of their own, named by tag.
func Open(ctx context.Context, conn grpc.ClientConnInterface, p Plan, tag string) (*Talks, error) {
	t := &Talks{list: make([]*talk, p.Conversations), bytes: p.Bytes}
	err := t.each(func(c int) (err error) {
		t.list[c], err = begin(ctx, conn, p.Agent, fmt.Sprintf("%s%d", tag, c))
		return err
	})
	if err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// Join adds the conversations of another, which are its own from then on.
func (t *Talks) Join(o *Talks) { t.list = append(t.list, o.list...) }

// Close ends them.
func (t *Talks) Close() {
	for _, one := range t.list {
		if one != nil {
			one.end()
		}
	}
}

// Drive sends so many messages in each of them.
func (t *Talks) Drive(ctx context.Context, messages int) (Result, error) {
	var mu sync.Mutex
	out := Result{Messages: len(t.list) * messages}
	start := time.Now()
	err := t.each(func(c int) error {
		push, reply, err := t.list[c].converse(ctx, messages, t.bytes)
		mu.Lock()
		defer mu.Unlock()
		out.Push, out.Reply = append(out.Push, push...), append(out.Reply, reply...)
		for i := range reply {
			out.Whole = append(out.Whole, push[i]+reply[i])
		}
		return err
	})
	out.Took = time.Since(start)
	slices.Sort(out.Push)
	slices.Sort(out.Reply)
	slices.Sort(out.Whole)
	return out, err
}

// each does something for all of them at once, and answers the first error.
func (t *Talks) each(do func(c int) error) error {
	var g errgroup.Group
	for c := range t.list {
		g.Go(func() error { return do(c) })
	}
	return g.Wait()
}

func (t *talk) converse(ctx context.Context, messages, size int) (push, reply []time.Duration, err error) {
	for range messages {
		i, sent := t.said, time.Now()
		t.said++
		acked, err := t.say(ctx, i, size)
		if err != nil {
			return push, reply, err
		}
		if err := t.heard(i); err != nil {
			return push, reply, err
		}
		push, reply = append(push, acked.Sub(sent)), append(reply, time.Since(acked))
	}
	return push, reply, nil
}

// talk is one conversation, watched from its beginning.
type talk struct {
	threads     registryv1.ThreadServiceClient
	watch       grpc.ServerStreamingClient[registryv1.WatchEventsResponse]
	agent, peer string
	asked       string
	said        int // messages
	end         context.CancelFunc
}

func begin(ctx context.Context, conn grpc.ClientConnInterface, agent, peer string) (*talk, error) {
	t, err := watch(ctx, conn, agent, threadOf(peer))
	if err == nil {
		t.peer = peer
	}
	return t, err
}

// threadOf is the thread of a peer of the load.
func threadOf(peer string) string { return "threads/peers/bench-" + peer }

// watch begins to watch the replies in a thread, which is made when it is absent.
func watch(ctx context.Context, conn grpc.ClientConnInterface, agent, threadID string) (*talk, error) {
	t := &talk{threads: registryv1.NewThreadServiceClient(conn), agent: agent}
	ref := &registryv1.ThreadRef{AgentId: agent, ThreadId: threadID}
	if _, err := t.threads.EnsureThread(ctx, &registryv1.EnsureThreadRequest{Thread: ref}); err != nil {
		return nil, err
	}
	ctx, t.end = context.WithCancel(ctx)
	var err error
	if t.watch, err = t.threads.WatchEvents(ctx, &registryv1.WatchEventsRequest{Thread: ref, AfterId: -1, Filter: "source = 'self' AND type = 'message'"}); err == nil {
		_, err = t.watch.Recv() // from here on nothing is missed
	}
	if err != nil {
		t.end()
		return nil, err
	}
	return t, nil
}

// say pushes a message and answers when that was acknowledged.
func (t *talk) say(ctx context.Context, i, size int) (time.Time, error) {
	text := fmt.Sprintf("say: %s-%d", t.peer, i)
	if n := size - len(text); n > 0 {
		text += string(slices.Repeat([]byte{'.'}, n))
	}
	t.asked = text[len("say: "):]
	return t.push(ctx, i, text)
}

func (t *talk) push(ctx context.Context, i int, text string) (time.Time, error) {
	content, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		return time.Time{}, err
	}
	_, err = t.threads.PushEvents(ctx, &registryv1.PushEventsRequest{
		Thread:         &registryv1.ThreadRef{AgentId: t.agent, ThreadId: "inbox"},
		IdempotencyKey: fmt.Sprintf("%s-%d", t.peer, i),
		Events:         []*registryv1.NewEvent{{Source: "external:bench:bench:dm:" + t.peer + ":" + t.peer, Type: "message", Content: string(content)}},
	})
	return time.Now(), err
}

// heard waits for the reply to what was said last.
func (t *talk) heard(i int) error {
	got, err := next(t.watch)
	if err == nil && got != t.asked {
		err = fmt.Errorf("conversation %s: reply %d is %.40q, want %.40q", t.peer, i, got, t.asked)
	}
	return err
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
			return text(r.GetEvents()[0])
		}
		return "", fmt.Errorf("%d replies to one message", len(r.GetEvents()))
	}
}

// text is what an event says.
func text(e *registryv1.Event) (string, error) {
	var v struct{ Text string }
	err := json.Unmarshal([]byte(e.GetContent()), &v)
	return v.Text, err
}
