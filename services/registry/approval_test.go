package registry_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

const (
	pending = registryv1.ApprovalState_APPROVAL_STATE_PENDING
	denied  = registryv1.ApprovalState_APPROVAL_STATE_DENIED
	expired = registryv1.ApprovalState_APPROVAL_STATE_EXPIRED
	used    = registryv1.ApprovalState_APPROVAL_STATE_USED
)

// S5: an approval is for one command, once, under one lease; it outlives the
// registry; and nothing is asked without the agent's lease.
func TestApprovalIsForOneCommandOnce(t *testing.T) {
	backendtest.Each(t, testApprovalIsForOneCommandOnce)
}

func testApprovalIsForOneCommandOnce(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	w.Push("a1", "bob", "hi", "")
	if _, err := w.Approvals.RequestApproval(t.Context(), backendtest.Question("k1", "ls", 0)); status.Code(err) != codes.Aborted {
		t.Errorf("without a lease: %v", err)
	}
	ctx := w.Leased("a1", "r1")
	a := w.Ask(ctx, backendtest.Question("k1", "ls", 0))
	if a.GetEndedAt() != nil {
		t.Errorf("it waits, and ended at %v", a.GetEndedAt().AsTime())
	}
	if a.GetState() != pending || time.Until(a.GetExpiresAt().AsTime()) > 5*time.Minute {
		t.Errorf("asked: %v", a)
	}
	if _, err := w.Approvals.RequestApproval(ctx, backendtest.Question("k1", "rm", 0)); status.Code(err) != codes.InvalidArgument {
		t.Errorf("another command under the same key: %v", err)
	}
	boxed := backendtest.Question("k0", "ls", 0)
	boxed.Kind = registryv1.ApprovalKind_APPROVAL_KIND_NETWORK
	if err := w.Resolve(w.Ask(ctx, boxed).GetApprovalId(), true); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Approvals.RequestApproval(ctx, backendtest.Question("k0", "ls", 0)); status.Code(err) != codes.InvalidArgument {
		t.Errorf("S4-93: the same command on the host, approved with the network in the sandbox: %v", err)
	}
	if got := w.Ask(ctx, boxed); got.GetState() != used {
		t.Errorf("in the sandbox: %v", got)
	}
	answer := make(chan *registryv1.Approval, 1)
	go func() {
		r, err := w.Approvals.RequestApproval(ctx, backendtest.Question("k1", "ls", 30*time.Second))
		if err != nil {
			t.Error(err)
		}
		answer <- r.GetApproval()
	}()
	if err := w.Resolve(a.GetApprovalId(), true); err != nil {
		t.Fatal(err)
	}
	if got := <-answer; got.GetState() != used || got.GetDigest() != a.GetDigest() {
		t.Errorf("approved: %v", got)
	}
	if got := w.Ask(ctx, backendtest.Question("k1", "ls", 0)); got.GetState() != used {
		t.Errorf("the repeat of a lost answer: %v", got)
	}
	for _, yes := range []bool{true, false} {
		if err := w.Resolve(a.GetApprovalId(), yes); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("answered again: %v", err)
		}
	}
	no := w.Ask(ctx, backendtest.Question("k2", "rm", 0))
	if err := w.Resolve(no.GetApprovalId(), false); err != nil {
		t.Fatal(err)
	}
	if got := w.Ask(ctx, backendtest.Question("k2", "rm", time.Second)); got.GetState() != denied {
		t.Errorf("denied: %v", got)
	}
	w.Release(w.Held("agent/a1"))
	w.Stop()

	w = o.Start(t, registry.Config{})
	list := backendtest.Must(t, backendtest.Must2(w.Approvals.ListApprovals(t.Context(), &registryv1.ListApprovalsRequest{})), nil).GetApprovals()
	if len(list) != 3 || list[0].GetState() != used || list[1].GetState() != used || list[2].GetState() != denied {
		t.Errorf("after a restart: %v", list)
	}
	for _, a := range list { // the end of the wait, not of the time in which an approval can be used
		if at := a.GetEndedAt().AsTime(); a.GetEndedAt() == nil || at.Before(a.GetRequestedAt().AsTime()) || at.After(time.Now()) {
			t.Errorf("answered at %v: %v", at, a)
		}
	}
	if _, err := w.Approvals.RequestApproval(w.Leased("a1", "r2"), backendtest.Question("k1", "ls", 0)); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("used by another lease: %v", err)
	}
}

