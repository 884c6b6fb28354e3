package runlock

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// clockSlack covers the whole seconds in which the kernel tells its boot
	// time, and file systems that keep coarse times.
	clockSlack = 2 * time.Second

	// blankAge is how old a lock file without a readable pid must be before it
	// counts as left behind: a tool makes the file first and then writes it.
	blankAge = 10 * time.Second

	// ticksPerSecond is the unit of /proc/<pid>/stat on every Linux that Go
	// runs on (USER_HZ).
	ticksPerSecond = 100
)

// pidStale evaluates a lock file that nobody holds with an OS lock. Ages here are
// wall time, since a file has no other; a wall clock that was set forward in
// the meantime can make a living process look too young. Where /proc is missing
// only the pid itself is asked.
func pidStale(pid int, mtime, now time.Time) bool {
	boot, started := bootTime(), time.Time{}
	if !boot.IsZero() && boot.After(mtime.Add(clockSlack)) {
		return true // written before this boot, so its process is gone
	}
	if pid == 0 {
		return now.Sub(mtime) > blankAge
	}
	if pid == os.Getpid() {
		return true // our own, and we were given its OS lock: left by an earlier term
	}
	if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
		return true
	}
	stat, err := procStat(pid)
	if err != nil {
		return false // alive as far as we can see
	}
	if stat.dead {
		return true
	}
	if !boot.IsZero() {
		started = boot.Add(stat.sinceBoot)
	}
	return started.After(mtime.Add(clockSlack)) // the pid was given out again
}

type processStat struct {
	dead      bool          // a zombie: it only waits for its parent
	sinceBoot time.Duration // from the boot to its start
}

func procStat(pid int) (processStat, error) {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return processStat{}, err
	}
	// pid (name) state ...: the name may hold spaces and parentheses, the rest
	// not. State is field 3, the start is field 22.
	_, rest, ok := strings.Cut(string(line[bytes.LastIndexByte(line, ')')+1:]), " ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 {
		return processStat{}, fmt.Errorf("read process %d: odd stat line", pid)
	}
	ticks, err := strconv.ParseInt(fields[19], 10, 64)
	if err != nil {
		return processStat{}, fmt.Errorf("read process %d: %w", pid, err)
	}
	return processStat{
		dead:      fields[0] == "Z" || fields[0] == "X",
		sinceBoot: time.Duration(ticks) * (time.Second / ticksPerSecond),
	}, nil
}

// bootTime is zero where the system does not report it.
func bootTime() time.Time {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return time.Time{}
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "btime "); ok {
			if sec, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64); err == nil {
				return time.Unix(sec, 0)
			}
		}
	}
	return time.Time{}
}
