package batch

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// pollWait is how long a call waits at the registry.
const pollWait = 25 * time.Second

// longPoll is a read of the inbox that waits at the registry for what comes, so that
// no notification has to come before a read. It belongs to the batch's loop.
type longPoll struct {
	answer chan pollResult // of the call under way; nil: there is none
	cancel context.CancelFunc
	// refused: the last call failed, or was answered at once with nothing. Until it is
	// read as usual, the dispatch reports new events, as it does the first.
	refused bool
	// until is when it is tried again where it was answered at once with nothing: one
	// that drains soon has a successor.
	until time.Time
}

type pollResult struct {
	r           *registrypb.OpenBatchResponse // nil: it failed
	lost, empty bool                          // with the lease; with nothing, at once
}

// begin makes the call where there is none and the window is not full; it reports whether
// the lines for the log went with it.
func (p *longPoll) begin(ctx context.Context, b *Batch, logs []*registrypb.LogLine) bool {
	after, limit := b.room()
	if p.answer != nil || p.refused || limit <= 0 || time.Now().Before(p.until) {
		return false
	}
	answer, began := make(chan pollResult, 1), time.Now()
	call, cancel := context.WithTimeout(ctx, 2*pollWait)
	p.answer, p.cancel = answer, cancel
	b.wg.Go(func() {
		in := &registrypb.OpenBatchRequest{AgentId: b.cfg.AgentID, AfterId: after, Limit: limit, Logs: logs, Wait: durationpb.New(pollWait)}
		r, err := b.deps.Inbox.OpenBatch(call, in)
		if err != nil {
			r = nil
		}
		nothing := len(r.GetEvents()) == 0 && r.GetScannedId() <= after
		answer <- pollResult{r, fault.Is(err, fault.LeaseLost), nothing && time.Since(began) < pollWait/2}
	})
	return true
}

// receive takes over the answer: the events of it, and whether to read as usual.
func (p *longPoll) receive(a pollResult) (r *registrypb.OpenBatchResponse, read bool) {
	p.cancel()
	p.answer, p.refused = nil, a.r == nil || a.empty
	if a.r != nil && a.empty {
		p.until = time.Now().Add(pollWait)
	}
	return a.r, a.lost || a.r.GetMore()
}

// end ends the call and returns what it already has; nil when nothing.
func (p *longPoll) end() (r *registrypb.OpenBatchResponse) {
	if p.answer != nil {
		p.cancel()
		r, _ = p.receive(<-p.answer)
	}
	p.refused = false
	return r
}
