package standalone

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/services/registry/internal/state"
)

// F15: after an I/O error of any database it is unknown which lazy commits are still there.
func TestIOErrorEndsTheGeneration(t *testing.T) {
	h, err := agentdir.OpenHome(filepath.Join(t.TempDir(), "h"))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	r := &Registry{Agents: state.New(h), Generation: store.NewGeneration(), log: slog.New(slog.DiscardHandler)}
	first := r.Generation.Name()
	r.broken(store.Ref{Agent: "gone"}, store.ErrFormat)
	if r.Generation.Name() != first {
		t.Error("a database that cannot be opened ended the generation")
	}
	r.broken(store.Ref{Agent: "gone"}, fmt.Errorf("commit: %w", store.ErrIO))
	if r.Generation.Name() == first || r.Generation.Name() == store.NewGeneration().Name() {
		t.Error("the generation did not end")
	}
	var none *store.Generation
	if name, since := none.Current(); name != "" || !since.IsZero() {
		t.Errorf("the generation of a database that keeps all: %q %v", name, since)
	}
}
