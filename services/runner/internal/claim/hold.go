package claim

import "context"

// Do does a piece of work that is no event under the lease of an agent, in the
// claim that is there or in one of its own. Its context ends with the lease, and
// with the caller's; a drain waits for it as it does for a turn.
// Errors: those of [Set.Join], and those of work.
func (s *Set) Do(ctx context.Context, agentID string, work func(context.Context, Lease) error) error {
	for {
		c, err := s.claimed(ctx, agentID)
		if err != nil {
			return err
		}
		release, ok := c.current().Hold()
		if !ok { // it ends: the next claim will do
			select {
			case <-c.done:
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		}
		defer release()
		select {
		case <-c.ready:
		case <-c.done:
			return errEnding
		case <-ctx.Done():
			return ctx.Err()
		}
		held, cancel := context.WithCancelCause(c.held)
		defer cancel(nil)
		defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
		return work(held, c.lease)
	}
}

// claimed answers the claim of an agent, and takes the lease for one if need be.
func (s *Set) claimed(ctx context.Context, agentID string) (*claim, error) {
	for {
		b, err := s.join(ctx, agentID)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		c, changed := s.claims[agentID], s.changed
		s.mu.Unlock()
		if c != nil && c.current() == b {
			return c, nil
		}
		if c == nil {
			continue
		}
		if err := await(ctx, changed); err != nil {
			return nil, err
		}
	}
}
