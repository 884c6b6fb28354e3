//go:build linux

package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// With off one process runs one program after the other: what one of them leaves is dead
// before the next begins, nothing of it is open or set in the next, and a group with much
// memory in it is not used again.
func TestOffRunsAgain(t *testing.T) {
	s, dir := only(t, LevelOff), workdir(t, LevelOff)
	run := func(script string) string {
		t.Helper()
		r, err := s.Run(t.Context(), Command{Shell: script, Workdir: dir})
		if err != nil || r.ExitCode != 0 {
			t.Fatalf("%s: %+v, %v", script, r, err)
		}
		return strings.TrimSpace(string(r.Stdout))
	}
	const parent = "echo $PPID"
	first := run(parent)
	if first != run(parent) {
		t.Error("the second program has another parent")
	}
	left := run("(setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!)")
	if got := run("[ -e /proc/" + left + " ] || echo dead"); got != "dead" {
		t.Errorf("process %s of the program before: %q, want dead", left, got)
	}
	if got := run("ls /proc/self/fd; readlink /proc/$PPID/cwd"); got != "0\n1\n2\n3\n"+dir {
		t.Errorf("descriptors, 3 being that of ls, and directory: %q", got)
	}
	if r, err := s.Run(t.Context(), Command{Argv: []string{"no-such-program"}, Workdir: dir}); err != nil || r.ExitCode != 127 {
		t.Errorf("a program that is not there: %+v, %v", r, err)
	}
	if got := run(parent); got != first {
		t.Errorf("its parent is %s after that, want %s", got, first)
	}

	if !s.cgroups.Memory {
		return // nothing counts what a program leaves
	}
	file := filepath.Join("/dev/shm", filepath.Base(dir)+"-left")
	t.Cleanup(func() { _ = os.Remove(file) })
	run("head -c 20000000 /dev/zero >" + file)
	if got := run(parent); got == first {
		t.Error("20 MB that a program left count against the limit of the next one")
	}
}
