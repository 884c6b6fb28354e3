// Package rate owns how fast one identity may call.
//
// It promises that who calls no faster than the rate is never refused, however many
// others call; that a burst may be ahead of the rate, so far and no further; and that
// who is refused is told when to come back. It keeps one instant for each identity and
// forgets none: they are those of certificates, so there are few.
package rate

import (
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
)

// Limit counts calls by identity. It is safe for concurrent use.
type Limit struct {
	every time.Duration // between calls
	slack time.Duration // how far ahead of that a burst may be

	mu   sync.Mutex
	next map[rpc.Identity]time.Time // when the next call would be due
}

// New allows each identity so many calls a second, and a burst of them at once.
func New(perSecond, burst int) *Limit {
	every := time.Second / time.Duration(perSecond)
	return &Limit{every: every, slack: time.Duration(burst) * every, next: map[rpc.Identity]time.Time{}}
}

// Take counts one call, or answers when the next may come. Errors: OVERLOADED.
func (l *Limit) Take(id rpc.Identity) error {
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
