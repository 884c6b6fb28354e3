package pgtest

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// process is a row of /proc.
type process struct {
	pid int
	cpu time.Duration
}

// processes are the server and its children: each connection is one.
func (c *Cluster) processes() []process {
	const tick = 10 * time.Millisecond // of /proc, on every Linux
	var out []process
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		// The name, in parentheses, may hold anything: the parent and the times stand behind it.
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil || len(f) < 15 || (pid != c.cmd.Process.Pid && f[1] != strconv.Itoa(c.cmd.Process.Pid)) {
			continue
		}
		times := f[11:13]
		if pid == c.cmd.Process.Pid {
			times = f[11:15] // with that of children that have ended
		}
		var sum int64
		for _, t := range times {
			n, _ := strconv.ParseInt(t, 10, 64)
			sum += n
		}
		out = append(out, process{pid, time.Duration(sum) * tick})
	}
	return out
}

// Pids are the server's processes as they are now.
func (c *Cluster) Pids() []int {
	var out []int
	for _, p := range c.processes() {
		out = append(out, p.pid)
	}
	return out
}

// CPU is the processor time that the server has used, with connections that have ended:
// what a transaction costs, however busy the machine is with other things.
func (c *Cluster) CPU() time.Duration {
	var sum time.Duration
	for _, p := range c.processes() {
		sum += p.cpu
	}
	return sum
}
