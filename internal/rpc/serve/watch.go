package serve

import (
	"context"
	"time"
)

// A service is checked once a second and must answer within the timeout.
const (
	watchInterval = time.Second
	watchTimeout  = 2 * time.Second
)

// watchService checks periodically whether a service can do its work, until ctx ends. It
// reports changes only: the error when two checks in a row failed, and nil after the
// next check that succeeds. A single failure is ignored. Calls under way are not affected.
func watchService(ctx context.Context, check func(context.Context) error, report func(error)) {
	t := time.NewTicker(watchInterval)
	defer t.Stop()
	for failed := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		call, cancel := context.WithTimeout(ctx, watchTimeout)
		err := check(call)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if failed++; failed == 2 {
				report(err)
			}
		default:
			if failed >= 2 {
				report(nil)
			}
			failed = 0
		}
	}
}
