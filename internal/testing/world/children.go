package world

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Child is a process below an agentd, held so that its end is noticed even when
// its number is given out again.
type Child struct {
	Pid  int
	Name string

	fd int
}

// Children are all processes below p, whatever namespace they are in.
func (p *Process) Children() []Child {
	p.t.Helper()
	below := map[int][]Child{}
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		p.t.Fatal(err)
	}
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		if parent, name, ok := stat(pid); ok {
			below[parent] = append(below[parent], Child{Pid: pid, Name: name})
		}
	}
	var out []Child
	for todo := []int{p.Pid()}; len(todo) > 0; todo = todo[1:] {
		for _, c := range below[todo[0]] {
			fd, err := unix.PidfdOpen(c.Pid, 0)
			if errors.Is(err, unix.ESRCH) {
				continue
			}
			if err != nil {
				p.t.Fatalf("watch process %d: %v", c.Pid, err)
			}
			p.t.Cleanup(func() { _ = unix.Close(fd) })
			c.fd = fd
			out, todo = append(out, c), append(todo, c.Pid)
		}
	}
	return out
}

// stat reads the parent and the name of a process.
func stat(pid int) (parent int, name string, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if err != nil || open < 0 || end < open {
		return 0, "", false
	}
	f := bytes.Fields(b[end+1:])
	if len(f) < 2 {
		return 0, "", false
	}
	parent, err = strconv.Atoi(string(f[1]))
	return parent, string(b[open+1 : end]), err == nil
}

// Gone waits until the processes have ended and names those that do not.
func Gone(t testing.TB, children []Child) {
	t.Helper()
	end := time.Now().Add(patience)
	for _, c := range children {
		for {
			fds := []unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLIN}}
			n, err := unix.Poll(fds, int(max(time.Until(end), 0).Milliseconds()))
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || n == 0 {
				t.Errorf("process %d (%s) was left behind (%v)", c.Pid, c.Name, err)
			}
			break
		}
	}
}
