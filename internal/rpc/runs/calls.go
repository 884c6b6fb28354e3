package runs

import (
	"context"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc/runs/wording"
	"github.com/theclaw/agents/internal/source"
	"github.com/theclaw/agents/internal/thread"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

const (
	defaultWait = 30 * time.Second
	maxWait     = 10 * time.Minute
)

// isRun tells a runner's lease from a deliverer's.
func isRun(l *registrypb.Lease) bool { return strings.HasPrefix(l.GetResource(), "agent/") }

// away tells that a service could not be asked, which another may answer.
func away(err error) bool { return err != nil && fault.From(err).Code == codes.Unavailable }

// StartRun pushes a message: any runner does that, and without one it is done here.
func (c *Client) StartRun(ctx context.Context, req *runnerpb.StartRunRequest, _ ...grpc.CallOption) (*runnerpb.StartRunResponse, error) {
	if req.GetIdempotencyKey() == "" { // so that it may be asked for twice
		req = &runnerpb.StartRunRequest{AgentId: req.GetAgentId(), Source: req.GetSource(), Text: req.GetText(), Thinking: req.GetThinking(), IdempotencyKey: "run:" + ulid.Make().String()}
	}
	var out *runnerpb.StartRunResponse
	var err error
	if c.anybody(ctx, func(r runnerpb.RunnerServiceClient) bool {
		out, err = r.StartRun(ctx, req)
		return !away(err)
	}) {
		return out, err
	}
	if req.GetThinking() != "" {
		return nil, errNobody // what it may be is a runner's to judge
	}
	from := req.GetSource()
	if from == "" {
		from = source.Console
	}
	pushed, err := c.threads.PushEvents(ctx, &registrypb.PushEventsRequest{
		Thread: &registrypb.ThreadRef{AgentId: req.GetAgentId(), ThreadId: thread.Inbox}, IdempotencyKey: req.GetIdempotencyKey(),
		Events: []*registrypb.NewEvent{{Source: from, Type: thread.TypeMessage, Content: string(append(thread.AppendString([]byte(`{"text":`), req.GetText()), '}'))}},
	})
	if err != nil {
		return nil, err
	}
	if ids := pushed.GetRunIds(); len(ids) == 1 {
		return &runnerpb.StartRunResponse{RunId: ids[0], InboxId: pushed.GetEventIds()[0], AcceptedAt: pushed.GetAcceptedAt()}, nil
	}
	t, err := c.turns.GetTurn(ctx, &registrypb.GetTurnRequest{AgentId: req.GetAgentId(), InboxId: pushed.GetEventIds()[0]})
	if err != nil {
		return nil, err
	}
	return &runnerpb.StartRunResponse{RunId: t.GetTurn().GetKey(), InboxId: t.GetTurn().GetInboxId(), AcceptedAt: t.GetTurn().GetQueuedAt()}, nil
}

// WaitRun waits at the registry for the end, so that it does not matter who works on
// the run, and lets a runner word it.
func (c *Client) WaitRun(ctx context.Context, req *runnerpb.WaitRunRequest, _ ...grpc.CallOption) (*runnerpb.WaitRunResponse, error) {
	wait := req.GetTimeout().AsDuration()
	if wait <= 0 {
		wait = defaultWait
	}
	deadline := time.Now().Add(min(wait, maxWait))
	agent, run := req.GetAgentId(), req.GetRunId()
	var token uint64
	for {
		left := max(time.Until(deadline), 0)
		found, err := c.where(ctx, agent, run, token, min(left, slice))
		switch {
		case err != nil:
			return nil, err
		case found.GetEnded():
			return c.ended(ctx, req)
		case time.Until(deadline) <= 0:
			t, err := c.turns.GetTurn(ctx, &registrypb.GetTurnRequest{AgentId: agent, Key: run})
			return &runnerpb.WaitRunResponse{Status: runnerpb.RunStatus_RUN_STATUS_TIMEOUT, StartedAt: t.GetTurn().GetClaimedAt(), Waiting: wording.Waiting(t.GetTurn())}, wording.NoRun(agent, run, err)
		}
		token = max(token, found.GetLease().GetToken()) // only the end is news
	}
}

// ended is the end of a run: as a runner tells it, with all its parts, else as far as
// the registry knows.
func (c *Client) ended(ctx context.Context, req *runnerpb.WaitRunRequest) (out *runnerpb.WaitRunResponse, err error) {
	if c.anybody(ctx, func(r runnerpb.RunnerServiceClient) bool {
		out, err = r.WaitRun(ctx, req)
		return err == nil && out.GetStatus() != runnerpb.RunStatus_RUN_STATUS_TIMEOUT
	}) || ctx.Err() != nil {
		return out, err
	}
	return c.ending(ctx, req.GetAgentId(), req.GetRunId())
}

// ending is the end of a run by the registry alone: its reply and how it ended. The
// reply to a run that was answered together with another one is that one's.
func (c *Client) ending(ctx context.Context, agent, run string) (*runnerpb.WaitRunResponse, error) {
	r, err := c.turns.GetTurn(ctx, &registrypb.GetTurnRequest{AgentId: agent, Key: run, WithReply: true})
	if err != nil {
		return nil, wording.NoRun(agent, run, err)
	}
	t := r.GetTurn()
	out := &runnerpb.WaitRunResponse{
		Status: runnerpb.RunStatus_RUN_STATUS_OK, StartedAt: t.GetClaimedAt(), EndedAt: t.GetFinishedAt(),
		InputTokens: t.GetUsage().GetInput(), OutputTokens: t.GetUsage().GetOutput(), MergedInto: t.GetLeader(),
	}
	kind := runnerpb.PayloadKind_PAYLOAD_KIND_TEXT
	said := ""
	switch t.GetFate() {
	case registrypb.Fate_FATE_DEAD, registrypb.Fate_FATE_ABORTED:
		out.Status, out.Error, out.ErrorCode = runnerpb.RunStatus_RUN_STATUS_ERROR, t.GetError(), runnerpb.RunError_RUN_ERROR_OTHER
		if t.GetFate() == registrypb.Fate_FATE_ABORTED {
			out.ErrorCode = runnerpb.RunError_RUN_ERROR_ABORTED
		}
		if out.GetError() == "" {
			out.Error = wording.Early
		}
		kind, said = runnerpb.PayloadKind_PAYLOAD_KIND_ERROR, out.GetError()
	case registrypb.Fate_FATE_MERGED:
		with, err := c.ending(ctx, agent, t.GetLeader())
		if err != nil {
			return nil, err
		}
		out.Text, out.Payloads = with.GetText(), with.GetPayloads()
		return out, nil
	case registrypb.Fate_FATE_REPLIED:
		out.Text = r.GetReply()
		said = out.GetText()
	default:
	}
	if said != "" {
		out.Payloads = []*runnerpb.Payload{{Kind: kind, Text: said}}
	}
	return out, nil
}

// ListProviders is asked of the runner nearby; the check of a choice, which is about an
// agent of this registry, of any runner of it that is known.
func (c *Client) ListProviders(ctx context.Context, req *runnerpb.ListProvidersRequest, o ...grpc.CallOption) (*runnerpb.ListProvidersResponse, error) {
	if req.GetCheck() == nil {
		return c.RunnerServiceClient.ListProviders(ctx, req, o...)
	}
	var out *runnerpb.ListProvidersResponse
	var err error
	if c.anybody(ctx, func(r runnerpb.RunnerServiceClient) bool {
		out, err = r.ListProviders(ctx, req)
		return !away(err)
	}) {
		return out, err
	}
	return nil, errNobody
}

// BuildContext is asked of the runner that works on the agent, else of any.
func (c *Client) BuildContext(ctx context.Context, req *runnerpb.BuildContextRequest, _ ...grpc.CallOption) (*runnerpb.BuildContextResponse, error) {
	r, err := c.best(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	return r.BuildContext(ctx, req)
}

// CompactMemory is asked of the runner that works on the agent, who alone may do it.
func (c *Client) CompactMemory(ctx context.Context, req *runnerpb.CompactMemoryRequest, _ ...grpc.CallOption) (*runnerpb.CompactMemoryResponse, error) {
	r, err := c.best(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	return r.CompactMemory(ctx, req)
}

// RunBatch is asked of the runner that works on the agent, else of any.
func (c *Client) RunBatch(ctx context.Context, req *runnerpb.RunBatchRequest, _ ...grpc.CallOption) (*runnerpb.RunBatchResponse, error) {
	r, err := c.best(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	return r.RunBatch(ctx, req)
}

// best is the runner that works on an agent, if it can be reached, else the one nearby.
func (c *Client) best(ctx context.Context, agent string) (runnerpb.RunnerServiceClient, error) {
	found, err := c.where(ctx, agent, "", 0, 0)
	if err != nil {
		return nil, err
	}
	if l := found.GetLease(); l != nil {
		if r, err := c.holder(ctx, l); err == nil {
			return r, nil
		}
	}
	return c.RunnerServiceClient, nil
}
