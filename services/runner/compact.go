package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/thread"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/claim"
	"github.com/theclaw/agents/services/runner/internal/compact"
	"github.com/theclaw/agents/services/runner/internal/memory"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/offline"
	"github.com/theclaw/agents/services/runner/internal/prompt"
	"github.com/theclaw/agents/services/runner/internal/window"
)

// CompactMemory digests a conversation, or the agent's own layer, because a
// person asks for it: under the agent's lease, next to the turns. A turn of the
// same conversation that digests at the same time is no harm; the mark moves once.
func (s *Service) CompactMemory(ctx context.Context, req *runnerpb.CompactMemoryRequest) (*runnerpb.CompactMemoryResponse, error) {
	if req.GetThreadId() == thread.Inbox {
		return nil, fault.New(codes.InvalidArgument, fault.InvalidArgument, "an inbox has no memory", "name a conversation thread")
	}
	var out memory.Outcome
	err := s.claims.Background(ctx, req.GetAgentId(), func(ctx context.Context, l claim.Lease) error {
		var err error
		out, err = s.digest(ctx, func(context.Context) error { return l.Check() }, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	if out.Failed != "" {
		return nil, fault.New(codes.FailedPrecondition, fault.ModelBadResponse, "the memory was not digested: "+out.Failed,
			"nothing was changed; try again, or see the agent's log")
	}
	return &runnerpb.CompactMemoryResponse{Name: out.Name, Messages: int32(out.Messages), DigestedId: out.Digested}, nil
}

// digest is CompactMemory under a lease; trusted returns nil while that is.
func (s *Service) digest(ctx context.Context, trusted func(context.Context) error, req *runnerpb.CompactMemoryRequest) (memory.Outcome, error) {
	var out memory.Outcome
	config, _, err := s.turnConfig(ctx, &registrypb.GetTurnConfigRequest{AgentId: req.GetAgentId(), ThreadId: req.GetThreadId()})
	if err != nil {
		return out, err
	}
	// Under the lease: it finishes what an earlier process has left.
	now, err := s.turns.GetMemory(ctx, &registrypb.GetMemoryRequest{AgentId: req.GetAgentId(), ThreadId: req.GetThreadId()})
	if err != nil {
		return out, err
	}
	job := memory.Job{
		AgentID: req.GetAgentId(), ThreadID: req.GetThreadId(), Config: config.GetCompaction(), Layers: now.GetMemory(), Unseen: now.GetThreads(),
		Fatal: func(err error) bool { return fault.Is(err, fault.LeaseLost) },
	}
	var logs []*registrypb.LogLine
	job.Logf = func(level, format string, args ...any) {
		logs = append(logs, &registrypb.LogLine{Level: level, Text: fmt.Sprintf(format, args...)})
	}
	job.Commit = func(ctx context.Context, in *registrypb.RecordCompactionRequest) (*registrypb.RecordCompactionResponse, error) {
		if err := trusted(ctx); err != nil {
			return nil, err
		}
		in.Logs, logs = logs, nil
		return s.turns.RecordCompaction(ctx, in)
	}
	if err := s.setStrategy(&job, config); err != nil {
		return out, err
	}
	r := s.driver.Memory
	if req.GetThreadId() == "" {
		return r.Agent(ctx, job)
	}
	head, err := s.threads.PeekEvents(ctx, &registrypb.PeekEventsRequest{
		Thread: &registrypb.ThreadRef{AgentId: req.GetAgentId(), ThreadId: req.GetThreadId()}, Filter: thread.ShownFilter, Tail: true, Limit: 1,
	})
	if err != nil || len(head.GetEvents()) == 0 {
		return out, err
	}
	job.Upto = head.GetEvents()[0].GetId()
	if job.EpochFrom, err = memory.EpochFrom(ctx, s.threads, req.GetAgentId(), req.GetThreadId(), 0); err != nil {
		return out, err
	}
	return r.Thread(ctx, job)
}

// setStrategy finds how the agent digests.
func (s *Service) setStrategy(job *memory.Job, config *registrypb.TurnConfig) error {
	if strings.EqualFold(job.Config.GetStrategy(), compact.Truncate{}.Name()) {
		job.Strategy = compact.Truncate{}
		return nil
	}
	m, err := s.models.Find(config.GetProvider(), config.GetModel())
	if err != nil {
		e := model.AsError(err)
		return fault.Wrap(fault.New(codes.FailedPrecondition, e.Reason(), e.Error(), e.Fix()), errors.New("no model"))
	}
	if m.Provider == offline.Name || m.Try == nil {
		return fault.New(codes.FailedPrecondition, fault.ModelConfig, "the model "+m.Provider+" cannot digest a memory", "configure a provider of models, or set compaction.strategy to truncate")
	}
	budget := prompt.Budget(window.ContextWindow(config.GetContextWindow(), m), config.GetMaxOutputTokens())
	observe := func(ctx context.Context, took time.Duration, u model.Usage) error {
		s.deps.Metrics.ObserveStep("compaction", took)
		m.Count(s.deps.Metrics, m.Name, u)
		return ctx.Err()
	}
	job.Strategy, job.Model = window.NewSummarise(m, budget, config.GetMaxOutputTokens(), observe), m.Provider+"/"+m.Name
	return nil
}
