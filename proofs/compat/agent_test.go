package compat_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerv1 "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// S0-22: a system agent and a user agent live through the same, to the same events,
// steps and fates.
func TestKindsAreOneMechanism(t *testing.T) {
	w := world.Start(t, quick(""))
	account := func(id string, kind registryv1.AgentKind) (out []string) {
		create(t, w, id, kind, quiet+"\ninbox: {external: allow}") // what the kind decides; see S0-20
		for _, text := range []string{"say: hello", "run: echo $((6*7)); cat nothing", "fail: auth", "say: still here"} {
			turn := w.Say(t, id, world.Peer("bob"), text)
			out = append(out, fmt.Sprintf("%v %q in %s: %s", turn.GetFate(), w.Reply(t, turn), turn.GetThreadId(), turn.GetError()))
			for _, s := range turn.GetSteps() {
				out = append(out, fmt.Sprintf("%s %s %v", s.GetKey(), s.GetName(), s.GetState()))
			}
		}
		for _, e := range w.Events(t, id, "threads/peers/main-bob", "") {
			out = append(out, fmt.Sprintf("%d %s %s/%s", e.GetId(), e.GetSource(), e.GetType(), e.GetSubtype()))
		}
		return out
	}
	user, system := account("u1", registryv1.AgentKind_AGENT_KIND_USER), account("s1", registryv1.AgentKind_AGENT_KIND_SYSTEM)
	if !slices.Equal(user, system) || len(user) < 12 || !strings.Contains(strings.Join(user, "\n"), "42") {
		t.Errorf("user agent:\n%s\nsystem agent:\n%s", strings.Join(user, "\n"), strings.Join(system, "\n"))
	}
}

// S0-09: a stop takes the subscription away and leaves the progress, as anybody with
// sqlite3 sees it; nothing runs, and a start goes on behind it.
func TestProgressOutlivesAStop(t *testing.T) {
	w := world.Start(t, quick(""))
	create(t, w, "a1", registryv1.AgentKind_AGENT_KIND_USER, quiet)
	say(t, w, "a1", world.Peer("bob"), "one")
	db := open(t, filepath.Join(w.Home, "agents/a1/inbox"))
	look := func() (progress string, subscribed int) {
		t.Helper()
		row := db.QueryRowContext(t.Context(), "SELECT consumer_id || ' ' || last_acked_id || ' ' || updated_at, (SELECT count(*) FROM subscriptions) FROM consumer_progress")
		if err := row.Scan(&progress, &subscribed); err != nil {
			t.Fatal(err)
		}
		return progress, subscribed
	}
	before, subscribed := look()
	if !strings.HasPrefix(before, "inbox 1 ") || subscribed != 1 {
		t.Errorf("at work: progress %q, %d subscriptions", before, subscribed)
	}
	if _, err := w.Agents.StopAgent(t.Context(), &registryv1.StopAgentRequest{AgentId: "a1"}); err != nil {
		t.Fatal(err)
	}
	id, err := w.Push(t.Context(), "a1", world.Peer("bob"), "say: two", "")
	if err != nil {
		t.Fatal(err)
	}
	if after, subscribed := look(); after != before || subscribed != 0 {
		t.Errorf("stopped: progress %q, before %q, %d subscriptions", after, before, subscribed)
	}
	if _, err := w.Agents.StartAgent(t.Context(), &registryv1.StartAgentRequest{AgentId: "a1"}); err != nil {
		t.Fatal(err)
	}
	if got := w.Reply(t, w.Await(t, "a1", id)); got != "two" {
		t.Errorf("replied %q", got)
	}
	if after, subscribed := look(); !strings.HasPrefix(after, "inbox 2 ") || subscribed != 1 {
		t.Errorf("started: progress %q, %d subscriptions", after, subscribed)
	}
}

