package standalone_test

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

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/invariant/repair"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// holding lists the files below the agent's directory that hold words.
func (w *world) holding(agent, words string) []string {
	w.Helper()
	return w.below(filepath.Join(w.Home, "agents", agent), words)
}

// inHome lists those of the whole home but for the audit log, which keeps what was run.
func (w *world) inHome(words string) []string {
	w.Helper()
	return slices.DeleteFunc(w.below(w.Home, words), func(name string) bool { return strings.Contains(name, "audit") })
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
	backendtest.Must(w.T, 0, err)
	return names
}

// What a peer said and was told can be handed out, and forgotten down to the bytes;
// the chains still hold, what was erased is guarded as before, and nobody else loses
// anything.
func TestErasePeer(t *testing.T) {
	const bobs, carols = "xyzzy-of-bob", "plugh-of-carol"
	w := start(t, backendtest.Options{Home: t.TempDir()}, registry.Config{})
	w.Create("a1")
	for range 3 {
		w.Push("a1", "bob", "I say "+bobs, "")
		w.Reply("a1", bobs)
		w.Deliver("a1", "threads/peers/main-bob")
	}
	w.Push("a1", "carol", "I say "+carols, "")
	w.Reply("a1", carols)
	w.Deliver("a1", "threads/peers/main-carol")
	dir := filepath.Join(w.Home, "agents/a1")
	for name, words := range map[string]string{
		"memory/user-main-bob.md": bobs, "memory/thread-threads%2Fpeers%2Fmain-bob.md": bobs, "sessions/threads%2Fpeers%2Fmain-bob.jsonl": bobs,
		"memory/user-main-carol.md": carols, "memory/past/thread-threads%2Fpeers%2Fmain-bob.7.md": bobs,
		"memory/past/thread-threads%2Fpeers%2Fmain-bob.7.9.md": carols, // of a peer that is called bob.7
	} {
		backendtest.Must(t, 0, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		backendtest.Must(t, 0, os.WriteFile(filepath.Join(dir, name), []byte(words+"\n"), 0o600))
	}
	// A part that was rotated away, and the first line of it.
	lines := filepath.Join(dir, "threads/peers/main-bob/events.jsonl")
	text, err := os.ReadFile(lines)
	first, _, _ := bytes.Cut(backendtest.Must(t, text, err), []byte("\n"))
	backendtest.Must(t, 0, os.WriteFile(filepath.Join(filepath.Dir(lines), "events-20200101-000000.jsonl"), append(first, '\n'), 0o600))

	var exported []string
	all := w.Export("a1", "bob")
	if strings.Contains(string(all), carols) || strings.Count(string(all), bobs) < 3*5+3 {
		t.Errorf("exported %d of bob's words, or some of carol's", strings.Count(string(all), bobs))
	}
	for r := tar.NewReader(bytes.NewReader(all)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		exported = append(exported, backendtest.Must(t, h, err).Name)
	}
	if got := strings.Join(exported, " "); got != "peer.json threads/peers/main-bob/events-1.jsonl inbox/events-1.jsonl turns-1.jsonl deliveries-1.jsonl "+
		"memory/user-main-bob.md memory/thread-threads%2Fpeers%2Fmain-bob.md sessions/threads%2Fpeers%2Fmain-bob.jsonl memory/past/thread-threads%2Fpeers%2Fmain-bob.7.md" {
		t.Errorf("exported %s", got)
	}

	if _, err := w.Erase("a1", "bob", true); !fault.Is(err, fault.LeaseHeld) {
		t.Errorf("erased at work: %v", err)
	}
	w.StopAgent("a1")
	before := w.holding("a1", bobs)
	dry, err := w.Erase("a1", "bob", false)
	if backendtest.Must(t, dry, err); len(before) < 6 || len(w.holding("a1", bobs)) != len(before) || len(dry.GetThreads()) != 2 || len(dry.GetFiles()) != 4 {
		t.Fatalf("counted %v; %q held the words, %q do", dry, before, w.holding("a1", bobs))
	}
	for range 2 { // a repetition changes nothing
		r, err := w.Erase("a1", "bob", true)
		backendtest.Must(t, r, err)
		if left := w.holding("a1", bobs); len(left) > 0 {
			t.Fatalf("still in %q", left)
		}
	}
	if len(w.holding("a1", carols)) < 6 {
		t.Errorf("carol has only %q", w.holding("a1", carols))
	}
	w.sound()
	turn, err := w.Turns.GetTurn(t.Context(), &registryv1.GetTurnRequest{AgentId: "a1", InboxId: 1})
	if got := backendtest.Must(t, turn, err).GetTurn(); got.GetFate() != registryv1.Fate_FATE_REPLIED || len(got.GetSteps()) != 2 {
		t.Errorf("the turn is %v", got)
	}

	// Another start finds nothing wrong, and the agent goes on with both.
	w.Stop()
	w = start(t, backendtest.Options{Home: w.Home}, registry.Config{})
	started, err := w.Agents.StartAgent(t.Context(), &registryv1.StartAgentRequest{AgentId: "a1"})
	backendtest.Must(t, started, err)
	w.Push("a1", "bob", "hello again", "")
	w.Reply("a1", "hi")
	w.Deliver("a1", "threads/peers/main-bob")
	w.sound()
	w.Stop()

	// An erased event is guarded like any other.
	for _, change := range []string{
		"UPDATE events SET content = 'I never said that' WHERE id = 1", "UPDATE events SET source = 'external:x' WHERE id = 1",
		"UPDATE x_chain SET sha256 = zeroblob(32) WHERE event_id = 1", "UPDATE x_erased SET key = 'other' WHERE event_id = 1", "DELETE FROM x_erased WHERE event_id = 1",
	} {
		for _, thread := range []string{"inbox", "threads/peers/main-bob"} {
			home := filepath.Join(t.TempDir(), "home")
			backendtest.Must(t, 0, os.CopyFS(home, os.DirFS(w.Home)))
			foreign(t, filepath.Join(home, "agents/a1", thread), change)
			found, _, err := invariant.Check(t.Context(), layout.At(home), invariant.Options{})
			if backendtest.Must(t, 0, err); len(found) == 0 {
				t.Errorf("%s in %s: nobody noticed", change, thread)
			}
		}
	}
}

// A message without a fate is exported as one that waits.
func TestExportWaiting(t *testing.T) {
	w := start(t, backendtest.Options{Home: t.TempDir()}, registry.Config{})
	w.Create("a1")
	w.Push("a1", "bob", "it waits", "")
	for r := tar.NewReader(bytes.NewReader(w.Export("a1", "bob"))); ; {
		h, err := r.Next()
		if backendtest.Must(t, h, err).Name != "turns-1.jsonl" {
			continue
		}
		b, err := io.ReadAll(r)
		if got := string(backendtest.Must(t, b, err)); !strings.Contains(got, `"state":"queued"`) {
			t.Errorf("the turn is %s", got)
		}
		return
	}
}

// A damaged database that is made anew keeps what was erased erased, and its keys.
func TestRepairErased(t *testing.T) {
	w := start(t, backendtest.Options{Home: t.TempDir()}, registry.Config{})
	w.Create("a1")
	for range 2 {
		w.Push("a1", "bob", "I say xyzzy", "")
		w.Reply("a1", "xyzzy")
		w.Deliver("a1", "threads/peers/main-bob")
	}
	w.StopAgent("a1")
	backendtest.Must(t, backendtest.Must2(w.Erase("a1", "bob", true)), nil)
	w.Stop()
	foreign(t, filepath.Join(w.Home, "agents/a1/inbox"), "UPDATE x_chain SET sha256 = zeroblob(32) WHERE event_id = 2")
	did, err := repair.Home(t.Context(), layout.At(w.Home), repair.Options{})
	t.Log(did)
	backendtest.Must(t, 0, err)
	found, _, err := invariant.Check(t.Context(), layout.At(w.Home), invariant.Options{})
	if backendtest.Must(t, 0, err); len(found) > 0 {
		t.Errorf("after the repair: %v", found)
	}
}

// The questions that were asked for a peer go with it, and their bytes from the files.
func TestEraseQuestions(t *testing.T) {
	const bobs, carols = "xyzzy-of-bob", "plugh-of-carol"
	w := start(t, backendtest.Options{Home: t.TempDir()}, registry.Config{})
	w.Create("a1")
	w.Asks("a1", "bob", bobs)
	w.Asks("a1", "carol", carols)
	if _, err := w.Approvals.SetExecPolicy(t.Context(), &registryv1.SetExecPolicyRequest{Json: `{"version":1,"agents":{"a1":{"allowlist":[{"pattern":"/x","lastUsedCommand":"` + bobs + `"}]}}}`}); err != nil {
		t.Fatal(err)
	}
	if all := string(w.Export("a1", "bob")); !strings.Contains(all, `"command":"echo `+bobs+`"`) || !strings.Contains(all, `"text":"which `+bobs) || strings.Contains(all, carols) {
		t.Error("what people were asked about bob, and his questions, are not exported, or something about carol is")
	}
	w.StopAgent("a1")
	if q := w.Questions("a1"); len(q) != 2 {
		t.Fatalf("questions %q", q)
	}
	for range 2 {
		backendtest.Must(t, backendtest.Must2(w.Erase("a1", "bob", true)), nil)
		if q := w.Questions("a1"); len(q) != 1 || !strings.Contains(q[0], carols) {
			t.Errorf("questions %q", q)
		}
	}
	left := w.inHome(bobs)
	if len(left) > 0 || len(w.inHome(carols)) == 0 {
		t.Errorf("still in %q", left)
	}
}
