package admission

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
)

// burstTime is the time whose messages may come at once.
const burstTime = 2 * time.Minute

// ErrRate reports that more messages came through an account than its rate lets.
var ErrRate = errors.New("the rate of the account is used up")

// paces are when the next message of each of its names would be due. It is safe for concurrent use.
type paces[K comparable] struct {
	mu sync.Mutex
	at map[K]time.Time
}

// take moves the time of a name by step, up to most from now, or returns how long that has to wait.
func (p *paces[K]) take(name K, step, most time.Duration) (over time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	at := p.at[name]
	if at.Before(now) {
		at = now
	}
	at = at.Add(step)
	if over := at.Sub(now) - most; over > 0 {
		return over
	}
	if len(p.at) > 10_000 { // those whose time is past limit nothing
		for k, t := range p.at {
			if t.Before(now) {
				delete(p.at, k)
			}
		}
	}
	if p.at == nil {
		p.at = map[K]time.Time{}
	}
	p.at[name] = at
	return 0
}

// back undoes take.
func (p *paces[K]) back(name K, step time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, ok := p.at[name]; ok {
		p.at[name] = at.Add(-step)
	}
}

// forget drops names.
func (p *paces[K]) forget(which func(K) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.at, func(name K, _ time.Time) bool { return which(name) })
}

// TakeAccount lets a message come through an account that has a rate a minute, of which the messages of two minutes may
// come at once; 0: any number. back undoes it for a message that was not stored. Each registry counts for itself: one
// gateway at a time receives for an account. Errors: ErrRate with the reason QUOTA_EXCEEDED and the time to wait.
func (q *Quota) TakeAccount(account string, perMinute int) (back func(), err error) {
	if perMinute <= 0 {
		return func() {}, nil
	}
	step := time.Minute / time.Duration(perMinute)
	if over := q.accounts.take(account, step, burstTime); over > 0 {
		f := fault.New(codes.ResourceExhausted, fault.QuotaExceeded, fmt.Sprintf("more than %d messages a minute were sent to '%s', and this one was not stored", perMinute, account),
			"wait "+over.Round(time.Second).String()+", or raise channels."+account+".rate")
		f.RetryAfter, f.Err = over, ErrRate
		return nil, f
	}
	return func() { q.accounts.back(account, step) }, nil
}
