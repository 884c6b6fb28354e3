//go:build linux && proof

package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const mega = 1 << 20

// limitBreaches want more than their share. What they got is counted in files they
// leave in the workdir, not taken from what they say.
var limitBreaches = []breach{
	{name: "start 300 processes", limits: Limits{PIDs: 50}, run: manyProcesses, got: sizeAbove("count", 50+16)},
	{name: "open 1000 files", limits: Limits{OpenFiles: 64}, run: manyFiles, got: sizeAbove("count", 64), before: func(*home) {
		l := unix.Rlimit{Cur: 4096, Max: 4096}
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &l) // the control needs it where the default is lower
	}},
	{name: "use 800 MiB of memory", limits: Limits{MemoryBytes: 600 * mega}, run: muchMemory, got: inWork("done")},
	{name: "write a file of 8 MiB", limits: Limits{FileBytes: 4 * mega}, shell: `head -c 8388608 /dev/zero >big`, got: sizeAbove("big", 4*mega)},
	{name: "stretch a file to 1 GiB", limits: Limits{FileBytes: 4 * mega}, shell: `truncate -s 1G big`, got: sizeAbove("big", 4*mega)},
	{name: "fill /tmp", limits: Limits{FileBytes: 4 * mega}, shell: `d=$(mktemp -d) && for i in 1 2 3 4 5 6 7 8; do head -c 1048576 /dev/zero >"$d/$i" || break; done; cp "$d"/? .; rm -rf "$d"`, leaks: []Level{LevelReduced}, got: func(w *home, _ Result) any {
		whole := 0
		for i := range 8 {
			if st, err := os.Stat(filepath.Join(w.work, strconv.Itoa(i+1))); err == nil && st.Size() == mega {
				whole++
			}
		}
		return whole == 8
	}},
	{name: "use more than a second of processor", limits: Limits{CPUSeconds: 1}, run: muchTime, got: inWork("done")},
	{name: "flood the output", cap: 64 << 10, shell: `head -c 8388608 /dev/zero; head -c 8388608 /dev/zero >&2`, got: func(_ *home, r Result) any {
		return len(r.Stdout)+len(r.Stderr) > 64<<10
	}},
}

// sizeAbove is evidence that a file the program wrote is larger.
func sizeAbove(name string, limit int64) func(*home, Result) any {
	return func(w *home, _ Result) any {
		st, err := os.Stat(filepath.Join(w.work, name))
		return err == nil && st.Size() > limit
	}
}

func inWork(name string) func(*home, Result) any {
	return func(w *home, _ Result) any { return is(filepath.Join(w.work, name)) }
}

// tick makes the file "count" one byte longer.
func tick() error {
	f, err := os.OpenFile("count", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString("x")
	return err
}

func manyProcesses() error {
	var all []*exec.Cmd
	defer func() {
		for _, c := range all {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}()
	for range 300 {
		c := exec.Command("/bin/sleep", "1000")
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := c.Start(); err != nil {
			return err
		}
		all = append(all, c)
		if err := tick(); err != nil {
			return err
		}
	}
	return nil
}

func manyFiles() error {
	// The one that counts is open before there is none left.
	count, err := os.Create("count")
	if err != nil {
		return err
	}
	for range 1000 {
		if _, err := unix.Open("/dev/null", unix.O_RDONLY, 0); err != nil {
			return err
		}
		if _, err := count.WriteString("x"); err != nil {
			return err
		}
	}
	return nil
}

func muchMemory() error {
	b, err := unix.Mmap(-1, 0, 800*mega, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	return os.WriteFile("done", b[:1], 0o600)
}

func muchTime() error {
	for {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			return err
		}
		if time.Duration(u.Utime.Nano()+u.Stime.Nano()) > 1300*time.Millisecond {
			return os.WriteFile("done", nil, 0o600)
		}
		for i := 0; i < 1e7; i++ {
		}
	}
}
