package delivery

import (
	"context"
	"sync"
)

// workerPool bounds how many jobs of this process run at a time: a job runs in a
// worker or waits in the queue, first come first served. It is safe for concurrent use.
//
// A queued job is an entry in a slice, not a goroutine; a worker is a goroutine only
// while there are jobs for it. The pool stops no job.
type workerPool struct {
	mu      sync.Mutex
	size    int
	running int
	queue   []func()
	freed   chan struct{}
	wg      sync.WaitGroup
}

// newWorkerPool makes a pool of n workers.
func newWorkerPool(n int) *workerPool { return &workerPool{size: n, freed: make(chan struct{}, 1)} }

// run queues a job. It never blocks.
func (p *workerPool) run(job func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running >= p.size {
		p.queue = append(p.queue, job)
		return
	}
	p.running++
	p.wg.Go(func() {
		for job := job; job != nil; job = p.next() {
			job()
		}
	})
}

// next returns the next job of a worker, or nil and ends the worker.
func (p *workerPool) next() func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) > 0 {
		job := p.queue[0]
		p.queue[0] = nil
		p.queue = p.queue[1:]
		return job
	}
	p.running--
	select {
	case p.freed <- struct{}{}:
	default:
	}
	return nil
}

// Free waits until a job would run at once and returns how many would; 0 when
// ctx ends first. One caller at a time.
func (p *workerPool) Free(ctx context.Context) int {
	for ctx.Err() == nil {
		p.mu.Lock()
		n := p.size - p.running
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

// Active is the number of jobs that run or wait in the queue.
func (p *workerPool) Active() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running + len(p.queue)
}

// Wait returns when no job runs. No job may be added meanwhile: call it after the
// Run of the last Agent has returned.
func (p *workerPool) Wait() { p.wg.Wait() }
