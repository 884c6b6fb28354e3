package standalone_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/invariant/repair"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// flip changes one bit of the first place in a database file where text stands.
func flip(t *testing.T, path, text string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, []byte(text))
	if at < 0 {
		t.Fatalf("%q is not in %s", text, path)
	}
	b[at] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// problem answers what status and list say about an agent.
func (w *world) problem(id string) string {
	w.Helper()
	st, err := w.Agents.GetAgentStatus(w.Context(), &registryv1.GetAgentStatusRequest{AgentId: id})
	status := backendtest.Must(w.T, st, err).GetAgent()
	l, err := w.Agents.ListAgents(w.Context(), &registryv1.ListAgentsRequest{})
	for _, a := range backendtest.Must(w.T, l, err).GetAgents() {
		if a.GetAgentId() == id && (a.GetHealth() != status.GetHealth() || a.GetProblem() != status.GetProblem()) {
			w.Errorf("status says %v %q, list %v %q", status.GetHealth(), status.GetProblem(), a.GetHealth(), a.GetProblem())
		}
	}
	if (status.GetHealth() == registryv1.AgentHealth_AGENT_HEALTH_FAILED) != (status.GetProblem() != "") {
		w.Errorf("health %v with problem %q", status.GetHealth(), status.GetProblem())
	}
	return status.GetProblem()
}

// A bit flips in a database: its agent is FAILED, says why and what to do, and
// gets no work, also after a restart; all others go on, and nothing is renamed or
// removed. A sound file in its place ends it.
func TestDamagedDatabaseFailsItsAgentOnly(t *testing.T) {
	for _, damaged := range []string{"inbox", "threads/peers/main-bob"} {
		t.Run(damaged, func(t *testing.T) {
			home := filepath.Join(t.TempDir(), "h")
			w := start(t, backendtest.Options{Home: home}, registry.Config{})
			w.Create("a1")
			w.Create("a2")
			w.Push("a1", "bob", "first words", "")
			w.Work("runner")
			w.Release(w.Held("agent/a1"))
			w.Stop()

			dir := filepath.Join(home, "agents", "a1", filepath.FromSlash(damaged))
			path := filepath.Join(dir, "events.db")
			good, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			flip(t, path, "first words")

			for round := range 2 { // the second in a registry that has just started
				w = start(t, backendtest.Options{Home: home}, registry.Config{Sweep: 20 * time.Millisecond})
				if damaged != "inbox" && round == 0 {
					w.Push("a1", "bob", "second words", "") // its inbox is sound
				}
				w.touch("a1", damaged)
				if p := w.problem("a1"); !strings.Contains(p, "damaged database") || !strings.Contains(p, "agentctl fsck --repair --agent a1") {
					t.Errorf("problem %q", p)
				}
				w.Push("a2", "bob", "words", "")
				due := w.Due(registryv1.LeaseKind_LEASE_KIND_RUN, "runner2", time.Minute)
				if len(due) != 1 || due[0].GetAgentId() != "a2" {
					t.Errorf("due: %v", due)
				}
				if round == 0 {
					w.Stop()
				}
			}
			if names, _ := filepath.Glob(filepath.Join(dir, "events.db*corrupt*")); len(names) > 0 {
				t.Errorf("renamed by the registry: %v", names)
			}

			// A sound file under the name, as fsck puts it there while nobody serves.
			w.Stop()
			for _, side := range []string{"-wal", "-shm"} {
				_ = os.Remove(path + side)
			}
			if err := os.WriteFile(path, good, 0o600); err != nil {
				t.Fatal(err)
			}
			w = start(t, backendtest.Options{Home: home}, registry.Config{})
			w.Push("a1", "bob", "third words", "")
			w.touch("a1", damaged)
			if p := w.problem("a1"); p != "" {
				t.Errorf("problem after the repair: %q", p)
			}
			due := w.Due(registryv1.LeaseKind_LEASE_KIND_RUN, "runner3", time.Minute)
			if !slices.ContainsFunc(due, func(d *registryv1.DueWork) bool { return d.GetAgentId() == "a1" }) {
				t.Errorf("due after the repair: %v", due)
			}
		})
	}
}

