package runner_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner"
)

// S5: with approvals: ask nothing runs outside of the sandbox before a person said
// yes to it; a no is told to the model, and what was approved runs.
func TestCommandsAskFirst(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "sandbox: {mode: \"off\"}\napprovals: ask\noutbound: []")
	r := w.runner(nil)
	approvals := registrypb.NewApprovalServiceClient(w.conn)
	ran := func() bool {
		_, err := os.Stat(filepath.Join(w.home.Path(), "agents", "a1", "workdir", "ran"))
		return err == nil
	}
	watch, err := approvals.WatchApprovals(t.Context(), &registrypb.WatchApprovalsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, yes := range []bool{false, true} {
		run := w.say(r, "a1", "run: touch ran")
		var asked *registrypb.Approval
		for asked.GetState() != registrypb.ApprovalState_APPROVAL_STATE_PENDING {
			m, err := watch.Recv()
			if err != nil {
				t.Fatal(err)
			}
			asked = m.GetApproval()
		}
		if !strings.Contains(asked.GetCommand(), "touch ran") || asked.GetAgentId() != "a1" || !strings.Contains(asked.GetReason(), "outside") {
			t.Errorf("asked: %v", asked)
		}
		if ran() {
			t.Fatal("it ran before anybody answered")
		}
		if _, err := approvals.ResolveApproval(t.Context(), &registrypb.ResolveApprovalRequest{ApprovalId: asked.GetApprovalId(), Approve: yes}); err != nil {
			t.Fatal(err)
		}
		end := w.wait(r, "a1", run)
		if said := strings.Contains(end.String(), "did not approve"); said == yes || ran() != yes {
			t.Errorf("answered %v: ran %v, %v", yes, ran(), end)
		}
	}
}

// In the sandbox without the network nobody is asked.
func TestTheSandboxAsksNobody(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "approvals: ask\noutbound: []")
	r := w.runner(nil)
	w.wait(r, "a1", w.say(r, "a1", "run: echo hi"))
	list, err := registrypb.NewApprovalServiceClient(w.conn).ListApprovals(t.Context(), &registrypb.ListApprovalsRequest{})
	if err != nil || len(list.GetApprovals()) != 0 {
		t.Errorf("%v %v", list, err)
	}
}

// A command that waits for its approval holds no slot: with one slot another conversation is
// answered meanwhile, and the command runs then.
func TestApprovalHoldsNoSlot(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "sandbox: {mode: \"off\"}\napprovals: ask\noutbound: []\nrun: {concurrency: 1}")
	r := w.runner(nil, func(c *runner.Config) { c.Slots = 1 })
	approvals := registrypb.NewApprovalServiceClient(w.conn)
	watch, err := approvals.WatchApprovals(t.Context(), &registrypb.WatchApprovalsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	run := w.say(r, "a1", "run: echo it-ran")
	asked, err := watch.Recv()
	if err != nil {
		t.Fatal(err)
	}
	other, err := r.StartRun(t.Context(), &runnerpb.StartRunRequest{AgentId: "a1", Text: "say: meanwhile", Source: "external:tui:main:dm:s:bob"})
	if err != nil {
		t.Fatal(err)
	}
	if end := w.wait(r, "a1", other.GetRunId()); !strings.Contains(end.GetText(), "meanwhile") {
		t.Errorf("the other conversation: %v", end)
	}
	if _, err := approvals.ResolveApproval(t.Context(), &registrypb.ResolveApprovalRequest{ApprovalId: asked.GetApproval().GetApprovalId(), Approve: true}); err != nil {
		t.Fatal(err)
	}
	if end := w.wait(r, "a1", run); !strings.Contains(end.GetText(), "it-ran") {
		t.Errorf("the command: %v", end)
	}
}
