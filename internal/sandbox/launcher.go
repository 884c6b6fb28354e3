//go:build linux

package sandbox

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/sandbox/jail"
	"github.com/theclaw/agents/internal/sandbox/wire"
)

// launcher is the process that starts our programs: it is started with the first one, and
// again when it was killed. It ends when its programs have ended after stop, or after our
// death.
type launcher struct {
	program string

	mu      sync.Mutex
	socket  *os.File // nil: it does not run
	process *os.Process
}

// call has it run a program; the descriptors are those of package jail.
func (l *launcher) call(files ...*os.File) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range 2 {
		if err := l.start(); err != nil {
			return err
		}
		if err := send(l.socket, files); err == nil {
			return nil
		}
		l.forget() // it was killed
	}
	return unix.EPIPE
}

func send(socket *os.File, files []*os.File) error {
	list := make([]int, 0, len(files))
	for _, f := range files {
		list = append(list, int(f.Fd()))
	}
	return wire.Send(int(socket.Fd()), list...)
}

func (l *launcher) start() error {
	if l.socket != nil {
		return nil
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make launcher socket: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(ends[0]), "launcher"), os.NewFile(uintptr(ends[1]), "launcher")
	defer theirs.Close()
	cmd := exec.Command(l.program, jail.LauncherArgs()...)
	cmd.Args[0] = "sandbox"
	cmd.Dir, cmd.Env, cmd.ExtraFiles = "/", jail.LauncherEnv(), []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		_ = ours.Close()
		return err
	}
	go func() { _ = cmd.Wait() }() // it is started again when a program needs it
	l.socket, l.process = ours, cmd.Process
	return nil
}

func (l *launcher) forget() {
	if l.socket != nil {
		_ = l.socket.Close()
	}
	l.socket, l.process = nil, nil
}

// kill ends it, and with it every program that it runs.
func (l *launcher) kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.process != nil {
		_ = l.process.Kill()
	}
	l.forget()
}

// stop lets it end when its programs have ended.
func (l *launcher) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget()
}

// input is the program's end of its standard input: what r gives, or nothing. The function
// ends what is left of it.
func input(r io.Reader) (*os.File, func(), error) {
	if r == nil {
		f, err := os.Open(os.DevNull)
		return f, func() {}, err
	}
	if f, ok := r.(*os.File); ok { // a pipe of the caller: nothing has to be copied
		return f, func() {}, nil
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(ours, r) // a program need not read all of it
		_ = ours.Close()
	}()
	return theirs, func() {
		_ = ours.Close()
		if c, ok := r.(io.Closer); ok {
			_ = c.Close()
		}
		<-done
	}, nil
}
