package lease

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// child starts this test binary as a holder of its own and returns its id.
func child(t *testing.T, dir string) (*exec.Cmd, string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^$")
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return cmd, strings.TrimSpace(line)
}

func mustHolder(t *testing.T, dir string) *Holder {
	t.Helper()
	h, err := NewHolder(dir, "runner")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// S0-37, S0-84: a killed holder's lease is free at once, a stopped one's is not.
func TestKilledHolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "holders")
	cmd, id := child(t, dir)
	table := newTable(t, newLedger(), func(h string) bool { return HolderDead(dir, h) })
	tok := mustAcquire(t, table, ask(id, "r1")).Token
	if HolderDead(dir, id) {
		t.Fatal("a living child counts as dead")
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if HolderDead(dir, id) {
		t.Error("a stopped child counts as dead")
	}
	if got := table.Reap(t.Context()); len(got) != 0 {
		t.Errorf("reaped %v", got)
	}

	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it says that the child was killed, as it was
	if !HolderDead(dir, id) {
		t.Fatal("a killed child counts as alive")
	}
	if r := mustAcquire(t, table, ask("other", "r2")); r.Token != tok+1 {
		t.Errorf("token %d, want %d at once", r.Token, tok+1)
	}
	if got := newTable(t, newLedger(), nil); got.List() != nil {
		t.Error("an empty ledger has leases")
	}
	swept, err := SweepHolders(dir)
	if err != nil || !slices.Equal(swept, []string{id}) {
		t.Errorf("swept %q, %v", swept, err)
	}
	if !HolderDead(dir, id) {
		t.Error("swept, and no longer dead")
	}
}

func TestHolderCloses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "holders")
	h := mustHolder(t, dir)
	if !h.Local() || HolderDead(dir, h.ID()) {
		t.Fatalf("%s: local %v", h.ID(), h.Local())
	}
	if swept, err := SweepHolders(dir); err != nil || len(swept) != 0 {
		t.Errorf("swept the living: %q %v", swept, err)
	}
	info, err := os.Stat(holderPath(dir, h.ID()))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("lock file: %v %v, want mode 0600", info, err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v %v, want mode 0700", info, err)
	}
	for range 2 {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("left behind: %v %v", files, err)
	}
	if !HolderDead(dir, h.ID()) {
		t.Error("closed in good order, and not dead")
	}
}

// What is not known is not dead.
func TestUnknownHolders(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	remote, err := NewHolder("", "runner")
	if err != nil || remote.Local() {
		t.Fatal(remote, err)
	}
	if err := remote.Close(); err != nil {
		t.Error(err)
	}
	other := mustHolder(t, elsewhere)
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	for name, id := range map[string]string{
		"remote": remote.ID(), "other directory": other.ID(), "empty": "",
		"path": "../" + filepath.Base(elsewhere) + "/x", "long": strings.Repeat("x", 300),
	} {
		if HolderDead(dir, id) {
			t.Errorf("%s: %q counts as dead", name, id)
		}
	}
	gone := mustHolder(t, filepath.Join(dir, "sub"))
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "sub")); err != nil {
		t.Fatal(err)
	}
	if HolderDead(filepath.Join(dir, "sub"), gone.ID()) {
		t.Error("without its directory nothing is known")
	}
	for _, name := range []string{"", "a/b", "a@b", ".a", strings.Repeat("x", 101)} {
		if h, err := NewHolder(dir, name); err == nil {
			t.Errorf("name %q was taken as %s", name, h.ID())
		}
	}
}

// Many who ask at once all learn of a death, and never of a life's end.
func TestAskingAtOnce(t *testing.T) {
	dir := t.TempDir()
	alive := mustHolder(t, dir)
	cmd, id := child(t, dir)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if !HolderDead(dir, id) {
					t.Error("a dead holder counts as alive")
				}
				if HolderDead(dir, alive.ID()) {
					t.Error("a living holder counts as dead")
				}
			}
		})
	}
	wg.Wait()
}

// A sweep that runs while holders start never leaves one without its file.
func TestSweepWhileStarting(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var sweeper sync.WaitGroup
	sweeper.Go(func() {
		for ctx.Err() == nil {
			if _, err := SweepHolders(dir); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 150 {
		h, err := NewHolder(dir, "runner")
		if err != nil {
			t.Error(err)
			break
		}
		if HolderDead(dir, h.ID()) {
			t.Errorf("%s was swept at its start", h.ID())
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
	cancel()
	sweeper.Wait()
}
