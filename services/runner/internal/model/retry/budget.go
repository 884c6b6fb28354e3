package retry

import (
	"sync"
	"time"
)

// The budget looks back one minute in slots of 10 s: long enough to be steady,
// short enough that a bad minute is forgotten.
const (
	slotLength   = 10 * time.Second
	slots        = 6
	minRetries   = 10
	retryPercent = 10
)

// budget keeps the repeated calls of a process in proportion to all of them,
// so that a struggling provider is not hit with a multiple of the usual load.
// The zero value is ready.
type budget struct {
	mu sync.Mutex
	// start is the beginning of the newest slot, which is at position 0.
	start time.Time
	slot  [slots]struct{ calls, retries int }
}

// allow counts the call when the budget has a try left. A refused one learns how
// long until the oldest slot is forgotten.
func (b *budget) allow(again bool, now time.Time) (time.Duration, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn(now)
	if again {
		calls, retries := b.sum()
		if retries >= max(minRetries, calls*retryPercent/100) {
			return slotLength - now.Sub(b.start), false
		}
		b.slot[0].retries++
	}
	b.slot[0].calls++
	return 0, true
}

// undo takes back a call that was not made after all.
func (b *budget) undo(again bool, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn(now)
	b.slot[0].calls--
	if again {
		b.slot[0].retries--
	}
}

func (b *budget) sum() (calls, retries int) {
	for _, s := range b.slot {
		calls += s.calls
		retries += s.retries
	}
	return calls, retries
}

// turn moves on to the slot of now.
func (b *budget) turn(now time.Time) {
	passed := now.Sub(b.start) / slotLength
	if b.start.IsZero() || passed >= slots {
		b.start = now
		clear(b.slot[:])
		return
	}
	for range passed {
		copy(b.slot[1:], b.slot[:slots-1])
		b.slot[0].calls, b.slot[0].retries = 0, 0
		b.start = b.start.Add(slotLength)
	}
}
