package turn

import (
	"context"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/memory"
	"github.com/theclaw/agents/services/runner/internal/window"
)

// newRequests makes the requests of this turn, from when its model is known.
func (t *turn) newRequests() *window.Requests {
	return &window.Requests{
		Begun: t.begun, Model: t.model, Tools: t.tools.Offered(), Sources: t.Sources, Meter: t.Meter, Trusted: t.trusted, Memory: t.Memory, Emit: t.w.Stream.Publish,
		Await: func(ctx context.Context, over bool) bool { return t.w.Slot.AwaitBackground(ctx, awaitDigest, over) },
		Job: memory.Job{
			AgentID: t.w.AgentID, ThreadID: t.w.ThreadID, Key: t.w.Key, InboxID: t.w.InboxID, Seq: t.steps.NextSeq, Logf: t.logf,
			Commit: func(ctx context.Context, in *registrypb.RecordCompactionRequest) (*registrypb.RecordCompactionResponse, error) {
				return call(ctx, t, func(ctx context.Context, logs []*registrypb.LogLine) (*registrypb.RecordCompactionResponse, error) {
					in.Logs = logs
					return t.Memory.Journal.RecordCompaction(ctx, in)
				})
			},
			Fatal: fatal,
		},
	}
}
