//go:build proof

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// The working directory belongs to the agent. What a tool wrote on one
// machine is read by a tool on another after kill -9 of the first, with its modes,
// links and deletions; what is too large stays where it is, and the model is told.
func TestWorkdirMoves(t *testing.T) {
	f := newFleet(t)
	dsn := "storage:\n  engine: postgres\n  dsns: [\"" + pgtest.Database(t) + "\"]\n"
	if err := os.WriteFile(filepath.Join(f.Home, "theclaw.yaml"), []byte(dsn), 0o600); err != nil {
		t.Fatal(err)
	}
	f.start(t, "registry")
	runner := func(name string, env ...string) *world.Process {
		t.Helper()
		if f.homes[name] == "" {
			users[name] = users["runner"]
			f.homes[name] = f.newHome(t, name)
			f.issue(t, name)
		}
		p := f.program
		p.Env = append(append(slices.Clone(p.Env), "THECLAW_HOME="+f.homes[name], "HOME="+f.homes[name]), env...)
		if os.Geteuid() == 0 {
			p.User = &syscall.Credential{Uid: users[name], Gid: users[name]}
		}
		// A lease that is lost in the middle of a command leaves it in doubt, and what it
		// wrote here: this test is about those that ended.
		args := append([]string{"runner", "--name", name, "--registry", f.address["registry"]}, flags...)
		return p.Start(t, append(args, "--lease-ttl", "5s")...)
	}
	conn := f.dial(t, "registry")
	c := world.NewClient(conn, conn)
	c.Create(t, "a1", "sandbox:\n  mode: off\nworkdir:\n  sync: snapshot\n  max_mib: 1\n  ignore: \"*.tmp\"\n")
	do := func(command string) string {
		t.Helper()
		return c.Reply(t, c.Say(t, "a1", world.Peer("bob"), "run: "+command))
	}
	first := runner("runner-2")
	do("mkdir d && echo hello > d/note && chmod 640 d/note && ln -s d/note link && echo x > gone && echo x > left.tmp")
	first.Kill()
	second := runner("runner-3")
	if got := do("cat link && stat -c %a d/note && rm gone && echo more >> d/note && ls"); !strings.Contains(got, "hello") || !strings.Contains(got, "640") || strings.Contains(got, "left.tmp") {
		t.Errorf("on the second machine: %s", got)
	}
	second.Kill()
	first = runner("runner-2")
	if got := do("cat d/note; ls"); !strings.Contains(got, "more") || strings.Contains(got, "gone") || !strings.Contains(got, "left.tmp") {
		t.Errorf("back on the first: %s", got)
	}
	if got := do("head -c 2000000 /dev/urandom > large"); !strings.Contains(got, "1 MiB") {
		t.Errorf("beyond the bound: %s", got)
	}
	first.Kill()
	second = runner("runner-3")
	if got := do("ls; cat d/note"); strings.Contains(got, "large") || !strings.Contains(got, "more") {
		t.Errorf("the last snapshot is not whole: %s", got)
	}
	do("echo third > third")
	second.Kill()
	last := runner("runner-2")
	if got := do("ls; cat third"); strings.Contains(got, "large") || !strings.Contains(got, "third") {
		t.Errorf("after it was kept elsewhere: %s", got)
	}
	end := func(p *world.Process) { // one that ends releases its leases
		t.Helper()
		if p.Signal(syscall.SIGTERM); p.Exit() != 0 {
			t.Fatalf("exit status %d", p.Exit())
		}
	}
	// An edit that was kept, and whose result was not, is not made again.
	c.Set(t, "a1", "tools.profile", "full")
	end(last)
	edits := runner("runner-3", failpoint+"=T5.after:1")
	id, err := c.Push(t.Context(), "a1", world.Peer("bob"), `call: edit {"path":"third","old_text":"third","new_text":"third and fourth"}`, "")
	if err != nil {
		t.Fatal(err)
	}
	edits.Exit()
	last = runner("runner-2")
	if got := c.Reply(t, c.Await(t, "a1", id)); !edits.Killed() || !strings.Contains(got, "edited third: replaced 1 occurrence") {
		t.Errorf("the edit: killed %v, %s", edits.Killed(), got)
	}
	if got := do("cat third"); !strings.HasSuffix(got, "\nthird and fourth") {
		t.Errorf("after the edit: %s", got)
	}
	// Nor is a directory put aside of which all was kept.
	c.Say(t, "a1", world.Peer("bob"), `call: edit {"path":"third","old_text":"fourth","new_text":"fifth"}`)
	end(last)
	second = runner("runner-3")
	do("echo more >> third")
	end(second)
	last = runner("runner-2")
	if got := do("cat third"); !strings.HasSuffix(got, "\nthird and fifth\nmore") {
		t.Errorf("after the edit and a move: %s", got)
	}
	// What was never kept is not lost: it lies beside.
	for _, name := range []string{"", "large"} {
		left, err := filepath.Glob(filepath.Join(f.homes["runner-2"], "agents", "a1", "workdir.unkept-*", name))
		if err != nil || len(left) != 1 {
			t.Errorf("put aside: %v, %v", left, err)
		}
	}
	// Or all runners have one directory.
	shared, err := os.MkdirTemp("", "theclaw-workdirs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(shared) })
	f.give(t, "runner", shared)
	c.Set(t, "a1", "workdir.sync", "off")
	c.Set(t, "a1", "workdir.shared", shared)
	do("echo one > of-all")
	if b, err := os.ReadFile(filepath.Join(shared, "a1", "of-all")); err != nil || string(b) != "one\n" {
		t.Errorf("%q, %v", b, err)
	}
	last.Kill()
	runner("runner-3")
	if got := do("cat of-all"); !strings.Contains(got, "one") {
		t.Errorf("shared: %s", got)
	}
	// Who removes the agent removes that too.
	if _, err := c.Agents.DeleteAgent(t.Context(), &registryv1.DeleteAgentRequest{AgentId: "a1", Force: true}); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(shared); err != nil || len(left) != 0 {
		t.Errorf("left of it: %v, %v", left, err)
	}
}
