package batch

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// followWait is how long a call waits at the registry.
const followWait = 25 * time.Second

// follow is a reading of the inbox that waits at the registry for what comes, so that
// no notification has to come before a read. It belongs to the batch's loop.
type follow struct {
	answer chan followed // of the call under way; nil: there is none
	cancel context.CancelFunc
	// refused: the last call failed, or was answered at once with nothing. Until it is
	// read as usual, the dispatch reports new events, as it does the first.
	refused bool
	// until is when it is tried again where it was answered at once with nothing: one
	// that drains soon has a successor.
	until time.Time
}

type followed struct {
	r           *registrypb.OpenBatchResponse // nil: it failed
	lost, empty bool                          // with the lease; with nothing, at once
}

// begin makes the call where there is none, and the window is not full; it returns whether the lines
// for the log went with it.
func (f *follow) begin(ctx context.Context, b *Batch, logs []*registrypb.LogLine) bool {
	after, limit := b.room()
	if f.answer != nil || f.refused || limit <= 0 || time.Now().Before(f.until) {
		return false
	}
	answer, began := make(chan followed, 1), time.Now()
	call, cancel := context.WithTimeout(ctx, 2*followWait)
	f.answer, f.cancel = answer, cancel
	b.wg.Go(func() {
		in := &registrypb.OpenBatchRequest{AgentId: b.cfg.AgentID, AfterId: after, Limit: limit, Logs: logs, Wait: durationpb.New(followWait)}
		r, err := b.deps.Inbox.OpenBatch(call, in)
		if err != nil {
			r = nil
		}
		nothing := len(r.GetEvents()) == 0 && r.GetScannedId() <= after
		answer <- followed{r, fault.Is(err, fault.LeaseLost), nothing && time.Since(began) < followWait/2}
	})
	return true
}

// over takes the answer in: what there is to take, and whether to read as ever.
func (f *follow) over(a followed) (r *registrypb.OpenBatchResponse, read bool) {
	f.cancel()
	f.answer, f.refused = nil, a.r == nil || a.empty
	if a.r != nil && a.empty {
		f.until = time.Now().Add(followWait)
	}
	return a.r, a.lost || a.r.GetMore()
}

// end ends the call and answers what it had got already; nil when nothing.
func (f *follow) end() (r *registrypb.OpenBatchResponse) {
	if f.answer != nil {
		f.cancel()
		r, _ = f.over(<-f.answer)
	}
	f.refused = false
	return r
}
