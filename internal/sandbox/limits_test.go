//go:build linux && proof

package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/sandbox/cgroup"
	"github.com/theclaw/agents/internal/testing/need"
)

func init() {
	counts = append(counts, attempt{name: "count processes", run: countProcesses})
}

// countProcesses starts sleeping children until it cannot; far is where it gives up.
func countProcesses() error {
	const far = 300
	for n := range far {
		c := exec.Command("/bin/sleep", "1000")
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := c.Start(); err != nil {
			return fmt.Errorf("stopped after %d: %w", n, err)
		}
	}
	return nil
}

// A fork bomb is bounded, and the timeout ends it. Both with and without cgroups.
func TestForkBomb(t *testing.T) {
	eachLevel(t, func(t *testing.T, l Level) {
		for _, noCgroups := range []bool{false, true} {
			t.Run(fmt.Sprintf("cgroups=%t", !noCgroups), func(t *testing.T) {
				s := with(t, l, Options{noCgroups: noCgroups})
				if os.Geteuid() == 0 && l != LevelFull && l != LevelPrivileged {
					switch {
					case noCgroups:
						need.Inapplicable(t, "without cgroups nothing bounds root at this level, and Report says so")
					case !s.cgroups.PIDs:
						need.Missing(t, "a cgroup that bounds processes", "run the tests on a host with cgroups that can be written")
					}
				}
				dir := workdir(t, l)
				binary, err := self()
				if err != nil {
					t.Fatal(err)
				}
				r := mustRun(t, s, Command{
					Argv:    []string{binary, attemptArg, "count processes"},
					Workdir: dir, Limits: Limits{PIDs: 50}, Timeout: 30 * time.Second,
				})
				if r.ExitCode != 1 || !strings.Contains(string(r.Stdout), "resource temporarily unavailable") {
					t.Errorf("got %d: %s%s", r.ExitCode, r.Stdout, r.Stderr)
				}
				up, gone := held(t, dir)
				r = mustRun(t, s, Command{
					Shell:   "exec 9>fifo; echo up >&9; f() { f | f & }; f; while :; do sleep 1000; done",
					Workdir: dir, Limits: Limits{PIDs: 50}, Timeout: 2 * time.Second,
				})
				await(t, "the start of the bomb", up)
				await(t, "the end of the bomb", gone)
				if !r.TimedOut {
					t.Errorf("got %+v, want timed out", r)
				}
			})
		}
	})
}

func TestFileLimit(t *testing.T) {
	eachLevel(t, func(t *testing.T, l Level) {
		s, dir := only(t, l), workdir(t, l)
		const limit = 4 << 20
		r := mustRun(t, s, Command{Shell: "head -c 1073741824 /dev/zero >big", Workdir: dir, Limits: Limits{FileBytes: limit}})
		st, err := os.Stat(filepath.Join(dir, "big"))
		if err != nil || st.Size() > limit || r.ExitCode == 0 {
			t.Errorf("got code %d and %v, %v", r.ExitCode, st, err)
		}
	})
}

func TestMemoryLimit(t *testing.T) {
	eachLevel(t, func(t *testing.T, l Level) {
		for _, noCgroups := range []bool{false, true} {
			s, dir := with(t, l, Options{noCgroups: noCgroups}), workdir(t, l)
			// tail keeps all of a line in memory.
			r := mustRun(t, s, Command{Shell: "head -c 600000000 /dev/zero | tail", Workdir: dir, Limits: Limits{MemoryBytes: 256 << 20}, OutputCap: 10})
			if r.ExitCode == 0 || r.TimedOut {
				t.Errorf("cgroups %t: got code %d, %d bytes, %s", !noCgroups, r.ExitCode, len(r.Stdout), r.Stderr)
			}
		}
	})
}

func TestOtherLimits(t *testing.T) {
	eachLevel(t, func(t *testing.T, l Level) {
		s, dir := only(t, l), workdir(t, l)
		r := mustRun(t, s, Command{Shell: "while :; do :; done", Workdir: dir, Limits: Limits{CPUSeconds: 1}, Timeout: 60 * time.Second})
		if r.TimedOut || (r.Signal != "SIGXCPU" && r.Signal != "SIGKILL") {
			t.Errorf("processor time: got %+v", r)
		}
		r = mustRun(t, s, Command{Shell: "ulimit -n; ulimit -c; ulimit -Hn", Workdir: dir, Limits: Limits{OpenFiles: 77}})
		if got := string(r.Stdout); got != "77\n0\n77\n" {
			t.Errorf("open files, core: got %q", got)
		}
	})
}

// A program may have the address space that it asks for where a cgroup counts its memory, which stays bounded, and
// nowhere else.
func TestAddressSpace(t *testing.T) {
	eachLevel(t, func(t *testing.T, l Level) {
		for _, noCgroups := range []bool{false, true} {
			s, dir := with(t, l, Options{noCgroups: noCgroups}), workdir(t, l)
			for asked, want := range map[int64]int64{0: 16 << 30, 1 << 40: 1 << 40} {
				if !s.cgroups.Memory {
					want = 3 << 30
				}
				r := mustRun(t, s, Command{Shell: "ulimit -v", Workdir: dir, Limits: Limits{MemoryBytes: 1 << 30, AddressBytes: asked}})
				if got := strings.TrimSpace(string(r.Stdout)); got != strconv.FormatInt(want>>10, 10) {
					t.Errorf("cgroups %t: asked for %d, got %s KiB", !noCgroups, asked, got)
				}
			}
			r := mustRun(t, s, Command{Shell: "head -c 600000000 /dev/zero | tail", Workdir: dir, Limits: Limits{MemoryBytes: 256 << 20, AddressBytes: 1 << 40}, OutputCap: 10})
			if r.ExitCode == 0 || r.TimedOut {
				t.Errorf("cgroups %t: its memory has no bound: code %d", !noCgroups, r.ExitCode)
			}
		}
	})
}

// Nothing of a run stays behind: no cgroup, no temporary file, no descriptor.
func TestNothingStays(t *testing.T) {
	eachLevel(t, func(t *testing.T, l Level) {
		s, dir := only(t, l), workdir(t, l)
		mustRun(t, s, Command{Shell: "true", Workdir: dir})
		before := descriptors(t)
		for range 5 {
			mustRun(t, s, Command{Shell: "seq 1000 >&2", Workdir: dir, OutputCap: 10, SpillDir: dir})
		}
		if after := descriptors(t); after > before {
			t.Errorf("%d descriptors, were %d", after, before)
		}
		left, err := os.ReadDir(s.scratch.Path)
		if err != nil || len(left) > 0 {
			t.Errorf("left in the scratch directory: %v, %v", left, err)
		}
		groups := func() (all []string) {
			for _, b := range s.cgroups.Bases {
				some, err := filepath.Glob(filepath.Join(b, fmt.Sprintf("%s%d-*", cgroup.Prefix, s.launcher.process.Pid)))
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, some...)
			}
			return all
		}
		// One belongs to the process that waits for the next program. A group that the kernel
		// held too long goes with one of the next.
		for tries := 0; len(groups()) > len(s.cgroups.Bases); tries++ {
			if tries == 100 {
				t.Fatalf("left: %q", groups())
			}
			mustRun(t, s, Command{Shell: "true", Workdir: dir})
		}
	})
}

func descriptors(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}
