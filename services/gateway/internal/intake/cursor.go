package intake

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/fault"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// cursorGap is how often cursors that changed are stored.
const cursorGap = 5 * time.Second

// cursors are where the receiver of an account goes on.
type cursors struct {
	mu       sync.Mutex
	identity string
	changed  map[string]string // not stored yet
}

// begin reports whether it is the first identity of the receiver.
func (c *cursors) begin(identity string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.identity == ""
	c.identity = identity
	return first
}

// take takes what is not stored.
func (c *cursors) take() (identity string, changed map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed, c.changed = c.changed, nil
	return c.identity, changed
}

// back puts back what could not be stored, where it did not change meanwhile.
func (c *cursors) back(values map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.Copy(values, c.changed)
	c.changed = values
}

// Cursor reads a cursor of the account, as its identity.
func (a *Account) Cursor(ctx context.Context, name string) (string, error) {
	a.cursors.mu.Lock()
	identity, value, ok := a.cursors.identity, "", false
	if a.cursors.changed != nil {
		value, ok = a.cursors.changed[name]
	}
	a.cursors.mu.Unlock()
	if ok {
		return value, nil
	}
	ctx, cancel := context.WithTimeout(ctx, acceptLimit)
	defer cancel()
	r, err := a.deps.Channels.GetCursor(ctx, &registryv1.GetCursorRequest{Account: a.name, Identity: identity, Name: name})
	return r.GetValue(), err
}

// Save stores a cursor now.
func (a *Account) Save(ctx context.Context, name, value string) error {
	a.cursors.mu.Lock()
	identity := a.cursors.identity
	a.cursors.mu.Unlock()
	ctx, cancel := context.WithTimeout(a.lease.Fence(ctx), acceptLimit)
	defer cancel()
	_, err := a.deps.Channels.PutCursor(ctx, &registryv1.PutCursorRequest{Account: a.name, Identity: identity, Name: name, Value: value})
	if fault.Is(err, fault.LeaseLost) {
		a.lost(err)
	}
	return err
}

// Keep stores a cursor with the next ones.
func (a *Account) Keep(name, value string) {
	a.cursors.mu.Lock()
	defer a.cursors.mu.Unlock()
	if a.cursors.changed == nil {
		a.cursors.changed = map[string]string{}
	}
	a.cursors.changed[name] = value
}

// keepCursors stores the cursors that changed, until the account ends, and then once more.
func (a *Account) keepCursors() {
	tick := time.NewTicker(cursorGap)
	defer tick.Stop()
	for ended := false; !ended; {
		select {
		case <-tick.C:
		case <-a.ctx.Done():
			ended = true
			a.keepTyping()
		}
		identity, changed := a.cursors.take()
		ctx, cancel := context.WithTimeout(a.lease.Fence(context.WithoutCancel(a.ctx)), acceptLimit)
		for name, value := range changed {
			_, err := a.deps.Channels.PutCursor(ctx, &registryv1.PutCursorRequest{Account: a.name, Identity: identity, Name: name, Value: value})
			if fault.Is(err, fault.LeaseLost) {
				a.lost(err)
			}
			if err != nil { // what comes again because of it is known by its key
				a.deps.Logger.Debug("a cursor is not stored now", "account", a.name, "error", fault.Chain(err))
				continue
			}
			fault.Point("G5")
			delete(changed, name)
		}
		cancel()
		if len(changed) > 0 {
			a.cursors.back(changed)
		}
	}
}