// S0-42: an inbox that was put elsewhere, and whose setting says so, is where start
// subscribes, where pushes go and where the agent reads.
func TestInboxElsewhere(t *testing.T) {
	o := quick(filepath.Join(t.TempDir(), "home"))
	w := world.Start(t, o)
	create(t, w, "a1", registryv1.AgentKind_AGENT_KIND_USER, quiet)
	say(t, w, "a1", world.Peer("bob"), "before")
	if _, err := w.Agents.StopAgent(t.Context(), &registryv1.StopAgentRequest{AgentId: "a1"}); err != nil {
		t.Fatal(err)
	}
	w.Stop()
	dir := filepath.Join(o.Home, "agents/a1")
	if err := os.Rename(filepath.Join(dir, "inbox"), filepath.Join(dir, "letters")); err != nil {
		t.Fatal(err)
	}
	w = world.Start(t, o)
	w.Set(t, "a1", "inbox.path", "letters")
	if _, err := w.Agents.StartAgent(t.Context(), &registryv1.StartAgentRequest{AgentId: "a1"}); err != nil {
		t.Fatal(err)
	}
	if turn := say(t, w, "a1", world.Peer("bob"), "after"); turn.GetInboxId() != 2 {
		t.Errorf("told %v", turn)
	}
	var got string
	row := open(t, filepath.Join(dir, "letters")).QueryRowContext(t.Context(), "SELECT (SELECT count(*) FROM events) || ' ' || handler_cmd FROM subscriptions")
	if err := row.Scan(&got); err != nil || got != "2 agent run a1" {
		t.Errorf("letters holds %q, %v", got, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "inbox")); !os.IsNotExist(err) {
		t.Errorf("the old place is back: %v", err)
	}
}

