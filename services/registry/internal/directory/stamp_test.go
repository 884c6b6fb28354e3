package directory

import (
	"os"
	"path/filepath"
	"testing"
	"time"
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
		if time.Since(now) >= tick { // somebody else had the processor
			continue
		}
		if a == b || a == before {
			t.Errorf("written just now: %s and %s, before %s", a, b, before)
		}
		return
	}
	t.Fatal("no two stamps within a tick in 100 tries")
}
