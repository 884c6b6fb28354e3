package turn

import (
	"context"
	"errors"
	"time"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/fit"
	"github.com/theclaw/agents/services/runner/internal/memory"
	"github.com/theclaw/agents/services/runner/internal/model"
)

// fitted makes the prompts of this turn, from when its model is known. A program
// that runs tools itself is not asked for digests: each of its calls may have an
// effect.
func (t *turn) fitted() *fit.Fit {
	f := &fit.Fit{
		Begun: t.begun, Memory: t.Memory, Emit: t.w.Emit, OnHost: t.model.Program != nil,
		Model: fit.Model{Provider: t.model.Provider, Name: t.model.Name, Window: t.model.Window},
		Job: memory.Job{
			AgentID: t.w.AgentID, ThreadID: t.w.ThreadID, Key: t.w.Key, InboxID: t.w.InboxID, Seq: t.book.NextSeq, Logf: t.logf,
			Commit: func(ctx context.Context, in *registrypb.RecordCompactionRequest) (*registrypb.RecordCompactionResponse, error) {
				return call(ctx, t, func(ctx context.Context, logs []*registrypb.LogLine) (*registrypb.RecordCompactionResponse, error) {
					in.Logs = logs
					return t.Memory.Journal.RecordCompaction(ctx, in)
				})
			},
			Fatal: func(err error) bool { return errors.Is(err, ErrLost) || errors.Is(err, ErrStale) },
		},
		Digested: func(took time.Duration, name string, u model.Usage) {
			t.Meter.ObserveStep("compaction", took)
			t.meter(name, u)
		},
	}
	if t.model.Try != nil {
		f.Model.Ask = func(ctx context.Context, req model.Request) (model.Response, *model.Error) {
			if err := t.trusted(ctx); err != nil {
				return model.Response{}, model.Errorf(model.Canceled, "%v", err)
			}
			resp, try := t.model.Try(ctx, req, func(model.Delta) {})
			return resp, try.Err
		}
	}
	return f
}
