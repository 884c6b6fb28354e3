package serve

import (
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
)

// What one identity may call over TCP: a worker makes a handful of calls for a
// message, so this is thousands of messages a second; a loop that calls without
// end is slowed down to it.
const (
	outsideRate  = 10_000 // calls a second
	outsideBurst = 20_000
)

// rate counts calls by identity. The identities are those of certificates, so
// there are few.
type rate struct {
	every time.Duration // between calls
	slack time.Duration // how far ahead of that a burst may be

	mu   sync.Mutex
	next map[rpc.Identity]time.Time // when the next call would be due
}

func newRate(perSecond, burst int) *rate {
	every := time.Second / time.Duration(perSecond)
	return &rate{every: every, slack: time.Duration(burst) * every, next: map[rpc.Identity]time.Time{}}
}

// take counts one call, or answers when the next may come.
func (r *rate) take(id rpc.Identity) error {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.next[id]
	if at.Before(now) {
		at = now
	}
	if ahead := at.Sub(now); ahead > r.slack {
		return &fault.Error{
			Code: codes.ResourceExhausted, Reason: fault.Overloaded, RetryAfter: ahead - r.slack + r.every,
			What: "this caller calls too often", Fix: "call less often",
		}
	}
	r.next[id] = at.Add(r.every)
	return nil
}
