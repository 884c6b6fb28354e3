//go:build linux && proof

package sandbox

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// S0-104: the timeout ends the whole tree.
func TestTimeoutKillsTree(t *testing.T) {
	eachLevel(t, func(t *testing.T, l Level) {
		s, dir := only(t, l), workdir(t, l)
		up, gone := held(t, dir)
		r, err := s.Run(t.Context(), Command{Shell: strays, Workdir: dir, Timeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		await(t, "the stray's start", up)
		await(t, "the end of the tree", gone)
		if !r.TimedOut || r.Canceled || r.ExitCode != 137 || r.Signal != "SIGKILL" {
			t.Errorf("got %+v, want timed out, 137, SIGKILL", r)
		}
	})
}

func TestCancelKillsTree(t *testing.T) {
	eachLevel(t, func(t *testing.T, l Level) {
		s, dir := only(t, l), workdir(t, l)
		up, gone := held(t, dir)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-up
			cancel()
		}()
		r, err := s.Run(ctx, Command{Shell: strays, Workdir: dir, Timeout: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		// The promise is about the return of Run: the tree is dead by then.
		await(t, "the end of the tree", gone)
		if !r.Canceled || r.TimedOut {
			t.Errorf("got %+v, want cancelled", r)
		}
	})
}

// A program that ends leaves nobody behind.
func TestEndKillsStrays(t *testing.T) {
	eachLevel(t, func(t *testing.T, l Level) {
		s, dir := only(t, l), workdir(t, l)
		up, gone := held(t, dir)
		if err := unix.Mkfifo(filepath.Join(dir, "go"), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, "go"), 0o666); err != nil {
			t.Fatal(err)
		}
		go func() {
			<-up
			_ = os.WriteFile(filepath.Join(dir, "go"), []byte("go\n"), 0)
		}()
		script := strings.Replace(strays, "while :; do sleep 1000; done", "SLEEP", 1)
		script = strings.Replace(script, "while :; do sleep 1000; done", "read _ <go; exit 7", 1)
		script = strings.Replace(script, "SLEEP", "while :; do sleep 1000; done", 1)
		r, err := s.Run(t.Context(), Command{Shell: script, Workdir: dir, Timeout: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		await(t, "the end of the strays", gone)
		if r.ExitCode != 7 || r.TimedOut {
			t.Errorf("got %+v, want exit code 7", r)
		}
	})
}

// runnerArg makes the test binary a runner that is to be killed.
const runnerArg = "sandbox-runner"

func init() { children[runnerArg] = runRunner }

func runRunner(spec string) int {
	l, dir, _ := strings.Cut(spec, ":")
	s, err := New(context.Background(), Options{levels: []Level{Level(l)}, ScratchDir: filepath.Dir(dir)})
	if err != nil {
		return 1
	}
	if _, err := s.Run(context.Background(), Command{Shell: strays, Workdir: dir}); err != nil {
		return 1
	}
	return 0
}

// The runner is killed with SIGKILL and cannot tidy up; the tree dies all the same.
func TestRunnerDeathKillsTree(t *testing.T) {
	eachLevel(t, func(t *testing.T, l Level) {
		only(t, l)
		dir := filepath.Join(outside(t), "work")
		if err := os.Rename(workdir(t, l), dir); err != nil {
			t.Fatal(err)
		}
		if l == LevelReduced {
			if err := os.Chmod(filepath.Dir(dir), 0o777); err != nil {
				t.Fatal(err)
			}
		}
		up, gone := held(t, dir)
		binary, err := self()
		if err != nil {
			t.Fatal(err)
		}
		runner := exec.Command(binary, runnerArg, string(l)+":"+dir)
		if err := runner.Start(); err != nil {
			t.Fatal(err)
		}
		await(t, "the stray's start", up)
		if err := runner.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := runner.Wait(); err == nil {
			t.Error("the runner was not killed")
		}
		await(t, "the end of the tree", gone)
	})
}

// The launcher is killed: PR_SET_PDEATHSIG ends init, and the namespace the rest. The next
// program gets a new one.
func TestLauncherDeathKillsTree(t *testing.T) {
	for _, l := range []Level{LevelFull, LevelBubblewrap, LevelPrivileged, LevelReduced, LevelOff} {
		t.Run(string(l), func(t *testing.T) {
			s, dir := only(t, l), workdir(t, l)
			up, gone := held(t, dir)
			type outcome struct {
				r   Result
				err error
			}
			ended := make(chan outcome, 1)
			go func() {
				r, err := s.Run(t.Context(), Command{Shell: strays, Workdir: dir, Timeout: 30 * time.Second})
				ended <- outcome{r, err}
			}()
			await(t, "the stray's start", up)
			for _, pid := range childrenOf(t, os.Getpid()) {
				if err := unix.Kill(pid, unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			await(t, "the end of the tree", gone)
			if o := <-ended; o.err != nil || o.r.Signal != "SIGKILL" {
				t.Errorf("got %+v, %v, want SIGKILL", o.r, o.err)
			}
			for len(childrenOf(t, os.Getpid())) > 0 { // a launcher that is ending may still take an order
				runtime.Gosched()
			}
			if r, err := s.Run(t.Context(), Command{Shell: "echo again", Workdir: dir}); err != nil || string(r.Stdout) != "again\n" {
				t.Errorf("after it: got %+v, %v", r, err)
			}
		})
	}
}

func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	out, err := exec.Command("ps", "-o", "pid=,comm=", "--ppid", itoa(pid)).Output()
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 2 && f[1] != "ps" {
			pids = append(pids, atoi(t, f[0]))
		}
	}
	return pids
}

// A runner that is killed with a program or a probe under way leaves a directory,
// and the next start over the same place removes it.
func TestRestartSweeps(t *testing.T) {
	only(t, LevelOff)
	dir := filepath.Join(outside(t), "work")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	up, gone := held(t, dir)
	binary, err := self()
	if err != nil {
		t.Fatal(err)
	}
	runner := exec.Command(binary, runnerArg, string(LevelOff)+":"+dir) // a level with a /tmp of ours
	if err := runner.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the stray's start", up)
	if err := runner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = runner.Wait() // it was killed: the error says so
	await(t, "the end of the tree", gone)
	left := func() []string {
		names, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "*"))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	if len(left()) != 2 {
		t.Fatalf("%q: the killed runner left nothing, so nothing is shown", left())
	}
	s, err := New(t.Context(), Options{ScratchDir: filepath.Dir(dir), levels: []Level{LevelOff}})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if names := left(); len(names) != 1 {
		t.Errorf("left after the next start: %q", names)
	}
}
