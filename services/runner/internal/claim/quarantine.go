package claim

import (
	"slices"
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
//	  ^                                |                    |
//	  |   the event that panicked is dead                   |
//	  +--------------------------------+                    |
//	  +---------------------- a minute without -------------+
//
// The panics of an event that is dead do not count: it is out of the way.
type quarantine struct {
	time time.Duration

	mu     sync.Mutex
	agents map[string]*strikes
}

type strikes struct {
	list  []panicked // the newest, at most maxStrikes
	until time.Time
}

// panicked is one panic of the turn of an event, by its key.
type panicked struct {
	at  time.Time
	key string
}

func newQuarantine(d time.Duration) *quarantine {
	return &quarantine{time: d, agents: map[string]*strikes{}}
}

// strike counts a panic of the turn of an event, and reports whether the agent is set aside
// now.
func (q *quarantine) strike(agentID, key string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	s := q.agents[agentID]
	if s == nil {
		s = &strikes{}
		q.agents[agentID] = s
	}
	s.list = append(s.list, panicked{now, key})
	s.list = s.list[max(len(s.list)-maxStrikes, 0):]
	if !s.full(now) {
		return now.Before(s.until)
	}
	s.until = now.Add(q.time)
	return true
}

// full reports whether there are enough strikes: half open, one is.
func (s *strikes) full(now time.Time) bool {
	if !s.until.IsZero() && now.Sub(s.until) <= strikeWindow && !now.Before(s.until) {
		return len(s.list) > 0 && !s.list[len(s.list)-1].at.Before(s.until)
	}
	return len(s.list) >= maxStrikes && now.Sub(s.list[len(s.list)-maxStrikes].at) <= strikeWindow
}

// forgive takes the panics of an event away that is dead. An agent that was set aside only
// because of them is not any more.
func (q *quarantine) forgive(agentID, key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.agents[agentID]
	if s == nil {
		return
	}
	before := len(s.list)
	s.list = slices.DeleteFunc(s.list, func(p panicked) bool { return p.key == key })
	if len(s.list) == before {
		return
	}
	if len(s.list) == 0 {
		delete(q.agents, agentID)
		return
	}
	if len(s.list) < maxStrikes {
		s.until = time.Time{}
	}
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
	if now.Sub(s.until) > strikeWindow && (len(s.list) == 0 || now.Sub(s.list[len(s.list)-1].at) > strikeWindow) {
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
