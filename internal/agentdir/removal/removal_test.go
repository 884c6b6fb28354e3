package removal_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/removal"
	"github.com/theclaw/agents/internal/fault"
)

// Of the working directories that all runners have an agent's own goes, with what its
// programs have closed; a link goes without what it leads to; where there are none,
// nothing is amiss; and who may not remove it is told where it is.
func TestWorkdir(t *testing.T) {
	shared, outside := t.TempDir(), t.TempDir()
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	of := func(id, dir string) *agentdir.Agent {
		a := &agentdir.Agent{}
		a.ID, a.Config.Workdir.Shared = id, dir
		return a
	}
	do(os.MkdirAll(filepath.Join(shared, "a1", "closed"), 0o700))
	do(os.WriteFile(filepath.Join(shared, "a1", "closed", "file"), nil, 0o600))
	do(os.Chmod(filepath.Join(shared, "a1", "closed"), 0o500))
	do(os.WriteFile(filepath.Join(outside, "file"), nil, 0o600))
	do(os.Symlink(outside, filepath.Join(shared, "a2")))
	do(os.Mkdir(filepath.Join(shared, "a3"), 0o700))
	for _, a := range []*agentdir.Agent{of("a1", shared), of("a1", shared), of("a2", shared), of("a4", shared), of("a1", filepath.Join(shared, "nowhere")), of("a3", "")} {
		do(removal.Workdir(a))
	}
	if left, err := os.ReadDir(shared); err != nil || len(left) != 1 || left[0].Name() != "a3" {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(outside, "file")); err != nil {
		t.Error("what a link led to:", err)
	}
	do(os.Chmod(shared, 0o500))
	defer func() { do(os.Chmod(shared, 0o700)) }()
	err := removal.Workdir(of("a3", shared))
	if os.Geteuid() == 0 { // may do everything
		do(err)
	} else if !fault.Is(err, fault.ReadOnly) || !strings.Contains(err.Error(), filepath.Join(shared, "a3")) {
		t.Errorf("another user's: %v", err)
	}
}
