package standalone_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

const canary = "xyzzyremoved"

// anywhere lists the files below dir that hold words. The audit log is left out: nobody
// can take from it what programs were run and what was sent where.
func anywhere(t *testing.T, dir, words string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || filepath.Base(filepath.Dir(path)) == "audit" {
			return err
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) && (strings.HasSuffix(path, "-shm") || strings.HasSuffix(path, "-wal")) { // a database that is being closed
			return nil
		}
		if bytes.Contains(b, []byte(words)) {
			rel, _ := filepath.Rel(dir, path)
			names = append(names, rel)
		}
		return err
	})
	backendtest.Must(t, 0, err)
	return names
}

// seen are the series of lag.
func seen(t *testing.T, r *prometheus.Registry) string {
	t.Helper()
	families, err := r.Gather()
	backendtest.Must(t, 0, err)
	var out strings.Builder
	for _, f := range families {
		if strings.Contains(f.GetName(), "_inbox_") {
			out.WriteString(f.String())
		}
	}
	return out.String()
}

func (w *world) remove(id string, force bool) (*registryv1.DeleteAgentResponse, error) {
	return w.Agents.DeleteAgent(w.Context(), &registryv1.DeleteAgentRequest{AgentId: id, Force: force})
}

// lived makes an agent with something everywhere: words of a peer in both directions, a
// question, counts, memory, files, a working directory among those of all runners.
func (w *world) lived(id, shared string) {
	w.Helper()
	w.Create(id)
	w.Config(id, "quota.messages_per_day", "100")
	w.Config(id, "workdir.shared", shared)
	for _, of := range []string{id, "another"} {
		backendtest.Must(w.T, 0, os.MkdirAll(filepath.Join(shared, of, "deep"), 0o700))
		backendtest.Must(w.T, 0, os.WriteFile(filepath.Join(shared, of, "deep", "file"), []byte(canary), 0o600))
	}
	w.Push(id, canary, "I say "+canary, "")
	ctx := w.Leased(id, "r9")
	q := backendtest.Question("k", canary, 0)
	q.AgentId = id
	w.Ask(ctx, q)
	w.Release(w.Held("agent/" + id))
	w.Reply(id, canary)
	w.Deliver(id, "threads/peers/main-"+canary)
	w.Push(id, canary, "I wait "+canary, "")
	for _, name := range []string{"memory/agent.md", "sessions/s.jsonl", "workdir/deep/file", "logs/agent.log", "IDENTITY.md"} {
		path := filepath.Join(w.Home, "agents", id, name)
		backendtest.Must(w.T, 0, os.MkdirAll(filepath.Dir(path), 0o700))
		backendtest.Must(w.T, 0, os.WriteFile(path, []byte(canary+"\n"), 0o600))
	}
	backendtest.Must(w.T, 0, os.Chmod(filepath.Join(w.Home, "agents", id, "workdir/deep"), 0o500))
}

