package pgtest

import (
	"io"
	"os/exec"
	"strconv"
	"sync"
	"testing"
)

// shared is the server for the tests of this process that need no more than a database.
var shared struct {
	sync.Mutex
	c *Cluster
	// alive is held open as long as the process lives; see guard.
	alive io.WriteCloser
}

// Database makes a database of its own for a test at the shared server, and answers its URL.
func Database(t testing.TB) string {
	t.Helper()
	return Shared(t).Database(t)
}

// Shared is a server that all tests of the process share and that does not wait for the disk,
// for tests that need no more than databases. A test that stops the server, changes its
// settings, measures it or has a template starts one with Start.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.c == nil {
		c := create(t, "fsync = off")
		c.guarded = true
		c.Up(t)
		shared.alive = guard(t, c)
		shared.c = c
	}
	return shared.c
}

// guard ends the server and removes its directory when this process has ended, however it did:
// it waits for the end of its input, which this process alone holds open.
func guard(t testing.TB, c *Cluster) io.WriteCloser {
	t.Helper()
	const script = `read -r _
kill -QUIT "$1"
for _ in 1 2 3 4 5 6 7 8 9 10; do
	! kill -0 "$1" && rm -rf "$2" && break
	sleep 0.5
done`
	cmd := exec.Command("sh", "-c", script, "guard", strconv.Itoa(c.cmd.Process.Pid), c.dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return in
}
