package runner_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
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
