package delivery

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/hook"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/thread"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	maxAttempts = 3
	maxAge      = 24 * time.Hour
)

var waits = []time.Duration{5 * time.Second, 60 * time.Second}

// row is a delivery as the registry's store keeps it.
type row struct {
	event     thread.Event
	state     string // pending, sending, sent, dead, skipped
	attempts  int
	crashes   int
	notBefore time.Time
	created   time.Time
	duplicate bool
	error     string
	logs      []string
	parts     int
	reach     int64
	decision  *hook.Decision
}

// memory is the journal in memory, with the store's rules: what is sending at
// Begin was a crash, Unavailable gives its attempt back, Failed waits 5 s, 60 s.
type memory struct {
	mu       sync.Mutex
	rows     map[string][]*row
	settings channel.Settings
	maxChars int
	hooks    []hook.Hook
	token    uint64 // of the live lease; calls under another are LEASE_LOST
	begins   int
	peeks    int
	finishes int
	fail     func(call string) error // before the call takes effect
	lose     func(call string) error // after it, with the lock: the answer is lost
}

func newMemory() *memory { return &memory{rows: map[string][]*row{}, token: 1} }

const toPeer = `{"text":%q,"reply_context":{"channel_type":"telegram","channel_id":"c","session_id":"s","peer_id":"p"}}`

func (m *memory) push(threadID string, texts ...string) {
	for _, text := range texts {
		m.pushContent(threadID, fmt.Sprintf(toPeer, text))
	}
}

func (m *memory) pushContent(threadID, content string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add(threadID, content)
}

// add is for those who have the lock: hooks.
func (m *memory) add(threadID, content string) {
	m.rows[threadID] = append(m.rows[threadID], &row{
		state: "pending", created: time.Now(),
		event: thread.Event{ID: int64(len(m.rows[threadID]) + 1), CreatedAt: thread.Stamp(time.Now()), Source: "self", Type: "message", Content: content},
	})
}

type tokenKey struct{}

func (m *memory) fence(ctx context.Context) error {
	if token, _ := ctx.Value(tokenKey{}).(uint64); token != m.token {
		return fmt.Errorf("token %d is not %d: %w", token, m.token, lease.ErrLost)
	}
	return ctx.Err()
}

func (m *memory) Begin(ctx context.Context, agentID, threadID string, peek bool) (Due, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := called(m.fail, "begin"); err != nil {
		return Due{}, err
	}
	if err := m.fence(ctx); err != nil {
		return Due{}, err
	}
	if peek {
		m.peeks++
	} else {
		m.begins++
	}
	due := m.next(threadID, peek)
	return due, called(m.lose, "begin")
}

func (m *memory) Decide(ctx context.Context, _, threadID string, due Due, d hook.Decision) (hook.Decision, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := called(m.fail, "decide"); err != nil {
		return hook.Decision{}, err
	}
	if err := m.fence(ctx); err != nil {
		return hook.Decision{}, err
	}
	r := m.rows[threadID][due.Event.ID-1]
	if r.decision == nil {
		r.decision = &d
	}
	return *r.decision, called(m.lose, "decide")
}

func called(f func(string) error, call string) error {
	if f == nil {
		return nil
	}
	return f(call)
}

func (m *memory) next(threadID string, peek bool) Due {
	for _, r := range m.rows[threadID] {
		if r.state != "pending" && r.state != "sending" {
			continue
		}
		if time.Since(r.created) > maxAge || r.crashes >= 10 {
			r.state, r.error = "dead", "given up"
			continue
		}
		if wait := time.Until(r.notBefore); r.state == "pending" && wait > 0 {
			return Due{Found: Wait, Wait: wait}
		}
		crashed := r.state == "sending"
		due := Due{
			Found: Send, Event: r.event, Key: fmt.Sprintf("%s/%d", threadID, r.event.ID), Attempt: r.attempts + 1,
			MaybeDuplicate: r.duplicate || crashed, Settings: m.settings,
			MaxChars: m.maxChars, Parts: r.parts, Reach: r.reach, Hooks: m.hooks, Decision: r.decision,
		}
		if crashed {
			due.Attempt = max(r.attempts, 1)
		}
		if !peek {
			if crashed {
				r.crashes++
			}
			r.state, r.attempts, r.duplicate = "sending", due.Attempt, due.MaybeDuplicate
		}
		return due
	}
	return Due{}
}

func (m *memory) Finish(ctx context.Context, agentID, threadID string, f Finish) (Finished, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := called(m.fail, "finish"); err != nil {
		return Finished{}, err
	}
	if err := m.fence(ctx); err != nil {
		return Finished{}, err
	}
	m.finishes++
	r := m.rows[threadID][f.EventID-1]
	if r.state == "sending" {
		m.settle(r, f)
	}
	out := Finished{Dead: r.state == "dead"}
	if f.Next {
		due := m.next(threadID, false)
		out.Next = &due
	}
	return out, called(m.lose, "finish")
}

func (m *memory) settle(r *row, f Finish) {
	r.error, r.logs = f.Error, append(r.logs, f.Log)
	r.duplicate = r.duplicate || f.InDoubt
	pend := func(wait time.Duration) { r.state, r.notBefore = "pending", time.Now().Add(wait) }
	switch f.Outcome {
	case Part:
		r.attempts, r.crashes, r.parts, r.reach = 1, 0, f.Parts, f.Reach
	case Sent:
		r.state = "sent"
	case Skipped:
		r.state = "skipped"
	case Unavailable:
		r.attempts = max(r.attempts-1, 0)
		pend(f.RetryAfter)
	case Failed:
		if r.attempts < maxAttempts {
			pend(max(waits[r.attempts-1], f.RetryAfter))
			return
		}
		r.state = "dead"
	case Rejected:
		r.state = "dead"
	}
}

// row returns a copy of a delivery's row.
func (m *memory) row(threadID string, id int64) row {
	m.mu.Lock()
	defer m.mu.Unlock()
	return *m.rows[threadID][id-1]
}

// calls returns how often each call was made.
func (m *memory) calls() (begins, peeks, finishes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.begins, m.peeks, m.finishes
}

func (m *memory) set(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}
