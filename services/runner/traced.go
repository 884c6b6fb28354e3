package runner

import (
	"context"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/obs/tracing"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/modelcall"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

// tracedJournal is j with a span around the claim and the reply; a nil tracer answers j. No text of a
// prompt, an answer or an error is in a span.
func tracedJournal(t *tracing.Tracer, j turn.Journal) turn.Journal {
	if t == nil {
		return j
	}
	return journalSpans{j, t}
}

type journalSpans struct {
	turn.Journal
	trace *tracing.Tracer
}

func (j journalSpans) BeginTurn(ctx context.Context, in *registrypb.BeginTurnRequest, opts ...grpc.CallOption) (*registrypb.BeginTurnResponse, error) {
	ctx, span := j.trace.Start(ctx, "claim")
	defer span.End()
	return j.Journal.BeginTurn(ctx, in, opts...)
}

func (j journalSpans) FinishTurn(ctx context.Context, in *registrypb.FinishTurnRequest, opts ...grpc.CallOption) (*registrypb.FinishTurnResponse, error) {
	ctx, span := j.trace.Start(ctx, "reply")
	defer span.End()
	return j.Journal.FinishTurn(ctx, in, opts...)
}

// tracedTry is f with a span around each call; a nil tracer answers f.
func tracedTry(t *tracing.Tracer, provider string, f modelcall.TryFunc) modelcall.TryFunc {
	if t == nil {
		return f
	}
	return func(ctx context.Context, req model.Request, onDelta func(model.Delta)) (model.Response, modelcall.Try) {
		ctx, span := t.Model(ctx, provider, req.Model)
		defer span.End()
		resp, try := f(ctx, req, onDelta)
		if try.Err != nil {
			span.Fail(try.Err.Class.String())
			return resp, try
		}
		span.Usage(resp.Usage.Input, resp.Usage.Output, resp.Usage.CachedInput, string(resp.FinishReason))
		return resp, try
	}
}
