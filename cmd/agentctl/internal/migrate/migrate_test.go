package migrate

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	os.Exit(m.Run())
}

// wants are what the earlier agent left: part of what is said, and whether the
// command does it.
var wants = []struct {
	agent, what string
	does        bool
}{
	{"e1", "run.lock is left of process", true},
	{"e1", "inbox/run/inbox.lock is left of a process that is gone", true},
	{"e1", "inbox.path is absolute", true},
	{"e1", "outbound: [] meant everything through xgw", true},
	{"e1", "can be read by others", true},
	{"e1", "threads/peers/tui-main-Alice: the filter of outbound is no SQL", true},
	{"e1", "threads/peers/tui-main-Alice is looked for under another name", true},
	{"e1", "threads/peers/tg-main-a-b is looked for under another name", true},
	{"e1", "threads/peers/x-y-z holds what 2 peers said", false},
	{"e1", "memory/user-Alice.md is looked for under another name", true},
	{"e1", "memory/user-bob.md is looked for under another name", true},
	{"e1", "memory/user-ghost.md belongs to a peer that has said nothing here", false},
	{"bad1", "agent_id is missing", true},
	{"bad1", `kind is "weird", which is none`, true},
	{"broken", "config.yaml:2:", false},
	{"far", "inbox.path lies outside the home directory", false},
}

