package runner

import (
	"context"
	"strings"
	"sync"
	"time"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

// turn works on one event under the claim's lease; it is what a batch calls.
func (c *claim) turn(ctx context.Context, e *registrypb.PendingEvent, slot turn.Slot) error {
	s := c.s
	s.active.Add(1)
	s.deps.Metrics.TurnsActive.Inc()
	defer func() {
		s.active.Add(-1)
		s.deps.Metrics.TurnsActive.Dec()
	}()
	stream := s.hub.Open(e.GetKey(), c.token)
	defer stream.Close()
	abort, leave := s.underway.enter(e.GetKey())
	defer leave()
	start := time.Now()
	r, err := s.driver.Run(ctx, turn.Work{
		AgentID: c.agentID, ThreadID: e.GetThreadId(), Key: e.GetKey(), InboxID: e.GetEvent().GetId(), Source: e.GetEvent().GetSource(),
		Fence: c.fence, Check: c.check, Slot: slot, Emit: stream.Publish, Abort: abort,
		Panicked: func() {
			if s.panics.strike(c.agentID) {
				c.current().Stop()
			}
		},
	})
	if err == nil && !r.Already {
		s.deps.Metrics.ObserveTurn(strings.ToLower(strings.TrimPrefix(r.Fate.String(), "FATE_")), time.Since(start))
	}
	return err
}

// underway are the runs that are being worked on here, by run id. The zero
// value is ready.
type underway struct {
	mu   sync.Mutex
	runs map[string]*running
}

type running struct {
	abort context.CancelCauseFunc
	done  chan struct{} // closed when nobody works on it here any more
}

// enter notes a run; the context ends when a person aborts it.
func (u *underway) enter(key string) (abort context.Context, leave func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	r := &running{cancel, make(chan struct{})}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.runs == nil {
		u.runs = map[string]*running{}
	}
	u.runs[key] = r
	return ctx, func() {
		cancel(nil)
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.runs[key] == r {
			delete(u.runs, key)
		}
		close(r.done)
	}
}

// abort ends a run; nil when it is not under way here.
func (u *underway) abort(key string) (done <-chan struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	r := u.runs[key]
	if r == nil {
		return nil
	}
	r.abort(turn.ErrAborted)
	return r.done
}

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

// strike counts a panic and tells whether the agent is set aside now.
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
