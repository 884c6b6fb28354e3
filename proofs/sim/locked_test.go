//go:build proof

package sim_test

import (
	"context"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// locked is the engine of whichever registry runs. A call is never cut in two: a
// restart waits for it, and the crash matrix is for the rest.
type locked struct {
	store.Engine // nil: the rest is not called
	s            *site
}

func call[T any](l locked, f func(store.Engine) (T, error)) (T, error) {
	l.s.calls.RLock()
	defer l.s.calls.RUnlock()
	return f(l.s.engine)
}

func (l locked) Append(ctx context.Context, r store.Ref, ev []store.NewEvent, o store.AppendOptions) (store.Appended, error) {
	return call(l, func(e store.Engine) (store.Appended, error) { return e.Append(ctx, r, ev, o) })
}

func (l locked) Ensure(ctx context.Context, r store.Ref, tuple string) (bool, error) {
	return call(l, func(e store.Engine) (bool, error) { return e.Ensure(ctx, r, tuple) })
}

func (l locked) OpenBatch(ctx context.Context, agent string, f store.Fence, o store.OpenBatch) (store.Batch, error) {
	return call(l, func(e store.Engine) (store.Batch, error) {
		o.Claimed = func(ctx context.Context, _ thread.Event, _, _ string) (bool, error) { return false, nil }
		return e.OpenBatch(ctx, agent, f, o)
	})
}

func (l locked) Settle(ctx context.Context, agent string, f store.Fence, s store.Settlement) (int64, error) {
	return call(l, func(e store.Engine) (int64, error) { return e.Settle(ctx, agent, f, s) })
}

func (l locked) Begin(ctx context.Context, r store.Ref, f store.Fence, b store.Begin) (store.Begun, error) {
	return call(l, func(e store.Engine) (store.Begun, error) { return e.Begin(ctx, r, f, b) })
}

func (l locked) Record(ctx context.Context, r store.Ref, f store.Fence, rec store.Record) (int, error) {
	return call(l, func(e store.Engine) (int, error) { return e.Record(ctx, r, f, rec) })
}

func (l locked) Steer(ctx context.Context, r store.Ref, f store.Fence, s store.Steer) (store.Step, error) {
	return call(l, func(e store.Engine) (store.Step, error) { return e.Steer(ctx, r, f, s) })
}

func (l locked) Finish(ctx context.Context, r store.Ref, f store.Fence, fin store.Finish) (store.Finished, error) {
	return call(l, func(e store.Engine) (store.Finished, error) { return e.Finish(ctx, r, f, fin) })
}

func (l locked) NextDelivery(ctx context.Context, r store.Ref, f store.Fence, n store.NextDelivery) (store.DueDelivery, error) {
	return call(l, func(e store.Engine) (store.DueDelivery, error) { return e.NextDelivery(ctx, r, f, n) })
}

func (l locked) FinishDelivery(ctx context.Context, r store.Ref, f store.Fence, fin store.FinishDelivery) (store.Delivery, error) {
	return call(l, func(e store.Engine) (store.Delivery, error) { return e.FinishDelivery(ctx, r, f, fin) })
}
