//go:build proof

package outside_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/theclaw/agents/internal/testing/need"
	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/drill"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

const adminThread = "threads/peers/main-ann"

// office is a machine whose agent admin may ask for agents.
type office struct {
	*machine
	world.Client
	runner *world.Process
}

func newOffice(t *testing.T) *office {
	t.Helper()
	m := newMachine(t, t.TempDir())
	m.agentd("registry")
	o := &office{machine: m, runner: m.agentd("runner", "--lease-ttl", "1s")}
	o.Client = m.client()
	o.Create(t, "admin", "outbound: []")
	o.Set(t, "admin", "kind", "system")
	if reply := o.Reply(t, o.Say(t, "admin", world.Peer("ann"), "run: echo works")); !strings.Contains(reply, "works") {
		need.Missing(t, "a sandbox ("+reply+")", "run the tests as root, or install the package bubblewrap")
	}
	return o
}

// ask tells admin to run a command and answers what the owner is asked about it.
func (o *office) ask(command string) (int64, *registrypb.Approval) {
	o.t.Helper()
	id, err := o.Push(o.t.Context(), "admin", world.Peer("ann"), "run: "+command, "")
	if err != nil {
		o.t.Fatal(err)
	}
	var asked *registrypb.Approval
	o.await("the question about "+command, func() bool {
		r, err := o.Approvals.ListApprovals(o.t.Context(), &registrypb.ListApprovalsRequest{State: registrypb.ApprovalState_APPROVAL_STATE_PENDING})
		if err != nil {
			o.t.Fatal(err)
		}
		if turn := o.Ask(o.t, "admin", id, 0); turn.GetFate() != registrypb.Fate_FATE_UNSPECIFIED {
			o.t.Fatalf("%s: nobody was asked: %s", command, o.Reply(o.t, turn))
		}
		if n := len(r.GetApprovals()); n > 0 {
			asked = r.GetApprovals()[n-1]
		}
		return asked != nil
	})
	return id, asked
}

func (o *office) there(id string) bool {
	_, err := o.Agents.GetAgent(o.t.Context(), &registrypb.GetAgentRequest{AgentId: id})
	if err != nil && status.Code(err) != codes.NotFound {
		o.t.Fatal(err)
	}
	_, statErr := os.Stat(filepath.Join(o.home(), "agents", id))
	if (err == nil) != (statErr == nil) {
		o.t.Errorf("agent %s: %v, but %v", id, err, statErr)
	}
	return err == nil
}

func (o *office) resolve(a *registrypb.Approval, yes bool) error {
	_, err := o.Approvals.ResolveApproval(o.t.Context(), &registrypb.ResolveApprovalRequest{ApprovalId: a.GetApprovalId(), Approve: yes})
	return err
}

