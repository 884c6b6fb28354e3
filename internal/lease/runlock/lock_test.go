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
	if err != nil || string(text) != strconv.Itoa(os.Getpid())+" theclaw "+path {
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
		"copied while we held it":  {alive + " theclaw /elsewhere/run.lock", now, true},
		"of an earlier version":    {alive + " theclaw", now, true},
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
			if text, _ := os.ReadFile(l.path); string(text) != strconv.Itoa(os.Getpid())+" theclaw "+l.path {
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
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
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

// A1: a lock that is held travels with its directory. In the new place it counts for
// nothing, and who held it does not touch the lock that is taken there. Where the
// directory is only seen under a second name it counts.
func TestMovedDirectory(t *testing.T) {
	base := t.TempDir()
	from, to, link := filepath.Join(base, "from"), filepath.Join(base, "to"), filepath.Join(base, "link")
	if err := errors.Join(os.Mkdir(from, 0o700), os.Symlink(from, link)); err != nil {
		t.Fatal(err)
	}
	old := New(filepath.Join(from, "run.lock"))
	if err := old.Take(); err != nil {
		t.Fatal(err)
	}
	second := New(filepath.Join(link, "run.lock"))
	var held *HeldError
	if err := second.Take(); !errors.As(err, &held) || held.Pid != os.Getpid() {
		t.Errorf("under a second name: %v", err)
	}
	if holder, err := second.Holder(); err != nil || holder == nil || holder.Pid != os.Getpid() {
		t.Errorf("under a second name: %v, %v", holder, err)
	}
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
	moved := New(filepath.Join(to, "run.lock"))
	if holder, err := moved.Holder(); err != nil || holder != nil {
		t.Errorf("moved: %v, %v", holder, err)
	}
	if stale, err := moved.Stale(); err != nil || !stale {
		t.Errorf("moved: stale %v, %v", stale, err)
	}
	if err := moved.Take(); err != nil {
		t.Fatal(err)
	}
	if err := old.Release(); err != nil {
		t.Error(err)
	}
	if holder, err := New(filepath.Join(to, "run.lock")).Holder(); err != nil || holder == nil {
		t.Errorf("taken in the new place: %v, %v", holder, err)
	}
	if err := moved.Release(); err != nil {
		t.Error(err)
	}
}
