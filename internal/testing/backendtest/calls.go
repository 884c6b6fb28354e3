package backendtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Release gives a lease back, as its holder does.
func (w *World) Release(l *registryv1.Lease) {
	w.Helper()
	r, err := w.Leases.ReleaseLease(w.Context(), &registryv1.ReleaseLeaseRequest{Resource: l.GetResource(), Token: l.GetToken()})
	Must(w.T, r, err)
}

// Must unwraps the answer of a call that has to succeed.
func Must[T any](t testing.TB, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Create makes and starts an agent.
func (w *World) Create(id string) {
	w.Helper()
	Must(w.T, Must2(w.Agents.CreateAgent(w.Context(), &registryv1.CreateAgentRequest{AgentId: id})), nil)
	Must(w.T, Must2(w.Agents.StartAgent(w.Context(), &registryv1.StartAgentRequest{AgentId: id})), nil)
}

// Must2 is Must for who has no test at hand: it panics.
func Must2[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Telegram is the source address of a peer.
const Telegram = "external:telegram:main:dm:%s:%s"

// Push pushes a message of a peer.
func (w *World) Push(agent, peer, text, key string) *registryv1.PushEventsResponse {
	w.Helper()
	r, err := w.Threads.PushEvents(w.Context(), PushRequest(agent, peer, text, key))
	return Must(w.T, r, err)
}

// PushRequest is a push of one message of a peer.
func PushRequest(agent, peer, text, key string) *registryv1.PushEventsRequest {
	return &registryv1.PushEventsRequest{
		Thread: &registryv1.ThreadRef{AgentId: agent, ThreadId: "inbox"}, IdempotencyKey: key,
		Events: []*registryv1.NewEvent{{Source: fmt.Sprintf(Telegram, peer, peer), Type: "message", Content: fmt.Sprintf(`{"text":%q}`, text)}},
	}
}

// Due asks for work like a runner or deliverer named holder, under leases that outlast
// the test on any machine.
func (w *World) Due(kind registryv1.LeaseKind, holder string, wait time.Duration) []*registryv1.DueWork {
	w.Helper()
	return w.Granted(kind, holder, wait, 10*time.Minute)
}

// Brief is due under leases that a test lets run out. What it does under one before is
// no more than a few calls.
func (w *World) Brief(kind registryv1.LeaseKind, holder string) []*registryv1.DueWork {
	w.Helper()
	return w.Granted(kind, holder, time.Minute, 5*time.Second)
}

// Granted is Due under leases of a ttl.
func (w *World) Granted(kind registryv1.LeaseKind, holder string, wait, ttl time.Duration) []*registryv1.DueWork {
	w.Helper()
	w.requests++
	r, err := w.Leases.AcquireDueLease(w.Context(), &registryv1.AcquireDueLeaseRequest{
		Kind: kind, Holder: holder, RequestId: fmt.Sprint(holder, w.requests), MaxNew: 8, Wait: DurationOf(wait), Ttl: DurationOf(ttl),
	})
	return Must(w.T, r, err).GetDue()
}

// Under is a context under a lease.
func Under(ctx context.Context, l *registryv1.Lease) context.Context {
	return rpc.WithFence(ctx, l.GetResource(), l.GetToken(), l.GetHolder())
}

// DurationOf is durationpb.New.
func DurationOf(d time.Duration) *durationpb.Duration { return durationpb.New(d) }

const (
	KindRun     = registryv1.LeaseKind_LEASE_KIND_RUN
	KindDeliver = registryv1.LeaseKind_LEASE_KIND_DELIVER
)

// Answer does one whole turn and its delivery by hand, as a runner and a
// deliverer would, and returns the two leases.
func (w *World) Answer(agent, text string) {
	w.Helper()
	due := w.Due(KindRun, "r1", time.Minute)
	if len(due) != 1 || due[0].GetAgentId() != agent {
		w.Fatalf("due %v", due)
	}
	ctx := Under(w.Context(), due[0].GetLease())
	b, err := w.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: agent})
	for _, p := range Must(w.T, b, err).GetEvents() {
		begun, err := w.Turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{AgentId: agent, InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId()})
		if o := Must(w.T, begun, err).GetOutcome(); o != registryv1.BeginTurnOutcome_BEGIN_TURN_OUTCOME_GO {
			w.Fatalf("outcome %v", o)
		}
		fin, err := w.Turns.FinishTurn(ctx, &registryv1.FinishTurnRequest{
			AgentId: agent, InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId(), Fate: registryv1.Fate_FATE_REPLIED, Text: text,
		})
		Must(w.T, fin, err)
	}
	w.Release(due[0].GetLease())
}

