package runner

import (
	"context"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset/file"
)

// maxChanges bounds the diffs of one response, in bytes.
const maxChanges = 2 << 20

// GetChanges returns what calls have changed, from the working directory of this machine.
func (s *Service) GetChanges(ctx context.Context, req *runnerpb.GetChangesRequest) (*runnerpb.GetChangesResponse, error) {
	config, _, err := s.turnConfig(ctx, &registrypb.GetTurnConfigRequest{AgentId: req.GetAgentId(), ThreadId: req.GetThreadId()})
	if err != nil {
		return nil, err
	}
	workdir := config.GetWorkdir()
	out, left := &runnerpb.GetChangesResponse{}, maxChanges
	for _, key := range req.GetCallKeys() {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if workdir == "" { // it is not on this machine
			break
		}
		diffs, err := file.Diffs(workdir, key)
		if err != nil {
			return nil, err
		}
		for _, d := range diffs {
			if left -= len(d.Path) + len(d.Text); left < 0 {
				out.LeftOut++
				continue
			}
			out.Changes = append(out.Changes, &runnerpb.FileChange{CallKey: key, Path: d.Path, Diff: d.Text})
		}
	}
	return out, nil
}
