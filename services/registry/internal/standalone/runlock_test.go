package standalone

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/theclaw/agents/internal/lease"
)

// S0-37: the file is there while the agent is leased, a foreign holder keeps it
// from being leased, and what a dead one left is taken over.
func TestRunLocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.lock")
	var a, b runLocks
	for range 2 {
		if err := a.take("x", path); err != nil {
			t.Fatal(err)
		}
	}
	var held *lease.HeldError
	if err := b.take("x", path); !errors.As(err, &held) || held.RetryAfter <= 0 {
		t.Fatalf("a held file was taken: %v", err)
	}
	if err := a.release("x"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the file stayed: %v", err)
	}
	if err := os.WriteFile(path, []byte("2147483646"), 0o600); err != nil { // no such process
		t.Fatal(err)
	}
	if err := b.take("x", path); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.close(), b.release("x")); err != nil {
		t.Fatal(err)
	}
}
