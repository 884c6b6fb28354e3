// Package quota owns giving processes a share of a processor and no more, by the control
// groups of Linux, so that a bench can make one class of processes the narrow one on a
// machine where all classes share the cores.
//
//	Hold(pids, 0.5) --> they and what they start have half of one processor
//	Release         --> they have what they had; the group is gone
//
// It promises to tell why where it is not possible: another system, no right to it, a
// kernel without the controller. It measures nothing.
package quota

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// period is in which the share is counted, in microseconds: short beside an answer,
	// so that who has used up his share does not sleep through many of them.
	period = 50_000
	// patience is how long processes that have ended may keep a group.
	patience = 5 * time.Second
)

// Group is processes that are held.
type Group struct{ dir, parent string }

// Hold gives processes a share of one processor. What they start later is held too.
func Hold(pids []int, share float64) (g *Group, err error) {
	const root = "/sys/fs/cgroup"
	g = &Group{parent: filepath.Join(root, "cpu")}
	// Their share is theirs also when many others want the processors: a group counts as
	// one process otherwise.
	files := map[string]string{"cpu.cfs_period_us": strconv.Itoa(period), "cpu.cfs_quota_us": fmt.Sprintf("%.0f", share*period), "cpu.shares": "102400"}
	if kinds, err := os.ReadFile(filepath.Join(root, "cgroup.controllers")); err == nil { // version 2
		if !strings.Contains(string(kinds), "cpu") {
			return nil, errors.New("the control groups of this machine have no controller for processors")
		}
		g.parent, files = root, map[string]string{"cpu.max": fmt.Sprintf("%.0f %d", share*period, period), "cpu.weight": "10000"}
		if err := write(g.parent, "cgroup.subtree_control", "+cpu"); err != nil {
			return nil, err
		}
	}
	g.dir = filepath.Join(g.parent, "theclaw-bench-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(g.dir, 0o700); err != nil {
		return nil, err
	}
	for name, value := range files {
		err = errors.Join(err, write(g.dir, name, value))
	}
	for _, pid := range pids {
		err = errors.Join(err, move(g.dir, pid))
	}
	if err != nil {
		return nil, errors.Join(err, g.Release())
	}
	return g, nil
}

// Release gives the processes back what they had.
func (g *Group) Release() error {
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) { // one may start another meanwhile
		b, err := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
		if err != nil {
			return err
		}
		for line := range strings.FieldsSeq(string(b)) {
			pid, err := strconv.Atoi(line)
			if err == nil {
				err = move(g.parent, pid)
			}
			if err != nil {
				return err
			}
		}
		if err := syscall.Rmdir(g.dir); !errors.Is(err, syscall.EBUSY) || time.Now().After(end) {
			return err
		}
	}
}

// move puts a process into a group; one that has ended is nowhere.
func move(dir string, pid int) error {
	if err := write(dir, "cgroup.procs", strconv.Itoa(pid)); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

func write(dir, name, value string) error {
	return os.WriteFile(filepath.Join(dir, name), []byte(value), 0)
}
