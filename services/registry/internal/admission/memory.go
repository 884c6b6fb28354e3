package admission

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/store"
)

const (
	// saveAfter is how long counts may stay in memory only.
	saveAfter = time.Second
	// saveTimeout bounds their writing.
	saveTimeout = 10 * time.Second
)

// Ledger stores the counts, so that they survive a restart.
type Ledger interface {
	Usage(ctx context.Context, day string) ([]store.Used, error)
	SaveUsage(ctx context.Context, rows []store.Used) error
}

// counted is an agent, or one peer of it.
type counted struct{ agent, peer string }

// pair is an agent that writes to another one.
type pair struct{ from, to string }

// Memory counts for one registry. It is safe for concurrent use.
type Memory struct {
	ledger Ledger

	mu      sync.Mutex
	day     string
	used    map[counted]store.Used
	changed map[counted]bool
	later   *time.Timer
	pairs   paces[pair]
}

// Load returns a Memory that starts with what was used today.
func Load(ctx context.Context, l Ledger) (*Memory, error) {
	m := &Memory{ledger: l, day: today(time.Now()), used: map[counted]store.Used{}, changed: map[counted]bool{}}
	rows, err := l.Usage(ctx, m.day)
	if err != nil {
		return nil, fmt.Errorf("load usage: %w", err)
	}
	for _, u := range rows {
		m.used[counted{u.Agent, u.Peer}] = u
	}
	return m, nil
}

// Count implements Counter.
func (m *Memory) Count(_ context.Context, day, agent, peer string, decide func(all, one store.Used) (store.Used, error)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if day != m.day {
		m.day, m.used, m.changed = day, map[counted]store.Used{}, map[counted]bool{}
	}
	more, err := decide(m.used[counted{agent, ""}], m.used[counted{agent, peer}])
	if err == nil {
		m.add(agent, peer, more)
	}
	return err
}

// Used implements Counter.
func (m *Memory) Used(_ context.Context, day, agent string) (store.Used, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if day != m.day {
		return store.Used{}, nil
	}
	return m.used[counted{agent, ""}], nil
}

func (m *Memory) add(agent, peer string, more store.Used) {
	for _, k := range []counted{{agent, ""}, {agent, peer}} {
		u := m.used[k]
		u.Day, u.Agent, u.Peer = m.day, k.agent, k.peer
		u.Messages, u.Tokens, u.Micros = max(0, u.Messages+more.Messages), u.Tokens+more.Tokens, u.Micros+more.Micros
		m.used[k], m.changed[k] = u, true
	}
	if m.later == nil {
		m.later = time.AfterFunc(saveAfter, func() { _ = m.save() }) // tried again with the next count
	}
}

// Pace implements Counter.
func (m *Memory) Pace(_ context.Context, from, to string, step, most time.Duration) (over time.Duration, err error) {
	return m.pairs.take(pair{from, to}, step, most), nil
}

// Forget drops the counts of an agent that is removed.
func (m *Memory) Forget(agent string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.used, func(w counted, _ store.Used) bool { return w.agent == agent })
	maps.DeleteFunc(m.changed, func(w counted, _ bool) bool { return w.agent == agent })
	m.pairs.forget(func(p pair) bool { return p.from == agent || p.to == agent })
}

// save writes what changed. The ledger is not called under the lock.
func (m *Memory) save() error {
	m.mu.Lock()
	m.later = nil
	var rows []store.Used
	for k := range m.changed {
		rows = append(rows, m.used[k])
	}
	m.changed = map[counted]bool{}
	m.mu.Unlock()
	if len(rows) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), saveTimeout)
	defer cancel()
	return m.ledger.SaveUsage(ctx, rows)
}

// Close saves the counts.
func (m *Memory) Close() error {
	m.mu.Lock()
	if m.later != nil {
		m.later.Stop()
	}
	m.mu.Unlock()
	return m.save()
}
