package chat

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// The bounds of bash_exec.
const (
	defaultTimeout = 600 * time.Second
	maxTimeout     = 3600 * time.Second
)

const abortedNote = "\n[Aborted: session was terminated externally.]"

// bench runs the tools of one call.
type bench struct{ term chan os.Signal }

func newBench() *bench {
	b := &bench{make(chan os.Signal, 1)}
	signal.Notify(b.term, syscall.SIGTERM)
	return b
}

func (b *bench) close() { signal.Stop(b.term) }

type result struct {
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	ExitCode int    `json:"exitCode"`
}

type problem struct {
	Error string `json:"error"`
}

// run runs a command in a session of its own, so that nobody who kills this
// program kills it too.
func (b *bench) run(c call) any {
	var a struct {
		Command, Cwd string
		Timeout      float64 `json:"timeout_seconds"`
	}
	if c.Name != "bash_exec" {
		return problem{"Unknown tool: " + c.Name}
	}
	if json.Unmarshal(c.Arguments, &a) != nil || a.Command == "" {
		return problem{"command is required"}
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.Command("bash", "-c", a.Command)
	cmd.Dir, cmd.Stdout, cmd.Stderr = a.Cwd, &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.WaitDelay = 100 * time.Millisecond
	if err := cmd.Start(); err != nil {
		return problem{err.Error()}
	}
	limit := defaultTimeout
	if a.Timeout > 0 {
		limit = min(time.Duration(a.Timeout*float64(time.Second)), maxTimeout)
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in ProcessState
		close(done)
	}()
	r := result{}
	note, code := "", 0
	select {
	case <-done:
		code = cmd.ProcessState.ExitCode()
	case <-b.term:
		note, code = abortedNote, 130
	case <-timer.C:
		note, code = "\n[Timed out]", 124
	}
	if note != "" {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-done
	}
	r.Stdout, r.Stderr, r.ExitCode = stdout.String(), stderr.String()+note, code
	return r
}
