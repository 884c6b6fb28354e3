package state

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/store"

	"github.com/theclaw/agents/internal/agentdir"
)

// Two writes in one step of the file system's clock look alike, so a stamp taken that
// soon after a write holds for nothing.
func TestStamp(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "events.db")
	if err := os.WriteFile(at, []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	set := func(when time.Time) {
		t.Helper()
		if err := os.Chtimes(at, when, when); err != nil {
			t.Fatal(err)
		}
	}
	for _, when := range []time.Time{time.Now().Add(-time.Second), time.Now().Add(time.Hour)} {
		set(when)
		if a, b := Stamp(dir), Stamp(dir); a != b {
			t.Errorf("written at %v: %s and %s", when, a, b)
		}
	}
	before := Stamp(dir)
	for range 100 {
		now := time.Now()
		set(now)
		a, b := Stamp(dir), Stamp(dir)
		if time.Since(now) >= agentdir.FileTick { // somebody else had the processor
			continue
		}
		if a == b || a == before {
			t.Errorf("written just now: %s and %s, before %s", a, b, before)
		}
		return
	}
	t.Fatal("no two stamps within a tick in 100 tries")
}

// A database that this process closed is unchanged however soon its stamp is taken; one that
// was only read, once the clock has advanced and it has no log.
func TestUnchanged(t *testing.T) {
	dir := t.TempDir()
	at, log := filepath.Join(dir, "events.db"), filepath.Join(dir, "events.db-wal")
	write := func(path, text string, when time.Time) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	write(at, "12", now)
	a := NewAgent("a")
	a.Load(store.InboxState{}, "")
	if a.close(store.AtRest{Head: 1, Written: now, Size: 2}); a.Unchanged(Stamp(dir)) {
		t.Error("an unknown event is taken for known")
	}
	if a.close(store.AtRest{Written: now, Size: 2}); !a.Unchanged(Stamp(dir)) {
		t.Error("just closed, and not as left")
	}
	if _, quiet := a.IdleState(Stamp(dir)); !quiet {
		t.Error("just closed, and not quiet")
	}
	write(log, "", now)
	if !a.Unchanged(Stamp(dir)) {
		t.Error("who reads has changed something")
	}
	write(log, "x", now)
	if a.Unchanged(Stamp(dir)) {
		t.Error("a log is overlooked")
	}
	old := now.Add(-time.Minute)
	write(log, "x", old)
	write(at, "123", old)
	a.SetSignature(Stamp(dir))
	if a.Unchanged(Stamp(dir)) {
		t.Error("with a log, a commit may be on its way")
	}
	write(log, "", old)
	a.SetSignature(Stamp(dir))
	if !a.Unchanged(Stamp(dir)) {
		t.Error("looked at, and not as left")
	}
}
