package pause

import (
	"math/rand/v2"
	"time"
)

// Backoff says how long to wait before something that failed is tried again: a
// random time below a ceiling (full jitter), so that callers that failed together
// do not return together. The ceiling is First after the first failure and doubles
// with each further one, up to Last. Both are positive.
type Backoff struct{ First, Last time.Duration }

// Wait returns the wait after failures earlier ones: at least 1 ms or the ceiling,
// whichever is less, so that no loop spins.
func (b Backoff) Wait(failures int) time.Duration {
	ceiling := b.Last
	if failures < 16 {
		ceiling = min(b.First<<failures, b.Last)
	}
	return max(1+rand.N(ceiling), min(ceiling, time.Millisecond))
}