// An approval and a question are answered by the short forms of their ids, unless several have the same; one that has ended
// is not taken for another.
func TestShortIDs(t *testing.T) { backendtest.Each(t, testShortIDs) }

func testShortIDs(t *testing.T, o backendtest.Options) {
	c := converse(t, o)
	a := c.Ask(c.ctx, backendtest.Question(c.turn.GetKey()+":tool:1:1", "ls", 0))
	q := c.ask(c.request(2, time.Hour))
	if a.GetShortId() != "ap-"+a.GetApprovalId()[len(a.GetApprovalId())-6:] || q.GetShortId() != "q-"+q.GetQuestionId()[len(q.GetQuestionId())-6:] {
		t.Fatalf("%q of %q, %q of %q", a.GetShortId(), a.GetApprovalId(), q.GetShortId(), q.GetQuestionId())
	}
	for _, id := range []string{"ap-" + a.GetApprovalId()[len(a.GetApprovalId())-5:], q.GetShortId(), "ap-zzzzzz", "ap-"} {
		if err := c.Resolve(id, true); !fault.Is(err, fault.ApprovalClosed) {
			t.Errorf("%q: %v", id, err)
		}
	}
	if err := c.Resolve(strings.ToUpper(a.GetShortId()), false); err != nil {
		t.Error(err)
	}
	if err := c.Resolve(a.GetShortId(), true); !fault.Is(err, fault.ApprovalClosed) || !strings.Contains(err.Error(), "denied already") {
		t.Errorf("one that was answered: %v", err)
	}
	r, err := c.Question.AnswerQuestion(t.Context(), &registryv1.AnswerQuestionRequest{QuestionId: q.GetShortId(), Answer: "2"})
	if err != nil || r.GetQuestion().GetAnswer() != "savings" {
		t.Errorf("%v %v", r, err)
	}
}

// S5: no answer is no, also for an answer that comes too late; who watches sees it all.
func TestNoAnswerIsNo(t *testing.T) { backendtest.Each(t, testNoAnswerIsNo) }

func testNoAnswerIsNo(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{ApprovalLife: 3 * time.Second}) // who watches may come late by less
	w.Create("a1")
	w.Push("a1", "bob", "hi", "")
	watch, err := w.Approvals.WatchApprovals(t.Context(), &registryv1.WatchApprovalsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := w.Leased("a1", "r1")
	a := w.Unanswered(ctx, backendtest.Question("k1", "ls", 30*time.Second))
	if err := w.Resolve(a.GetApprovalId(), true); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("too late: %v", err)
	}
	for _, want := range []registryv1.ApprovalState{pending, expired} {
		if r, err := watch.Recv(); err != nil || r.GetApproval().GetState() != want {
			t.Errorf("watched %v %v, want %v", r, err, want)
		}
	}
}

// F21: a question whose turn has ended cannot be answered: nobody would read the answer. It
// says so, and is no longer pending.
func TestNobodyWaitsForAnAnswer(t *testing.T) { backendtest.Each(t, testNobodyWaitsForAnAnswer) }

func testNobodyWaitsForAnAnswer(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	id := w.Push("a1", "bob", "hi", "").GetEventIds()[0]
	ctx := w.Leased("a1", "r1")
	b, err := w.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: "a1"})
	p := backendtest.Must(t, b, err).GetEvents()[0]
	begun, err := w.Turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{AgentId: "a1", InboxId: id, Key: p.GetKey(), ThreadId: p.GetThreadId()})
	backendtest.Must(t, begun, err)
	first := w.Ask(ctx, backendtest.Question(p.GetKey()+":tool:1:1", "ls", 0))
	left := w.Ask(ctx, backendtest.Question(p.GetKey()+":tool:1:2", "rm", 0))
	if err := w.Resolve(first.GetApprovalId(), true); err != nil {
		t.Errorf("while the turn is under way: %v", err)
	}
	fin, err := w.Turns.FinishTurn(ctx, &registryv1.FinishTurnRequest{
		AgentId: "a1", InboxId: id, Key: p.GetKey(), ThreadId: p.GetThreadId(), Fate: registryv1.Fate_FATE_ABORTED, Error: "by the owner",
	})
	backendtest.Must(t, fin, err)
	if list, err := w.Approvals.ListApprovals(t.Context(), &registryv1.ListApprovalsRequest{State: pending}); len(backendtest.Must(t, list, err).GetApprovals()) != 0 {
		t.Errorf("pending after the turn: %v", list)
	}
	for _, yes := range []bool{true, false} {
		if err := w.Resolve(left.GetApprovalId(), yes); !fault.Is(err, fault.ApprovalClosed) {
			t.Errorf("after the turn: %v", err)
		} else if yes && !strings.Contains(err.Error(), "the turn that asked has ended") {
			t.Errorf("without the reason: %v", err)
		}
	}
	list, err := w.Approvals.ListApprovals(t.Context(), &registryv1.ListApprovalsRequest{State: pending})
	if n := len(backendtest.Must(t, list, err).GetApprovals()); n != 0 {
		t.Errorf("%d are pending", n)
	}
}

