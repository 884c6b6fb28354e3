//go:build linux

package sandbox

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// holdArg makes the test binary a process that has a scratch directory and is killed.
const holdArg = "hold-a-scratch-directory"

func holdScratch(dir string) int {
	r, err := newScratch(dir, false)
	if err != nil || os.WriteFile(filepath.Join(r.Path, "left"), []byte("x"), 0o600) != nil {
		return 1
	}
	_, _ = os.Stdout.WriteString(r.Path + "\n")
	_, _ = os.Stdin.Read(make([]byte, 1)) // until it is killed
	return 1
}

// What a killed process left is removed by the next start, and what a living one
// has is not.
func TestScratchOfKilledProcess(t *testing.T) {
	dir := t.TempDir()
	mine, err := newScratch(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	held := func() (path string, kill func()) {
		c := exec.Command(os.Args[0], holdArg, dir)
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return line[:len(line)-1], func() {
			_ = c.Process.Kill()
			_ = c.Wait() // it was killed: the error says so
			_ = in.Close()
		}
	}
	dead, kill := held()
	alive, end := held()
	defer end()
	kill()
	if _, err := os.Stat(dead); err != nil {
		t.Fatalf("nothing is left of the killed one, so nothing is shown: %v", err)
	}
	other := filepath.Join(dir, "probe-1")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	next, err := newScratch(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dead); !os.IsNotExist(err) {
		t.Errorf("the directory of a killed process is still there: %v", err)
	}
	for _, p := range []string{alive, mine.Path, next.Path, other} {
		if _, err := os.Stat(p); err != nil {
			t.Errorf("swept too much: %v", err)
		}
	}
	for path, want := range map[string]os.FileMode{mine.Path: 0o711, next.Path: 0o700} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", path, st.Mode(), err, want)
		}
	}
	for _, r := range []*scratch{mine, next} {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(r.Path); !os.IsNotExist(err) {
			t.Errorf("closed and still there: %v", err)
		}
	}
	if _, err := newScratch(filepath.Join(dir, "missing"), false); err == nil {
		t.Error("a scratch directory in a directory that is not there")
	}
}
