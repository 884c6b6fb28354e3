package runner

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/obs/tracing"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/claim"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

// turn works on one event under a lease; it is what a batch calls.
func (s *Service) turn(ctx context.Context, l claim.Lease, e *registrypb.PendingEvent, slot turn.Slot) error {
	s.active.Add(1)
	s.deps.Metrics.TurnsActive.Inc()
	defer func() {
		s.active.Add(-1)
		s.deps.Metrics.TurnsActive.Dec()
	}()
	stream := s.hub.Open(e.GetKey(), l.Token)
	defer stream.Close()
	abort, leave := s.underway.enter(e.GetKey())
	defer leave()
	ctx, span := s.deps.Trace.Turn(ctx, e.GetKey(), tracing.Where{AgentID: l.AgentID, ThreadID: e.GetThreadId(), EventID: e.GetEvent().GetId()})
	defer span.End()
	start := time.Now()
	r, err := s.driver.Run(ctx, turn.Work{
		AgentID: l.AgentID, ThreadID: e.GetThreadId(), Key: e.GetKey(), InboxID: e.GetEvent().GetId(), Source: e.GetEvent().GetSource(),
		Fence: l.Fence(), Check: l.Check, Slot: slot, Stream: stream, Abort: abort, Panicked: l.Panicked,
	})
	if err == nil && !r.Already {
		fate := strings.ToLower(strings.TrimPrefix(r.Fate.String(), "FATE_"))
		span.Outcome(fate)
		s.deps.Metrics.ObserveTurn(fate, time.Since(start))
	}
	return err
}

// end ends a run that a person wants ended who could not ask here.
func (s *Service) end(ctx context.Context, agentID, run string) error {
	_, err := s.AbortRun(ctx, &runnerpb.AbortRunRequest{AgentId: agentID, RunId: run})
	return err
}

// underway are the runs that are being worked on here, by run id. The zero
// value is ready.
type underway struct {
	mu     sync.Mutex
	runs   map[string]context.CancelCauseFunc
	doomed map[string]int // runs that somebody aborts, begun or not
}

// enter notes a run; the context ends when a person aborts it.
func (u *underway) enter(key string) (abort context.Context, leave func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.runs == nil {
		u.runs, u.doomed = map[string]context.CancelCauseFunc{}, map[string]int{}
	}
	u.runs[key] = cancel // a run is worked on once at a time
	if u.doomed[key] > 0 {
		cancel(turn.ErrAborted)
	}
	return ctx, func() {
		cancel(nil)
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.runs, key)
	}
}

// abort ends a run as soon as it is under way here, until settled is called; strike
// ends one that is already, and tells whether there is one.
func (u *underway) abort(key string) (strike func() bool, settled func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.runs == nil {
		u.runs, u.doomed = map[string]context.CancelCauseFunc{}, map[string]int{}
	}
	u.doomed[key]++
	strike = func() bool {
		u.mu.Lock()
		defer u.mu.Unlock()
		cancel := u.runs[key]
		if cancel != nil {
			cancel(turn.ErrAborted)
		}
		return cancel != nil
	}
	return strike, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.doomed[key]--; u.doomed[key] == 0 {
			delete(u.doomed, key)
		}
	}
}
