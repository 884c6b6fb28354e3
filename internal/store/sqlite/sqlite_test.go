package sqlite

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// layout keeps the threads of agent a under root/a.
func layout(root string) func(store.Ref) (string, error) {
	return func(r store.Ref) (string, error) { return filepath.Join(root, r.Agent, r.Thread), nil }
}

func anyLease(string, uint64) error { return nil }

// home makes a root with the inboxes of agents.
func home(t testing.TB, agents ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, a := range agents {
		dir := filepath.Join(root, a, "inbox")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Create(dir); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// engine opens an engine over root, closed with the test.
func engine(t testing.TB, root string) *Engine {
	t.Helper()
	e := New(Options{Path: layout(root), Live: anyLease})
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func TestContract(t *testing.T) {
	storetest.Run(t, storetest.Suite{Bubble: true, New: func(t *testing.T, o storetest.Options) store.Engine {
		return New(Options{Path: layout(home(t, "a", "b")), Live: o.Live, OnCommit: o.OnCommit})
	}})
}
