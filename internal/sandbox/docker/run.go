package docker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/sandbox/output"
)

const (
	// killGrace is how long the script has to end its process group before docker is not waited for any more.
	killGrace = 2 * time.Second
	// clientGrace is how long docker may take to end when the program has ended.
	clientGrace = 5 * time.Second
	// killed is the exit code of a program that SIGKILL has ended.
	killed = 128 + int(syscall.SIGKILL)
)

func (d *Driver) run(ctx context.Context, b Box, c sandbox.Command) (sandbox.Result, error) {
	c, err := c.Checked()
	switch {
	case err != nil:
		return sandbox.Result{}, err
	case c.Stdin != nil:
		return sandbox.Result{}, fault.New(codes.InvalidArgument, fault.InvalidArgument, "a program in a container has no input", "give it a file")
	case c.Serve != nil:
		return sandbox.Result{}, unavailable("a container cannot limit the network to some hosts, so nothing was run",
			"set sandbox.network to off or open, or sandbox.driver to auto", nil)
	}
	if err := d.check(b); err != nil {
		return sandbox.Result{}, err
	}
	if c.Shell != "" {
		c.Argv = []string{"/bin/sh", "-c", shell, "sh", c.Shell}
	}
	at, err := look(b)
	if err != nil {
		return sandbox.Result{}, err
	}
	out, err := output.New(c.OutputCap, c.SpillDir, b.Dir, at.uid, at.gid)
	if err != nil {
		return sandbox.Result{}, err
	}
	defer out.Close()
	if c.Log != "" {
		if err := out.Log(c.Log); err != nil {
			return sandbox.Result{}, fmt.Errorf("make the file for the output: %w", err)
		}
	}
	out.Follow(c.OnStdout, c.OnStderr)
	known := d.take(b.GetContainer(), b.GetScope())
	defer d.give(known)
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	id, err := d.ensure(ctx, known, b)
	if err == nil {
		var r sandbox.Result
		if r, err = d.exec(ctx, b, id, c, out); err == nil {
			r.Duration = time.Since(start)
			return r, nil
		}
	}
	if ctx.Err() != nil && !fault.Is(err, fault.LeaseLost) { // the time was over before it was begun
		return ended(ctx, sandbox.Result{ExitCode: killed, Signal: "SIGKILL", Duration: time.Since(start)}), nil
	}
	return sandbox.Result{}, err
}

// ended notes why a program was ended.
func ended(ctx context.Context, r sandbox.Result) sandbox.Result {
	if err := ctx.Err(); err != nil {
		r.TimedOut = errors.Is(err, context.DeadlineExceeded)
		r.Canceled = !r.TimedOut
	}
	return r
}

// exec runs the program. The container is removed when it is not known that the program has ended.
func (d *Driver) exec(ctx context.Context, b Box, id string, c sandbox.Command, out *output.Collector) (sandbox.Result, error) {
	program, err := d.program()
	if err != nil {
		return sandbox.Result{}, err
	}
	stdin, lifeline, err := os.Pipe()
	if err != nil {
		return sandbox.Result{}, fmt.Errorf("make input: %w", err)
	}
	defer lifeline.Close()
	defer stdin.Close()
	m := newMarks(strings.ToLower(rand.Text()), c.OnStart)
	out.Filter(m.filter)
	stdout, stderr, err := out.Open()
	if err != nil {
		return sandbox.Result{}, err
	}
	cmd := exec.Command(program, b.execArgs(id, string(m.mark[1:]), c.Env, c.Argv)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		if errors.Is(err, syscall.E2BIG) {
			return sandbox.Result{}, fault.New(codes.InvalidArgument, fault.InvalidArgument, "the command is too long for a program, so it was not run", "write long text to a file first")
		}
		return sandbox.Result{}, unavailable("docker cannot be started, so nothing was run: "+err.Error(), "install docker, or set sandbox.driver to auto", err)
	}
	_ = stdin.Close()
	drained := out.Drain()
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is reported by the script
		close(exited)
	}()
	select {
	case <-exited:
	case <-m.ended:
		wait(exited, clientGrace)
	case <-ctx.Done():
		_ = lifeline.Close()
		wait(exited, killGrace)
	}
	if !closed(exited) {
		_ = cmd.Process.Kill()
		<-exited
	}
	drained()
	got := out.Outcome()
	r := ended(ctx, sandbox.Result{Stdout: got.Stdout, Stderr: got.Stderr, Truncated: got.Truncated, Spill: b.Inside(got.Spill)})
	switch {
	case closed(m.ended):
		if r.ExitCode = m.code; m.code != killed {
			r.TimedOut, r.Canceled = false, false // it has ended before it was to be ended
		}
		return r, nil
	case !closed(m.started) && ctx.Err() == nil:
		return sandbox.Result{}, unavailable("docker has not started the command: "+said(got.Stderr),
			"see that the image has sh and setsid and that the container "+b.GetContainer()+" runs, or set sandbox.driver to auto", nil)
	}
	// The client, the daemon or the script was killed.
	r.ExitCode, r.Signal = killed, "SIGKILL"
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	if err := d.remove(limited, id); err != nil {
		d.opts.Logger.Error("a container with a command that may run was not removed", "container", b.GetContainer(), "error", fault.Chain(err))
	}
	return r, nil
}

// wait waits for the end of a channel, or until a time is over.
func wait(c <-chan struct{}, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-c:
	case <-timer.C:
	}
}
