package xgw

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/theclaw/agents/internal/channel"
)

const (
	maxOutput = 64 << 10        // bytes kept of each stream
	drainTime = 2 * time.Second // for pipes that a child of the program left open
)

// result is one finished run of the program.
type result struct {
	started        bool
	stopped        bool // killed because its context ended
	exit           int  // -1 without an exit status
	stdout, stderr string
	err            error
}

// run starts program in its own process group and waits for its end.
func run(ctx context.Context, program string, env []string, stdin string, args ...string) result {
	var out, diag head
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = env
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Stdout, cmd.Stderr = &out, &diag
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	killed := false // written by Cancel, which Wait waits for
	cmd.Cancel = func() error {
		killed = true
		err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		if errors.Is(err, syscall.ESRCH) {
			return os.ErrProcessDone
		}
		return err
	}
	cmd.WaitDelay = drainTime
	if err := cmd.Start(); err != nil {
		return result{exit: -1, stopped: ctx.Err() != nil, err: err}
	}
	err := cmd.Wait()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it ended well; only a child of its kept the pipe
	}
	return result{
		started: true, stopped: killed, exit: cmd.ProcessState.ExitCode(),
		stdout: out.String(), stderr: diag.String(), err: err,
	}
}

// refused reports that the program ended in order with a failure, which it
// states in the first line of its diagnostics.
func (r result) refused() bool {
	return r.exit > 0 && len(r.stderr) >= len(errorMark) && strings.EqualFold(r.stderr[:len(errorMark)], errorMark)
}

const errorMark = "error: "

// refusedOption reports that it did not accept the session option. Its option
// parser writes the mark in lower case, and has run nothing by then.
func (r result) refusedOption() bool {
	return r.refused() && strings.HasPrefix(r.stderr, errorMark) &&
		(strings.Contains(r.stderr, flagV1) || strings.Contains(r.stderr, flagV2))
}

// cause is what the program gave as the reason: its structured answer, else
// the first line of its diagnostics that names an error.
func (r result) cause(structured string) string {
	if structured != "" {
		return channel.Clean(structured, 200)
	}
	first := ""
	for line := range strings.Lines(r.stderr) {
		line = channel.Clean(line, 200)
		if len(line) > len(errorMark) && strings.EqualFold(line[:len(errorMark)], errorMark) {
			return line[len(errorMark):]
		}
		if first == "" {
			first = line
		}
	}
	return first
}

// head keeps the first maxOutput bytes written to it and swallows the rest, so
// that a talkative program neither blocks nor fills memory.
type head struct{ b []byte }

func (h *head) Write(p []byte) (int, error) {
	h.b = append(h.b, p[:min(len(p), maxOutput-len(h.b))]...)
	return len(p), nil
}

func (h *head) String() string { return string(h.b) }

// lookPath finds name in PATH of env. exec.LookPath would search our own
// environment, which is not the one the program gets.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	search := ""
	for _, kv := range env {
		if value, ok := strings.CutPrefix(kv, "PATH="); ok {
			search = value
		}
	}
	for _, dir := range filepath.SplitList(search) {
		if !filepath.IsAbs(dir) {
			continue // what a name means must not depend on where we were started
		}
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return file, nil
		}
	}
	return "", exec.ErrNotFound
}
