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
)

// trimAfter are the times after the start at which memory is given back: when
// what only the start needed has been used, and when a first look at many inboxes
// is over.
var trimAfter = []time.Duration{3 * time.Second, time.Minute}

// trimMemory gives back what the start left behind: freed heap, and the pages of
// the program itself that were touched once, such as the initialisation of
// libraries. Those pages are read-only and come back from the page cache when
// they are needed again, so this costs a few microseconds for each that is.
func trimMemory(ctx context.Context) {
	for _, d := range trimAfter {
		t := time.NewTimer(d)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
			trim()
		}
	}
}

func trim() {
	debug.FreeOSMemory()
	self, err := os.Executable()
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return // not on this system
	}
	defer func() { _ = maps.Close() }()
	for sc := bufio.NewScanner(maps); sc.Scan(); {
		// 00400000-01a2b000 r-xp 00000000 fe:00 1234  /path/of/agentd
		f := strings.Fields(sc.Text())
		if len(f) != 6 || f[5] != self || strings.Contains(f[1], "w") {
			continue
		}
		from, to, _ := strings.Cut(f[0], "-")
		a, err1 := strconv.ParseUint(from, 16, 64)
		b, err2 := strconv.ParseUint(to, 16, 64)
		if err1 != nil || err2 != nil {
			continue
		}
		// A refusal leaves the pages where they are, which is no harm.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(a), uintptr(b-a), unix.MADV_DONTNEED)
	}
}