// S4-29: a conversation whose database is damaged is in the list of sessions without what was set for it, and so no
// other one is left out.
func TestDamagedConversationIsListed(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	w := start(t, backendtest.Options{Home: home}, registry.Config{})
	w.Create("a1")
	for _, peer := range []string{"bob", "carol"} {
		w.Push("a1", peer, "words", "")
		w.Work("runner")
	}
	w.Release(w.Held("agent/a1"))
	list := func() []*registryv1.Session {
		t.Helper()
		r, err := w.Sessions.ListSessions(w.Context(), &registryv1.ListSessionsRequest{AgentId: "a1", Overrides: true})
		return backendtest.Must(t, r, err).GetSessions()
	}
	for _, s := range list() {
		p, err := w.Sessions.PatchSession(w.Context(), &registryv1.PatchSessionRequest{Key: s.GetKey(), Thinking: new("off")})
		backendtest.Must(t, p, err)
	}
	w.Stop()
	const bob, carol = "threads/peers/main-bob", "threads/peers/main-carol"
	if err := os.WriteFile(filepath.Join(home, "agents", "a1", bob, "events.db"), []byte("no database"), 0o600); err != nil {
		t.Fatal(err)
	}
	w = start(t, backendtest.Options{Home: home}, registry.Config{})
	got := map[string]string{}
	for _, s := range list() {
		got[s.GetThreadId()] = s.GetOverrides().GetThinking()
	}
	if !maps.Equal(got, map[string]string{bob: "", carol: "off"}) {
		t.Errorf("listed with thinking: %q", got)
	}
}

