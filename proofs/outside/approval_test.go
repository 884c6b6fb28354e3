//go:build proof

package outside_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/drill"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// desk is a machine whose agent asks before a command that its allow list lacks. Its services
// are killed together and started again.
type desk struct {
	*machine
	world.Client
	services []*world.Process
	kills    int
	before   int // claims before the last start
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{machine: newMachine(t, t.TempDir())}
	d.start()
	d.Create(t, agent, "outbound: []\nsandbox: {mode: \"off\"}\ntools: {exec: {security: allowlist, ask: on-miss}}")
	return d
}

func (d *desk) start() {
	d.t.Helper()
	d.services = []*world.Process{d.agentd("registry"), d.agentd("runner", "--lease-ttl", "1s")}
	d.Client = d.client()
}

// killed kills all services and starts them.
func (d *desk) killed() {
	d.t.Helper()
	for _, p := range d.services {
		p.Kill()
	}
	d.kills++
	d.before = d.claimed()
	d.start()
}

// claimed counts how often the agent's log says that a message with a journaled step was claimed.
func (d *desk) claimed() int {
	d.t.Helper()
	log, err := os.ReadFile(filepath.Join(d.home(), "agents", agent, "logs", "agent.log"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		d.t.Fatal(err)
	}
	return strings.Count(string(log), "turn: goes on after")
}

// waits waits until the services that run now have claimed the message and it waits for its answer
// again. A kill between the claim and the wait counts as a crash of the message, like any other.
func (d *desk) waits(id int64) {
	d.t.Helper()
	d.await(fmt.Sprintf("the wait of message %d after %d kills", id, d.kills), func() bool {
		return d.claimed() > d.before && d.Ask(d.t, agent, id, 0).GetCrashAttempts() == 0
	})
}

// questions are those of the agent, in a state or any.
func (d *desk) questions(s registrypb.ApprovalState) []*registrypb.Approval {
	d.t.Helper()
	r, err := d.Approvals.ListApprovals(d.t.Context(), &registrypb.ListApprovalsRequest{AgentId: agent, State: s})
	if err != nil {
		d.t.Fatal(err)
	}
	return r.GetApprovals()
}

// asked waits for a question that is pending.
func (d *desk) asked(command string) (id int64, a *registrypb.Approval) {
	d.t.Helper()
	id, err := d.Push(d.t.Context(), agent, world.Peer("ann"), "run: "+command, "")
	if err != nil {
		d.t.Fatal(err)
	}
	d.await("the question about "+command, func() bool {
		if list := d.questions(registrypb.ApprovalState_APPROVAL_STATE_PENDING); len(list) > 0 {
			a = list[0]
		}
		return a != nil
	})
	return id, a
}

func (d *desk) answer(a *registrypb.Approval, how registrypb.ApprovalDecision) {
	d.t.Helper()
	if _, err := d.Approvals.ResolveApproval(d.t.Context(), &registrypb.ResolveApprovalRequest{ApprovalId: a.GetApprovalId(), Decision: how}); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) made(name string) bool {
	_, err := os.Stat(filepath.Join(d.home(), "agents", agent, "workdir", name))
	return err == nil
}

// S2-15: a question outlives every process, 20 times (TA1), and so does its answer (TA2): the same
// question, and the command runs once. What always has allowed is not asked again. A command
// that had begun when all was killed (TA3) is in doubt and does not run again. No and no answer run
// nothing.
func TestApprovalsOutliveEveryProcess(t *testing.T) {
	const (
		once   = registrypb.ApprovalDecision_APPROVAL_DECISION_ONCE
		always = registrypb.ApprovalDecision_APPROVAL_DECISION_ALWAYS
		deny   = registrypb.ApprovalDecision_APPROVAL_DECISION_DENY
		every  = registrypb.ApprovalState_APPROVAL_STATE_UNSPECIFIED
	)
	d := newDesk(t)
	id, a := d.asked("mkdir ./made")
	if len(a.GetPatterns()) != 1 || a.GetPatterns()[0].GetPattern() != "/usr/bin/mkdir" || a.GetCommand() != "/usr/bin/mkdir ./made" || a.GetSummary() != "mkdir ./made" {
		t.Errorf("asked %v", a)
	}
	for range 20 {
		d.killed()
		d.waits(id)
	}
	if list := d.questions(every); len(list) != 1 || list[0].GetApprovalId() != a.GetApprovalId() || d.made("made") {
		t.Fatalf("after %d kills: %v; made %t", d.kills, list, d.made("made"))
	}
	for _, p := range d.services[1:] { // so that the answer is not used at once
		p.Kill()
	}
	d.answer(a, always)
	d.killed()
	if turn := d.Await(t, agent, id); strings.Contains(d.Reply(t, turn), "exists") || !d.made("made") || turn.GetCrashAttempts() > 1 {
		t.Errorf("after the answer: %s; made %t, %d crashes", d.Reply(t, turn), d.made("made"), turn.GetCrashAttempts())
	}
	if reply := d.Reply(t, d.Say(t, agent, world.Peer("ann"), "run: mkdir ./again")); !d.made("again") || len(d.questions(every)) != 1 {
		t.Errorf("after always: %s; %v", reply, d.questions(every))
	}

	id, a = d.asked("mkdir ./begun && sleep 600")
	d.answer(a, once)
	d.await("the command", func() bool { return d.made("begun") })
	d.killed()
	if reply := d.Reply(t, d.Await(t, agent, id)); !strings.Contains(reply, "outcome unknown") {
		t.Errorf("killed after it had begun: %s", reply)
	}

	id, a = d.asked("touch denied")
	d.killed()
	d.answer(a, deny)
	d.killed()
	if reply := d.Reply(t, d.Await(t, agent, id)); !strings.Contains(reply, "did not approve") || d.made("denied") {
		t.Errorf("denied: %s, made %t", reply, d.made("denied"))
	}
	drill.Line("outside-approvals kills=%d questions=%d ran=3 denied=1", d.kills, len(d.questions(every)))
}
