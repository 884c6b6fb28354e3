package load

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/pause"
)

// Pace of an open load: messages come when they are due, whether the ones before
// were answered or not, and their latency counts from then.
type Pace struct {
	Agent         string
	Conversations int
	Rate          float64 // messages per second, of all conversations
	For, Window   time.Duration
}

// Slice is what happened in one window.
type Slice struct {
	Messages int
	Latency  []time.Duration // sorted; from the time a message was due to its reply
}

// Keep drives the pace, and reports each window when it is over. A caller that waits for an
// answer in one conversation is late for the next message there, and that counts.
func Keep(ctx context.Context, conn grpc.ClientConnInterface, p Pace, tag string, told func(Slice)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var now Slice
	every := time.Duration(float64(p.Conversations) / p.Rate * float64(time.Second))
	start := time.Now().Add(100 * time.Millisecond)
	var g sync.WaitGroup
	for c := range p.Conversations {
		g.Go(func() {
			talk, err := begin(ctx, conn, p.Agent, fmt.Sprintf("%s%d", tag, c))
			if err != nil {
				cancel(err)
				return
			}
			defer talk.end()
			due := start.Add(every * time.Duration(c) / time.Duration(p.Conversations))
			for i := 0; due.Before(start.Add(p.For)); i++ {
				if !wait(ctx, due) {
					return
				}
				if _, err := talk.say(ctx, i, 0); err != nil {
					cancel(err)
					return
				}
				if err := talk.heard(i); err != nil {
					cancel(err)
					return
				}
				mu.Lock()
				now.Messages++
				now.Latency = append(now.Latency, time.Since(due))
				mu.Unlock()
				due = due.Add(every)
			}
		})
	}
	done := make(chan struct{})
	go func() { g.Wait(); close(done) }()
	tick := time.NewTicker(p.Window)
	defer tick.Stop()
	for over := false; !over; {
		select {
		case <-tick.C:
		case <-done:
			over = true
		}
		mu.Lock()
		s := now
		now = Slice{}
		mu.Unlock()
		slices.Sort(s.Latency)
		// What is left at the end is a window only if it is one for the most part.
		if !over || float64(s.Messages) > p.Rate*p.Window.Seconds()/2 {
			told(s)
		}
	}
	return context.Cause(ctx)
}

func wait(ctx context.Context, until time.Time) bool {
	return pause.For(ctx, time.Until(until)) == nil
}
