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
)

// trimAfter are the times after the start at which memory is given back: when
// what only the start needed has been used, and when a first look at many inboxes
// is over.
var trimAfter = []time.Duration{3 * time.Second, time.Minute}

// trimMemory gives back what the start left behind: freed heap, and the pages of
// the program itself that were touched once, such as the initialisation of
// libraries. Those pages are as in the file and come back from the page cache when
// they are needed again, so this costs a few microseconds for each that is.
func trimMemory(ctx context.Context) {
	for _, d := range trimAfter {
		if pause.For(ctx, d) != nil {
			return
		}
		trim()
	}
}

func trim() {
	debug.FreeOSMemory()
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
