package agents

import (
	"context"
	"fmt"
	"time"

	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/prune"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// PruneAgent removes what is old and no longer needed, a page of threads a call.
func (s *Service) PruneAgent(ctx context.Context, req *registryv1.PruneAgentRequest) (*registryv1.PruneAgentResponse, error) {
	id := req.GetAgentId()
	sums, next, err := s.Prune.Page(ctx, id, prune.Options{
		Before: time.Now().Add(-req.GetOlderThan().AsDuration()), Apply: req.GetApply(),
		After: req.GetPageToken(), Size: wire.Limit(req.GetPageSize(), 100),
	})
	if err != nil {
		return nil, err
	}
	out := &registryv1.PruneAgentResponse{NextPageToken: next}
	gone := int64(0)
	for _, k := range []struct {
		kind registryv1.PruneKind
		sum  prune.Share
	}{
		{registryv1.PruneKind_PRUNE_KIND_RESULTS, sums.Results},
		{registryv1.PruneKind_PRUNE_KIND_KEYS, sums.Keys},
		{registryv1.PruneKind_PRUNE_KIND_LINES, sums.Lines},
		{registryv1.PruneKind_PRUNE_KIND_LOGS, sums.Logs},
		{registryv1.PruneKind_PRUNE_KIND_MEDIA, sums.Media},
	} {
		gone += k.sum.Gone
		out.Sums = append(out.Sums, &registryv1.PruneSum{Kind: k.kind, Removed: k.sum.Gone, Bytes: k.sum.Bytes, Kept: k.sum.Kept})
	}
	if req.GetApply() && gone > 0 {
		wire.LogAgent(s.Log, id, fmt.Sprintf("pruned what is older than %s: %d results, %d keys, %d parts of events.jsonl, %d parts of logs, %d media",
			req.GetOlderThan().AsDuration(), sums.Results.Gone, sums.Keys.Gone, sums.Lines.Gone, sums.Logs.Gone, sums.Media.Gone))
	}
	return out, nil
}
