package admission

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/store"
)

// later counts tokens in memory, and adds them to the counts of a day at most once a second: where tokens are all
// that is limited, neither the push of a message nor its end waits for the counts, which several registries share.
// An agent may so use what its messages of a second use above the limit.
type later struct {
	counter Counter

	mu      sync.Mutex
	day     string
	known   map[string]int64 // tokens of an agent, as the counts were last read
	waiting map[counted]store.Used
	timer   *time.Timer
}

func newLater(c Counter) *later { return &later{counter: c} }

// begin begins a day, under the lock.
func (l *later) begin(day string) {
	if l.day != day {
		l.day, l.known, l.waiting = day, map[string]int64{}, map[counted]store.Used{}
	}
}

// tokens is what an agent has used in a day. They are read once; after that they are known from the counts that
// are added.
func (l *later) tokens(ctx context.Context, day, agent string) (int64, error) {
	l.mu.Lock()
	l.begin(day)
	n, ok := l.known[agent]
	n += l.waitingOf(agent)
	l.mu.Unlock()
	if ok {
		return n, nil
	}
	return l.sum(ctx, day, agent)
}

// sum is what an agent has used in a day, as the counts are now.
func (l *later) sum(ctx context.Context, day, agent string) (int64, error) {
	l.mu.Lock()
	l.begin(day)
	l.mu.Unlock()
	used, err := l.counter.Used(ctx, day, agent)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && l.day == day {
		l.known[agent] = used.Tokens
	}
	return used.Tokens + l.waitingOf(agent), err
}

func (l *later) waitingOf(agent string) (n int64) {
	for k, u := range l.waiting {
		if k.agent == agent {
			n += u.Tokens
		}
	}
	return n
}

// add counts what a turn has used.
func (l *later) add(day, agent, peer string, more store.Used) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begin(day)
	l.wait(counted{agent, peer}, more)
}

// wait has counts wait to be written, under the lock.
func (l *later) wait(k counted, more store.Used) {
	u := l.waiting[k]
	u.Tokens, u.Micros = u.Tokens+more.Tokens, u.Micros+more.Micros
	l.waiting[k] = u
	if l.timer == nil {
		l.timer = time.AfterFunc(saveAfter, l.flush)
	}
}

// flush writes what waits. What cannot be written now waits for the next time.
func (l *later) flush() {
	l.mu.Lock()
	day, waiting := l.day, l.waiting
	l.waiting, l.timer = map[counted]store.Used{}, nil
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), saveTimeout)
	defer cancel()
	for k, u := range waiting {
		if l.write(ctx, day, k, u) != nil {
			l.again(day, k, u)
		}
	}
}

// again has counts wait that could not be written, unless their day is over.
func (l *later) again(day string, k counted, u store.Used) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.day == day {
		l.wait(k, u)
	}
}

// forget drops what is known of an agent.
func (l *later) forget(agent string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.known, agent)
	maps.DeleteFunc(l.waiting, func(k counted, _ store.Used) bool { return k.agent == agent })
}

// write adds to the counts, and learns what all registries have counted.
func (l *later) write(ctx context.Context, day string, k counted, more store.Used) error {
	var sum int64
	err := l.counter.Count(ctx, day, k.agent, k.peer, func(all, _ store.Used) (store.Used, error) {
		sum = all.Tokens + more.Tokens
		return more, nil
	})
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.day == day {
			l.known[k.agent] = sum
		}
	}
	return err
}

// close writes what waits.
func (l *later) close() {
	l.mu.Lock()
	if l.timer != nil {
		l.timer.Stop()
	}
	waits := len(l.waiting) > 0
	l.mu.Unlock()
	if waits {
		l.flush()
	}
}