// Config changes a setting.
func (w *World) Config(agent, key, value string) {
	w.Helper()
	_, err := w.Agents.SetAgentConfig(w.Context(), &registryv1.SetAgentConfigRequest{AgentId: agent, Key: key, Value: value})
	if err != nil {
		w.Fatal(err)
	}
}

// Leased makes an agent with work and answers a context under its lease.
func (w *World) Leased(agent, holder string) context.Context {
	w.Helper()
	due := w.Due(registryv1.LeaseKind_LEASE_KIND_RUN, holder, time.Minute)
	if len(due) != 1 || due[0].GetLease().GetResource() != "agent/"+agent {
		w.Fatalf("due: %v", due)
	}
	return Under(w.Context(), due[0].GetLease())
}

// Question asks for a command.
func Question(key, command string, wait time.Duration) *registryv1.RequestApprovalRequest {
	digest := strings.Repeat("0", 64-len(command)) + command
	return &registryv1.RequestApprovalRequest{AgentId: "a1", ThreadId: "threads/main", Key: key, Command: command, Cwd: "/w", Digest: digest, Wait: DurationOf(wait)}
}

// Ask asks, and answers how the question stands.
func (w *World) Ask(ctx context.Context, q *registryv1.RequestApprovalRequest) *registryv1.Approval {
	w.Helper()
	r, err := w.Approvals.RequestApproval(ctx, q)
	return Must(w.T, r, err).GetApproval()
}

// Unanswered asks and waits until the time of the question is over.
func (w *World) Unanswered(ctx context.Context, q *registryv1.RequestApprovalRequest) *registryv1.Approval {
	w.Helper()
	a := w.Ask(ctx, q)
	for a.GetState() == registryv1.ApprovalState_APPROVAL_STATE_PENDING { // the wait ended a moment before the question
		a = w.Ask(ctx, q)
	}
	if a.GetState() != registryv1.ApprovalState_APPROVAL_STATE_EXPIRED {
		w.Errorf("nobody answered: %v", a)
	}
	return a
}

// Resolve answers a question.
func (w *World) Resolve(id string, yes bool) error {
	w.Helper()
	_, err := w.Approvals.ResolveApproval(w.Context(), &registryv1.ResolveApprovalRequest{ApprovalId: id, Approve: yes})
	return err
}

// Have reports whether there is an agent.
func (w *World) Have(id string) bool {
	w.Helper()
	_, err := w.Agents.GetAgent(w.Context(), &registryv1.GetAgentRequest{AgentId: id})
	return err == nil
}

// Held answers the live lease of a resource.
func (w *World) Held(resource string) *registryv1.Lease {
	w.Helper()
	r, err := w.Leases.ListLeases(w.Context(), &registryv1.ListLeasesRequest{})
	for _, l := range Must(w.T, r, err).GetLeases() {
		if l.GetResource() == resource {
			return l
		}
	}
	w.Fatalf("nobody has %s", resource)
	return nil
}

