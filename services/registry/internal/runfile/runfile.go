// Package runfile owns the run.lock files of agents whose run lease is out, so
// that foreign tools see that an agent is being worked on.
//
// The registry holds them, not the runner: a runner that is stopped would hold
// the OS lock past its lease. A file that a live foreign program holds keeps the
// agent from being leased; one whose maker is gone is taken over.
package runfile

import (
	"errors"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/lease/runlock"
)

// retry is when to ask again for an agent that a foreign program works on.
const retry = 5 * time.Second

// Files are the locks held. The zero value is ready.
type Files struct {
	mu   sync.Mutex
	held map[string]*runlock.Lock
}

// Take takes the lock of an agent; taking a held one is fine. It answers a
// *lease.HeldError while a foreign program has it.
func (f *Files) Take(agentID, path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held[agentID] != nil {
		return nil
	}
	l := runlock.New(path)
	err := l.Take()
	if other, ok := errors.AsType[*runlock.HeldError](err); ok {
		return &lease.HeldError{Resource: lease.AgentResource(agentID), Holder: other.Error(), RetryAfter: retry}
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

// Release gives the lock of an agent back; one that is not held is fine.
func (f *Files) Release(agentID string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.held[agentID]
	if l == nil {
		return nil
	}
	delete(f.held, agentID)
	return l.Release()
}

// Close gives all locks back.
func (f *Files) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for id, l := range f.held {
		errs = append(errs, l.Release())
		delete(f.held, id)
	}
	return errors.Join(errs...)
}
