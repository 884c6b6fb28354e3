package registry_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/invariant/repair"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// reply is toil that says words: in the reply, in a tool's argument and result.
func (w *world) reply(agent, words string) {
	w.Helper()
	due := w.due(kindRun, "r1", time.Minute)
	ctx := under(w.Context(), due[0].GetLease())
	b, err := w.turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: agent})
	for _, p := range must(w.T, b, err).GetEvents() {
		begun, err := w.turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{AgentId: agent, InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId()})
		must(w.T, begun, err)
		fin, err := w.turns.FinishTurn(ctx, &registryv1.FinishTurnRequest{
			AgentId: agent, InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId(), Fate: registryv1.Fate_FATE_REPLIED, Text: "reply " + words,
			Steps: []*registryv1.Step{
				{Seq: 1, Kind: registryv1.StepKind_STEP_KIND_MODEL, Key: "model:1", State: registryv1.StepState_STEP_STATE_DONE, Result: []byte(`{"text":"` + words + `"}`)},
				{Seq: 2, Kind: registryv1.StepKind_STEP_KIND_TOOL, Key: "tool:1:1", State: registryv1.StepState_STEP_STATE_DONE, Name: "bash_exec", Arguments: `{"command":"echo ` + words + `"}`, Result: []byte(words)},
			},
		})
		must(w.T, fin, err)
	}
	w.release(due[0].GetLease())
}

// holding lists the files below the agent's directory that hold words.
func (w *world) holding(agent, words string) []string {
	w.Helper()
	return w.below(filepath.Join(w.home, "agents", agent), words)
}

// inHome lists those of the whole home but for the audit log, which keeps what was run.
func (w *world) inHome(words string) []string {
	w.Helper()
	return slices.DeleteFunc(w.below(w.home, words), func(name string) bool { return strings.Contains(name, "audit") })
}

func (w *world) below(root, words string) (names []string) {
	w.Helper()
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(words)) {
			rel, _ := filepath.Rel(root, path)
			names = append(names, rel)
		}
		return err
	})
	must(w.T, 0, err)
	return names
}

func (w *world) stopAgent(agent string) {
	w.Helper()
	r, err := w.agents.StopAgent(w.Context(), &registryv1.StopAgentRequest{AgentId: agent})
	must(w.T, r, err)
}

func (w *world) erase(agent, peer string, apply bool) (*registryv1.ErasePeerResponse, error) {
	return w.agents.ErasePeer(w.Context(), &registryv1.ErasePeerRequest{AgentId: agent, Peer: peer, Apply: apply})
}

