package serve

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
)

// A burst is let through and then the rate holds; who waits as long as it is told gets
// in, and nobody else is slowed down by it.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perSecond, burst = 10, 5
		l := newRateLimit(perSecond, burst)
		one, other := rpc.Identity{Kind: rpc.Service, Name: "one"}, rpc.Identity{Kind: rpc.Service, Name: "other"}
		taken := 0
		var refused *fault.Error
		for ; ; taken++ {
			err := l.Take(one)
			if err == nil {
				continue
			}
			var ok bool
			if refused, ok = errors.AsType[*fault.Error](err); !ok || refused.Reason != fault.Overloaded {
				t.Fatalf("refused with %v", err)
			}
			break
		}
		if taken != burst+1 { // the burst, and the call that was due
			t.Errorf("%d calls at once, want %d", taken, burst+1)
		}
		if err := l.Take(other); err != nil {
			t.Errorf("another is refused: %v", err)
		}
		time.Sleep(refused.RetryAfter)
		if err := l.Take(one); err != nil {
			t.Errorf("refused after it waited: %v", err)
		}
		for range 3 * perSecond {
			time.Sleep(time.Second / perSecond)
			if err := l.Take(one); err != nil {
				t.Fatalf("refused at the rate: %v", err)
			}
		}
	})
}
