package standalone

import (
	"errors"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/lease/runlock"
)

// runLockWait is when to ask again for an agent that a foreign program works on.
const runLockWait = 5 * time.Second

// runLocks are the run.lock files of agents whose run lease is out, so that foreign tools
// see that an agent is being worked on. The zero value is ready.
//
// The registry holds them, not the runner: a runner that is stopped would hold
// the OS lock past its lease. A file that a live foreign program holds keeps the
// agent from being leased; one whose maker is gone is taken over.
type runLocks struct {
	mu   sync.Mutex
	held map[string]*runlock.Lock
}

// take takes the lock of an agent, or keeps it. It returns a *lease.HeldError while a foreign
// program has it.
func (f *runLocks) take(agentID, path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held[agentID] != nil {
		return nil
	}
	l := runlock.New(path)
	err := l.Take()
	if other, ok := errors.AsType[*runlock.HeldError](err); ok {
		return &lease.HeldError{Resource: lease.AgentResource(agentID), Holder: other.Error(), RetryAfter: runLockWait}
	}
	if err != nil {
		return err
	}
	if f.held == nil {
		f.held = map[string]*runlock.Lock{}
	}
	f.held[agentID] = l
	return nil
}

// has reports whether the lock of an agent is held: its lease was granted by this process.
func (f *runLocks) has(agentID string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.held[agentID] != nil
}

// release releases the lock of an agent; one that is not held is no error.
func (f *runLocks) release(agentID string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.held[agentID]
	if l == nil {
		return nil
	}
	delete(f.held, agentID)
	return l.Release()
}

// close releases all locks.
func (f *runLocks) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for id, l := range f.held {
		errs = append(errs, l.Release())
		delete(f.held, id)
	}
	return errors.Join(errs...)
}