// What a peer said and was told can be handed out, and forgotten down to the bytes;
// the chains still hold, what was erased is guarded as before, and nobody else loses
// anything.
func TestErasePeer(t *testing.T) {
	const bobs, carols = "xyzzy-of-bob", "plugh-of-carol"
	w := newWorld(t, t.TempDir(), registry.Config{})
	w.create("a1")
	for range 3 {
		w.push("a1", "bob", "I say "+bobs, "")
		w.reply("a1", bobs)
		w.deliver("a1", "threads/peers/main-bob")
	}
	w.push("a1", "carol", "I say "+carols, "")
	w.reply("a1", carols)
	w.deliver("a1", "threads/peers/main-carol")
	dir := filepath.Join(w.home, "agents/a1")
	for name, words := range map[string]string{
		"memory/user-main-bob.md": bobs, "memory/thread-threads%2Fpeers%2Fmain-bob.md": bobs, "sessions/threads%2Fpeers%2Fmain-bob.jsonl": bobs,
		"memory/user-main-carol.md": carols,
	} {
		must(t, 0, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		must(t, 0, os.WriteFile(filepath.Join(dir, name), []byte(words+"\n"), 0o600))
	}
	// A part that was rotated away, and the first line of it.
	lines := filepath.Join(dir, "threads/peers/main-bob/events.jsonl")
	text, err := os.ReadFile(lines)
	first, _, _ := bytes.Cut(must(t, text, err), []byte("\n"))
	must(t, 0, os.WriteFile(filepath.Join(filepath.Dir(lines), "events-20200101-000000.jsonl"), append(first, '\n'), 0o600))

	var exported []string
	var all bytes.Buffer
	in, err := w.agents.ExportPeer(t.Context(), &registryv1.ExportPeerRequest{AgentId: "a1", Peer: "bob"})
	must(t, in, err)
	for {
		m, err := in.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		all.Write(must(t, m, err).GetChunk())
	}
	if strings.Contains(all.String(), carols) || strings.Count(all.String(), bobs) < 3*5+3 {
		t.Errorf("exported %d of bob's words, or some of carol's", strings.Count(all.String(), bobs))
	}
	for r := tar.NewReader(&all); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		exported = append(exported, must(t, h, err).Name)
	}
	if got := strings.Join(exported, " "); got != "peer.json threads/peers/main-bob/events-1.jsonl inbox/events-1.jsonl turns-1.jsonl deliveries-1.jsonl "+
		"memory/user-main-bob.md memory/thread-threads%2Fpeers%2Fmain-bob.md sessions/threads%2Fpeers%2Fmain-bob.jsonl" {
		t.Errorf("exported %s", got)
	}

	if _, err := w.erase("a1", "bob", true); !fault.Is(err, fault.LeaseHeld) {
		t.Errorf("erased at work: %v", err)
	}
	w.stopAgent("a1")
	before := w.holding("a1", bobs)
	dry, err := w.erase("a1", "bob", false)
	if must(t, dry, err); len(before) < 6 || len(w.holding("a1", bobs)) != len(before) || len(dry.GetThreads()) != 2 || len(dry.GetFiles()) != 3 {
		t.Fatalf("counted %v; %q held the words, %q do", dry, before, w.holding("a1", bobs))
	}
	for range 2 { // a repetition changes nothing
		r, err := w.erase("a1", "bob", true)
		must(t, r, err)
		if left := w.holding("a1", bobs); len(left) > 0 {
			t.Fatalf("still in %q", left)
		}
	}
	if len(w.holding("a1", carols)) < 5 {
		t.Errorf("carol has only %q", w.holding("a1", carols))
	}
	w.sound()
	turn, err := w.turns.GetTurn(t.Context(), &registryv1.GetTurnRequest{AgentId: "a1", InboxId: 1})
	if got := must(t, turn, err).GetTurn(); got.GetFate() != registryv1.Fate_FATE_REPLIED || len(got.GetSteps()) != 2 {
		t.Errorf("the turn is %v", got)
	}

	// Another start finds nothing wrong, and the agent goes on with both.
	w.stop()
	w = newWorld(t, w.home, registry.Config{})
	started, err := w.agents.StartAgent(t.Context(), &registryv1.StartAgentRequest{AgentId: "a1"})
	must(t, started, err)
	w.push("a1", "bob", "hello again", "")
	w.reply("a1", "hi")
	w.deliver("a1", "threads/peers/main-bob")
	w.sound()
	w.stop()

	// An erased event is guarded like any other.
	for _, change := range []string{
		"UPDATE events SET content = 'I never said that' WHERE id = 1", "UPDATE events SET source = 'external:x' WHERE id = 1",
		"UPDATE x_chain SET sha256 = zeroblob(32) WHERE event_id = 1", "UPDATE x_erased SET key = 'other' WHERE event_id = 1", "DELETE FROM x_erased WHERE event_id = 1",
	} {
		for _, thread := range []string{"inbox", "threads/peers/main-bob"} {
			home := filepath.Join(t.TempDir(), "home")
			must(t, 0, os.CopyFS(home, os.DirFS(w.home)))
			foreign(t, filepath.Join(home, "agents/a1", thread), change)
			found, _, err := invariant.Check(t.Context(), layout.At(home), invariant.Options{})
			if must(t, 0, err); len(found) == 0 {
				t.Errorf("%s in %s: nobody noticed", change, thread)
			}
		}
	}
}

// What is not done is not erased, and a name that means two people means nobody.
func TestEraseRefused(t *testing.T) {
	w := newWorld(t, t.TempDir(), registry.Config{})
	w.create("a1")
	w.push("a1", "bob", "waiting", "")
	w.stopAgent("a1")
	if _, err := w.erase("a1", "bob", true); !fault.Is(err, fault.TurnBegun) {
		t.Errorf("a waiting message: %v", err)
	}
	if _, err := w.erase("a1", "nobody", false); !fault.Is(err, fault.ThreadNotFound) {
		t.Errorf("nobody: %v", err)
	}
	if _, err := w.erase("a1", "external:", false); err == nil {
		t.Error("an address of nobody")
	}
	r, err := w.erase("a1", "external:telegram:main:dm:12:bob", false)
	if err == nil && r.GetPeerId() != "bob" {
		t.Errorf("by address: %v", r)
	}
}

// A damaged database that is made anew keeps what was erased erased, and its keys.
func TestRepairErased(t *testing.T) {
	w := newWorld(t, t.TempDir(), registry.Config{})
	w.create("a1")
	for range 2 {
		w.push("a1", "bob", "I say xyzzy", "")
		w.reply("a1", "xyzzy")
		w.deliver("a1", "threads/peers/main-bob")
	}
	w.stopAgent("a1")
	must(t, must2(w.erase("a1", "bob", true)), nil)
	w.stop()
	foreign(t, filepath.Join(w.home, "agents/a1/inbox"), "UPDATE x_chain SET sha256 = zeroblob(32) WHERE event_id = 2")
	did, err := repair.Home(t.Context(), layout.At(w.home), repair.Options{})
	t.Log(did)
	must(t, 0, err)
	found, _, err := invariant.Check(t.Context(), layout.At(w.home), invariant.Options{})
	if must(t, 0, err); len(found) > 0 {
		t.Errorf("after the repair: %v", found)
	}
}
