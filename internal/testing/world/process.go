package world

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait for something that is bound to happen.
const patience = 30 * time.Second

// Process is agentd as a process of its own. It is killed with the test, and by
// the kernel when the test dies.
type Process struct {
	t    testing.TB
	cmd  *exec.Cmd
	log  journal
	done chan struct{}
	err  error // of Wait; after done
}

// Program is an executable that behaves like agentd: the built one, or a test
// binary that runs agentd's Main when it finds its mark in the environment.
type Program struct {
	Path string
	Env  []string            // the whole environment
	User *syscall.Credential // another user to run as; nil: ours
}

// Start runs the program; nothing is known yet about how far it has got.
func (p Program) Start(t testing.TB, args ...string) *Process {
	t.Helper()
	if err := chooseOffline(homeOf(p.Env, args), p.Env, p.User); err != nil {
		t.Fatal(err)
	}
	r := &Process{t: t, cmd: exec.Command(p.Path, args...), done: make(chan struct{})}
	r.cmd.Env = p.Env
	r.cmd.Stderr = &r.log
	// Its own group: a ^C on the test is not a SIGTERM to agentd.
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: p.User}
	// A child that is left behind and has kept the log open is not waited for.
	r.cmd.WaitDelay = 5 * time.Second
	if err := r.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", p.Path, err)
	}
	go func() {
		r.err = r.cmd.Wait()
		r.log.close()
		close(r.done)
	}()
	t.Cleanup(func() {
		r.Kill()
		// A program that goes on after one of these has passed nothing.
		for _, bad := range []string{"WARNING: DATA RACE", "fatal error: "} {
			if _, at, found := strings.Cut(r.Log(), bad); found {
				t.Errorf("agentd: %s%.4000s", bad, at)
			}
		}
	})
	return r
}

// Pid is the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Log is what it has written to standard error.
func (p *Process) Log() string { return p.log.text() }

// Signal sends a signal; a process that has ended ignores it.
func (p *Process) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("signal %v to agentd: %v", s, err)
	}
}

// Kill is kill -9; it returns when the process is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // gone already is as good
	<-p.done
}

// Killed reports whether a process that has ended was ended by SIGKILL.
func (p *Process) Killed() bool {
	<-p.done
	st, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && st.Signaled() && st.Signal() == syscall.SIGKILL
}

// Exit waits for the end and answers the exit status, -1 after a signal.
func (p *Process) Exit() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("agentd (pid %d) does not end; its log:\n%s", p.Pid(), p.Log())
	}
	return p.cmd.ProcessState.ExitCode()
}

// Says waits until the log holds the text.
func (p *Process) Says(text string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	if !p.log.await(ctx, text) {
		p.t.Fatalf("agentd (pid %d) never says %q; its log:\n%s", p.Pid(), text, p.Log())
	}
}

// journal keeps a log and tells those who wait for a text in it.
type journal struct {
	mu      sync.Mutex
	b       bytes.Buffer
	changed chan struct{} // closed by the next change; nil: nobody waits
	closed  bool
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.wake()
	return j.b.Write(b)
}

func (j *journal) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
	j.wake()
}

func (j *journal) wake() {
	if j.changed != nil {
		close(j.changed)
		j.changed = nil
	}
}

func (j *journal) text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.String()
}

func (j *journal) await(ctx context.Context, text string) bool {
	for {
		j.mu.Lock()
		if bytes.Contains(j.b.Bytes(), []byte(text)) || j.closed {
			defer j.mu.Unlock()
			return bytes.Contains(j.b.Bytes(), []byte(text))
		}
		if j.changed == nil {
			j.changed = make(chan struct{})
		}
		changed := j.changed
		j.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}
