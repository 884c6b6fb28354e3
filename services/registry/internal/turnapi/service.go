// Package turnapi is the edge of TurnService: a runner opens a batch, begins a
// turn, records its steps and finishes it, and people ask what became of a message.
//
//	OpenBatch --> BeginTurn (T1, T2) --> RecordStep (T3, T4, T6)* --> FinishTurn
//	 routes        claims                 journals                    T7 or T9, T8
//
// It promises that only the holder of the agent's run lease moves a turn, that an
// event is routed in one place, and that what a runner is told of an agent's
// memory is the peer's own. It runs no model and no tool.
package turnapi

import (
	"context"

	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/core"
	"github.com/theclaw/agents/services/registry/internal/memory"
	"github.com/theclaw/agents/services/registry/internal/usage"
)

// Service is the edge. The zero value is not usable; see New.
type Service struct {
	registryv1.UnimplementedTurnServiceServer
	*core.Core
	bootID string
	files  *memory.Files
	used   usage.Journals
}

// New makes the edge; bootID names this boot of this machine, see agentd.
func New(c *core.Core, bootID string) *Service {
	return &Service{Core: c, bootID: bootID, files: &memory.Files{Core: c}, used: usage.Journals{Core: c}}
}

// SumUsage adds up the answers in an agent's threads, a page of threads a call.
func (s *Service) SumUsage(ctx context.Context, req *registryv1.SumUsageRequest) (*registryv1.SumUsageResponse, error) {
	return s.used.Sum(ctx, req)
}