// S0-88: while the inbox cannot be reached a batch fails with exit status 1 and
// nothing is acknowledged; when it is back, what waited is answered.
func TestInboxUnreachable(t *testing.T) {
	o := quick(filepath.Join(t.TempDir(), "home"))
	w := world.Start(t, o)
	create(t, w, "a1", registryv1.AgentKind_AGENT_KIND_USER, quiet)
	say(t, w, "a1", world.Peer("bob"), "one")
	if _, err := w.Agents.StopAgent(t.Context(), &registryv1.StopAgentRequest{AgentId: "a1"}); err != nil {
		t.Fatal(err)
	}
	id, err := w.Push(t.Context(), "a1", world.Peer("bob"), "say: two", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Agents.StartAgent(t.Context(), &registryv1.StartAgentRequest{AgentId: "a1"}); err != nil {
		t.Fatal(err)
	}
	w.Await(t, "a1", id)
	w.Stop()
	inbox := filepath.Join(o.Home, "agents/a1/inbox")
	if err := os.Rename(inbox, inbox+"-away"); err != nil {
		t.Fatal(err)
	}
	w = world.Start(t, o)
	_, err = w.Runner.RunBatch(t.Context(), &runnerv1.RunBatchRequest{AgentId: "a1"})
	if err == nil || fault.ExitCode(err) != 1 || fault.From(err).Fix == "" {
		t.Errorf("a batch without an inbox: %v", err)
	}
	w.Stop()
	if err := os.RemoveAll(inbox); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(inbox+"-away", inbox); err != nil {
		t.Fatal(err)
	}
	w = world.Start(t, o)
	if turn := say(t, w, "a1", world.Peer("bob"), "three"); turn.GetInboxId() != id+1 {
		t.Errorf("told %v", turn)
	}
	if n := len(w.Events(t, "a1", "threads/peers/main-bob", "source = 'self'")); n != 3 {
		t.Errorf("%d replies", n)
	}
}

// S0-06, S0-36, S0-139, S0-140: agent.log tells of one message, with one line for
// each thing, and of a batch that another process kept from beginning.
func TestAgentLog(t *testing.T) {
	w := world.Start(t, quick(""))
	sink := world.NewSink(t)
	create(t, w, "a1", registryv1.AgentKind_AGENT_KIND_USER, sink.Config())
	w.Say(t, "a1", world.Peer("bob"), "run: echo hi")
	drain(t, w, "a1", "threads/peers/main-bob")
	lines := func() []string {
		b, err := os.ReadFile(filepath.Join(w.Home, "agents/a1/logs/agent.log"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	}
	has := func(pattern string) bool {
		return slices.ContainsFunc(lines(), regexp.MustCompile(pattern).MatchString)
	}
	await(t, "the end of the batch in agent.log", func() bool { return has("run: end") })
	await(t, "the end of the lease", func() bool {
		l, err := w.Leases.ListLeases(t.Context(), &registryv1.ListLeasesRequest{})
		return err == nil && !slices.ContainsFunc(l.GetLeases(), func(l *registryv1.Lease) bool { return l.GetResource() == "agent/a1" })
	})
	if _, err := w.Leases.AcquireLease(t.Context(), &registryv1.AcquireLeaseRequest{Kind: registryv1.LeaseKind_LEASE_KIND_RUN, AgentId: "a1", Holder: "somebody", RequestId: "1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Runner.RunBatch(t.Context(), &runnerv1.RunBatchRequest{AgentId: "a1"}); !fault.Is(err, fault.LeaseHeld) {
		t.Errorf("held by another: %v", err)
	}
	for _, pattern := range []string{
		`\[INFO\] agent started$`,
		`\[INFO\] run: start, lock acquired \(lease token \d+\)$`,
		`\[INFO\] run: 1 message\(s\) read up to 1$`,
		`\[INFO\] route: inbox event 1 from ` + world.Peer("bob") + ` -> threads/peers/main-bob$`,
		`\[INFO\] model: offline/offline \d+ ms, \d+ tokens in, \d+ out, 1 tool calls$`,
		`\[INFO\] tool: bash_exec \(tool:1:1\) \d+ ms$`,
		`\[INFO\] result: inbox event 1 replied after \d+ ms$`,
		`\[INFO\] outbound: channel=sink event=\d+ outcome=sent ms=\d+$`,
		`\[INFO\] run: end, 1 message\(s\) processed, lock released$`,
		`\[INFO\] run: skipped, lock held: agent 'a1' is being worked on by somebody$`,
	} {
		if !has(pattern) {
			t.Errorf("agent.log lacks %s in\n%s", pattern, strings.Join(lines(), "\n"))
		}
	}
	form := regexp.MustCompile(`^\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\] \[(DEBUG|INFO|WARN|ERROR)\] \S`)
	for _, l := range lines() {
		if !form.MatchString(l) {
			t.Errorf("line %q", l)
		}
	}
}

// S0-23: IDENTITY.md opens the prompt, and who edits it is heard with the next
// message; USAGE.md, which is for others, is not in it.
func TestIdentityIsReadEachTime(t *testing.T) {
	w := world.Start(t, quick(""))
	create(t, w, "a1", registryv1.AgentKind_AGENT_KIND_USER, quiet)
	dir := filepath.Join(w.Home, "agents/a1")
	for _, who := range []string{"You are Amy.", "You are Ben, and no longer Amy."} {
		for name, text := range map[string]string{"IDENTITY.md": who + "\n\nBe kind.\n", "USAGE.md": "Ask me for tea.\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		turn := say(t, w, "a1", world.Peer("bob"), "hi")
		p, err := w.Runner.BuildContext(t.Context(), &runnerv1.BuildContextRequest{AgentId: "a1", ThreadId: turn.GetThreadId()})
		if err != nil {
			t.Fatal(err)
		}
		if first := p.GetParts()[0]; first.GetName() != "IDENTITY.md" || first.GetText() != who+"\n\nBe kind." || strings.Contains(p.String(), "tea") {
			t.Errorf("the prompt is %v", p)
		}
	}
}

// S0-110: the newest context.recent_messages messages are in the prompt of the last
// one, in their order, and no records.
func TestRecentMessages(t *testing.T) {
	w := world.Start(t, quick(""))
	create(t, w, "a1", registryv1.AgentKind_AGENT_KIND_USER, quiet+"\ncontext: {recent_messages: 5}")
	var thread string
	for i := range 6 {
		if i == 4 {
			w.Say(t, "a1", world.Peer("bob"), "run: echo canary-record")
		}
		thread = say(t, w, "a1", world.Peer("bob"), fmt.Sprint("m", i)).GetThreadId()
	}
	p, err := w.Runner.BuildContext(t.Context(), &runnerv1.BuildContextRequest{AgentId: "a1", ThreadId: thread})
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, part := range p.GetParts() {
		if part.GetRole() != "system" {
			said = append(said, part.GetRole()+" "+part.GetText())
		}
	}
	want := []string{"user run: echo canary-record", "assistant offline: the command answered:\ncanary-record", "user say: m4", "assistant m4", "user say: m5"}
	if !slices.Equal(said, want) {
		t.Errorf("the prompt has %q, want %q", said, want)
	}
}
