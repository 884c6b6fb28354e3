package batch_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/theclaw/agents/services/runner/internal/turn"
)

// Budget: 1,000 turns that wait for people hold no slot: another conversation is answered with
// the four that there are. When the batch ends, those with an answer go on, and the others are
// put off without a fate.
func TestWaitsHoldNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waits, answered = 1000, 10
		in := &inbox{}
		for n := range waits {
			in.push(fmt.Sprint("t", n))
		}
		in.push("other")
		answer := make(chan struct{}, answered)
		var waiting, holding, put, ended atomic.Int32
		b := newBatch(in, 4, func(ctx context.Context, id int64, thread string, s turn.Slot) error {
			if thread == "other" {
				// It has one of the four itself; others may be about to wait.
				if waiting.Load() == 0 || holding.Load() > 3 {
					t.Errorf("%d wait, %d of them with a slot", waiting.Load(), holding.Load())
				}
				return nil
			}
			holding.Add(1)
			holding.Add(-1) // before it gives its slot back: the next one to take it counts itself at once
			err := s.Wait(ctx, func(ctx context.Context) error {
				waiting.Add(1)
				defer waiting.Add(-1)
				select {
				case <-answer:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			})
			if errors.Is(err, turn.ErrYield) {
				put.Add(1)
			} else {
				ended.Add(1)
			}
			return err
		})
		done := make(chan error)
		go func() { done <- b.Work(t.Context(), nil) }()
		synctest.Wait()
		if waiting.Load() != waits || holding.Load() != 0 || !in.done[waits+1] {
			t.Errorf("%d wait, %d of them with a slot; the other was answered: %v", waiting.Load(), holding.Load(), in.done[waits+1])
		}
		for range answered {
			answer <- struct{}{}
		}
		synctest.Wait()
		b.Stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if put.Load() != waits-answered || ended.Load() != answered {
			t.Errorf("%d were put off and %d went on, want %d and %d", put.Load(), ended.Load(), waits-answered, answered)
		}
	})
}
