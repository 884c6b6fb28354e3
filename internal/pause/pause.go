// Package pause waits for a while, or until the caller has no use for it any more,
// and says how long a wait before another try is.
package pause

import (
	"context"
	"time"
)

// For waits for d. It answers nil, or the error of ctx as soon as that ends.
func For(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