// CONTRACTS 6: a directory of the earlier agent. doctor reports, migrate
// says what it would do, does it and keeps what was; then the agent goes on with
// whom it knows.
func TestMigrate(t *testing.T) {
	h := earlier(t)
	for _, dir := range []string{h.Path(), h.AgentsDir()} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	said := examine(t, h)
	before := tree(t, h)
	dry, code := runJSON(t, h, "--all")
	if code != 1 || dry.OK || dry.Done != 0 {
		t.Errorf("dry run: exit code %d, %+v", code, dry)
	}
	if !maps.Equal(before, tree(t, h)) {
		t.Error("a dry run changed something")
	}
	for _, w := range wants {
		found := false
		for _, c := range dry.Changes {
			found = found || c.Agent == w.agent && strings.Contains(c.What, w.what) && (c.Do != "") == w.does && c.Fix != ""
		}
		if !found {
			t.Errorf("not found: %+v", w)
		}
		if !strings.Contains(said, w.what) {
			t.Errorf("doctor does not say: %s", w.what)
		}
	}
	if t.Failed() {
		text, _ := run(t, h, "--all")
		t.Fatalf("migrate:\n%s\ndoctor:\n%s", text, said)
	}

	done, code := runJSON(t, h, "--all", "--apply")
	if code != 1 || done.Done == 0 || len(done.Left) != 4 {
		t.Fatalf("exit code %d, %+v", code, done)
	}
	// R9: the modes are right before a registry has run, those of the home too.
	early, _, err := invariant.Check(t.Context(), h, invariant.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range early {
		if f.Invariant == "I16" {
			t.Error(f)
		}
	}
	e1 := h.AgentDir("e1")
	for _, kept := range []string{"config.yaml", "run.lock", "inbox/run/inbox.lock", "threads/peers/tui-main-%41lice/subscription.json"} {
		if found, err := filepath.Glob(filepath.Join(e1, kept+".migrated-*")); err != nil || len(found) != 1 {
			t.Errorf("%s is not kept: %v, %v", kept, found, err)
		}
	}
	for name, want := range map[string]string{"user-tui-main-%41lice.md": "about user-Alice", "user-tui-main-bob.md": "about user-bob", "user-ghost.md": "about user-ghost", "agent.md": "about agent"} {
		if got := read(t, filepath.Join(e1, "memory", name)); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	alice := filepath.Join(e1, "threads/peers/tui-main-%41lice")
	if f := one(t, filepath.Join(alice, "events.db"), "SELECT filter FROM subscriptions WHERE consumer_id = 'outbound'"); f != "type = 'message' AND source = 'self'" {
		t.Errorf("filter %q", f)
	}
	if c := one(t, filepath.Join(alice, "events.db"), "SELECT handler_cmd FROM subscriptions WHERE consumer_id = 'outbound'"); !strings.Contains(c, alice) {
		t.Errorf("handler %q", c)
	}
	after := tree(t, h)
	again, code := runJSON(t, h, "--all", "--apply")
	if code != 1 || again.Done != 0 || !maps.Equal(after, tree(t, h)) {
		t.Errorf("a second run: exit code %d, %+v", code, again)
	}
	if text, code := run(t, h, "bad1"); code != 0 || !strings.Contains(text, "nothing to do, 0 left to you") {
		t.Errorf("bad1: exit code %d: %s", code, text)
	}

	w := world.Start(t, world.Options{Home: h.Path()})
	// What waited in the inbox is answered where Alice's conversation is.
	turn := w.Await(t, "e1", 2)
	if turn.GetThreadId() != "threads/peers/tui-main-%41lice" || w.Reply(t, turn) != "welcome back" {
		t.Errorf("what waited: %v", turn)
	}
	if all := w.Events(t, "e1", turn.GetThreadId(), "type = 'message'"); len(all) != 4 || world.Text(all[0]) != "I am Alice" {
		t.Errorf("the conversation: %v", all)
	}
	if turn := w.Say(t, "e1", "external:telegram:tg-main:dm:s:a-b", "say: dashed"); turn.GetThreadId() != "threads/peers/tg-main-a%2Db" || w.Reply(t, turn) != "dashed" {
		t.Errorf("a-b: %v", turn)
	}
	if _, err := w.Agents.StartAgent(t.Context(), &registryv1.StartAgentRequest{AgentId: "bad1"}); err != nil {
		t.Logf("bad1 is started already: %v", err)
	}
	if turn := w.Say(t, "bad1", world.Peer("p"), "say: better"); w.Reply(t, turn) != "better" {
		t.Errorf("bad1: %v", turn)
	}
	if text, code := run(t, h, "e1", "--apply"); code != 1 || !strings.Contains(text, "a registry serves") {
		t.Errorf("while a registry runs: exit code %d: %s", code, text)
	}
	w.Stop()
	found, _, err := invariant.Check(t.Context(), h, invariant.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.Severity == invariant.Violation && f.Agent != "broken" && f.Agent != "far" {
			t.Error(f)
		}
	}
}

// Unmigrated, the registry opens what it can; the others do not suffer.
func TestOpenedAsItIs(t *testing.T) {
	h := earlier(t)
	if err := os.Remove(filepath.Join(h.AgentDir("e1"), "inbox/run/inbox.lock")); err != nil {
		t.Fatal(err)
	}
	w := world.Start(t, world.Options{Home: h.Path()})
	r, err := w.Agents.ListAgents(t.Context(), &registryv1.ListAgentsRequest{})
	if err != nil || len(r.GetAgents()) != 4 {
		t.Fatalf("%v, %v", r, err)
	}
	for _, a := range r.GetAgents() {
		failed := a.GetHealth() == registryv1.AgentHealth_AGENT_HEALTH_FAILED
		if failed != (a.GetAgentId() != "e1") || failed != (a.GetProblem() != "") {
			t.Errorf("%v", a)
		}
	}
	if turn := w.Await(t, "e1", 2); w.Reply(t, turn) != "welcome back" {
		t.Errorf("%v", turn)
	}
}

// An earlier agent that is at work is not disturbed.
func TestEarlierAgentAtWork(t *testing.T) {
	h := earlier(t)
	put(t, filepath.Join(h.AgentDir("e1"), "run.lock"), "1\n") // a process that lives
	if text, code := run(t, h, "e1", "--apply"); code != 1 || !strings.Contains(text, "process 1 works for agent 'e1'") {
		t.Errorf("exit code %d: %s", code, text)
	}
	for _, args := range [][]string{{}, {"e1", "--all"}, {"../x"}} {
		if text, code := run(t, h, args...); code != 2 {
			t.Errorf("%v: exit code %d: %s", args, code, text)
		}
	}
	if text, code := run(t, h, "nobody"); code != 1 || !strings.Contains(text, "not found") {
		t.Errorf("exit code %d: %s", code, text)
	}
}

// tree is every file of a home with its mode and bytes, but the lock of who looks.
func tree(t *testing.T, h layout.Home) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(h.Path(), func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == h.LockFile() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			out[path] = info.Mode().String()
		}
		if err == nil && info.Mode().IsRegular() {
			out[path] += read(t, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
