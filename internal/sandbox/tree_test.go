//go:build linux

package sandbox

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// strays leaves its session and its parent twice over and holds the FIFO open; the
// main program waits.
const strays = `
setsid sh -c '(setsid sh -c "exec 9>fifo; echo up >&9; while :; do sleep 1000; done" &) ' </dev/null >/dev/null 2>&1 &
while :; do sleep 1000; done`

// held is the tree's end of life, seen from outside: up comes when the stray runs,
// gone when the last process that has the FIFO is dead.
func held(t *testing.T, dir string) (up, gone <-chan struct{}) {
	t.Helper()
	path := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	u, g := make(chan struct{}), make(chan struct{})
	go func() {
		f, err := os.OpenFile(path, os.O_RDONLY, 0) // waits for the writer
		if err != nil {
			return
		}
		defer f.Close()
		r := bufio.NewReader(f)
		if line, _ := r.ReadString('\n'); line == "up\n" {
			close(u)
		}
		_, _ = io.Copy(io.Discard, r)
		close(g)
	}()
	return u, g
}

// await bounds a hang; how long it really takes is not asserted.
func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(time.Minute):
		t.Fatalf("%s did not happen", what)
	}
}

func eachLevel(t *testing.T, f func(t *testing.T, l Level)) {
	for _, l := range []Level{LevelFull, LevelBubblewrap, LevelPrivileged, LevelReduced, LevelOff} {
		t.Run(string(l), func(t *testing.T) { f(t, l) })
	}
}
