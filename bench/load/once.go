package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
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
	t, err := begin(ctx, conn, agent, "sent")
	if err != nil {
		return nil, err
	}
	defer t.end()
	took := make([]time.Duration, 0, n)
	for i := range n {
		began := time.Now()
		if _, err := t.say(ctx, i, 0); err != nil {
			return nil, err
		}
		select {
		case at := <-seen:
			took = append(took, at.Sub(began))
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if err := t.heard(i); err != nil {
			return nil, err
		}
	}
	return took, nil
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
