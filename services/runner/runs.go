package runner

import (
	"context"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/chatcommand"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc/runs"
	"github.com/theclaw/agents/internal/rpc/runs/wording"
	"github.com/theclaw/agents/internal/source"
	"github.com/theclaw/agents/internal/thinking"
	"github.com/theclaw/agents/internal/thread"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/run"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

const (
	defaultWait = 30 * time.Second
	maxWait     = 10 * time.Minute
	// slice is how long one call to the registry waits for a fate.
	slice = 25 * time.Second
	// abortWait bounds an abort; a run that cannot end now ends when it can.
	abortWait = 30 * time.Second
	// abortLook bounds the question whether a run is over already: it is ended all the same
	// when the answer is late.
	abortLook = 2 * time.Second
)

// RunBatch works to the inbox head of now, in a claim of its own or in the one
// that is there.
func (s *Service) RunBatch(ctx context.Context, req *runnerpb.RunBatchRequest) (*runnerpb.RunBatchResponse, error) {
	id := req.GetAgentId()
	info, err := s.threads.GetThread(ctx, &registrypb.GetThreadRequest{Thread: &registrypb.ThreadRef{AgentId: id, ThreadId: thread.Inbox}})
	if err != nil {
		return nil, err
	}
	n, err := s.claims.RunTo(ctx, id, info.GetHeadId(), func(ctx context.Context) error { return s.started(ctx, id) })
	if err != nil {
		return nil, err
	}
	return &runnerpb.RunBatchResponse{Processed: n, HeadId: info.GetHeadId(), InboxPath: info.GetPath()}, nil
}

// started returns an error unless the agent takes messages.
func (s *Service) started(ctx context.Context, id string) error {
	a, err := s.agents.GetAgent(ctx, &registrypb.GetAgentRequest{AgentId: id})
	if err == nil && !a.GetAgent().GetStarted() {
		return fault.New(codes.FailedPrecondition, fault.AgentStopped, "agent '"+id+"' is stopped", "start it with 'agentctl start "+id+"'")
	}
	return err
}

// StartRun pushes a message and returns its durable id.
func (s *Service) StartRun(ctx context.Context, req *runnerpb.StartRunRequest) (*runnerpb.StartRunResponse, error) {
	from, key := req.GetSource(), req.GetIdempotencyKey()
	if from == "" {
		from = source.Console
	}
	if key == "" { // so that the call below may be repeated
		key = "run:" + ulid.Make().String()
	}
	content := thread.AppendString([]byte(`{"text":`), req.GetText())
	if how := req.GetThinking(); how != "" {
		if _, ok := thinking.Parse(how); !ok {
			return nil, fault.New(codes.InvalidArgument, fault.InvalidArgument, "thinking must be "+thinking.Form, "correct thinking, or leave it out")
		}
		content = thread.AppendString(append(content, `,"thinking":`...), how)
	}
	content = append(content, '}')
	event := &registrypb.NewEvent{Source: from, Type: thread.TypeMessage, Content: string(content), SessionKey: req.GetSessionKey()}
	if c, ok := chatcommand.Parse(req.GetText(), chatcommand.Rules{}); ok && chatcommand.Queued(c.Name) && source.IsConsole(from) {
		event.Command = &registrypb.ChatCommand{Name: c.Name, Args: c.Args}
	}
	pushed, err := s.threads.PushEvents(ctx, &registrypb.PushEventsRequest{
		Thread: &registrypb.ThreadRef{AgentId: req.GetAgentId(), ThreadId: thread.Inbox}, IdempotencyKey: key,
		Events: []*registrypb.NewEvent{event},
	})
	if err != nil {
		return nil, err
	}
	if ids := pushed.GetRunIds(); len(ids) == 1 {
		return &runnerpb.StartRunResponse{RunId: ids[0], InboxId: pushed.GetEventIds()[0], AcceptedAt: pushed.GetAcceptedAt()}, nil
	}
	// A registry of an earlier build does not name the run.
	t, err := s.turns.GetTurn(ctx, &registrypb.GetTurnRequest{AgentId: req.GetAgentId(), InboxId: pushed.GetEventIds()[0]})
	if err != nil {
		return nil, err
	}
	return &runnerpb.StartRunResponse{
		RunId: t.GetTurn().GetKey(), InboxId: t.GetTurn().GetInboxId(), AcceptedAt: t.GetTurn().GetQueuedAt(),
	}, nil
}

// WaitRun waits for the fate of a run; the journal has it after any crash.
func (s *Service) WaitRun(ctx context.Context, req *runnerpb.WaitRunRequest) (*runnerpb.WaitRunResponse, error) {
	wait := req.GetTimeout().AsDuration()
	if wait <= 0 {
		wait = defaultWait
	}
	deadline := time.Now().Add(min(wait, maxWait))
	if err := s.followed(ctx, req.GetRunId(), deadline); err != nil {
		return nil, err
	}
	for {
		left := max(time.Until(deadline), 0)
		t, err := s.account(ctx, req.GetAgentId(), req.GetRunId(), min(left, slice))
		if err != nil {
			return nil, err
		}
		if t.GetState() == registrypb.TurnState_TURN_STATE_DONE {
			return s.ending(ctx, t), nil
		}
		if time.Until(deadline) <= 0 {
			return &runnerpb.WaitRunResponse{Status: runnerpb.RunStatus_RUN_STATUS_TIMEOUT, StartedAt: t.GetClaimedAt(), Waiting: wording.Waiting(t)}, nil
		}
	}
}

const (
	// soon is how long a run that was just started may take to begin here. Asking the journal
	// meanwhile costs as much as a twentieth of the run.
	soon = 5 * time.Millisecond
	// brief is how long a run is waited for by its stream alone: what asking the journal costs
	// does not matter to a longer one, and the journal knows of its end in any case.
	brief = time.Second
)

// find returns the stream of a run that is worked on here or begins soon, else nil; opened is
// closed when some stream is opened next.
func (s *Service) find(ctx context.Context, runID string) (stream *run.Stream, opened <-chan struct{}) {
	t := time.NewTimer(soon)
	defer t.Stop()
	for {
		if stream, opened = s.hub.Find(runID); stream != nil {
			return stream, opened
		}
		select {
		case <-opened:
		case <-t.C:
			return nil, opened
		case <-ctx.Done():
			return nil, opened
		}
	}
}

// followed waits a short time, and not longer than the deadline, until a run that is worked on
// here is over. What came of it is in the journal alone.
func (s *Service) followed(ctx context.Context, runID string, deadline time.Time) error {
	stream, _ := s.find(ctx, runID)
	if stream == nil {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, min(brief, time.Until(deadline)))
	defer cancel()
	stream.Wait(waiting)
	return ctx.Err()
}

// account asks the journal for a run and waits there for its fate.
func (s *Service) account(ctx context.Context, agentID, runID string, wait time.Duration) (*registrypb.Turn, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+10*time.Second)
	defer cancel()
	r, err := runs.GetTurn(ctx, s.turns, &registrypb.GetTurnRequest{AgentId: agentID, Key: runID, Wait: durationpb.New(wait)})
	return r.GetTurn(), wording.NoRun(agentID, runID, err)
}

