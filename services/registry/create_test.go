package registry_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/theclaw/agents/internal/broker"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

func wants(agent, key, id string) *registryv1.RequestApprovalRequest {
	r := broker.Request{AgentID: id}
	return &registryv1.RequestApprovalRequest{
		AgentId: agent, ThreadId: "threads/main", Key: key, Command: r.Words(), Digest: r.Digest(), CreateAgent: &registryv1.NewAgent{AgentId: id},
	}
}

// S5, S0-21: an agent is made when its approval is used, and only that one: what the
// owner reads is what is made, whoever asks; a repeat makes nothing new, and another
// lease nothing at all.
func TestApprovedAgentIsMadeOnce(t *testing.T) { backendtest.Each(t, testApprovedAgentIsMadeOnce) }

func testApprovedAgentIsMadeOnce(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("admin")
	w.Push("admin", "bob", "hi", "")
	ctx := w.Leased("admin", "r1")
	if _, err := w.Approvals.RequestApproval(ctx, wants("admin", "k0", "x")); status.Code(err) != codes.PermissionDenied {
		t.Errorf("an agent of kind user asks: %v", err)
	}
	if _, err := w.Agents.SetAgentConfig(t.Context(), &registryv1.SetAgentConfigRequest{AgentId: "admin", Key: "kind", Value: "system"}); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*registryv1.RequestApprovalRequest){
		"other words":  func(r *registryv1.RequestApprovalRequest) { r.Command = "ls" },
		"other digest": func(r *registryv1.RequestApprovalRequest) { r.Digest = strings.Repeat("0", 64) },
		"other agent":  func(r *registryv1.RequestApprovalRequest) { r.CreateAgent.AgentId = "y" },
		"other kind": func(r *registryv1.RequestApprovalRequest) {
			r.CreateAgent.Kind = registryv1.AgentKind_AGENT_KIND_SYSTEM
		},
		"no id":    func(r *registryv1.RequestApprovalRequest) { r.CreateAgent.AgentId = "../x" },
		"a screen": func(r *registryv1.RequestApprovalRequest) { r.CreateAgent.Model = "m\x1b[2J" },
	} {
		q := wants("admin", "k0", "x")
		change(q)
		if _, err := w.Approvals.RequestApproval(ctx, q); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := w.Approvals.RequestApproval(ctx, wants("admin", "k0", "admin")); status.Code(err) != codes.AlreadyExists {
		t.Errorf("one that is there: %v", err)
	}

	// A yes to a command is none to an agent, though it has its digest.
	plain := wants("admin", "k1", "x")
	plain.Command, plain.CreateAgent = "ls", nil
	a := w.Ask(ctx, plain)
	if err := w.Resolve(a.GetApprovalId(), true); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Approvals.RequestApproval(ctx, wants("admin", "k1", "x")); status.Code(err) != codes.InvalidArgument || w.Have("x") {
		t.Errorf("a yes to a command: %v, made %t", err, w.Have("x"))
	}

	a = w.Ask(ctx, wants("admin", "k2", "carol"))
	if a.GetCommand() != "agent init carol --kind user" || w.Have("carol") {
		t.Errorf("asked %v", a)
	}
	if err := w.Resolve(a.GetApprovalId(), true); err != nil {
		t.Fatal(err)
	}
	if w.Have("carol") {
		t.Error("made before the approval was used")
	}
	var dirs [2]string
	for i := range dirs {
		r, err := w.Approvals.RequestApproval(ctx, wants("admin", "k2", "carol"))
		if dirs[i] = backendtest.Must(t, r, err).GetCreatedDir(); r.GetApproval().GetState() != registryv1.ApprovalState_APPROVAL_STATE_USED {
			t.Errorf("%v", r)
		}
	}
	if !w.Have("carol") || (dirs[0] == "") != (o.DSN != "") || dirs[0] != dirs[1] {
		t.Errorf("made at %q", dirs)
	}

	// The approval of a lease that is gone makes nothing.
	a = w.Ask(ctx, wants("admin", "k3", "dave"))
	if err := w.Resolve(a.GetApprovalId(), true); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Approvals.RequestApproval(t.Context(), wants("admin", "k3", "dave")); status.Code(err) != codes.Aborted || w.Have("dave") {
		t.Errorf("without a lease: %v, made %t", err, w.Have("dave"))
	}
}

// No answer in its time makes no agent, and a yes after it neither.
func TestExpiredQuestionMakesNoAgent(t *testing.T) {
	backendtest.Each(t, testExpiredQuestionMakesNoAgent)
}

func testExpiredQuestionMakesNoAgent(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{ApprovalLife: 200 * time.Millisecond})
	w.Create("admin")
	if _, err := w.Agents.SetAgentConfig(t.Context(), &registryv1.SetAgentConfigRequest{AgentId: "admin", Key: "kind", Value: "system"}); err != nil {
		t.Fatal(err)
	}
	w.Push("admin", "bob", "hi", "")
	ctx := w.Leased("admin", "r1")
	q := wants("admin", "k1", "carol")
	q.Wait = backendtest.DurationOf(30 * time.Second)
	a := w.Unanswered(ctx, q)
	if err := w.Resolve(a.GetApprovalId(), true); status.Code(err) != codes.FailedPrecondition || w.Have("carol") {
		t.Errorf("answered too late: %v, made %t", err, w.Have("carol"))
	}
}
