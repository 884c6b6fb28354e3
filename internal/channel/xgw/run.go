package xgw

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/theclaw/agents/internal/channel"
)

const maxOutput = 64 << 10 // bytes kept of each stream

// result is one finished run of the program.
type result struct {
	started        bool
	stopped        bool // killed because its context ended
	exit           int  // -1 without an exit status
	stdout, stderr string
	err            error
}

// run starts program and waits for its end.
func (x *XGW) run(ctx context.Context, program string, env []string, stdin string, args ...string) result {
	if x.runs == nil {
		return result{exit: -1, err: errors.New("no way to start programs")}
	}
	if ctx.Err() != nil {
		return result{exit: -1, stopped: true, err: context.Cause(ctx)}
	}
	var out, diag head
	end, err := x.runs(ctx, channel.Program{
		Argv: append([]string{program}, args...), Env: env, Stdin: stdin, Within: x.timeout, Stdout: out.take, Stderr: diag.take,
	})
	if err != nil {
		return result{exit: -1, stopped: ctx.Err() != nil, err: err}
	}
	r := result{started: true, stopped: end.Stopped, exit: end.Exit, stdout: out.String(), stderr: diag.String()}
	if end.Signal != "" || end.Stopped {
		r.exit = -1
	}
	if r.exit != 0 {
		r.err = fmt.Errorf("exit status %d %s", end.Exit, end.Signal)
	}
	return r
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

// head keeps the first maxOutput bytes given to it and swallows the rest, so
// that a talkative program does not fill memory.
type head struct{ b []byte }

func (h *head) take(p []byte) { h.b = append(h.b, p[:min(len(p), maxOutput-len(h.b))]...) }

func (h *head) String() string { return string(h.b) }

// lookPath finds name in PATH of env. exec.LookPath would search our own
// environment, which is not the one the program gets.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return exec.LookPath(name)
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
