package runner

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/obs/tracing"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/claim"
	"github.com/theclaw/agents/services/runner/internal/toolset/shell"
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
	abort, leave := s.runs.enter(e.GetKey())
	defer leave()
	defer context.AfterFunc(abort, func() { // a person who ends a run wants nothing of its conversation to go on
		if cause := context.Cause(abort); errors.Is(cause, turn.ErrAborted) {
			of := ""
			if c, ok := errors.AsType[turn.Cut](cause); ok && !c.All {
				of = e.GetKey()
			}
			s.processes.End(ctx, l.AgentID, e.GetThreadId(), of)
		}
	})()
	ctx, span := s.deps.Trace.Turn(ctx, e.GetKey(), tracing.Where{AgentID: l.AgentID, ThreadID: e.GetThreadId(), EventID: e.GetEvent().GetId()})
	defer span.End()
	start := time.Now()
	r, err := s.driver.Run(ctx, turn.Work{
		AgentID: l.AgentID, ThreadID: e.GetThreadId(), Key: e.GetKey(), InboxID: e.GetEvent().GetId(), Source: e.GetEvent().GetSource(),
		Fence: l.Fence(), Check: l.Check, Slot: slot, Stream: stream, Abort: abort, FromOwner: e.GetFromOwner(), Command: e.GetCommand(), Panicked: l.Panicked, Dead: l.Dead,
	})
	if err == nil && !r.Already {
		fate := strings.ToLower(strings.TrimPrefix(r.Fate.String(), "FATE_"))
		span.Outcome(fate)
		s.deps.Metrics.ObserveTurn(fate, time.Since(start))
		if c := e.GetCommand(); c != nil {
			s.deps.Metrics.AddCommand(c.GetName())
		}
	}
	return err
}

// hold keeps the lease of an agent for a process.
func (s *Service) hold(ctx context.Context, agentID string) (shell.Held, error) {
	h, err := s.claims.Hold(ctx, agentID)
	if err != nil {
		return shell.Held{}, err
	}
	return shell.Held{
		Ctx: h.Ctx, Fence: h.Fence(), Stop: h.Stop, Release: h.Release,
		Trusted: func(ctx context.Context) error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return h.Check()
		},
	}, nil
}

// end ends a run that a person wants ended who could not ask here.
func (s *Service) end(ctx context.Context, agentID, run string) error {
	_, err := s.AbortRun(ctx, &runnerpb.AbortRunRequest{AgentId: agentID, RunId: run})
	return err
}

// cut ends the run of an event, now or as soon as it begins, because a command stops it.
func (s *Service) cut(key string, by *registrypb.PendingEvent) (settled func()) {
	cancelRun, settled := s.runs.abort(key, turn.Cut{By: by.GetEvent().GetId(), All: by.GetFromOwner()})
	cancelRun()
	return settled
}

// activeRuns are the runs that are worked on here, by run id. The zero
// value is ready.
type activeRuns struct {
	mu       sync.Mutex
	runs     map[string]context.CancelCauseFunc
	aborting map[string]*aborting // runs that are to be aborted, begun or not
}

// aborting is a run that is to be aborted: why, and how many calls want it.
type aborting struct {
	cause error
	calls int
}

// enter adds a run; the context ends when a person aborts it.
func (a *activeRuns) enter(key string) (abort context.Context, leave func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.runs == nil {
		a.runs, a.aborting = map[string]context.CancelCauseFunc{}, map[string]*aborting{}
	}
	a.runs[key] = cancel // a run is worked on once at a time
	if why := a.aborting[key]; why != nil {
		cancel(why.cause)
	}
	return ctx, func() {
		cancel(nil)
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.runs, key)
	}
}

// abort ends a run as soon as it is active here, until settled is called; cancelRun
// ends one that already is, and reports whether there is one.
func (a *activeRuns) abort(key string, cause error) (cancelRun func() bool, settled func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.runs == nil {
		a.runs, a.aborting = map[string]context.CancelCauseFunc{}, map[string]*aborting{}
	}
	if a.aborting[key] == nil {
		a.aborting[key] = &aborting{cause: cause}
	}
	a.aborting[key].calls++
	cancelRun = func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		cancel := a.runs[key]
		if cancel != nil {
			cancel(cause)
		}
		return cancel != nil
	}
	return cancelRun, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.aborting[key].calls--; a.aborting[key].calls == 0 {
			delete(a.aborting, key)
		}
	}
}