// AbortRun ends a run and waits for its fate: one that is worked on here as soon
// as it can stop, one that waits in a queue at once.
func (s *Service) AbortRun(ctx context.Context, req *runnerpb.AbortRunRequest) (*runnerpb.AbortRunResponse, error) {
	id, key := req.GetAgentId(), req.GetRunId()
	ctx, cancel := context.WithTimeout(ctx, abortWait)
	defer cancel()
	cancelRun, settled := s.runs.abort(key, turn.ErrAborted)
	defer settled()
	look, done := context.WithTimeout(ctx, abortLook)
	t, err := s.account(look, id, key, 0)
	done()
	if t.GetState() == registrypb.TurnState_TURN_STATE_DONE { // known a moment before it is not at work any more
		if s.processes.End(ctx, id, t.GetThreadId(), key) > 0 { // what it left in the background was at work
			return &runnerpb.AbortRunResponse{}, nil
		}
		return nil, wording.Ended(key)
	}
	if !cancelRun() {
		switch {
		case err != nil:
			return nil, err
		case t.GetLeader() != "":
			return nil, wording.Together(key, t.GetLeader())
		}
		if err := s.started(ctx, id); err != nil {
			return nil, err
		}
		if _, err := s.claims.Withdraw(ctx, id, key); err != nil {
			return nil, err
		}
	}
	for {
		t, err := s.account(ctx, id, key, slice)
		if err != nil {
			return nil, err
		}
		if t.GetState() == registrypb.TurnState_TURN_STATE_DONE {
			return &runnerpb.AbortRunResponse{}, nil
		}
	}
}

// maxFailing is the most digests that GetRunnerInfo names.
const maxFailing = 20

// GetRunnerInfo returns what this runner can do and does.
func (s *Service) GetRunnerInfo(context.Context, *runnerpb.GetRunnerInfoRequest) (*runnerpb.GetRunnerInfoResponse, error) {
	if _, err := s.sandboxes.get(string(s.cfg.Sandbox.Mode)); err != nil {
		return nil, err
	}
	report, _ := s.sandboxes.report()
	settings := s.models.settings
	var failing []*runnerpb.FailingDigest
	for _, f := range s.driver.Memory.Failures.List(maxFailing) {
		failing = append(failing, &runnerpb.FailingDigest{AgentId: f.Agent, Name: f.Name, Failures: int32(f.Count), Error: f.Error})
	}
	var outages []*runnerpb.ProviderOutage
	for _, o := range s.models.pool.Outages() {
		outages = append(outages, &runnerpb.ProviderOutage{Provider: o.Provider, Error: strings.TrimPrefix(o.Err.Error(), "model: "), Wait: durationpb.New(o.Wait)})
	}
	problem, _, fix := s.models.problem("", "")
	return &runnerpb.GetRunnerInfoResponse{
		FailingDigests: failing, Outages: outages, Problem: problem, ProblemFix: fix,
		Holder: s.deps.Holder, Sandbox: string(report.Level), SandboxProblems: report.Problems,
		Provider: settings.Default, ProviderOrigin: string(settings.Source) + ": " + settings.Why,
		TurnsActive: s.active.Load(), DigestsActive: int32(s.slots.Background()), Waiting: int32(s.claims.Waiting()), Uptime: durationpb.New(time.Since(s.began)),
	}, nil
}
