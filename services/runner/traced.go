package runner

import (
	"context"

	"github.com/theclaw/agents/internal/obs/tracing"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/modelcall"
)

// tracedTry is f with a span around each call; with a nil tracer it is f. No text of a
// prompt, an answer or an error is in a span.
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