// Reply is toil that says words: in the reply, in a tool's argument and result.
func (w *World) Reply(agent, words string) {
	w.Helper()
	due := w.Due(KindRun, "r1", time.Minute)
	ctx := Under(w.Context(), due[0].GetLease())
	b, err := w.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: agent})
	for _, p := range Must(w.T, b, err).GetEvents() {
		begun, err := w.Turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{AgentId: agent, InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId()})
		Must(w.T, begun, err)
		fin, err := w.Turns.FinishTurn(ctx, &registryv1.FinishTurnRequest{
			AgentId: agent, InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId(), Fate: registryv1.Fate_FATE_REPLIED, Text: "reply " + words,
			Steps: []*registryv1.Step{
				{Seq: 1, Kind: registryv1.StepKind_STEP_KIND_MODEL, Key: "model:1", State: registryv1.StepState_STEP_STATE_DONE, Result: []byte(`{"text":"` + words + `"}`)},
				{Seq: 2, Kind: registryv1.StepKind_STEP_KIND_TOOL, Key: "tool:1:1", State: registryv1.StepState_STEP_STATE_DONE, Name: "bash_exec", Arguments: `{"command":"echo ` + words + `"}`, Result: []byte(words)},
			},
		})
		Must(w.T, fin, err)
	}
	w.Release(due[0].GetLease())
}

// StopAgent stops an agent.
func (w *World) StopAgent(agent string) {
	w.Helper()
	r, err := w.Agents.StopAgent(w.Context(), &registryv1.StopAgentRequest{AgentId: agent})
	Must(w.T, r, err)
}

// Export is the tar of what an agent stores about a peer.
func (w *World) Export(agent, peer string) []byte {
	w.Helper()
	in := Must2(w.Agents.ExportPeer(w.Context(), &registryv1.ExportPeerRequest{AgentId: agent, Peer: peer}))
	var all []byte
	for {
		m, err := in.Recv()
		if errors.Is(err, io.EOF) {
			return all
		}
		all = append(all, Must(w.T, m, err).GetChunk()...)
	}
}

// Erase forgets a peer, or counts what that would be.
func (w *World) Erase(agent, peer string, apply bool) (*registryv1.ErasePeerResponse, error) {
	return w.Agents.ErasePeer(w.Context(), &registryv1.ErasePeerRequest{AgentId: agent, Peer: peer, Apply: apply})
}

// Asks pushes a message and asks for an approval and a question about it, in the conversation with a peer,
// under a lease that is given back.
func (w *World) Asks(agent, peer, words string) {
	w.Helper()
	w.Push(agent, peer, "I say "+words, "")
	due := w.Due(KindRun, "r1", time.Minute)
	q := Question("q:"+words, "echo "+words, 0)
	q.ThreadId = "threads/peers/main-" + peer
	ctx := Under(w.Context(), due[0].GetLease())
	w.Ask(ctx, q)
	b, err := w.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: agent})
	e := Must(w.T, b, err).GetEvents()[0]
	asked, err := w.Question.RequestQuestion(ctx, &registryv1.RequestQuestionRequest{
		AgentId: agent, ThreadId: e.GetThreadId(), Key: e.GetKey() + ":tool:1:1", Text: "which " + words, Life: DurationOf(time.Hour),
	})
	Must(w.T, asked, err)
	w.Release(due[0].GetLease())
	w.Reply(agent, words)
	w.Deliver(agent, "threads/peers/main-"+peer)
}

// Questions are the commands of an agent's questions.
func (w *World) Questions(agent string) (commands []string) {
	w.Helper()
	r, err := w.Approvals.ListApprovals(w.Context(), &registryv1.ListApprovalsRequest{AgentId: agent})
	for _, a := range Must(w.T, r, err).GetApprovals() {
		commands = append(commands, a.GetCommand())
	}
	return commands
}

// Full checks that a push was refused for now, with when to come again.
func (w *World) Full(what string, err error, reason string) {
	w.Helper()
	if f := fault.From(err); f.Code != codes.ResourceExhausted || f.Reason != reason || f.RetryAfter <= 0 {
		w.Errorf("%s: %v %s, again in %v", what, err, f.Reason, f.RetryAfter)
	}
}

// Batch is a push of n messages of a peer at once.
func Batch(agent, peer string, n int) *registryv1.PushEventsRequest {
	r := PushRequest(agent, peer, "one of many", "")
	for range n - 1 {
		r.Events = append(r.Events, r.GetEvents()[0])
	}
	return r
}

