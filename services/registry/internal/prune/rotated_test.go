package prune

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func names(files []rotatedFile) []string {
	var out []string
	for _, f := range files {
		out = append(out, f.name)
	}
	return out
}

// Rotated files are found by name and sorted; everything else stays.
func TestRotatedFiles(t *testing.T) {
	dir := t.TempDir()
	day := func(n int) time.Time { return time.Date(2026, 1, n, 12, 0, 0, 0, time.UTC) }
	write := func(name string, at time.Time) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("line\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"agent-20260102-120000-10.log", "agent-20260101-120000.log", "agent-20260102-120000.log", "agent-20260102-120000-2.log"} {
		write(name, day(2))
	}
	others := []string{"agent.log", "agent-20260101.log", "agent-20260101-120000.log.gz", "agent-20260101-120000-x.log", "agent-20260199-120000.log", "thread-20260101-120000.log"}
	for _, name := range others {
		write(name, day(1))
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "agent-20250101-120000.log")); err != nil {
		t.Fatal(err)
	}
	write("agent-20260103-120000.log", day(9)) // written to after its name was given
	write("agent-20260104-120000.log", day(4))
	files, err := rotatedFiles(dir, "agent", "log")
	want := []string{"agent-20260101-120000.log", "agent-20260102-120000.log", "agent-20260102-120000-2.log", "agent-20260102-120000-10.log", "agent-20260103-120000.log", "agent-20260104-120000.log"}
	if err != nil || !slices.Equal(names(files), want) {
		t.Fatalf("found %q, %v", names(files), err)
	}
	// The one of the third was changed on the ninth: it stays, and none after it goes.
	old, kept := oldest(files, day(5), 1)
	if !slices.Equal(names(old), want[:4]) || kept != 0 {
		t.Fatalf("old %q, kept %d", names(old), kept)
	}
	if err := remove(dir, old); err != nil {
		t.Fatal(err)
	}
	left, err := rotatedFiles(dir, "agent", "log")
	if err != nil || !slices.Equal(names(left), want[4:]) {
		t.Fatalf("left %q, %v", names(left), err)
	}
	if old, kept = oldest(left, day(20), 1); len(old) != 1 || kept != 1 {
		t.Errorf("with all old: %q, kept %d", names(old), kept)
	}
	for _, name := range others {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if none, err := rotatedFiles(filepath.Join(dir, "nowhere"), "agent", "log"); err != nil || none != nil {
		t.Errorf("nowhere: %v, %v", none, err)
	}
}
