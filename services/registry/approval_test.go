package registry_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

const (
	pending = registryv1.ApprovalState_APPROVAL_STATE_PENDING
	denied  = registryv1.ApprovalState_APPROVAL_STATE_DENIED
	expired = registryv1.ApprovalState_APPROVAL_STATE_EXPIRED
	used    = registryv1.ApprovalState_APPROVAL_STATE_USED
)

// leased makes an agent with work and answers a context under its lease.
func (w *world) leased(agent, holder string) context.Context {
	w.Helper()
	due := w.due(registryv1.LeaseKind_LEASE_KIND_RUN, holder, time.Minute)
	if len(due) != 1 || due[0].GetLease().GetResource() != "agent/"+agent {
		w.Fatalf("due: %v", due)
	}
	return under(w.Context(), due[0].GetLease())
}

func question(key, command string, wait time.Duration) *registryv1.RequestApprovalRequest {
	digest := strings.Repeat("0", 64-len(command)) + command
	return &registryv1.RequestApprovalRequest{AgentId: "a1", ThreadId: "threads/main", Key: key, Command: command, Cwd: "/w", Digest: digest, Wait: durationOf(wait)}
}

func (w *world) ask(ctx context.Context, q *registryv1.RequestApprovalRequest) *registryv1.Approval {
	w.Helper()
	r, err := w.approvals.RequestApproval(ctx, q)
	return must(w.T, r, err).GetApproval()
}

// unanswered asks and waits until the time of the question is over.
func (w *world) unanswered(ctx context.Context, q *registryv1.RequestApprovalRequest) *registryv1.Approval {
	w.Helper()
	a := w.ask(ctx, q)
	for a.GetState() == pending { // the wait ended a moment before the question
		a = w.ask(ctx, q)
	}
	if a.GetState() != expired {
		w.Errorf("nobody answered: %v", a)
	}
	return a
}

func (w *world) resolve(id string, yes bool) error {
	w.Helper()
	_, err := w.approvals.ResolveApproval(w.Context(), &registryv1.ResolveApprovalRequest{ApprovalId: id, Approve: yes})
	return err
}

// S5: an approval is for one command, once, under one lease; it outlives the
// registry; and nothing is asked without the agent's lease.
func TestApprovalIsForOneCommandOnce(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	w := newWorld(t, home, registry.Config{})
	w.create("a1")
	w.push("a1", "bob", "hi", "")
	if _, err := w.approvals.RequestApproval(t.Context(), question("k1", "ls", 0)); status.Code(err) != codes.Aborted {
		t.Errorf("without a lease: %v", err)
	}
	ctx := w.leased("a1", "r1")
	a := w.ask(ctx, question("k1", "ls", 0))
	if a.GetState() != pending || time.Until(a.GetExpiresAt().AsTime()) > 5*time.Minute {
		t.Errorf("asked: %v", a)
	}
	if _, err := w.approvals.RequestApproval(ctx, question("k1", "rm", 0)); status.Code(err) != codes.InvalidArgument {
		t.Errorf("another command under the same key: %v", err)
	}
	answer := make(chan *registryv1.Approval, 1)
	go func() {
		r, err := w.approvals.RequestApproval(ctx, question("k1", "ls", 30*time.Second))
		if err != nil {
			t.Error(err)
		}
		answer <- r.GetApproval()
	}()
	if err := w.resolve(a.GetApprovalId(), true); err != nil {
		t.Fatal(err)
	}
	if got := <-answer; got.GetState() != used || got.GetDigest() != a.GetDigest() {
		t.Errorf("approved: %v", got)
	}
	if got := w.ask(ctx, question("k1", "ls", 0)); got.GetState() != used {
		t.Errorf("the repeat of a lost answer: %v", got)
	}
	for _, yes := range []bool{true, false} {
		if err := w.resolve(a.GetApprovalId(), yes); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("answered again: %v", err)
		}
	}
	no := w.ask(ctx, question("k2", "rm", 0))
	if err := w.resolve(no.GetApprovalId(), false); err != nil {
		t.Fatal(err)
	}
	if got := w.ask(ctx, question("k2", "rm", time.Second)); got.GetState() != denied {
		t.Errorf("denied: %v", got)
	}
	w.release(w.held("agent/a1"))
	w.stop()

	w = newWorld(t, home, registry.Config{})
	list := must(t, must2(w.approvals.ListApprovals(t.Context(), &registryv1.ListApprovalsRequest{})), nil).GetApprovals()
	if len(list) != 2 || list[0].GetState() != used || list[1].GetState() != denied {
		t.Errorf("after a restart: %v", list)
	}
	if _, err := w.approvals.RequestApproval(w.leased("a1", "r2"), question("k1", "ls", 0)); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("used by another lease: %v", err)
	}
}

// S5: no answer is no, also for an answer that comes too late; who watches sees it all.
func TestNoAnswerIsNo(t *testing.T) {
	w := newWorld(t, filepath.Join(t.TempDir(), "h"), registry.Config{ApprovalLife: 3 * time.Second}) // who watches may come late by less
	w.create("a1")
	w.push("a1", "bob", "hi", "")
	watch, err := w.approvals.WatchApprovals(t.Context(), &registryv1.WatchApprovalsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := w.leased("a1", "r1")
	a := w.unanswered(ctx, question("k1", "ls", 30*time.Second))
	if err := w.resolve(a.GetApprovalId(), true); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("too late: %v", err)
	}
	for _, want := range []registryv1.ApprovalState{pending, expired} {
		if r, err := watch.Recv(); err != nil || r.GetApproval().GetState() != want {
			t.Errorf("watched %v %v, want %v", r, err, want)
		}
	}
}

// Who watches is told of a new question however many are kept.
func TestWatchBehindManyQuestions(t *testing.T) {
	w := newWorld(t, filepath.Join(t.TempDir(), "h"), registry.Config{})
	w.create("a1")
	w.push("a1", "bob", "hi", "")
	ctx := w.leased("a1", "r1")
	for i := range 450 {
		a := w.ask(ctx, question(fmt.Sprint("old ", i), "ls", 0))
		if err := w.resolve(a.GetApprovalId(), false); err != nil {
			t.Fatal(err)
		}
	}
	watch, err := w.approvals.WatchApprovals(t.Context(), &registryv1.WatchApprovalsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"one", "two"} {
		w.ask(ctx, question(key, "ls", 0))
		if r, err := watch.Recv(); err != nil || r.GetApproval().GetKey() != key || r.GetApproval().GetState() != pending {
			t.Fatalf("watched %v %v, want %s", r, err, key)
		}
	}
}
