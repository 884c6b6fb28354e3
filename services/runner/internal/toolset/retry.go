package toolset

import (
	"context"
	"net/http"
	"time"
)

// retryWaits are the times between the attempts of one call.
var retryWaits = [...]time.Duration{2 * time.Second, 4 * time.Second}

// Retry makes an attempt, and makes it again after 2 s and after 4 s while it reports that a repetition may help: for
// a refused connection, a timeout, and the responses of [RetryStatus]. n counts the attempts from 1. All attempts are one
// step of the journal, so a call with an effect must not be repeated when the first attempt may have begun it. wait
// waits between two attempts; its error ends them.
func Retry(ctx context.Context, wait func(context.Context, time.Duration) error, attempt func(n int) (again bool)) {
	for n := 0; attempt(n+1) && n < len(retryWaits) && wait(ctx, retryWaits[n]) == nil; n++ {
	}
}

// RetryStatus reports whether the response to the same request may have another status a little later: 429 and 5xx.
func RetryStatus(status int) bool {
	return status == http.StatusTooManyRequests || status >= http.StatusInternalServerError
}
