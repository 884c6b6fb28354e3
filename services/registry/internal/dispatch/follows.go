package dispatch

import (
	"context"
	"sync"
	"time"
)

// Follows notifies the holder of an agent's lease, which waits for events of the inbox, of
// events that were stored at this registry, where several registries share a database. It
// learns of events that were stored at others through its poll for work (Hints). The zero
// value is ready.
//
// A follower stays registered between two of its requests, so that the next one need not
// read to miss nothing.
type Follows struct {
	mu    sync.Mutex
	by    map[string]*Follower // by agent, the last one
	swept time.Time
}

// Follower waits for events of an agent's inbox.
type Follower struct {
	of     *Follows
	wake   chan struct{}
	agent  string
	holder string
	asked  string
	news   bool
	busy   bool
	left   time.Time // when it was busy last
}

// Follow makes the follower of an agent for the holder of its lease. It has news at first,
// unless the same holder followed here just before with another request: the repeat of a
// request has missed its response.
func (f *Follows) Follow(agent, holder, question string) *Follower {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.by == nil {
		f.by = map[string]*Follower{}
	}
	if time.Since(f.swept) > linger {
		f.swept = time.Now()
		for id, l := range f.by {
			if !l.busy && time.Since(l.left) > linger {
				delete(f.by, id)
			}
		}
	}
	l := f.by[agent]
	if l == nil || l.busy || l.holder != holder || time.Since(l.left) > linger {
		l = &Follower{of: f, wake: make(chan struct{}, 1), agent: agent, holder: holder, news: true}
		f.by[agent] = l
	}
	l.news = l.news || l.asked == question
	l.asked, l.busy = question, true
	return l
}

// Mark notifies the holder of an agent's lease of a new event, and reports whether that
// holder waits here, or has just had a response and will poll again.
func (f *Follows) Mark(agent, holder string) (here bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.by[agent]
	if l == nil || l.holder != holder {
		return false
	}
	l.news = true
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return l.busy || time.Since(l.left) < between
}

// Wake receives when there is news.
func (l *Follower) Wake() <-chan struct{} { return l.wake }

// Take reports whether there is news that was not taken yet.
func (l *Follower) Take() bool {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	news := l.news
	l.news = false
	return news
}

// Close ends a request. A follower without a response is not expected to come back.
func (l *Follower) Close(answered bool) {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	l.busy, l.left = false, time.Now()
	if !answered && l.of.by[l.agent] == l {
		delete(l.of.by, l.agent)
	}
}

// Read reads the inbox of an agent for the holder of its lease, at first and whenever
// something was stored here, until something was read, the wait is over or the registry
// ends. question identifies the request over its repeats.
func (f *Follows) Read(ctx context.Context, ending <-chan struct{}, agent, holder, question string, wait time.Duration, read func() (some bool, err error)) error {
	follower := f.Follow(agent, holder, question)
	answered := false
	defer func() { follower.Close(answered) }()
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	for {
		if follower.Take() {
			some, err := read()
			if answered = some; some || err != nil {
				return err
			}
		}
		select {
		case <-follower.Wake():
		case <-timeout.C:
			answered = true
			return nil
		case <-ending:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
