//go:build !linux

package sandbox

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/sandbox/output"
)

// Sandbox runs programs on a system for which there is no driver: with the mode off
// on the host itself, else not at all. It is safe for concurrent use.
type Sandbox struct {
	opts    Options
	report  Report
	scratch *scratch
}

// Main returns: there are no processes of ours in between here.
func Main() {}

// Probe says which driver a mode would get here.
func Probe(ctx context.Context, mode Mode) Report {
	s, err := New(ctx, Options{Mode: mode})
	if err != nil {
		return Report{Level: LevelNone, Driver: "none works: no program is run", Problems: []string{err.Error()}}
	}
	return s.report
}

// New returns a Sandbox. That there is no driver is not an error here: it is in the
// Report, and Run refuses. An error is a wrong option.
func New(_ context.Context, o Options) (*Sandbox, error) {
	levels, err := o.Mode.levels()
	if err != nil {
		return nil, err
	}
	s := &Sandbox{opts: o, scratch: makeScratch(cmp.Or(o.ScratchDir, os.TempDir()), false), report: Report{
		Level: LevelNone, Driver: "none works: no program is run",
		Problems: []string{"there is no sandbox for " + runtime.GOOS + ": run agentd on Linux, or set sandbox.mode to off, and programs of that agent run on this host as you"},
	}}
	if levels[0] == LevelOff {
		s.report = Report{
			Level: LevelOff, Driver: "none: programs run on the host, because sandbox.mode is off",
			Problems: []string{"off: programs can read and change all that we can, no limit of memory or processes holds, and one that leaves its group outlives us"},
		}
	}
	return s, nil
}

// Report is what New found.
func (s *Sandbox) Report() Report { return s.report }

// TempDir makes a directory for the workdir of one program, which the caller removes.
func (s *Sandbox) TempDir() (string, error) { return s.scratch.Temp("dir-") }

// Close removes what is temporary.
func (s *Sandbox) Close() { _ = s.scratch.Close() }

// Run runs c on the host and waits for its end, or refuses.
func (s *Sandbox) Run(ctx context.Context, c Command) (Result, error) {
	if s.report.Level != LevelOff {
		return Result{}, s.unavailable()
	}
	c, err := s.check(c)
	if err != nil {
		return Result{}, err
	}
	temp, err := s.scratch.Temp("tmp-")
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	out, err := output.New(c.OutputCap, c.SpillDir, c.Workdir, os.Geteuid(), os.Getegid())
	if err != nil {
		return Result{}, err
	}
	defer out.Close()
	if c.Log != "" {
		if err := out.Log(c.Log); err != nil {
			return Result{}, err
		}
	}
	out.Follow(c.OnStdout, c.OnStderr)
	stdout, stderr, err := out.Open()
	if err != nil {
		return Result{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	argv := c.Argv
	if c.Shell != "" {
		argv = []string{"/bin/bash", "-c", c.Shell}
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Workdir, environment(c, temp), c.Stdin, stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // of an input that is open still
	if in, ok := c.Stdin.(io.Closer); ok {
		defer func() { _ = in.Close() }()
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return Result{}, invalid("the program does not start: "+err.Error(), "check its name")
	}
	if c.OnStart != nil {
		c.OnStart()
	}
	drained := out.Drain()
	_ = cmd.Wait()                                      // how it ended is in ProcessState
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it left in its group
	drained()
	got := out.Outcome()
	r := Result{Stdout: got.Stdout, Stderr: got.Stderr, Truncated: got.Truncated, Spill: got.Spill, Duration: time.Since(start)}
	r.TimedOut = errors.Is(ctx.Err(), context.DeadlineExceeded)
	r.Canceled = ctx.Err() != nil && !r.TimedOut
	r.ExitCode = cmd.ProcessState.ExitCode()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		r.ExitCode, r.Signal = 128+int(ws.Signal()), unix.SignalName(ws.Signal())
	}
	return r, nil
}