// Toil answers every waiting message of agent with a call, a tool and an answer.
func (w *World) Toil(agent string, fate registryv1.Fate) {
	w.Helper()
	due := w.Due(KindRun, "r1", time.Minute)
	if len(due) != 1 || due[0].GetAgentId() != agent {
		w.Fatalf("due %v", due)
	}
	ctx := Under(w.Context(), due[0].GetLease())
	b, err := w.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: agent})
	for _, p := range Must(w.T, b, err).GetEvents() {
		begun, err := w.Turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{AgentId: agent, InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId()})
		Must(w.T, begun, err)
		step := func(seq int32, kind registryv1.StepKind, key, arguments, result string) *registryv1.Step {
			return &registryv1.Step{Seq: seq, Kind: kind, Key: key, State: registryv1.StepState_STEP_STATE_DONE, Name: "n", Arguments: arguments, Result: []byte(result), Usage: &registryv1.Usage{Input: 3, Output: 4}}
		}
		fin, err := w.Turns.FinishTurn(ctx, &registryv1.FinishTurnRequest{
			AgentId: agent, InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId(), Fate: fate, Text: "done", Error: "because",
			Steps: []*registryv1.Step{
				step(1, registryv1.StepKind_STEP_KIND_MODEL, "model:1", "", `{"text":"","tool_calls":[]}`),
				step(2, registryv1.StepKind_STEP_KIND_TOOL, "tool:1:1", `{"command":"ls"}`, `{"stdout":"x"}`),
				step(3, registryv1.StepKind_STEP_KIND_MODEL, "model:2", "", `{"text":"done"}`),
			},
		})
		Must(w.T, fin, err)
	}
	w.Release(due[0].GetLease())
}

// Deliver sends every reply of agent's thread by hand.
func (w *World) Deliver(agent, thread string) {
	w.Helper()
	d := w.Due(KindDeliver, "d1", time.Minute)
	ctx := Under(w.Context(), d[0].GetLease())
	for {
		b, err := w.Deliveries.BeginDelivery(ctx, &registryv1.BeginDeliveryRequest{AgentId: agent, ThreadId: thread, BootId: "b"})
		if Must(w.T, b, err).GetOutcome() == registryv1.BeginDeliveryOutcome_BEGIN_DELIVERY_OUTCOME_IDLE {
			break
		}
		fin, err := w.Deliveries.FinishDelivery(ctx, &registryv1.FinishDeliveryRequest{
			AgentId: agent, ThreadId: thread, EventId: b.GetEvent().GetId(), Outcome: registryv1.DeliveryOutcome_DELIVERY_OUTCOME_SENT, Channel: "xgw", BootId: "b",
		})
		Must(w.T, fin, err)
	}
	w.Release(d[0].GetLease())
}

// Work does what a runner does with one event: it is begun and answered.
func (w *World) Work(holder string) {
	w.Helper()
	due := w.Due(registryv1.LeaseKind_LEASE_KIND_RUN, holder, time.Minute)
	if len(due) != 1 {
		w.Fatalf("due: %v", due)
	}
	ctx := Under(w.Context(), due[0].GetLease())
	b, err := w.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: due[0].GetAgentId()})
	ev := Must(w.T, b, err).GetEvents()[0]
	_, err = w.Turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{AgentId: due[0].GetAgentId(), InboxId: ev.GetEvent().GetId(), Key: ev.GetKey(), ThreadId: ev.GetThreadId()})
	Must(w.T, 0, err)
	_, err = w.Turns.FinishTurn(ctx, &registryv1.FinishTurnRequest{AgentId: due[0].GetAgentId(), InboxId: ev.GetEvent().GetId(), Key: ev.GetKey(), ThreadId: ev.GetThreadId(), Fate: registryv1.Fate_FATE_REPLIED, Text: "yes"})
	Must(w.T, 0, err)
}

// Await waits until something is so.
func Await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); {
		if time.Now().After(end) {
			t.Fatalf("%s never happens", what)
		}
		select {
		case <-t.Context().Done():
		case <-time.After(2 * time.Millisecond):
		}
	}
}
