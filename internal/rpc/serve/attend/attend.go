// Package attend owns the look at a service that serves: whether it can do its work now.
//
// It promises that one bad moment counts for nothing: two failures in a row do, and one
// success ends it; and that who is told is told of changes only. It decides nothing
// about calls: those that are under way end as their service ends them.
package attend

import (
	"context"
	"time"
)

// A service is asked once a second, and has patience to answer.
const (
	every    = time.Second
	patience = 2 * time.Second
)

// Watch asks until ctx ends. tell is called with the error when the service cannot work
// any more, and with nil when it can again.
func Watch(ctx context.Context, ask func(context.Context) error, tell func(error)) {
	t := time.NewTicker(every)
	defer t.Stop()
	for failed := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		call, cancel := context.WithTimeout(ctx, patience)
		err := ask(call)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if failed++; failed == 2 {
				tell(err)
			}
		default:
			if failed >= 2 {
				tell(nil)
			}
			failed = 0
		}
	}
}
