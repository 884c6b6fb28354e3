package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/pause"
)

// Grant is what a holder got from Acquire.
type Grant struct {
	Resource string
	Token    uint64
	TTL      time.Duration // 0 means DefaultTTL
	// Sent is the instant just before the acquire request was sent; the first
	// trust window is counted from it. The zero value means the call of Keep,
	// which trusts one round trip too long: set it.
	Sent time.Time
}

// RenewReply is the registry's response to a renewal.
type RenewReply struct {
	TTL            time.Duration // 0 means unchanged
	YieldRequested bool
}

// Renewer carries a renewal to the registry. It must honor its context, which
// has a deadline. An error for which errors.Is(err, ErrLost) holds is the
// registry's final word on the term; every other error, UNAUTHENTICATED after a
// token rotation included, is a question without an answer, and asked again.
type Renewer interface {
	Renew(ctx context.Context, resource string, token uint64) (RenewReply, error)
}

// Options of a Keeper; the zero value is right.
type Options struct {
	// Every is the time between a renewal and the next; 0 means ttl/3.
	Every time.Duration
	// OnError is called with each failed renewal that will be tried again, for logs
	// and counters. It must not block.
	OnError func(error)
}

// Keeper is the holder's side of one term: it renews the lease and knows when
// it is no longer to be trusted.
type Keeper struct {
	renewer Renewer
	grant   Grant
	opts    Options

	// ctx is the one context of this package that lives in a struct: it is the
	// Keeper's product, not its parameter.
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	yield  chan struct{}

	mu     sync.Mutex
	trust  time.Time // valid_until
	yields bool      // yield is closed
}

// Keep renews the grant until the term is lost, ctx ends, or Stop is called. To
// finish running work while draining, pass a context that lives that long: when
// ctx ends the renewals end.
func Keep(ctx context.Context, renewer Renewer, grant Grant, opts Options) *Keeper {
	if grant.TTL <= 0 {
		grant.TTL = DefaultTTL
	}
	if grant.Sent.IsZero() {
		grant.Sent = time.Now()
	}
	k := &Keeper{renewer: renewer, grant: grant, opts: opts, yield: make(chan struct{})}
	k.trust = trustedUntil(grant.Sent, grant.TTL)
	k.ctx, k.cancel = context.WithCancelCause(ctx)
	k.wg.Go(k.watch)
	k.wg.Go(k.renew)
	return k
}

func trustedUntil(sent time.Time, ttl time.Duration) time.Time {
	return sent.Add(ttl - Margin(ttl))
}

// Context ends with the trust in the lease: its cause is ErrLost when the
// registry said so or when valid_until passed without a renewal. Work under the
// lease runs under this context; its children are to be killed when it ends.
func (k *Keeper) Context() context.Context { return k.ctx }

// Yield is closed when the registry first asks to give the resource back.
func (k *Keeper) Yield() <-chan struct{} { return k.yield }

// Token is the fencing token to send with every call.
func (k *Keeper) Token() uint64 { return k.grant.Token }

// Check returns nil while the lease is trusted, else the cause. Ask it right
// before each model call, tool, send and transaction: it reads the clock,
// whereas a process that was stopped and goes on sees Context end only when its
// timer has run.
func (k *Keeper) Check() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	return context.Cause(k.ctx)
}

// Stop ends the renewing and Context, and waits for the goroutines. It does not
// release the lease: that is one call to the registry, and the caller's. It may
// be called more than once.
func (k *Keeper) Stop() {
	k.cancel(context.Canceled)
	k.wg.Wait()
}

// expire ends the term if valid_until has passed. The caller holds mu, so that
// nobody sees the time over and the context not.
func (k *Keeper) expire() {
	if k.ctx.Err() == nil && !time.Now().Before(k.trust) {
		k.cancel(fmt.Errorf("lease %s token %d: no renewal in time: %w", k.grant.Resource, k.grant.Token, ErrLost))
	}
}

// extend moves valid_until after a renewal that was sent at the given instant.
// It changes nothing once the trust has ended: an answer that comes too late
// revives nothing.
func (k *Keeper) extend(sent time.Time, ttl time.Duration, yield bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	if k.ctx.Err() != nil {
		return
	}
	k.trust = trustedUntil(sent, ttl)
	k.expire() // the answer itself may be older than the window it opens
	if yield && !k.yields {
		k.yields = true
		close(k.yield)
	}
}

// watch ends the term at valid_until, whatever the renewer is doing then.
func (k *Keeper) watch() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-k.ctx.Done():
			return
		case <-timer.C:
			k.mu.Lock()
			k.expire()
			left := time.Until(k.trust)
			k.mu.Unlock()
			timer.Reset(left)
		}
	}
}

// renew asks every ttl/3, and after an error sooner, with full jitter so that a
// registry that comes back is not met by all its holders at once.
func (k *Keeper) renew() {
	ttl, failures := k.grant.TTL, 0
	next := time.NewTimer(time.Until(k.grant.Sent.Add(k.every(ttl))))
	defer next.Stop()
	for {
		select {
		case <-k.ctx.Done():
			return
		case <-next.C:
		}
		sent := time.Now()
		// One attempt may not use up the window: a call into a dead connection
		// hangs, and the next one may find the way.
		ctx, cancel := context.WithTimeout(k.ctx, k.every(ttl))
		reply, err := k.renewer.Renew(ctx, k.grant.Resource, k.grant.Token)
		cancel()
		switch {
		case err == nil:
			failures = 0
			if reply.TTL > 0 {
				ttl = reply.TTL
			}
			k.extend(sent, ttl, reply.YieldRequested)
			next.Reset(time.Until(sent.Add(k.every(ttl))))
		case errors.Is(err, ErrLost):
			k.cancel(fmt.Errorf("lease %s token %d: %w", k.grant.Resource, k.grant.Token, err))
			return
		case k.ctx.Err() != nil:
			return
		default:
			if k.opts.OnError != nil {
				k.opts.OnError(err)
			}
			next.Reset(pause.Backoff{First: max(ttl/60, time.Millisecond), Last: max(ttl/20, time.Millisecond)}.Wait(failures))
			failures++
		}
	}
}

func (k *Keeper) every(ttl time.Duration) time.Duration {
	if k.opts.Every > 0 {
		return k.opts.Every
	}
	return ttl / 3
}
