package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/pause"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// poll asks for work until ctx ends. base is the context of terms.
func (w *Worker[W]) poll(ctx, base context.Context) {
	var (
		request  string
		sent     time.Time // of the first call under this request id: a repeat may
		failures int       // return grants that are as old
	)
	for {
		held, changed := w.state()
		room := min(max(w.deps.Free(ctx, held), 0), maxNew)
		if ctx.Err() != nil {
			return
		}
		if request == "" {
			request, sent = ulid.Make().String(), time.Now()
		}
		wait := w.cfg.Poll
		if room == 0 {
			wait = min(wait, fullPoll)
		}
		asked := time.Now()
		r, cut, err := w.ask(ctx, request, room, wait, changed)
		switch {
		case cut: // another lease may be possible now: the same request with another bound
			continue
		case err != nil:
			if failures == 0 && ctx.Err() == nil {
				w.deps.Logger.WarnContext(ctx, "no answer about due work, the call is repeated", "error", fault.Chain(err))
			}
		default:
			for _, due := range r.GetDue() {
				w.due(base, due, sent)
			}
			if n := int(r.GetWaiting()); n > 0 && w.deps.GiveWay != nil {
				w.deps.GiveWay(n)
			}
			if w.news(r.GetNews()) {
				request = ""
			}
			if len(r.GetDue())+len(r.GetNews()) > 0 || time.Since(asked) >= wait/2 {
				failures = 0
				continue
			}
			// An empty answer long before its time: the registry is shutting down.
		}
		_ = pause.For(ctx, backoff.Wait(failures))
		failures++
	}
}

// ask polls once. A poll at the limit of leases is cut short when the terms change.
func (w *Worker[W]) ask(ctx context.Context, request string, room int, wait time.Duration, changed <-chan struct{}) (r *registrypb.AcquireDueLeaseResponse, cut bool, err error) {
	var watch sync.WaitGroup
	defer watch.Wait()
	call, cancel := context.WithTimeout(ctx, wait+pollMargin)
	defer cancel()
	if room == 0 {
		watch.Go(func() {
			select {
			case <-call.Done():
			case <-changed:
				cancel()
			}
		})
	}
	r, err = w.deps.Leases.AcquireDueLease(call, &registrypb.AcquireDueLeaseRequest{
		Kind: w.cfg.Kind, Holder: w.cfg.Holder, Address: w.cfg.Address, RequestId: request,
		Ttl: durationpb.New(w.cfg.TTL), MaxNew: int32(room), Wait: durationpb.New(wait),
		News: w.cfg.Kind == registrypb.LeaseKind_LEASE_KIND_RUN,
	})
	return r, err != nil && room == 0 && errors.Is(call.Err(), context.Canceled), err
}

// state returns how many agents are held, and what is closed when that changes.
func (w *Worker[W]) state() (held int, changed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.terms), w.changed
}

// due starts or wakes the term of an agent. sent is the instant before the registry
// was first asked.
func (w *Worker[W]) due(base context.Context, d *registrypb.DueWork, sent time.Time) {
	id, l := d.GetAgentId(), d.GetLease()
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.terms[id]
	switch {
	case t != nil && t.token == l.GetToken():
		t.wakeLocked(d.GetThreadIds())
	case d.GetFresh():
		w.startLocked(base, id, l, sent).oweLocked(d.GetThreadIds())
	case w.asking[id] > 0: // the answer to Take is on its way, with the lease
		w.owed[id] = append(w.owed[id], d.GetThreadIds()...)
	default: // nothing here works under it any more
		w.wg.Go(func() { w.release(base, id, l) })
	}
}

// news wakes the terms of agents. It reports whether all of them are held here: the
// lease of one that is not comes with a repeat of the request.
func (w *Worker[W]) news(agents []string) (all bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all = true
	for _, id := range agents {
		if t := w.terms[id]; t != nil {
			t.wakeLocked(nil)
		} else if w.asking[id] == 0 { // the work that Take starts reads everything
			all = false
		}
	}
	return all
}
