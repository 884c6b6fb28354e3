package up

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
)

// grace is how long the services may take to finish; a little more than their
// own grace, so that it is they who decide.
const grace = 40 * time.Second

// daemon is the child that serves. exited is closed when it is gone.
type daemon struct {
	cmd    *exec.Cmd
	log    string // path
	from   int64  // where this start's lines begin
	exited chan struct{}
	err    error
}

// start runs `agentd all` in its own process group, so that Ctrl-C at the
// terminal reaches us alone and we end it in order. Should we be killed, the
// kernel sends it SIGTERM.
func start(e *command.Env, environment []string) (*daemon, error) {
	program, err := Program()
	if err != nil {
		return nil, err
	}
	home, err := e.Home()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(home.RunDir(), 0o700); err != nil {
		return nil, fault.Wrap(fault.New(codes.FailedPrecondition, fault.ReadOnly, err.Error(), "set THECLAW_HOME to a directory of your own"), err)
	}
	d := &daemon{log: filepath.Join(home.RunDir(), "agentd.log"), exited: make(chan struct{})}
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fault.Wrap(fault.New(codes.FailedPrecondition, fault.ReadOnly, err.Error(), "give the file back its write permission"), err)
	}
	if d.from, err = log.Seek(0, io.SeekEnd); err != nil {
		log.Close()
		return nil, fmt.Errorf("open the log: %w", err)
	}
	d.cmd = exec.Command(program, "all")
	if d.cmd.Env, err = environ(e); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	d.cmd.Env = append(d.cmd.Env, environment...)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.SysProcAttr = command.Child(syscall.SIGTERM)
	begun := make(chan error)
	go func() {
		// The death signal is tied to the thread that started the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := d.cmd.Start()
		log.Close()
		begun <- err
		if err == nil {
			d.err = d.cmd.Wait()
			close(d.exited)
		}
	}()
	if err := <-begun; err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	return d, nil
}

// environ is the environment of an agentd for the home.
func environ(e *command.Env) ([]string, error) {
	ours, err := e.HomeVariables()
	return append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "THECLAW_HOME=") || strings.HasPrefix(v, "THECLAW_PROFILE=")
	}), ours...), err
}

// Program is the path of agentd: next to this program, since what was built together runs
// together, else on the PATH.
func Program() (string, error) {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "agentd")
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside, nil
		}
	}
	path, err := exec.LookPath("agentd")
	if err != nil {
		return "", fault.Wrap(fault.New(codes.NotFound, fault.ServiceUnavailable, "there is no agentd next to agentctl or on the PATH", "run 'make build', or 'make install'"), err)
	}
	return path, nil
}

// await returns when the registry serves. Two that start at once: the second
// child ends because the home is taken, and the first one's registry is used.
func (d *daemon) await(ctx context.Context, e *command.Env) error {
	ctx, cancel := context.WithTimeout(ctx, ready)
	defer cancel()
	up := make(chan error, 1)
	go func() { up <- healthy(ctx, e) }()
	select {
	case err := <-up:
		if errors.Is(err, context.DeadlineExceeded) {
			return fault.New(codes.DeadlineExceeded, fault.RegistryUnavailable, "the services did not start in time", "see "+d.log)
		}
		return err
	case <-d.exited:
	}
	if serving, err := Serving(ctx, e); err == nil && serving {
		return nil
	}
	cancel()
	if err := <-up; err == nil { // it came up in this moment
		return nil
	}
	why := d.lastWords()
	if why == "" {
		why = fmt.Sprint(d.err)
	}
	return fault.New(codes.Unavailable, fault.RegistryUnavailable, "agentd ended at once: "+strings.TrimPrefix(why, "Error: "), "see "+d.log)
}

// lastWords is the last line that this start wrote into the log.
func (d *daemon) lastWords() string {
	f, err := os.Open(d.log)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(io.NewSectionReader(f, d.from, 1<<20), 1<<20))
	if err != nil {
		return ""
	}
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	return string(lines[len(lines)-1])
}

// stop ends the child and waits until it is gone.
func (d *daemon) stop() error {
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // an error means that it is gone
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-d.exited:
		return nil
	case <-t.C:
	}
	_ = syscall.Kill(-d.cmd.Process.Pid, syscall.SIGKILL)
	<-d.exited
	return fault.New(codes.DeadlineExceeded, fault.Deadline, "agentd did not end in time and was killed; no message is lost", "see "+d.log)
}