// S2-17: a message of a channel to an agent whose inbox is damaged may be sent again later, as to any agent that cannot
// take one; the call succeeds, and the others get theirs.
func TestMessageToDamagedAgent(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	w := start(t, backendtest.Options{Home: home}, registry.Config{})
	w.Create("a1")
	w.Create("a2")
	w.Stop()
	if err := os.WriteFile(filepath.Join(home, "agents", "a1", "inbox", "events.db"), []byte("no database"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := "channels:\n  wh: {type: webhook, dm: open}\nbindings:\n  - {agent_id: a2, match: {channel: webhook, peer: {kind: dm, id: bob}}}\n"
	if err := os.WriteFile(filepath.Join(home, "theclaw.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w = start(t, backendtest.Options{Home: home}, registry.Config{})
	var messages []*registryv1.InboundMessage
	for _, peer := range []string{"ann", "bob"} {
		messages = append(messages, &registryv1.InboundMessage{Key: peer, Kind: "dm", SessionId: peer, PeerId: peer, Text: "words"})
	}
	r, err := w.Channels.AcceptMessages(w.Context(), &registryv1.AcceptMessagesRequest{Account: "wh", Messages: messages})
	got := backendtest.Must(t, r, err).GetResults()
	if got[0].GetOutcome() != registryv1.AcceptOutcome_ACCEPT_OUTCOME_LATER || got[0].GetReason() != fault.DatabaseCorrupt || got[0].GetRetryAfter().AsDuration() <= 0 {
		t.Errorf("to the damaged one: %v", got[0])
	}
	if got[1].GetOutcome() != registryv1.AcceptOutcome_ACCEPT_OUTCOME_ACCEPTED || got[1].GetAgentId() != "a2" {
		t.Errorf("to the other: %v", got[1])
	}
}

// touch reads a thread; only damage may be in the way.
func (w *world) touch(agent, thread string) {
	w.Helper()
	_, err := w.Threads.PeekEvents(w.Context(), &registryv1.PeekEventsRequest{Thread: &registryv1.ThreadRef{AgentId: agent, ThreadId: thread}})
	if err != nil && fault.From(err).Reason != fault.DatabaseCorrupt {
		w.Errorf("read %s of %s: %v", thread, agent, err)
	}
}

// F21: an inbox that lost the commits of its -wal file comes back as an older one, without
// its messages and its desired state. Its agent is FAILED and says so, gets no message and
// no work, and the others continue; a repair brings back what events.jsonl has.
func TestLostCommitsFailTheirAgent(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	w := start(t, backendtest.Options{Home: home}, registry.Config{})
	w.Create("a1")
	w.Create("a2")
	w.Stop()
	path := filepath.Join(home, "agents", "a1", "inbox", "events.db")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	w = start(t, backendtest.Options{Home: home}, registry.Config{})
	w.Push("a1", "bob", "first words", "")
	w.Work("runner")
	w.Release(w.Held("agent/a1"))
	w.Stop()
	if err := os.WriteFile(path, before, 0o600); err != nil { // what a kill -9 leaves without the -wal file
		t.Fatal(err)
	}
	for round := range 2 {
		w = start(t, backendtest.Options{Home: home}, registry.Config{Sweep: 20 * time.Millisecond})
		w.touch("a1", "inbox")
		if p := w.problem("a1"); !strings.Contains(p, "has lost its last commits") || !strings.Contains(p, "events.jsonl has event 1, the database ends at 0") ||
			!strings.Contains(p, "agentctl fsck --repair --agent a1") {
			t.Errorf("problem %q", p)
		}
		if _, err := w.Threads.PushEvents(w.Context(), &registryv1.PushEventsRequest{
			Thread: &registryv1.ThreadRef{AgentId: "a1", ThreadId: "inbox"},
			Events: []*registryv1.NewEvent{{Source: "external:console:cli:dm:cli:cli", Type: "message", Content: "x"}},
		}); fault.From(err).Reason != fault.DatabaseCorrupt {
			t.Errorf("a push: %v", err)
		}
		w.Push("a2", "bob", "words", "")
		if due := w.Due(registryv1.LeaseKind_LEASE_KIND_RUN, "runner2", time.Minute); len(due) != 1 || due[0].GetAgentId() != "a2" {
			t.Errorf("round %d, due: %v", round, due)
		}
		w.Stop()
	}
	if _, err := repair.Home(t.Context(), layout.At(home), repair.Options{}); err != nil {
		t.Fatal(err)
	}
	w = start(t, backendtest.Options{Home: home}, registry.Config{})
	w.touch("a1", "inbox")
	if p := w.problem("a1"); p != "" {
		t.Errorf("problem after the repair: %q", p)
	}
	w.Push("a1", "bob", "second words", "")
}

// A1: stop ends a lease under which no turn is under way before it returns, and run.lock
// with it; under a turn the lease stays, and its holder is asked for it.
func TestStopGivesTheLeaseBack(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	w := start(t, backendtest.Options{Home: home}, registry.Config{})
	lock := filepath.Join(home, "agents", "a1", "run.lock")
	locked := func() bool {
		_, err := os.Lstat(lock)
		return err == nil
	}
	w.Create("a1")
	w.Push("a1", "bob", "first words", "")
	w.Work("runner")
	if w.Held("agent/a1"); !locked() {
		t.Fatal("no run.lock")
	}
	w.StopAgent("a1")
	all, err := w.Leases.ListLeases(t.Context(), &registryv1.ListLeasesRequest{})
	for _, l := range backendtest.Must(t, all, err).GetLeases() {
		if l.GetResource() == "agent/a1" {
			t.Errorf("an idle lease outlives the stop: %v", l)
		}
	}
	if locked() {
		t.Error("run.lock outlives the stop")
	}
	backendtest.Must(t, backendtest.Must2(w.Agents.StartAgent(t.Context(), &registryv1.StartAgentRequest{AgentId: "a1"})), nil)
	w.Push("a1", "bob", "second words", "")
	lease := w.Due(registryv1.LeaseKind_LEASE_KIND_RUN, "runner", time.Minute)[0].GetLease()
	under := backendtest.Under(t.Context(), lease)
	batch, err := w.Turns.OpenBatch(under, &registryv1.OpenBatchRequest{AgentId: "a1"})
	e := backendtest.Must(t, batch, err).GetEvents()[0]
	begun, err := w.Turns.BeginTurn(under, &registryv1.BeginTurnRequest{AgentId: "a1", InboxId: e.GetEvent().GetId(), Key: e.GetKey(), ThreadId: e.GetThreadId()})
	backendtest.Must(t, begun, err)
	w.StopAgent("a1")
	if w.Held("agent/a1").GetToken() != lease.GetToken() || !locked() {
		t.Error("the lease of a turn under way was ended")
	}
	renewed, err := w.Leases.RenewLease(t.Context(), &registryv1.RenewLeaseRequest{Resource: lease.GetResource(), Holder: "runner", Token: lease.GetToken()})
	if !backendtest.Must(t, renewed, err).GetYieldRequested() {
		t.Error("its holder is not asked for it")
	}
}

// R9: a registry removes the files of writes that a killed one did not finish, and the
// lock files of holders that ended without removing them; nothing younger than itself.
func TestLeftoversAreRemoved(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	w := start(t, backendtest.Options{Home: home}, registry.Config{})
	w.Create("a1")
	w.Stop()
	memory := filepath.Join(home, "agents", "a1", "memory")
	half, kept := filepath.Join(memory, ".agent.md123"), filepath.Join(memory, "agent.md")
	dead := filepath.Join(home, "run", "holders", "runner-01ARZ3NDEKTSV4RRFFQ69G5FAV.lock")
	for _, path := range []string{half, kept, dead} {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := time.Now().Add(-time.Second)
	if err := os.Chtimes(half, before, before); err != nil {
		t.Fatal(err)
	}
	start(t, backendtest.Options{Home: home}, registry.Config{Sweep: 20 * time.Millisecond})
	for end := time.Now().Add(30 * time.Second); ; <-time.After(5 * time.Millisecond) {
		_, noHalf := os.Lstat(half)
		_, noDead := os.Lstat(dead)
		if noHalf != nil && noDead != nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("left: %s %v, %s %v", half, noHalf == nil, dead, noDead == nil)
		}
	}
	if _, err := os.Lstat(kept); err != nil {
		t.Error(err)
	}
}
