// Package cgroup manages the control groups of sandboxed programs: one per run, for
// memory and the number of processes, version 1 or 2, where this process may create them.
//
// It promises: a group has its limits before a process is in it, a process is born in its
// group, and the next runner removes the groups of one that died. It is no error when none can be created: the
// result of Find says which limits apply.
package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/sandbox/wire"
)

// Set are the places where we may make groups: one directory for each
// controller in version 1, one for both in version 2.
type Set struct {
	Bases        []string
	Memory, PIDs bool // which are bound
}

// Group is the one of a single run. The zero one does nothing.
type Group struct{ dirs []string }

// Prefix is how the names of our groups begin; our pid follows.
const Prefix = "theclaw-"

var groupSerial atomic.Int64

// Find looks below our own groups, and makes one in each place to be sure.
func Find() Set {
	var c Set
	for controllers, dir := range ownGroups() {
		isV2 := controllers == ""
		memory, pids := strings.Contains(","+controllers+",", ",memory,"), strings.Contains(","+controllers+",", ",pids,")
		if isV2 {
			control := filepath.Join(dir, "cgroup.subtree_control")
			// Refused in a group with processes unless it is the root: then somebody
			// has to delegate a group to us.
			_ = os.WriteFile(control, []byte("+memory +pids"), 0)
			b, _ := os.ReadFile(control)
			on := strings.Fields(string(b))
			memory, pids = slices.Contains(on, "memory"), slices.Contains(on, "pids")
		}
		if !memory && !pids {
			continue
		}
		sweep(dir)
		trial := filepath.Join(dir, fmt.Sprintf("%s%d-trial", Prefix, os.Getpid()))
		if os.Mkdir(trial, 0o755) != nil || os.Remove(trial) != nil {
			continue
		}
		c.Bases = append(c.Bases, dir)
		c.Memory, c.PIDs = c.Memory || memory, c.PIDs || pids
	}
	return c
}

// ownGroups maps the controllers of each hierarchy ("" is version 2) to the
// directory of the group we are in.
func ownGroups() map[string]string {
	out := map[string]string{}
	own, _ := os.ReadFile("/proc/self/cgroup")
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(own)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		for m := range strings.Lines(string(mounts)) {
			left, right, ok := strings.Cut(strings.TrimSpace(m), " - ")
			l, r := strings.Fields(left), strings.Fields(right)
			if !ok || len(l) < 5 || len(r) < 3 {
				continue
			}
			v2 := f[1] == "" && r[0] == "cgroup2"
			v1 := f[1] != "" && r[0] == "cgroup" && strings.HasSuffix(","+r[2], ","+f[1])
			if v1 || v2 {
				// Field 4 is the part of the hierarchy that is mounted, 5 where.
				out[f[1]] = filepath.Join(l[4], strings.TrimPrefix(f[2], strings.TrimSuffix(l[3], "/")))
			}
		}
	}
	return out
}

// sweep removes groups of processes of ours that died without doing it.
func sweep(dir string) {
	old, _ := filepath.Glob(filepath.Join(dir, Prefix+"*"))
	for _, d := range old {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(d), Prefix), "-")
		if n, err := strconv.Atoi(pid); err == nil && errors.Is(unix.Kill(n, 0), unix.ESRCH) {
			_ = os.Remove(d)
		}
	}
}

// Create makes the group of one run with its limits.
func (c Set) Create(l wire.Limits) (Group, error) {
	var g Group
	name := fmt.Sprintf("%s%d-%d", Prefix, os.Getpid(), groupSerial.Add(1))
	memory, tasks := strconv.FormatInt(l.MemoryBytes, 10), strconv.FormatInt(l.Tasks(), 10)
	for _, b := range c.Bases {
		dir := filepath.Join(b, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			g.Remove()
			return Group{}, err
		}
		g.dirs = append(g.dirs, dir)
		// Only the files of the controllers this directory has exist. Swap counts
		// too, so that a program cannot push its memory there.
		for _, f := range []struct{ name, value string }{
			{"pids.max", tasks},
			{"memory.max", memory},
			{"memory.swap.max", "0"},
			{"memory.oom.group", "1"},
			{"memory.limit_in_bytes", memory},
			{"memory.memsw.limit_in_bytes", memory},
		} {
			path := filepath.Join(dir, f.name)
			if _, err := os.Stat(path); err != nil {
				continue
			}
			if err := os.WriteFile(path, []byte(f.value), 0); err != nil {
				g.Remove()
				return Group{}, err
			}
		}
	}
	return g, nil
}

// Fork calls fork so that the process that it starts is born in the group. The calling
// goroutine must be locked to its thread.
//
// To move a process into a group takes a lock that all forks of the machine share, and with
// it some milliseconds. Version 2 has a flag for clone instead; in version 1 the thread that
// forks goes into the group, which takes no lock, and back.
func (g Group) Fork(sys *syscall.SysProcAttr, fork func() error) error {
	for _, d := range g.dirs {
		err := enter(d)
		switch {
		case errors.Is(err, unix.ENOENT): // version 2
			fd, err := unix.Open(d, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				return wire.Step("cgroup", err)
			}
			defer unix.Close(fd)
			sys.UseCgroupFD, sys.CgroupFD = true, fd
		case err != nil:
			return wire.Step("cgroup", err)
		default:
			// Should it fail the group stays until the thread has entered the next one.
			defer func() { _ = enter(filepath.Dir(d)) }()
		}
	}
	return fork()
}

// enter moves the calling thread into a group of version 1.
func enter(dir string) error {
	fd, err := unix.Open(filepath.Join(dir, "tasks"), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte("0"))
	return err
}

// maxLeft is how much memory may be in a group that another program gets: the process that
// runs it, and files in memory and pages of files that the last program has left.
const maxLeft = 8 << 20

// Clean reports whether the group, in which no program is any more, is as good as a new one.
func (g Group) Clean() bool {
	for _, d := range g.dirs {
		for _, f := range []string{"memory.current", "memory.usage_in_bytes"} {
			b, err := os.ReadFile(filepath.Join(d, f))
			if errors.Is(err, os.ErrNotExist) {
				continue // of another version, or of another controller
			}
			if n, bad := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err != nil || bad != nil || n > maxLeft {
				return false
			}
		}
	}
	return true
}

// left are groups that the kernel did not let go of in time.
var left struct {
	sync.Mutex
	dirs []string
}

// Remove deletes the group. The kernel lets go of the last process a moment after
// it is dead; what is still busy then is tried again with the next group, and
// swept at the next start.
func (g Group) Remove() {
	dirs := g.dirs
	for range 20 {
		if dirs = remove(dirs); len(dirs) == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	left.Lock()
	defer left.Unlock()
	left.dirs = append(remove(left.dirs), dirs...)
}

// remove answers the directories that are busy still.
func remove(dirs []string) []string {
	return slices.DeleteFunc(slices.Clone(dirs), func(d string) bool { return !errors.Is(os.Remove(d), unix.EBUSY) })
}
