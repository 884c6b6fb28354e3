package claim

import (
	"sync"
	"time"
)

// Strikes of an agent within a window set it aside.
const (
	maxStrikes   = 3
	strikeWindow = time.Minute
)

// quarantine counts the panics of each agent.
//
//	clear --3 panics in a minute--> set aside --time--> half open --panic--> set aside
//	  ^                                                     |
//	  +---------------------- a minute without ------------+
type quarantine struct {
	time time.Duration

	mu     sync.Mutex
	agents map[string]*strikes
}

type strikes struct {
	at    []time.Time // the newest, at most maxStrikes
	until time.Time
}

func newQuarantine(d time.Duration) *quarantine {
	return &quarantine{time: d, agents: map[string]*strikes{}}
}

// strike counts a panic and reports whether the agent is set aside now.
func (q *quarantine) strike(agentID string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	s := q.agents[agentID]
	if s == nil {
		s = &strikes{}
		q.agents[agentID] = s
	}
	s.at = append(s.at, now)
	s.at = s.at[max(len(s.at)-maxStrikes, 0):]
	if len(s.at) < maxStrikes || now.Sub(s.at[0]) > strikeWindow {
		return now.Before(s.until)
	}
	s.until = now.Add(q.time)
	// Half open: what comes within a minute after it needs one strike only.
	s.at = []time.Time{s.until, s.until}
	return true
}

// left is how long the agent is still set aside; 0 when it is not.
func (q *quarantine) left(agentID string) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.agents[agentID]
	if s == nil {
		return 0
	}
	now := time.Now()
	if left := s.until.Sub(now); left > 0 {
		return left
	}
	if now.Sub(s.at[len(s.at)-1]) > strikeWindow {
		delete(q.agents, agentID)
	}
	return 0
}

// halfOpen reports whether the agent's quarantine ended less than a minute ago: one
// turn at a time tries whether it can be worked on again.
func (q *quarantine) halfOpen(agentID string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.agents[agentID]
	return s != nil && !s.until.IsZero() && time.Since(s.until) <= strikeWindow
}
