package runner

import (
	"context"
	"encoding/json"
	"time"

	"github.com/oklog/ulid/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/source"
	"github.com/theclaw/agents/internal/thread"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/step"
)

const (
	defaultWait = 30 * time.Second
	maxWait     = 10 * time.Minute
	// slice is how long one call to the registry waits for a fate.
	slice = 25 * time.Second
)

// RunBatch works to the inbox head of now, in a claim of its own or in the one
// that is there.
func (s *Service) RunBatch(ctx context.Context, req *runnerpb.RunBatchRequest) (*runnerpb.RunBatchResponse, error) {
	id := req.GetAgentId()
	info, err := s.threads.GetThread(ctx, &registrypb.GetThreadRequest{Thread: &registrypb.ThreadRef{AgentId: id, ThreadId: thread.Inbox}})
	if err != nil {
		return nil, err
	}
	n, err := s.claims.Join(ctx, id, info.GetHeadId(), func(ctx context.Context) error {
		a, err := s.agents.GetAgent(ctx, &registrypb.GetAgentRequest{AgentId: id})
		if err == nil && !a.GetAgent().GetStarted() {
			return fault.New(codes.FailedPrecondition, fault.AgentStopped, "agent '"+id+"' is stopped", "start it with 'agentctl start "+id+"'")
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &runnerpb.RunBatchResponse{Processed: n, HeadId: info.GetHeadId(), InboxPath: info.GetPath()}, nil
}

// StartRun pushes a message and answers its durable id.
func (s *Service) StartRun(ctx context.Context, req *runnerpb.StartRunRequest) (*runnerpb.StartRunResponse, error) {
	from, key := req.GetSource(), req.GetIdempotencyKey()
	if from == "" {
		from = source.Console
	}
	if key == "" { // so that the call below may be repeated
		key = "run:" + ulid.Make().String()
	}
	content := append(thread.AppendString([]byte(`{"text":`), req.GetText()), '}')
	pushed, err := s.threads.PushEvents(ctx, &registrypb.PushEventsRequest{
		Thread: &registrypb.ThreadRef{AgentId: req.GetAgentId(), ThreadId: thread.Inbox}, IdempotencyKey: key,
		Events: []*registrypb.NewEvent{{Source: from, Type: thread.TypeMessage, Content: string(content)}},
	})
	if err != nil {
		return nil, err
	}
	t, err := s.turns.GetTurn(ctx, &registrypb.GetTurnRequest{AgentId: req.GetAgentId(), InboxId: pushed.GetEventIds()[0]})
	if err != nil {
		return nil, err
	}
	return &runnerpb.StartRunResponse{
		RunId: t.GetTurn().GetKey(), InboxId: t.GetTurn().GetInboxId(), AcceptedAt: t.GetTurn().GetQueuedAt(),
	}, nil
}

// WaitRun waits for the fate of a run; the journal knows it after any crash.
func (s *Service) WaitRun(ctx context.Context, req *runnerpb.WaitRunRequest) (*runnerpb.WaitRunResponse, error) {
	wait := req.GetTimeout().AsDuration()
	if wait <= 0 {
		wait = defaultWait
	}
	deadline := time.Now().Add(min(wait, maxWait))
	for {
		left := max(time.Until(deadline), 0)
		t, err := s.account(ctx, req.GetAgentId(), req.GetRunId(), min(left, slice))
		if err != nil {
			return nil, err
		}
		if t.GetState() == registrypb.TurnState_TURN_STATE_DONE {
			return ending(t), nil
		}
		if time.Until(deadline) <= 0 {
			return &runnerpb.WaitRunResponse{Status: runnerpb.RunStatus_RUN_STATUS_TIMEOUT, StartedAt: t.GetClaimedAt()}, nil
		}
	}
}

// account asks the journal for a run and waits there for its fate.
func (s *Service) account(ctx context.Context, agentID, runID string, wait time.Duration) (*registrypb.Turn, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+10*time.Second)
	defer cancel()
	r, err := s.turns.GetTurn(ctx, &registrypb.GetTurnRequest{AgentId: agentID, Key: runID, Wait: durationpb.New(wait)})
	if fault.Is(err, fault.TurnNotFound) {
		return nil, fault.Wrap(fault.New(codes.NotFound, fault.RunNotFound, "agent '"+agentID+"' has no run '"+runID+"'", "use the run id that was answered at the start"), err)
	}
	return r.GetTurn(), err
}

// ending is the end of a run as its caller is told.
func ending(t *registrypb.Turn) *runnerpb.WaitRunResponse {
	out := &runnerpb.WaitRunResponse{
		Status: runnerpb.RunStatus_RUN_STATUS_OK, StartedAt: t.GetClaimedAt(), EndedAt: t.GetFinishedAt(),
		InputTokens: t.GetUsage().GetInput(), OutputTokens: t.GetUsage().GetOutput(),
	}
	switch t.GetFate() {
	case registrypb.Fate_FATE_DEAD, registrypb.Fate_FATE_ABORTED:
		out.Status, out.Error = runnerpb.RunStatus_RUN_STATUS_ERROR, t.GetError()
	case registrypb.Fate_FATE_REPLIED:
		out.Text = said(t)
	default:
	}
	return out
}

// said is the reply of a turn: its last answer.
func said(t *registrypb.Turn) string {
	text := ""
	for _, st := range t.GetSteps() {
		if st.GetKind() == registrypb.StepKind_STEP_KIND_MODEL {
			if a, err := step.Decode(json.RawMessage(st.GetResult())); err == nil {
				text = a.Text
			}
		}
	}
	return text
}

// AbortRun ends a run that is under way here, and waits for its fate.
func (s *Service) AbortRun(ctx context.Context, req *runnerpb.AbortRunRequest) (*runnerpb.AbortRunResponse, error) {
	done := s.underway.abort(req.GetRunId())
	if done == nil {
		return nil, fault.New(codes.NotFound, fault.RunNotFound, "run '"+req.GetRunId()+"' is not under way here", "see 'agentctl status'; a run that waits in the queue has not begun")
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-done:
		return &runnerpb.AbortRunResponse{}, nil
	}
}

// GetRunnerInfo answers what this runner can do and does.
func (s *Service) GetRunnerInfo(context.Context, *runnerpb.GetRunnerInfoRequest) (*runnerpb.GetRunnerInfoResponse, error) {
	if _, err := s.boxes.box(string(s.cfg.Sandbox.Mode)); err != nil {
		return nil, err
	}
	report, _ := s.boxes.report()
	settings := s.models.settings
	return &runnerpb.GetRunnerInfoResponse{
		Holder: s.deps.Holder, Sandbox: string(report.Level), SandboxProblems: report.Problems,
		Provider: settings.Default, ProviderOrigin: string(settings.Source) + ": " + settings.Why,
		TurnsActive: s.active.Load(), Uptime: durationpb.New(time.Since(s.began)),
	}, nil
}
