//go:build linux

package sandbox

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/sandbox/jail"
	"github.com/theclaw/agents/internal/sandbox/output"
	"github.com/theclaw/agents/internal/sandbox/wire"
)

var errNoBwrap = errors.New("bwrap not found")

// killGrace is how long the trampoline has to end the tree before it is killed
// itself; the kernel then ends the rest.
const killGrace = 600 * time.Millisecond

// Run runs c and waits for its end. A program that fails, is killed or takes too
// long is a Result; an error says that it could not be run: INVALID_ARGUMENT for
// c, SANDBOX_UNAVAILABLE for the host.
func (s *Sandbox) Run(ctx context.Context, c Command) (Result, error) {
	if s.report.Level == LevelNone {
		return Result{}, s.unavailable()
	}
	r, err := s.run(ctx, s.report.Level, c)
	if setup, ok := errors.AsType[*setupError](err); ok {
		return r, fault.Wrap(fault.New(codes.FailedPrecondition, fault.SandboxUnavailable,
			"the sandbox could not be built, so the program was not run", diagnose(s.report.Level, setup)), err)
	}
	return r, err
}

func (s *Sandbox) run(ctx context.Context, l Level, c Command) (Result, error) {
	c, err := s.check(c)
	if err != nil {
		return Result{}, err
	}
	if l == LevelBubblewrap && s.bwrap == "" {
		return Result{}, errNoBwrap
	}
	o, userns, err := s.order(l, c)
	if err != nil {
		return Result{}, err
	}
	if l == LevelReduced || l == LevelOff {
		if o.Temp, err = s.scratch.Temp("tmp-"); err != nil {
			return Result{}, fmt.Errorf("make temporary directory: %w", err)
		}
		defer os.RemoveAll(o.Temp)
		if os.Geteuid() == 0 && l == LevelReduced {
			if err := os.Chown(o.Temp, o.UID, o.GID); err != nil {
				return Result{}, fmt.Errorf("make temporary directory: %w", err)
			}
		}
		o.Env = environment(c, o.Temp)
	}
	group, err := s.cgroups.Create(o.Limits)
	if err != nil {
		return Result{}, fmt.Errorf("make cgroup: %w", err)
	}
	defer group.Remove()
	o.Cgroups = group.Procs
	out, err := output.New(c.OutputCap, c.SpillDir, c.Workdir, o.OwnerUID, o.OwnerGID)
	if err != nil {
		return Result{}, err
	}
	defer out.Close()
	out.Follow(c.OnStdout, c.OnStderr)
	return spawn(ctx, s.self, o, userns, c, out)
}

// spawn starts the trampoline and waits until the tree is dead.
func spawn(ctx context.Context, self string, o wire.Order, userns *os.File, c Command, out *output.Collector) (Result, error) {
	orderR, lifeline, err := os.Pipe()
	if err != nil {
		return Result{}, fmt.Errorf("make order pipe: %w", err)
	}
	defer lifeline.Close()
	defer orderR.Close()
	statusR, statusW, err := os.Pipe()
	if err != nil {
		return Result{}, fmt.Errorf("make status pipe: %w", err)
	}
	defer statusR.Close()
	defer statusW.Close()
	stdout, stderr, err := out.Open()
	if err != nil {
		return Result{}, err
	}

	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	cmd := exec.Command(self, jail.TrampolineArgs()...)
	cmd.Args[0] = "sandbox"
	cmd.Dir, cmd.Env = "/", jail.Env()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, stdout, stderr
	cmd.ExtraFiles = []*os.File{orderR, statusW}
	if userns != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, userns)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if o.Driver != wire.Reduced && o.Driver != wire.Off {
		// There the trampoline must outlive us for a moment: it kills the orphans.
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	// Pdeathsig is sent when the thread that started the child ends. Nobody else
	// may have this one, for they could end it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return Result{}, &setupError{step: "start", text: err.Error()}
	}
	_ = orderR.Close()
	_ = statusW.Close()
	drained := out.Drain()
	sent := wire.WriteOrder(lifeline, o) // fails when the trampoline is dead; then status tells

	dead := make(chan struct{})
	go func() {
		defer close(dead)
		_ = cmd.Wait() // how it ended is in the status, or in ProcessState
	}()
	var ended error
	select {
	case <-dead:
	case <-ctx.Done():
		ended = ctx.Err()
		_ = lifeline.Close()
		grace := time.NewTimer(killGrace)
		select {
		case <-dead:
		case <-grace.C:
			_ = cmd.Process.Kill()
			<-dead
		}
		grace.Stop()
	}
	drained()
	got := out.Outcome()
	r := Result{Stdout: got.Stdout, Stderr: got.Stderr, Truncated: got.Truncated, Spill: got.Spill, Duration: time.Since(start)}
	return finish(r, statusR, ended, sent)
}

// finish reads what init and the trampoline said. All of it is in the pipe: the
// writers are dead.
func finish(r Result, status *os.File, ended, sent error) (Result, error) {
	_ = status.SetReadDeadline(time.Now().Add(killGrace))
	var last wire.Status
	for in := bufio.NewScanner(status); in.Scan(); {
		var st wire.Status
		if json.Unmarshal(in.Bytes(), &st) == nil && last.Err == "" {
			last = st
		}
	}
	switch {
	case last.Done:
		r.ExitCode = last.Exit
		if last.Signal != 0 {
			r.Signal = unix.SignalName(unix.Signal(last.Signal))
		}
		return r, nil
	case ended != nil:
		r.TimedOut = errors.Is(ended, context.DeadlineExceeded)
		r.Canceled = !r.TimedOut
	case last.Err != "":
		return Result{}, &setupError{step: last.Step, text: withStderr(last.Err, r), errno: unix.Errno(last.Errno)}
	case sent != nil:
		return Result{}, &setupError{step: "start", text: withStderr(sent.Error(), r)}
	}
	// Killed from outside, for example when the cgroup ran out of memory.
	r.ExitCode, r.Signal = 128+int(unix.SIGKILL), "SIGKILL"
	return r, nil
}

// withStderr adds what bubblewrap or a crashed init said last; no program has run.
func withStderr(text string, r Result) string {
	if said := strings.TrimSpace(Text(r.Stderr[:min(len(r.Stderr), 500)])); said != "" {
		text += " (" + strings.ReplaceAll(said, "\n", ", ") + ")"
	}
	return text
}
