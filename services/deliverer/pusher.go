package deliverer

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/obs/redact"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

const (
	inbox = "inbox"
	// awayWait is how soon to ask a registry again that does not answer: a
	// restart takes it a moment, not half a minute as another server.
	awayWait = time.Second
)

// pusher writes to other agents' inboxes. The fence of the sender's deliver
// lease is in the context that the drain works under: it proves who the sender is.
type pusher struct {
	client   registryv1.ThreadServiceClient
	redactor *redact.Redactor
}

// Push appends one event; the delivery key makes a repeat harmless.
func (p pusher) Push(ctx context.Context, agentID, source, eventType, content, idempotencyKey string) (int64, error) {
	callCtx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	resp, err := p.client.PushEvents(callCtx, &registryv1.PushEventsRequest{
		Thread:         &registryv1.ThreadRef{AgentId: agentID, ThreadId: inbox},
		Events:         []*registryv1.NewEvent{{Source: source, Type: eventType, Content: content}},
		IdempotencyKey: idempotencyKey,
	})
	if err != nil {
		return 0, p.failure(ctx, err)
	}
	if len(resp.GetEventIds()) == 0 {
		return 0, &channel.Error{Class: channel.Failed, InDoubt: true, What: "the registry named no event"}
	}
	return resp.GetEventIds()[0], nil
}

// failure classifies the registry's answer. ctx is the caller's: its end is our
// own doing, that of the call's time is not.
func (p pusher) failure(ctx context.Context, err error) *channel.Error {
	e := fault.From(err)
	out := &channel.Error{
		Class: channel.Failed, RetryAfter: e.RetryAfter,
		What: p.redactor.Redact(channel.Clean("the inbox did not take the message: "+e.What, 500)),
		Fix:  p.redactor.Redact(channel.Clean(e.Fix, 300)), Err: err,
	}
	switch {
	case ctx.Err() != nil:
		out.Class, out.InDoubt = channel.Interrupted, true
	case e.Reason == fault.LeaseLost:
		out.Class = channel.Interrupted
	case e.Code == codes.NotFound, e.Code == codes.InvalidArgument, e.Code == codes.OutOfRange, e.Reason == fault.EventTooLarge,
		e.Code == codes.PermissionDenied:
		out.Class = channel.Rejected
	case e.Code == codes.ResourceExhausted, e.Code == codes.FailedPrecondition: // full, stopped, or set aside
		out.Class = channel.Unavailable
	case e.Code == codes.Unavailable, e.Code == codes.DeadlineExceeded, e.Code == codes.Unauthenticated, e.Code == codes.Canceled:
		out.Class, out.InDoubt = channel.Unavailable, true
		if out.RetryAfter == 0 {
			out.RetryAfter = awayWait
		}
	}
	return out
}