// sockets are what stands in admin's directory of sockets.
func (o *office) sockets() []os.DirEntry {
	list, err := os.ReadDir(filepath.Join(o.home(), "agents", "admin", "workdir", ".broker"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		o.t.Fatal(err)
	}
	return list
}

// S0-21: admin makes an agent from its sandbox, after the owner has said
// yes to exactly that one; after a no there is none, and the program reads why.
func TestAdminMakesAgents(t *testing.T) {
	o := newOffice(t)
	id, a := o.ask("agent init eve")
	if err := o.resolve(a, false); err != nil {
		t.Fatal(err)
	}
	if reply := o.Reply(t, o.Await(t, "admin", id)); !strings.Contains(reply, "exit code 1") || !strings.Contains(reply, "did not approve of agent 'eve' - do not ask again unasked") {
		t.Errorf("denied: %s", reply)
	}
	id, a = o.ask("agent init bob --provider offline; agent init bob --provider offline; echo $?")
	if a.GetCommand() != "agent init bob --kind user --provider offline" || a.GetAgentId() != "admin" || a.GetThreadId() != adminThread || a.GetReason() != "it makes a new agent" {
		t.Errorf("asked %v", a)
	}
	if o.there("bob") || len(o.sockets()) != 1 {
		t.Errorf("before the answer: there %t, sockets %v", o.there("bob"), o.sockets())
	}
	if err := o.resolve(a, true); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(o.home(), "agents", "bob")
	if reply := o.Reply(t, o.Await(t, "admin", id)); !strings.Contains(reply, strings.Repeat("Agent 'bob' initialized at "+dir+"\n", 2)+"0") {
		t.Errorf("approved: %s", reply) // in one command it is one question, and one agent
	}
	if !o.there("bob") || o.there("eve") || len(o.sockets()) != 0 {
		t.Errorf("bob %t, eve %t, sockets %v", o.there("bob"), o.there("eve"), o.sockets())
	}
	reply := o.Reply(t, o.Say(t, "admin", world.Peer("ann"), "run: agent init bob"))
	if !strings.Contains(reply, "already exists at "+dir) {
		t.Errorf("again: %s", reply) // and nobody is asked: the turn ends
	}
	c, err := o.Agents.GetAgentConfig(t.Context(), &registrypb.GetAgentConfigRequest{AgentId: "bob"})
	if err != nil || !strings.Contains(c.String(), "offline") {
		t.Errorf("settings %v, %v", c, err)
	}
	drill.Line("outside-create denied=1 approved=1 made=1")
}

// Only the agent admin, of kind system, has a socket, and it takes one call.
func TestOnlyAdminAsks(t *testing.T) {
	o := newOffice(t)
	const env = "run: env | grep -c THECLAW_AGENT_BROKER; ls -a"
	if reply := o.Reply(t, o.Say(t, "admin", world.Peer("ann"), env)); !strings.Contains(reply, "1\n") || !strings.Contains(reply, ".broker") {
		t.Errorf("admin: %s", reply)
	}
	// Nothing else can be said on it; the owner's words lead nowhere.
	for command, want := range map[string]string{
		"agent start admin": "exit code 1",
		"agent init ../x":   "exit code 2",
		"agent list":        "exit code 1",
		"perl -MIO::Socket::UNIX -e 'my $s = IO::Socket::UNIX->new(Peer => $ENV{THECLAW_AGENT_BROKER}) or die $!; print $s qq({\"method\":\"StopAgent\",\"agent_id\":\"admin\"}\\n); print <$s>'": "there is no method",
	} {
		if reply := o.Reply(t, o.Say(t, "admin", world.Peer("ann"), "run: "+command)); !strings.Contains(reply, want) {
			t.Errorf("%s: %s", command, reply)
		}
	}
	o.Set(t, "admin", "kind", "user")
	o.Create(t, "boss", "outbound: []\ninbox: {external: allow}")
	o.Set(t, "boss", "kind", "system")
	for _, id := range []string{"admin", "boss"} {
		if reply := o.Reply(t, o.Say(t, id, world.Peer("ann"), "run: env | grep -c THECLAW_AGENT_BROKER; agent init bob")); !strings.Contains(reply, "0\n") {
			t.Errorf("%s: %s", id, reply)
		}
	}
	list, err := o.Approvals.ListApprovals(t.Context(), &registrypb.ListApprovalsRequest{})
	if err != nil || len(list.GetApprovals()) != 0 || o.there("bob") {
		t.Errorf("asked %v, %v", list, err)
	}
}

// A runner that is killed while the owner thinks leaves no agent, also when the yes
// comes after it, asks nothing again, and its socket goes with the next command.
func TestRunnerKilledWhileTheOwnerThinks(t *testing.T) {
	o := newOffice(t)
	id, a := o.ask("agent init bob")
	o.runner.Kill()
	if err := o.resolve(a, true); err != nil {
		t.Fatal(err)
	}
	o.runner = o.agentd("runner", "--lease-ttl", "1s")
	turn := o.Await(t, "admin", id)
	if reply := o.Reply(t, turn); !strings.Contains(reply, "outcome unknown") {
		t.Errorf("it goes on with: %s", reply)
	}
	list, err := o.Approvals.ListApprovals(t.Context(), &registrypb.ListApprovalsRequest{})
	if err != nil || len(list.GetApprovals()) != 1 || o.there("bob") {
		t.Errorf("asked %v, %v; there %t", list, err, o.there("bob"))
	}
	o.Say(t, "admin", world.Peer("ann"), "run: true")
	if left := o.sockets(); len(left) != 0 {
		t.Errorf("left %v", left)
	}
	id, a = o.ask("agent init bob")
	if err := o.resolve(a, true); err != nil {
		t.Fatal(err)
	}
	o.Await(t, "admin", id)
	if !o.there("bob") {
		t.Error("not made after a new question")
	}
	drill.Line("outside-create-kill kills=1 asked=%d", len(list.GetApprovals()))
}
