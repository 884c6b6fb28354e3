package serve

import (
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
)

// rateLimit limits how fast one identity may call. A caller that stays below the rate is
// never refused, however many others call; a burst may exceed the rate up to a bound; a
// refused caller learns when to retry. It keeps one time for each identity and never
// removes one: identities are those of certificates, so they are few. It is safe for
// concurrent use.
type rateLimit struct {
	every time.Duration // between calls
	slack time.Duration // how far ahead of that a burst may be

	mu   sync.Mutex
	next map[rpc.Identity]time.Time // when the next call would be due
}

// newRateLimit allows each identity perSecond calls a second, and a burst of calls at once.
func newRateLimit(perSecond, burst int) *rateLimit {
	every := time.Second / time.Duration(perSecond)
	return &rateLimit{every: every, slack: time.Duration(burst) * every, next: map[rpc.Identity]time.Time{}}
}

// Take counts one call, or returns an error with the time to wait. Errors: OVERLOADED.
func (l *rateLimit) Take(id rpc.Identity) error {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.next[id]
	if at.Before(now) {
		at = now
	}
	if ahead := at.Sub(now); ahead > l.slack {
		return &fault.Error{
			Code: codes.ResourceExhausted, Reason: fault.Overloaded, RetryAfter: ahead - l.slack + l.every,
			What: "this caller calls too often", Fix: "call less often",
		}
	}
	l.next[id] = at.Add(l.every)
	return nil
}
