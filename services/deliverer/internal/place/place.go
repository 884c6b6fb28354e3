// Package place owns how many jobs of this process run at a time: a job gets a
// place or waits in line, first come first served.
//
// A job in line is an entry in a slice, not a goroutine. A place is a goroutine
// only while there are jobs for it. The package knows nothing of what a job
// does, and stops none.
package place

import (
	"context"
	"sync"
)

// Pool is a number of places. It is safe for concurrent use.
type Pool struct {
	mu      sync.Mutex
	places  int
	running int
	line    []func()
	freed   chan struct{}
	wg      sync.WaitGroup
}

// New makes a pool of n places.
func New(n int) *Pool { return &Pool{places: n, freed: make(chan struct{}, 1)} }

// Submit runs job in a place, soon. It never blocks.
func (p *Pool) Submit(job func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running >= p.places {
		p.line = append(p.line, job)
		return
	}
	p.running++
	p.wg.Go(func() {
		for job := job; job != nil; job = p.next() {
			job()
		}
	})
}

// next answers the job that runs next in a place, or gives the place up.
func (p *Pool) next() func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.line) > 0 {
		job := p.line[0]
		p.line[0] = nil
		p.line = p.line[1:]
		return job
	}
	p.running--
	select {
	case p.freed <- struct{}{}:
	default:
	}
	return nil
}

// Free waits until a job would run at once and answers how many would; 0 when
// ctx ends first. One caller at a time.
func (p *Pool) Free(ctx context.Context) int {
	for ctx.Err() == nil {
		p.mu.Lock()
		n := p.places - p.running
		p.mu.Unlock()
		if n > 0 {
			return n
		}
		select {
		case <-p.freed:
		case <-ctx.Done():
		}
	}
	return 0
}

// Active is the number of jobs that run or stand in line.
func (p *Pool) Active() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running + len(p.line)
}

// Wait returns when no job runs. Nobody may submit meanwhile.
func (p *Pool) Wait() { p.wg.Wait() }
