package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/handlerlock"
)

// dispatched leaves the lock of a dispatcher in a thread.
func dispatched(t *testing.T, dir, consumer string) (file string) {
	t.Helper()
	file = filepath.Join(dir, "run", consumer+".lock")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("99"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func there(file string) bool { _, err := os.Lstat(file); return err == nil }

// CONTRACTS 1.5, S0-61: work, remove the lock, look once more; also when the work
// fails, for a lock that stays stops every later dispatch.
func TestLockOfTheDispatcher(t *testing.T) {
	h := home(t)
	s := &services{}
	s.serve(t, h)
	agents := filepath.Join(h, "agents")
	peer := filepath.Join(agents, "a1/threads/peers/x-y")
	for _, c := range []struct {
		line, dir, consumer, asked string
		code                       int
	}{
		{"run a1", agents + "/a1/inbox", inbox, "a1 a1", 0},
		{"run idle", agents + "/idle/inbox", inbox, "idle idle", 0},
		{"run busy", agents + "/busy/inbox", inbox, "busy", 1},
		{"deliver --thread " + peer + " --consumer outbound", peer, outbound, "a1 threads/peers/x-y a1 threads/peers/x-y", 0},
	} {
		file := dispatched(t, c.dir, c.consumer)
		s.asked = nil
		stood := 0
		s.onAsk = func() {
			if there(file) {
				stood++
			}
		}
		code, _, errs := call(h, strings.Fields(c.line)...)
		if got := strings.Join(s.asked, " "); code != c.code || got != c.asked || stood != 1 || there(file) {
			t.Errorf("agent %s: exit %d %s; asked %q, the lock stood %d times, is there: %v", c.line, code, errs, got, stood, there(file))
		}
	}
}

// A lock that another handler has is that one's to remove.
func TestLockOfAnotherHandler(t *testing.T) {
	h := home(t)
	s := &services{}
	s.serve(t, h)
	dir := filepath.Join(h, "agents/a1/inbox")
	file := dispatched(t, dir, inbox)
	other := handlerlock.Hold(dir, inbox)
	if code, _, errs := call(h, "run", "a1"); code != 0 || !there(file) || len(s.asked) != 1 {
		t.Errorf("exit %d %s, asked %q, the lock is there: %v", code, errs, s.asked, there(file))
	}
	other.Release()
}

// S0-42: the lock of an inbox that a setting moved stands where the inbox is.
func TestLockOfAMovedInbox(t *testing.T) {
	h := home(t)
	s := &services{moved: t.TempDir()}
	s.serve(t, h)
	file := dispatched(t, s.moved, inbox)
	if code, _, errs := call(h, "run", "a1"); code != 0 || there(file) || len(s.asked) != 2 {
		t.Errorf("exit %d %s, asked %q, the lock is there: %v", code, errs, s.asked, there(file))
	}
}
