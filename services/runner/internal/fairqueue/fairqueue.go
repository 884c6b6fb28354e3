// Package fairqueue gives out places to waiters in a fair order.
//
// A process has places for turns, and an agent a part of them. A peer that floods an agent
// must not make the others wait for all of it, so each key (a peer, an agent) has a queue
// of its own, and the queues are served by deficit round robin: on its turn a queue gets
// one credit, and its first waiter is served when the credits cover its cost.
//
//	bob    [1][1][1][1]...      served: bob, alice, bob, carol(2), bob, carol ...
//	alice  [1]                          ^ one each round; carol's two-credit
//	carol  [2][1]                         waiter takes two rounds
//
// It promises: first come, first served within a key; among k keys that wait each gets its
// k-th part of the places by cost, so a newcomer waits for at most one waiter of each other
// key; no waiter passes the one whose turn it is, so that one that needs many places at
// once gets them. It does not depend on what a place is for.
package fairqueue

import (
	"context"
	"slices"
	"sync"
)

// MaxCost is the greatest cost of a waiter; more counts as this.
const MaxCost = 16

// Places are places for work. Make them with New.
type Places struct {
	mu     sync.Mutex
	size   int64
	used   int64
	queues map[string]*queue
	ring   []*queue // those with waiters; the first one's turn it is
}

type queue struct {
	key     string
	waiters []*waiter
	credit  int64
	served  bool // got its credit of this round
}

type waiter struct {
	places, cost int64
	ready        chan struct{}
}

// New makes n places.
func New(n int64) *Places { return &Places{size: n, queues: map[string]*queue{}} }

// Size is how many places there are.
func (p *Places) Size() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.size
}

// Resize changes how many places there are; those in use stay in use.
func (p *Places) Resize(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.size = n
	p.serve()
}

// TryTake takes n places when no one waits and they are free.
func (p *Places) TryTake(n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ring) > 0 || p.size-p.used < n {
		return false
	}
	p.used += n
	return true
}

// Take waits for n places in the queue of key. Its error is the context's cause.
func (p *Places) Take(ctx context.Context, key string, n, cost int64) error {
	w := &waiter{n, min(max(cost, 1), MaxCost), make(chan struct{})}
	p.mu.Lock()
	q := p.queues[key]
	if q == nil {
		q = &queue{key: key}
		p.queues[key] = q
		p.ring = append(p.ring, q)
	}
	q.waiters = append(q.waiters, w)
	p.serve()
	p.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-w.ready: // served in the same moment
		p.used -= n
	default:
		q.waiters = slices.DeleteFunc(q.waiters, func(other *waiter) bool { return other == w })
		if len(q.waiters) == 0 {
			p.drop(q)
		}
	}
	p.serve()
	return context.Cause(ctx)
}

// Give gives n places back.
func (p *Places) Give(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used -= n
	p.serve()
}

// serve gives places to those whose turn it is. The caller holds mu. A round
// gives each queue a credit, so it ends after MaxCost rounds at the latest.
func (p *Places) serve() {
	for len(p.ring) > 0 {
		q := p.ring[0]
		if !q.served {
			q.served = true
			q.credit++
		}
		w := q.waiters[0]
		if w.cost > q.credit {
			q.served = false
			p.ring = append(p.ring[1:], q)
			continue
		}
		if p.size-p.used < w.places {
			return
		}
		p.used += w.places
		q.credit -= w.cost
		q.waiters[0] = nil
		q.waiters = q.waiters[1:]
		close(w.ready)
		if len(q.waiters) == 0 {
			p.drop(q)
		}
	}
}

// drop takes a queue without waiters out; what it saved is lost with it.
func (p *Places) drop(q *queue) {
	delete(p.queues, q.key)
	p.ring = slices.DeleteFunc(p.ring, func(other *queue) bool { return other == q })
}
