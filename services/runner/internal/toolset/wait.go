package toolset

import (
	"context"
	"time"

	"github.com/theclaw/agents/internal/obs/tracing"
)

// Waits are the means of a call that waits for a person. It belongs to one turn, and all its
// methods but Replies are called from the goroutine that runs the call.
type Waits interface {
	// Wait calls f, which waits, and returns its error. Meanwhile the turn has no slot, its time
	// stands still, and it holds up neither the drain of the process nor a lease that others
	// want: then the context of f ends, and so does that of the call. The turn is given back
	// without an attempt, and the next holder makes the same call again. Only a call that
	// runs alone may wait.
	Wait(ctx context.Context, f func(ctx context.Context) error) error
	// Say sends a message to the peer, once for each name within the call. question is the id of the
	// question that it asks, whose options become buttons; empty: it asks none.
	Say(ctx context.Context, c Call, name, text, question string) error
	// Replies returns the messages of the peer, with ids above after, that are next in the
	// conversation, and a channel that is closed when there may be others.
	Replies(after int64) (list []Reply, changed <-chan struct{})
	// Hold keeps a message from being withdrawn while it is offered, until Release or the end
	// of the turn; false when it was withdrawn.
	Hold(r Reply) bool
	Release(r Reply)
	// Join makes the message with this key a part of the turn: it is merged and gets no turn
	// of its own. It is journaled before the result of the call, and may be repeated.
	Join(ctx context.Context, c Call, key string) error
}

// Reply is a message of the peer that came while its conversation is worked on.
type Reply struct {
	ID   int64 // in the inbox
	Key  string
	Text string
}

// Wait calls f, which waits for a person, as [Waits] does; a place without Waits only calls it.
func (p Place) Wait(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, span := tracing.Child(ctx, tracing.SpanWait)
	defer span.End()
	if p.Waits == nil {
		return f(ctx)
	}
	return p.Waits.Wait(ctx, f)
}

// What a call waits for.
const (
	PromptQuestion = "question"
	PromptApproval = "approval"
)

// The ends of a wait, for metrics. Interrupted is the end of a call that ended first; the next holder of the lease may wait again.
const (
	WaitAnswered    = "answered"
	WaitRefused     = "refused"
	WaitExpired     = "expired"
	WaitInterrupted = "interrupted"
)

// Prompt is what a person is asked, while a call waits for the answer.
type Prompt struct {
	Kind string // PromptQuestion or PromptApproval
	ID   string // of the question or the approval
	Text string
}

// prompt reports a wait of a call to the watcher and to the meter.
func (c *Calls) prompt(u *use, p Prompt) func(end string) {
	closed, begun := c.Watcher.Prompt(u.watched(), p), time.Now()
	c.Meter.WaitBegins(p.Kind)
	return func(end string) {
		c.Meter.WaitEnds(p.Kind, end, time.Since(begun))
		closed()
	}
}
