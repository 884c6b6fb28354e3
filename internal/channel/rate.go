package channel

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/theclaw/agents/internal/pause"
)

// maxHeld is how long a message waits for a rate. A longer wait occupies no place of the deliverer: it
// is reported as the platform's own limit is, and then other conversations go first.
const maxHeld = 5 * time.Second

// Rates are rates of a platform by the name of what has one, such as a chat. Agents share the account
// of a home, and each has a sender of its own: rates are of the process.
type Rates struct {
	most  int
	limit rate.Limit
	burst int

	mu   sync.Mutex
	list map[string]*rate.Limiter
}

// NewRates returns rates of so many messages a second, and so many at once. At most most of them are
// remembered; one that is forgotten begins again.
func NewRates(most int, limit rate.Limit, burst int) *Rates {
	return &Rates{most: most, limit: limit, burst: burst, list: map[string]*rate.Limiter{}}
}

// Of returns the rate of a name.
func (r *Rates) Of(name string) *rate.Limiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.list[name]
	if l == nil {
		if len(r.list) >= r.most {
			maps.DeleteFunc(r.list, func(_ string, l *rate.Limiter) bool { return l.Tokens() >= float64(l.Burst()) })
		}
		if len(r.list) >= r.most {
			clear(r.list)
		}
		l = rate.NewLimiter(r.limit, r.burst)
		r.list[name] = l
	}
	return l
}

// Admit waits until a message may be sent by all of the rates. The error is an [*Error]; what names
// the place to people.
func Admit(ctx context.Context, what string, list ...*rate.Limiter) error {
	now := time.Now()
	var held time.Duration
	var places []*rate.Reservation
	for _, l := range list {
		r := l.ReserveN(now, 1)
		places = append(places, r)
		held = max(held, r.DelayFrom(now))
	}
	err := Hold(ctx, what, held)
	if err != nil {
		for _, r := range places {
			r.Cancel()
		}
	}
	return err
}

// Hold waits until a message may be sent, after a while that a rate or an answer of the platform
// says. The error is an [*Error]: the wait is too long, or the send was stopped.
func Hold(ctx context.Context, what string, held time.Duration) error {
	if held <= 0 {
		return nil
	}
	if held > maxHeld {
		return &Error{
			Class: Unavailable, BeforeSend: true, RetryAfter: held, What: "the " + what + " has as many messages as its platform permits",
		}
	}
	err := pause.For(ctx, held)
	if err == nil {
		return nil
	}
	class := Unavailable
	if errors.Is(ctx.Err(), context.Canceled) {
		class = Interrupted
	}
	return &Error{Class: class, BeforeSend: true, What: "the send was stopped before it began", Err: err}
}
