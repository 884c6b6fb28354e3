package main

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
	// cpuPeriod is the period of the limit, in microseconds: short compared to an answer,
	// so that a process that used up its share does not sleep through many of them.
	cpuPeriod = 50_000
	// cgroupPatience is how long processes that have ended may keep a group.
	cgroupPatience = 5 * time.Second
)

// cpuLimit limits processes to a share of one processor, with a control group (cgroup) of
// Linux. The bench uses it to make one class of processes the bottleneck on a machine
// where all classes share the cores.
//
//	limitCPU(pids, 0.5) --> they and their children get half of one processor
//	Release             --> they get what they had; the group is removed
//
// limitCPU reports why a limit is not possible: another system, missing rights, a kernel
// without the controller.
type cpuLimit struct{ dir, parent string }

// limitCPU limits processes to a share of one processor, and also what they start later.
func limitCPU(pids []int, share float64) (g *cpuLimit, err error) {
	const root = "/sys/fs/cgroup"
	g = &cpuLimit{parent: filepath.Join(root, "cpu")}
	// Their share is theirs also when many others want the processors: a group counts as
	// one process otherwise.
	files := map[string]string{"cpu.cfs_period_us": strconv.Itoa(cpuPeriod), "cpu.cfs_quota_us": fmt.Sprintf("%.0f", share*cpuPeriod), "cpu.shares": "102400"}
	if kinds, err := os.ReadFile(filepath.Join(root, "cgroup.controllers")); err == nil { // version 2
		if !strings.Contains(string(kinds), "cpu") {
			return nil, errors.New("the control groups of this machine have no controller for processors")
		}
		g.parent, files = root, map[string]string{"cpu.max": fmt.Sprintf("%.0f %d", share*cpuPeriod, cpuPeriod), "cpu.weight": "10000"}
		if err := writeCgroup(g.parent, "cgroup.subtree_control", "+cpu"); err != nil {
			return nil, err
		}
	}
	g.dir = filepath.Join(g.parent, "theclaw-bench-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(g.dir, 0o700); err != nil {
		return nil, err
	}
	for name, value := range files {
		err = errors.Join(err, writeCgroup(g.dir, name, value))
	}
	for _, pid := range pids {
		err = errors.Join(err, moveProcess(g.dir, pid))
	}
	if err != nil {
		return nil, errors.Join(err, g.Release())
	}
	return g, nil
}

// Release removes the limit.
func (g *cpuLimit) Release() error {
	for end := time.Now().Add(cgroupPatience); ; time.Sleep(5 * time.Millisecond) { // one may start another meanwhile
		b, err := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
		if err != nil {
			return err
		}
		for line := range strings.FieldsSeq(string(b)) {
			pid, err := strconv.Atoi(line)
			if err == nil {
				err = moveProcess(g.parent, pid)
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
func moveProcess(dir string, pid int) error {
	if err := writeCgroup(dir, "cgroup.procs", strconv.Itoa(pid)); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

func writeCgroup(dir, name, value string) error {
	return os.WriteFile(filepath.Join(dir, name), []byte(value), 0)
}