// A removed agent is nowhere in the home but by its name; the name is free, what comes
// under it is another agent, and nobody else has lost anything.
func TestDeleteAgent(t *testing.T) {
	metrics := prometheus.NewRegistry()
	w := start(t, backendtest.Options{Home: filepath.Join(t.TempDir(), "h"), Change: func(d *registry.Deps) { d.Metrics = obs.NewRegistryMetrics(metrics) }}, registry.Config{})
	shared := t.TempDir()
	w.lived("goner", shared)
	w.Create("a2")
	w.Push("a2", "carol", "hello", "")

	if got := seen(t, metrics); !strings.Contains(got, `"goner"`) { // nobody works on it, which is what the alert is for
		t.Errorf("no series of a message that waits: %s", got)
	}
	if _, err := w.remove("goner", false); !fault.Is(err, fault.LeaseHeld) {
		t.Fatalf("while it is started: %v", err)
	}
	w.StopAgent("goner")
	backendtest.Must(t, backendtest.Must2(w.Agents.StartAgent(t.Context(), &registryv1.StartAgentRequest{AgentId: "goner"})), nil)
	work := w.Due(backendtest.KindRun, "r1", time.Minute)
	i := slices.IndexFunc(work, func(d *registryv1.DueWork) bool { return d.GetLease().GetResource() == "agent/goner" })
	for i < 0 { // the other one's came first
		work = w.Due(backendtest.KindRun, "r1", time.Minute)
		i = slices.IndexFunc(work, func(d *registryv1.DueWork) bool { return d.GetLease().GetResource() == "agent/goner" })
	}
	old := work[i].GetLease()
	under := backendtest.Under(t.Context(), old)
	batch, err := w.Turns.OpenBatch(under, &registryv1.OpenBatchRequest{AgentId: "goner"})
	e := backendtest.Must(t, batch, err).GetEvents()[0]
	begun, err := w.Turns.BeginTurn(under, &registryv1.BeginTurnRequest{AgentId: "goner", InboxId: e.GetEvent().GetId(), Key: e.GetKey(), ThreadId: e.GetThreadId()})
	backendtest.Must(t, begun, err)
	w.StopAgent("goner")
	if _, err := w.remove("goner", false); !fault.Is(err, fault.LeaseHeld) {
		t.Fatalf("while somebody works on it: %v", err)
	}
	if before := anywhere(t, w.Home, canary); len(before) < 8 {
		t.Fatalf("the words are only in %q", before)
	}
	waits := make(chan error, 1)
	go func() {
		_, err := w.remove("goner", true)
		waits <- err
	}()
	select {
	case err := <-waits:
		t.Fatalf("did not wait for the one who works: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	w.Release(old)
	backendtest.Must(t, 0, <-waits)

	if left := anywhere(t, w.Home, canary); len(left) != 0 {
		t.Errorf("still in %q", left)
	}
	if left := anywhere(t, shared, canary); !slices.Equal(left, []string{"another/deep/file"}) {
		t.Errorf("among the working directories of all runners: %q", left)
	}
	for _, name := range anywhere(t, w.Home, "goner") {
		if !strings.HasPrefix(name, "registry.db") { // the tokens of its leases
			t.Errorf("its name is in %s", name)
		}
	}
	if got := seen(t, metrics); strings.Contains(got, `"goner"`) || !strings.Contains(got, `"a2"`) {
		t.Errorf("series of it, or none of the other: %s", got)
	}
	if _, err := w.remove("goner", false); !fault.Is(err, fault.AgentNotFound) {
		t.Errorf("removed again: %v", err)
	}
	if _, err := w.Threads.PushEvents(t.Context(), backendtest.PushRequest("goner", "bob", "anybody?", "")); !fault.Is(err, fault.AgentNotFound) {
		t.Errorf("who speaks to it: %v", err)
	}
	if _, err := w.Turns.OpenBatch(backendtest.Under(t.Context(), old), &registryv1.OpenBatchRequest{AgentId: "goner"}); !fault.Is(err, fault.AgentNotFound) {
		t.Errorf("who worked for it: %v", err)
	}

	// The name again: another agent, with tokens above those of the old one.
	w.Create("goner")
	w.Push("goner", "bob", "hello", "")
	if _, err := w.Turns.OpenBatch(backendtest.Under(t.Context(), old), &registryv1.OpenBatchRequest{AgentId: "goner"}); !fault.Is(err, fault.LeaseLost) {
		t.Errorf("who worked for the old one works for the new one: %v", err)
	}
	fresh := w.Due(backendtest.KindRun, "r2", time.Minute)
	for _, d := range fresh {
		if l := d.GetLease(); l.GetResource() == old.GetResource() && l.GetToken() <= old.GetToken() {
			t.Errorf("token %d, the old one had %d", l.GetToken(), old.GetToken())
		}
	}
	if status, err := w.Agents.GetAgentStatus(t.Context(), &registryv1.GetAgentStatusRequest{AgentId: "goner"}); backendtest.Must(t, status, err).GetInbox().GetHeadId() != 1 {
		t.Errorf("the new one begins at %v", status.GetInbox())
	}
	w.sound()
	if out, err := w.audit(); err != nil || strings.Count(out, `"DeleteAgent"`) < 3 {
		t.Errorf("the audit log has %d removals: %v", strings.Count(out, `"DeleteAgent"`), err)
	}
}

func (w *world) audit() (string, error) {
	var out strings.Builder
	names, err := filepath.Glob(filepath.Join(w.Home, "audit", "*"))
	for _, n := range names {
		b, _ := os.ReadFile(n)
		out.Write(b)
	}
	return out.String(), err
}

// private gives a copy the modes that a home has.
func private(t *testing.T, dir string) {
	t.Helper()
	backendtest.Must(t, 0, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chmod(path, map[bool]fs.FileMode{true: 0o700, false: 0o600}[e.IsDir()])
	}))
}

// Killed anywhere, a removal is finished by the next start, or was not begun.
func TestDeleteAgentKilled(t *testing.T) {
	homes := map[string]string{}
	w := start(t, backendtest.Options{Home: filepath.Join(t.TempDir(), "h")}, registry.Config{})
	shared := t.TempDir()
	w.lived("goner", shared)
	w.Create("a2")
	w.Push("a2", "carol", "hello", "")
	w.StopAgent("goner")
	copied := func(label string) {
		home := filepath.Join(t.TempDir(), "h")
		if err := os.CopyFS(home, os.DirFS(w.Home)); err != nil {
			t.Error(label, err)
		}
		homes[label] = home
	}
	copied("before")
	fault.SetPoint(func(label string) {
		if strings.HasPrefix(label, "remove:") {
			copied(label)
		}
	})
	t.Cleanup(func() { fault.SetPoint(nil) })
	backendtest.Must(t, backendtest.Must2(w.remove("goner", false)), nil)
	fault.SetPoint(nil)
	w.Stop()
	if len(homes) != 4 {
		t.Fatalf("killed at %v", homes)
	}
	for label, home := range homes {
		private(t, home)
		if label != "remove:cleared" {
			backendtest.Must(t, 0, os.MkdirAll(filepath.Join(shared, "goner"), 0o700))
		}
		next := start(t, backendtest.Options{Home: home}, registry.Config{})
		_, err := next.Agents.GetAgent(t.Context(), &registryv1.GetAgentRequest{AgentId: "goner"})
		found := anywhere(t, home, canary)
		if label == "before" {
			if err != nil || len(found) < 8 {
				t.Errorf("%s: %v, in %q", label, err, found)
			}
		} else if !fault.Is(err, fault.AgentNotFound) || len(found) != 0 {
			t.Errorf("%s: %v, still in %q", label, err, found)
		}
		if _, err := next.Agents.GetAgent(t.Context(), &registryv1.GetAgentRequest{AgentId: "a2"}); err != nil {
			t.Errorf("%s: the other one: %v", label, err)
		}
		if left, err := os.ReadDir(shared); err != nil || len(left) != map[bool]int{true: 2, false: 1}[label == "before"] {
			t.Errorf("%s: among the working directories of all runners: %v, %v", label, left, err)
		}
		next.sound()
		next.Stop()
	}
}