// Who watches is told of a new question however many are kept.
func TestWatchBehindManyQuestions(t *testing.T) { backendtest.Each(t, testWatchBehindManyQuestions) }

func testWatchBehindManyQuestions(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	w.Push("a1", "bob", "hi", "")
	ctx := w.Leased("a1", "r1")
	for i := range 450 {
		a := w.Ask(ctx, backendtest.Question(fmt.Sprint("old ", i), "ls", 0))
		if err := w.Resolve(a.GetApprovalId(), false); err != nil {
			t.Fatal(err)
		}
	}
	watch, err := w.Approvals.WatchApprovals(t.Context(), &registryv1.WatchApprovalsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"one", "two"} {
		w.Ask(ctx, backendtest.Question(key, "ls", 0))
		if r, err := watch.Recv(); err != nil || r.GetApproval().GetKey() != key || r.GetApproval().GetState() != pending {
			t.Fatalf("watched %v %v, want %s", r, err, key)
		}
	}
}

// S5: a holder whose lease is over uses no approval, although its call began under the lease: the answer is for the next
// holder, which waits for the same question.
func TestApprovalIsForTheHolder(t *testing.T) { backendtest.Each(t, testApprovalIsForTheHolder) }

func testApprovalIsForTheHolder(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	w.Push("a1", "bob", "hi", "")
	watch, err := w.Approvals.WatchApprovals(t.Context(), &registryv1.WatchApprovalsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	before := w.Leased("a1", "r1")
	refused := make(chan error, 1)
	go func() {
		_, err := w.Approvals.RequestApproval(before, backendtest.Question("k1", "ls", 30*time.Second))
		refused <- err
	}()
	asked := backendtest.Must(t, backendtest.Must2(watch.Recv()), nil).GetApproval() // the call has passed its check of the lease
	w.Release(w.Held("agent/a1"))
	now := w.Leased("a1", "r2")
	if err := w.Resolve(asked.GetApprovalId(), true); err != nil {
		t.Fatal(err)
	}
	if err := <-refused; !fault.Is(err, fault.LeaseLost) {
		t.Errorf("the holder before: %v", err)
	}
	if got := w.Ask(now, backendtest.Question("k1", "ls", 0)); got.GetState() != used {
		t.Errorf("the holder now: %v", got)
	}
}

// One whose time is over is listed as expired, also before anything has noticed that.
func TestExpiredApprovalIsListed(t *testing.T) { backendtest.Each(t, testExpiredApprovalIsListed) }

func testExpiredApprovalIsListed(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{ApprovalLife: time.Second})
	w.Create("a1")
	w.Push("a1", "bob", "hi", "")
	a := w.Ask(w.Leased("a1", "r1"), backendtest.Question("k1", "ls", 0))
	<-time.After(time.Until(a.GetExpiresAt().AsTime()) + time.Millisecond)
	for state, want := range map[registryv1.ApprovalState]int{pending: 0, expired: 1, registryv1.ApprovalState_APPROVAL_STATE_UNSPECIFIED: 1} {
		r, err := w.Approvals.ListApprovals(t.Context(), &registryv1.ListApprovalsRequest{State: state})
		if err != nil || len(r.GetApprovals()) != want || want == 1 && r.GetApprovals()[0].GetState() != expired {
			t.Errorf("%s: %v %v", state, r, err)
		}
	}
}
