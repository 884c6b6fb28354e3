package jail

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// killOrphans ends what init left behind where no pid namespace does it: as the
// subreaper the trampoline is the parent of every orphan. A process that forks
// faster than it is killed is bounded by RLIMIT_NPROC, so the loop ends; the
// deadline is for a kernel that does not let a process die. It reports whether none is left.
func killOrphans() bool {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		for err == nil && pid > 0 {
			pid, err = unix.Wait4(-1, nil, unix.WNOHANG, nil)
		}
		if errors.Is(err, unix.ECHILD) {
			return true // as usual: the list of all processes is not read
		}
		for _, pid := range children() {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		time.Sleep(time.Millisecond) // a killed process needs a moment to become a zombie
	}
	return false
}

// children lists our direct children, from the parent's number in their stat
// file: the kernel's own list of children is an option many kernels lack.
func children() []int {
	var out []int
	me := strconv.Itoa(os.Getpid())
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + n + "/stat")
		if err != nil {
			continue
		}
		// pid (name) state ppid: a name can hold anything, also ") ".
		s := string(b)
		f := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
		if len(f) > 1 && f[1] == me {
			out = append(out, pid)
		}
	}
	return out
}
