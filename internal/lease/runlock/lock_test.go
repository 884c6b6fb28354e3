package runlock

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

func lockPath(t *testing.T) string { return filepath.Join(t.TempDir(), "run.lock") }

// legacy writes a lock file as another tool does: no OS lock.
func legacy(t *testing.T, content string, mtime time.Time) string {
	t.Helper()
	path := lockPath(t)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, mtime, mtime); err != nil {
		t.Fatal(err)
	}
	return path
}

// sleeper starts a process that lives until the test ends.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("cat")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	return cmd
}

// S0-37: the file is there as long as the lock, and shows the pid.
func TestTakeAndRelease(t *testing.T) {
	path := lockPath(t)
	l := New(path)
	for range 2 {
		if err := l.Take(); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil || string(text) != strconv.Itoa(os.Getpid())+" theclaw" {
		t.Errorf("content %q %v", text, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v, want mode 0600", info, err)
	}
	other := New(path)
	var held *HeldError
	if err := other.Take(); !errors.As(err, &held) || held.Pid != os.Getpid() {
		t.Errorf("second take: %v", err)
	}
	if stale, err := other.Stale(); stale || err != nil {
		t.Errorf("held and stale: %v %v", stale, err)
	}
	for range 2 {
		if err := l.Release(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after release: %v", err)
	}
	if stale, err := other.Stale(); stale || err != nil {
		t.Errorf("missing and stale: %v %v", stale, err)
	}
	if err := other.Take(); err != nil {
		t.Error(err)
	}
	if err := other.Release(); err != nil {
		t.Error(err)
	}
}

func TestLegacyFile(t *testing.T) {
	alive := strconv.Itoa(sleeper(t).Process.Pid)
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for name, c := range map[string]struct {
		content string
		mtime   time.Time
		stale   bool
	}{
		"living pid":               {alive, now, false},
		"living pid, with newline": {alive + "\n", now, false},
		"copied while we held it":  {alive + " theclaw", now, true},
		"dead pid":                 {strconv.Itoa(gone.Process.Pid), now, true},
		"pid given out again":      {alive, now.Add(-time.Minute), true},
		"earlier boot":             {alive, time.Unix(1e9, 0), true},
		"being written":            {"", now, false},
		"never written":            {"", now.Add(-time.Minute), true},
		"no pid":                   {"locked", now.Add(-time.Minute), true},
		"an earlier term of ours":  {strconv.Itoa(os.Getpid()), now, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := New(legacy(t, c.content, c.mtime))
			if stale, err := l.Stale(); stale != c.stale || err != nil {
				t.Errorf("stale %v %v, want %v", stale, err, c.stale)
			}
			err := l.Take()
			var held *HeldError
			if !c.stale {
				if !errors.As(err, &held) {
					t.Fatalf("take: %v, want held", err)
				}
				if text, _ := os.ReadFile(l.path); string(text) != c.content {
					t.Errorf("a refused take has changed the file to %q", text)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if text, _ := os.ReadFile(l.path); string(text) != strconv.Itoa(os.Getpid())+" theclaw" {
				t.Errorf("content after takeover: %q", text)
			}
			if err := l.Release(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A zombie has ended, although its pid is not free yet.
func TestZombie(t *testing.T) {
	cmd := sleeper(t)
	l := New(legacy(t, strconv.Itoa(cmd.Process.Pid), time.Now()))
	if stale, err := l.Stale(); stale || err != nil {
		t.Fatalf("alive and stale: %v %v", stale, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// The state is not awaited with Wait, which would end the zombie; it comes
	// as soon as the kernel has delivered the kill.
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		if stat, err := procStat(cmd.Process.Pid); err != nil || stat.dead {
			break
		}
	}
	if stale, err := l.Stale(); !stale || err != nil {
		t.Errorf("a zombie holds the lock: %v %v", stale, err)
	}
}

// A file that somebody else put in our place is theirs.
func TestReleaseLeavesForeignFile(t *testing.T) {
	path := lockPath(t)
	l := New(path)
	if err := l.Take(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("77"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.Release(); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "77" {
		t.Errorf("foreign file: %q %v", text, err)
	}
}

func TestTakeErrors(t *testing.T) {
	if err := New(filepath.Join(t.TempDir(), "none", "run.lock")).Take(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	path := lockPath(t)
	if err := os.Symlink("/dev/null", path); err != nil {
		t.Fatal(err)
	}
	if err := New(path).Take(); err == nil {
		t.Error("a symbolic link was followed")
	}
}

func TestProcess(t *testing.T) {
	boot := bootTime()
	stat, err := procStat(os.Getpid())
	if boot.IsZero() || err != nil || stat.dead {
		t.Fatalf("boot %v, stat %v %v", boot, stat, err)
	}
	if began := boot.Add(stat.sinceBoot); began.After(time.Now().Add(clockSlack)) {
		t.Errorf("this process began at %v", began)
	}
}
