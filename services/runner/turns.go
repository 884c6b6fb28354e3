package runner

import (
	"context"
	"strings"
	"sync"
	"time"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
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
	start := time.Now()
	r, err := s.driver.Run(ctx, turn.Work{
		AgentID: l.AgentID, ThreadID: e.GetThreadId(), Key: e.GetKey(), InboxID: e.GetEvent().GetId(), Source: e.GetEvent().GetSource(),
		Fence: l.Fence(), Check: l.Check, Slot: slot, Emit: stream.Publish, Abort: abort, Panicked: l.Panicked,
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
