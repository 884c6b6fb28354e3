package agentapi

import (
	"context"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/services/registry/internal/directory"
)

// state answers the state of an inbox, from memory where nothing waits and nobody has
// written since it was read: then its database stays closed.
func (s *Service) state(ctx context.Context, a *directory.Agent) (store.InboxState, error) {
	if s.Shared != nil {
		st, err := s.Store.State(ctx, a.ID)
		if err == nil {
			a.Take(st)
		}
		return st, err
	}
	path, err := s.Dir.Path(store.Inbox(a.ID))
	if err != nil {
		return store.InboxState{}, err
	}
	before, open := directory.Stamp(path), s.Embedded.IsOpen(store.Inbox(a.ID))
	if st, ok := a.Quiet(before); ok {
		return st, nil
	}
	st, err := s.Store.State(ctx, a.ID)
	if err != nil {
		return st, err
	}
	a.Load(st, before)
	s.MarkDue(a)
	if !open && !a.HasWork() { // only read: ten thousand of these need not stay open
		s.Embedded.Forget(func(r store.Ref) bool { return r == store.Inbox(a.ID) })
	}
	return st, nil
}
