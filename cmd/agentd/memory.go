//go:build linux

package main

import (
	"bufio"
	"context"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/pause"
	"github.com/theclaw/agents/internal/store/sqlite"
)

// trimAfter is the time after the start at which memory is given back for the first time:
// when what only the start needed has been used. checkEvery is how often it is checked
// later whether work has ended. It is given back in each of the first trims idle intervals:
// the databases that were used stay open for half a minute, and what ends with them, a
// lease for example, touches pages again.
const (
	trimAfter  = 3 * time.Second
	checkEvery = 10 * time.Second
	trims      = 5
)

// trimMemory gives back what the start left behind, and what work leaves behind once it has
// ended: freed heap, and the pages of the program itself that were touched once, such as
// the initialization of libraries. Those pages are as in the file and come back from the
// page cache when they are needed again, so this costs a few microseconds for each that is.
func trimMemory(ctx context.Context) {
	if pause.For(ctx, trimAfter) != nil {
		return
	}
	trim()
	idle := idleSince(processorTime())
	for pause.For(ctx, checkEvery) == nil {
		if idle(processorTime()) {
			trim()
		}
	}
}

// idleSince returns a function that is called each checkEvery with the processor time used so
// far, and reports whether memory is to be given back: the process has been idle for at most
// trims intervals after it was not. Idle is less than a hundredth of the interval.
func idleSince(used time.Duration) func(time.Duration) bool {
	idle := 0 // intervals; the start is work
	return func(now time.Duration) bool {
		busy := now-used >= checkEvery/100
		used = now
		if idle++; busy {
			idle = 0
		}
		return idle > 0 && idle <= trims
	}
}

// processorTime is what this process has used.
func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func trim() {
	debug.FreeOSMemory()
	_ = sqlite.Trim() // what cannot be returned stays
	self, err := os.Executable()
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return // not on this system
	}
	defer func() { _ = maps.Close() }()
	var from, to uint64 // of the mapping whose lines are read; 0: none of ours
	for sc := bufio.NewScanner(maps); sc.Scan(); {
		f := strings.Fields(sc.Text())
		switch {
		case len(f) >= 5 && !strings.HasSuffix(f[0], ":"):
			// 00400000-01a2b000 r-xp 00000000 fe:00 1234  /path/of/agentd
			from, to = 0, 0
			if len(f) == 6 && f[5] == self && !strings.Contains(f[1], "w") {
				from, to = bounds(f[0])
			}
		case from != 0 && len(f) == 3 && f[0] == "Anonymous:" && f[1] == "0":
			// Pages with changes of their own would come back without them: the
			// loader's relocations in a program that is linked with C, which is
			// read-only after the start too.
			// A refusal leaves the pages where they are, which is no harm.
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(from), uintptr(to-from), unix.MADV_DONTNEED)
		}
	}
}

// bounds reads "from-to"; 0 when it is something else.
func bounds(s string) (from, to uint64) {
	low, high, _ := strings.Cut(s, "-")
	from, err1 := strconv.ParseUint(low, 16, 64)
	to, err2 := strconv.ParseUint(high, 16, 64)
	if err1 != nil || err2 != nil {
		return 0, 0
	}
	return from, to
}
