//go:build linux

package sandbox

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/sandbox/output"
	"github.com/theclaw/agents/internal/sandbox/wire"
)

var errNoBwrap = errors.New("bwrap not found")

// killGrace is how long the launcher has to end a tree before it is killed itself; the
// kernel and the trampolines then end all trees.
const killGrace = 2 * time.Second

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
	if c.Network || l == LevelOff {
		c.Serve = nil
	}
	if c.Serve != nil && l == LevelReduced {
		return Result{}, fault.New(codes.FailedPrecondition, fault.SandboxUnavailable,
			"the sandbox of level reduced cannot limit the network to some hosts, so the program was not run",
			"set sandbox.network to off or open, or make a sandbox with namespaces possible: see 'agentctl doctor'")
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
	base := c.Workdir
	if c.Workspace != "" && within(c.SpillDir, c.Workspace) {
		base = c.Workspace
	}
	out, err := output.New(c.OutputCap, c.SpillDir, base, o.OwnerUID, o.OwnerGID)
	if err != nil {
		return Result{}, err
	}
	defer out.Close()
	if c.Log != "" {
		if err := out.Log(c.Log); err != nil {
			return Result{}, fmt.Errorf("make the file for the output: %w", err)
		}
	}
	out.Follow(c.OnStdout, c.OnStderr)
	return s.spawn(ctx, o, userns, c, out)
}

// spawn has the launcher start the program and waits until its tree is dead.
func (s *Sandbox) spawn(ctx context.Context, o wire.Order, userns *os.File, c Command, out *output.Collector) (Result, error) {
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
	stdin, written, err := input(c.Stdin)
	if err != nil {
		return Result{}, fmt.Errorf("make input: %w", err)
	}
	defer written()
	defer stdin.Close()
	stdout, stderr, err := out.Open()
	if err != nil {
		return Result{}, err
	}
	files := []*os.File{orderR, statusW, stdin, stdout, stderr}
	if userns != nil {
		files = append(files, userns)
	}
	var at *served
	if c.Serve != nil {
		if at, err = newServed(); err != nil {
			return Result{}, err
		}
		o.Listen, files = ProxyAddress, append(files, at.theirs)
	}

	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	start := time.Now()
	if err := s.launcher.call(files...); err != nil {
		if at != nil {
			at.drop()
		}
		return Result{}, &setupError{step: "start", text: err.Error()}
	}
	for _, f := range files[:3] {
		_ = f.Close()
	}
	if at != nil {
		at.serve(c.Serve)
		defer at.end()
	}
	drained := out.Drain()
	sent := wire.WriteOrder(lifeline, o) // fails when the launcher is dead; then status tells
	if c.OnStart != nil && sent == nil {
		c.OnStart()
	}

	dead := make(chan wire.Status, 1)
	go func() { dead <- lastStatus(statusR) }()
	var last wire.Status
	var ended error
	select {
	case last = <-dead:
	case <-ctx.Done():
		ended = ctx.Err()
		_ = lifeline.Close()
		grace := time.NewTimer(killGrace)
		select {
		case last = <-dead:
		case <-grace.C:
			s.launcher.kill()
			_ = statusR.SetReadDeadline(time.Now().Add(killGrace))
			last = <-dead
		}
		grace.Stop()
	}
	drained()
	got := out.Outcome()
	r := Result{Stdout: got.Stdout, Stderr: got.Stderr, Truncated: got.Truncated, Spill: got.Spill, Duration: time.Since(start)}
	return finish(r, last, ended, sent)
}

// lastStatus reads what init, a trampoline and the launcher say, until none of them is left: the
// launcher says how it ended by closing its end when it has seen the tree dead.
func lastStatus(status *os.File) (last wire.Status) {
	for in := bufio.NewScanner(status); in.Scan(); {
		var st wire.Status
		if json.Unmarshal(in.Bytes(), &st) == nil && last.Err == "" {
			last = st
		}
	}
	return last
}

func finish(r Result, last wire.Status, ended, sent error) (Result, error) {
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
