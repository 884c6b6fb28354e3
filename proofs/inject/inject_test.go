//go:build proof

package inject_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/program"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	program.Main(m)
}

// S8. `make inject N=500`.
func TestInject(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("N"))
	if err != nil || n <= 0 {
		n = 12
	}
	p := program.Agentd(t)
	site := world.NewSite(t, p)
	// The home, HOME and a place for programs to be in are below one directory.
	around, dir := filepath.Dir(filepath.Dir(site.Home)), t.TempDir()
	c := &count{secret: "canary-" + strings.Repeat("0123456789", 4)}
	marker := filepath.Join(around, "ran")
	for _, name := range []string{"secret.txt", filepath.Join(filepath.Base(filepath.Dir(site.Home)), "secret.txt"), filepath.Join(filepath.Base(dir), "victim/config.yaml")} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(around, name)), 0o700))
		must(t, os.WriteFile(filepath.Join(around, name), []byte(c.secret), 0o600))
	}
	agentd := site.Start(t, "all")
	site.Serving(t, agentd, "registry", "runner", "deliverer")
	for _, id := range []string{"a1", "held", "well"} {
		site.Create(t, id, "outbound: []")
	}
	if _, err := site.Agents.CreateAgent(t.Context(), &registryv1.CreateAgentRequest{AgentId: "victim"}); err != nil {
		t.Fatal(err)
	}
	must(t, os.WriteFile(filepath.Join(site.Home, "agents/victim/IDENTITY.md"), []byte(c.secret), 0o600))
	cwd, err := os.Getwd()
	must(t, err)
	victim := filepath.Join(site.Home, "agents/victim")
	look := func() []map[string]string {
		return []map[string]string{tree(t, around, site.Home), tree(t, cwd, ""), tree(t, victim, filepath.Join(victim, "inbox"))}
	}
	ids := hostile(n, marker)
	armed := arm(t, ids, marker)
	before := look()
	calls := &caller{t: t, count: c, leases: map[registryv1.LeaseKind]*registryv1.Lease{}, conns: map[string]*grpc.ClientConn{}}
	for _, name := range []string{"registry", "runner", "deliverer"} {
		calls.conns["theclaw."+name+".v1"] = site.Dial(t, name, rpc.Identity{})
	}
	calls.hold(site)
	calls.walk(ids)
	last := int64(0)
	for _, id := range ids {
		if source, content := message(id); source != "" {
			r, err := site.Threads.PushEvents(t.Context(), &registryv1.PushEventsRequest{
				Thread: &registryv1.ThreadRef{AgentId: "well", ThreadId: "inbox"},
				Events: []*registryv1.NewEvent{{Source: strings.ToValidUTF8(source, "\uFFFD"), Type: "message", Content: content}},
			})
			if c.judge(t, "message", id, nil, err); err == nil {
				last = r.GetEventIds()[0]
			}
		}
	}
	// A program is slow to start: some of the ids, each of another kind.
	some := ids[:min(len(ids), max(12, n/5))]
	c.run(t, filepath.Dir(p.Path), site.Home, dir, append([]string{"NO_COLOR=1", "THECLAW_HOME=" + site.Home}, p.Env...), some)
	if last > 0 {
		site.Await(t, "well", last)
	}
	if turn := site.Say(t, "well", world.Peer("somebody"), "are you well?"); turn.GetFate() != registryv1.Fate_FATE_REPLIED {
		t.Errorf("the services are not well: %v", turn)
	}
	if events := site.Events(t, "victim", "inbox", ""); len(events) > 0 {
		c.fault(t, &c.outside, "an agent that nobody spoke to has %v", events)
	}
	site.Serving(t, agentd, "registry", "runner", "deliverer")
	agentd.Signal(syscall.SIGTERM)
	select {
	case <-agentd.Done():
	case <-time.After(time.Minute):
		t.Fatal("agentd does not end")
	}
	if bad := control.FindString(strings.ReplaceAll(agentd.Log(), "\n", "")); bad != "" {
		t.Errorf("agentd's log holds %q", bad)
	}
	for i, is := range look() {
		for _, change := range compare(before[i], is) {
			c.fault(t, &c.outside, "%s", change)
		}
	}
	for _, name := range []string{marker, filepath.Join(dir, "ran"), filepath.Join(cwd, "ran")} {
		if _, err := os.Lstat(name); err == nil {
			c.fault(t, &c.ran, "%s was made", name)
		}
	}
	files := c.names(t, site.Home)
	found, stats, err := invariant.Check(t.Context(), layout.At(site.Home), invariant.Options{})
	must(t, err)
	violations := 0
	for _, f := range found {
		if f.Severity == invariant.Violation {
			c.fault(t, &violations, "%s", f)
		}
	}
	fmt.Printf("inject ids=%d armed=%d fields=%d calls=%d commands=%d refused=%d accepted=%d files=%d turns=%d internal=%d outside=%d ran=%d violations=%d\n",
		len(ids), armed, c.fields, c.calls, c.commands, c.refused, c.accepted, files, stats.Turns, c.internal, c.outside, c.ran, violations)
	if c.accepted == 0 || c.refused == 0 || c.fields < 100 || armed == 0 {
		t.Error("nothing was shown")
	}
}

// arm gives the texts with a command in them to a shell, as a careless program
// would, and counts those that make a file.
func arm(t *testing.T, ids []string, marker string) (armed int) {
	t.Helper()
	dir, err := os.MkdirTemp("", "armed")
	must(t, err)
	defer func() { _ = os.RemoveAll(dir) }()
	own := filepath.Join(dir, "ran")
	for _, id := range ids {
		if !strings.Contains(id, "ran") || strings.Contains(id, "\x00") {
			continue
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", "true "+strings.ReplaceAll(id, marker, own))
		cmd.Dir = dir
		_ = cmd.Run() // what is no command is none
		if os.Remove(own) == nil {
			armed++
		}
	}
	return armed
}

// hold takes both leases of an agent and begins a turn of it, so that calls of a
// worker come as far as they can.
func (c *caller) hold(site *world.Site) {
	ctx := c.t.Context()
	for _, kind := range []registryv1.LeaseKind{registryv1.LeaseKind_LEASE_KIND_RUN, registryv1.LeaseKind_LEASE_KIND_DELIVER} {
		r, err := site.Leases.AcquireLease(ctx, &registryv1.AcquireLeaseRequest{
			Kind: kind, AgentId: "held", Holder: "inject", RequestId: kind.String(), Ttl: durationpb.New(10 * time.Minute),
		})
		must(c.t, err)
		c.leases[kind] = r.GetLease()
	}
	_, err := site.Push(ctx, "held", world.Peer("p1"), "hello", "")
	must(c.t, err)
	l := c.leases[registryv1.LeaseKind_LEASE_KIND_RUN]
	ctx = rpc.WithFence(ctx, l.GetResource(), l.GetToken(), l.GetHolder())
	open, err := site.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: "held", Limit: 1})
	must(c.t, err)
	c.turn = open.GetEvents()[0]
	_, err = site.Turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{
		AgentId: "held", InboxId: c.turn.GetEvent().GetId(), Key: c.turn.GetKey(), ThreadId: c.turn.GetThreadId(),
	})
	must(c.t, err)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
