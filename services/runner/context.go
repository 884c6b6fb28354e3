package runner

import (
	"context"

	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/memoryapi"
)

// memory answers what a model is told, and digests on demand; see memoryapi.
func (s *Service) memory() memoryapi.Service {
	return memoryapi.Service{Agents: s.agents, Threads: s.threads, Turns: s.turns, Models: s.models, Claims: s.claims, Memory: s.driver.Memory, Meter: s.deps.Metrics, Tools: s.driver.Tools, Sources: s.driver.Sources}
}

// BuildContext answers what the model would get for a message of a conversation.
func (s *Service) BuildContext(ctx context.Context, req *runnerpb.BuildContextRequest) (*runnerpb.BuildContextResponse, error) {
	return s.memory().BuildContext(ctx, req)
}

// CompactMemory digests a conversation, or the agent's own layer, now.
func (s *Service) CompactMemory(ctx context.Context, req *runnerpb.CompactMemoryRequest) (*runnerpb.CompactMemoryResponse, error) {
	return s.memory().CompactMemory(ctx, req)
}
