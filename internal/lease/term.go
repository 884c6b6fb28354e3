package lease

import (
	"context"
	"fmt"
	"time"
)

// Renew gives a term one more ttl from now. It returns ErrLost unless the token
// is the current one, is the holder's, and has not expired: an expired term is
// never revived. It never touches the disk, because an expiry is never read
// from there. The answer carries YieldRequested.
func (t *Table) Renew(resource, holder string, token uint64) (Record, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	e := t.entries[resource]
	if e == nil || e.rec.Token != token || e.rec.Holder != holder || !e.live(now) {
		return Record{}, fmt.Errorf("renew lease %s token %d: %w", resource, token, ErrLost)
	}
	e.extend(now)
	return e.rec, nil
}

// Check is the first half of the fence: nil only if the token is the current
// one of its resource and has not expired, else ErrLost. It is one map lookup,
// made to be called inside a store's transaction. The second half, x_fence,
// is the store's; doc.go says why both are needed.
func (t *Table) Check(resource string, token uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[resource]
	if e == nil || e.rec.Token != token || !e.live(time.Now()) {
		return fmt.Errorf("check lease %s token %d: %w", resource, token, ErrLost)
	}
	return nil
}

// Release ends the term of this very token, and no other: a late release of an
// old term cannot free a new one (ErrLost). The ledger is written first, so that
// nobody sees an end that a restart could take back; when that fails the error
// says so, the resource is free nevertheless, and only a registry that restarts
// now would wait out one ttl. Repeating a release is fine.
func (t *Table) Release(ctx context.Context, resource string, token uint64) error {
	t.mu.Lock()
	e := t.entries[resource]
	if e == nil || e.rec.Token != token {
		t.mu.Unlock()
		return fmt.Errorf("release lease %s token %d: %w", resource, token, ErrLost)
	}
	ended := e.phase == free
	t.mu.Unlock()
	if ended {
		return nil
	}
	err := t.saveReleased(ctx, e, token)
	t.mu.Lock()
	if e.rec.Token == token {
		e.phase = free
		e.rec.YieldRequested = false
	}
	t.mu.Unlock()
	if err != nil {
		return fmt.Errorf("release lease %s: %w", resource, err)
	}
	return nil
}

// saveReleased writes that a term is over, unless a later one has begun.
func (t *Table) saveReleased(ctx context.Context, e *entry, token uint64) error {
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	t.mu.Lock()
	if e.rec.Token != token {
		t.mu.Unlock()
		return nil
	}
	rec := e.rec
	t.mu.Unlock()
	rec.Released = true
	err := t.ledger.Save(ctx, rec)
	t.mu.Lock()
	if e.rec.Token == token {
		e.rec.Released = true
		e.phase = free
	}
	t.mu.Unlock()
	return err
}

// RequestYield asks the holder to give the resource back: its next renewal, and
// each one after it, carries YieldRequested. It reports whether anybody holds
// the resource. A request ends with the term it was made to.
func (t *Table) RequestYield(resource string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[resource]
	if e == nil || !e.live(time.Now()) {
		return false
	}
	e.rec.YieldRequested = true
	return true
}
