package wal_test

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const childEnv = "WAL_TEST_FILE_LIMIT"

// asChild runs the test again in a process whose files may not grow.
func asChild(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), childEnv+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func child(t *testing.T) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.db")
	d := open(t, path, true)
	run(t, d, "CREATE TABLE t(id INTEGER PRIMARY KEY, b BLOB)")
	run(t, d, "INSERT INTO t(b) VALUES('first')")
	st, err := os.Stat(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	signal.Ignore(unix.SIGXFSZ)
	limit := unix.Rlimit{Cur: uint64(st.Size()) + 100, Max: unix.RLIM_INFINITY}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	if _, err := d.ExecContext(t.Context(), "INSERT INTO t(b) VALUES(?)", strings.Repeat("x", 20000)); err == nil {
		t.Error("a commit was answered that could not be written")
	}
	limit.Cur = unix.RLIM_INFINITY
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	run(t, d, "INSERT INTO t(b) VALUES('second')")
	if got := sum(t, open(t, path, false)); got != "2 11 3" {
		t.Errorf("the table has %s", got)
	}
}
