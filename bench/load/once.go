package load

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Lanes asks one question in each of n conversations of an agent at the same time, and
// answers how long the last reply took from the first push. What the model does with
// the question is the question's business.
func Lanes(ctx context.Context, conn grpc.ClientConnInterface, agent, question string, n int) (time.Duration, error) {
	talks := make([]*talk, n)
	for i := range talks {
		t, err := begin(ctx, conn, agent, fmt.Sprintf("lane%d", i))
		if err != nil {
			return 0, err
		}
		defer t.end()
		talks[i] = t
	}
	errs := make([]error, n)
	began := time.Now()
	var g sync.WaitGroup
	for i, t := range talks {
		g.Go(func() {
			if _, err := t.push(ctx, 0, question); err != nil {
				errs[i] = err
				return
			}
			_, errs[i] = next(t.watch)
		})
	}
	g.Wait()
	return time.Since(began), errors.Join(errs...)
}

// Sent pushes n messages of one conversation one after the other, and answers how long
// each took from before its push until seen has a time for it.
func Sent(ctx context.Context, conn grpc.ClientConnInterface, agent string, n int, seen <-chan time.Time) ([]time.Duration, error) {
	s, err := NewSender(ctx, conn, agent, "sent", seen)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	took := make([]time.Duration, 0, n)
	for range n {
		one, err := s.Send(ctx)
		if err != nil {
			return nil, err
		}
		took = append(took, one)
	}
	return took, nil
}

// Sender pushes messages of one conversation whose replies are sent to a receiver.
type Sender struct {
	talk *talk
	seen <-chan time.Time
	sent int
}

// NewSender begins the conversation. seen gets the time at which the receiver has a reply.
func NewSender(ctx context.Context, conn grpc.ClientConnInterface, agent, peer string, seen <-chan time.Time) (*Sender, error) {
	t, err := begin(ctx, conn, agent, peer)
	if err != nil {
		return nil, err
	}
	return &Sender{talk: t, seen: seen}, nil
}

// Send pushes a message and returns how long it took from before its push until its reply was received.
func (s *Sender) Send(ctx context.Context) (time.Duration, error) {
	i, began := s.sent, time.Now()
	s.sent++
	if _, err := s.talk.say(ctx, i, 0); err != nil {
		return 0, err
	}
	select {
	case at := <-s.seen:
		return at.Sub(began), s.talk.heard(i)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Close ends the conversation.
func (s *Sender) Close() { s.talk.end() }

// Burst watches threads of an agent, calls send, which has each of them get the messages "say: 0" to
// "say: n-1", and returns how long it took from then until the last reply was seen. A conversation
// whose replies are not in the order of its messages is an error.
func Burst(ctx context.Context, conn grpc.ClientConnInterface, agent string, threads []string, n int, send func() error) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	talks := make([]*talk, len(threads))
	for i, id := range threads {
		t, err := watch(ctx, conn, agent, id)
		if err != nil {
			return 0, err
		}
		defer t.end()
		talks[i] = t
	}
	var g errgroup.Group
	began := time.Now()
	for i, t := range talks {
		g.Go(func() error {
			err := inOrder(t.watch, n)
			if err != nil {
				cancel() // the others would wait in vain
				return fmt.Errorf("%s: %w", threads[i], err)
			}
			return nil
		})
	}
	err := send()
	if err != nil {
		cancel()
	}
	err = errors.Join(err, g.Wait())
	return time.Since(began), err
}

// inOrder reads the replies "0" to "n-1".
func inOrder(watch grpc.ServerStreamingClient[registryv1.WatchEventsResponse], n int) error {
	for m := 0; m < n; {
		r, err := watch.Recv()
		if err != nil {
			return err
		}
		for _, e := range r.GetEvents() {
			got, err := text(e)
			if err != nil {
				return err
			}
			if got != strconv.Itoa(m) {
				return fmt.Errorf("reply %d is %.40q", m, got)
			}
			m++
		}
	}
	return nil
}

// Push returns the threads of some peers, and what pushes the messages of [Burst] to them: each
// conversation by a caller of its own.
func Push(ctx context.Context, conn grpc.ClientConnInterface, agent, tag string, conversations, n int) (threads []string, send func() error) {
	for c := range conversations {
		threads = append(threads, threadOf(fmt.Sprint(tag, c)))
	}
	return threads, func() error {
		var g errgroup.Group
		for c := range conversations {
			t := &talk{threads: registryv1.NewThreadServiceClient(conn), agent: agent, peer: fmt.Sprint(tag, c)}
			g.Go(func() error {
				for m := range n {
					if _, err := t.push(ctx, m, fmt.Sprint("say: ", m)); err != nil {
						return err
					}
				}
				return nil
			})
		}
		return g.Wait()
	}
}

// Ask puts one question n times into the conversation named tag, each after the reply to the one
// before, and answers how long each took from before its push until its reply was seen. A reply
// that is not want is an error.
func Ask(ctx context.Context, conn grpc.ClientConnInterface, agent, question, want, tag string, n int) ([]time.Duration, error) {
	t, err := begin(ctx, conn, agent, tag)
	if err != nil {
		return nil, err
	}
	defer t.end()
	took := make([]time.Duration, 0, n)
	for i := range n {
		began := time.Now()
		if _, err := t.push(ctx, i, question); err != nil {
			return nil, err
		}
		got, err := next(t.watch)
		if err != nil {
			return nil, err
		}
		if got != want {
			return nil, fmt.Errorf("conversation %s: reply %d is %.80q, want %q", tag, i, got, want)
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}
