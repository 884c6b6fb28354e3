// Package compat_test shows the rows of the earlier tools that no package
// shows alone, because they concern a complete home: the three real services, an agent's
// directory as somebody with a file viewer sees it, and a peer on loopback. The
// table of all rows and their tests is docs/compat.md.
package compat_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/standin"
	delivererv1 "github.com/theclaw/agents/proto/gen/theclaw/deliverer/v1"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	code := m.Run()
	standin.Clean()
	os.Exit(code)
}

const (
	replied = registryv1.Fate_FATE_REPLIED
	quiet   = "outbound: []"
)

// quick is a world whose leases are given back as soon as the work ran out.
func quick(home string) world.Options {
	o := world.Options{Home: home}
	o.Runner.Keep, o.Deliver.Keep = 50*time.Millisecond, 50*time.Millisecond
	return o
}

// create makes and starts an agent of a kind, with more lines in its config.yaml.
func create(t *testing.T, w *world.World, id string, kind registryv1.AgentKind, extra string) {
	t.Helper()
	ctx := t.Context()
	if _, err := w.Agents.CreateAgent(ctx, &registryv1.CreateAgentRequest{AgentId: id, Kind: kind}); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(w.Home, "agents", id, "config.yaml"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("\n" + extra + "\n"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Agents.StartAgent(ctx, &registryv1.StartAgentRequest{AgentId: id}); err != nil {
		t.Fatal(err)
	}
}

// say makes the offline model answer with text, and waits for it.
func say(t *testing.T, w *world.World, agent, source, text string) *registryv1.Turn {
	t.Helper()
	turn := w.Say(t, agent, source, "say: "+text)
	if got := w.Reply(t, turn); got != text {
		t.Fatalf("%s replied %q: %v", agent, got, turn)
	}
	return turn
}

// open opens a thread's database as another program does.
func open(t *testing.T, dir string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "events.db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// ref names a thread.
func ref(agent, thread string) *registryv1.ThreadRef {
	return &registryv1.ThreadRef{AgentId: agent, ThreadId: thread}
}

// drain returns when everything in a thread is delivered or has to wait.
func drain(t *testing.T, w *world.World, agent, thread string) {
	t.Helper()
	if _, err := w.Deliverer.DeliverBatch(t.Context(), &delivererv1.DeliverBatchRequest{AgentId: agent, ThreadId: thread}); err != nil {
		t.Error(err)
	}
}

// await waits for something that only files or the process itself tell of.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); {
		if time.Now().After(end) {
			t.Fatalf("%s: not after a minute", what)
		}
		select {
		case <-t.Context().Done():
			t.FailNow()
		case <-time.After(5 * time.Millisecond):
		}
	}
}
