package jail

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/sandbox/isolation"
	"github.com/theclaw/agents/internal/sandbox/wire"
)

// trampoline runs a program without namespaces of ours, and stays until all of its tree is
// dead; with Off until it is not needed, for one program after the other.
func trampoline() int {
	closeInherited()
	handleSignals() // before the order is there: no program waits for it
	for {
		o, files, err := wire.ReceiveOrder(fdOrder)
		if err != nil || len(files) < 4 {
			return 1 // the launcher does not need this process any more, or is dead
		}
		for i, f := range []int{0, 1, 2, fdStatus} {
			if files[i] == f {
				continue
			}
			flags := unix.O_CLOEXEC
			if f < 3 {
				flags = 0
			}
			if err := unix.Dup3(files[i], f, flags); err != nil {
				return 1
			}
			_ = unix.Close(files[i])
		}
		listener := -1
		if o.Listen != "" {
			listener = files[len(files)-1]
		}
		again := false
		if o.Driver == wire.Off {
			again, err = direct(o)
		} else {
			err = guard(o, listener)
		}
		if err != nil {
			wire.FD(fdStatus).Fail(err)
			return 1
		}
		if !again || letGo() != nil {
			return 0
		}
	}
}

// letGo closes all that is the program's, and says that another order can come.
func letGo() error {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	for f := range 3 {
		if err := unix.Dup3(null, f, 0); err != nil {
			return err
		}
	}
	_ = unix.Close(null)
	_ = unix.Close(fdStatus)
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	_, err = wire.FD(fdOrder).Write([]byte{0})
	return err
}

// direct starts the program itself, without init: the driver off isolates nothing, and
// what remains to do (limits, a clean environment, an end to the complete tree) the
// trampoline can do in its own process, again and again: it saves the start of two processes
// a call. It reports whether another program can follow: the tree is dead, and no limit is
// that of this program alone.
func direct(o wire.Order) (again bool, err error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return false, wire.Step("subreaper", err)
	}
	if err := unix.Chdir(o.Workdir); err != nil {
		return false, wire.Step("chdir workdir", err)
	}
	if err := isolation.SetLimits(o); err != nil {
		return false, wire.Step("rlimits", err)
	}
	ended := run(o, fdOrder)
	dead := killOrphans() // among them the program, when it was ended by us
	if ended == (wire.Status{}) {
		return false, nil
	}
	wire.FD(fdStatus).Say(ended)
	return dead && o.PIDBudget == 0, nil
}

// guard starts init and ends what it leaves. listener is the socket for the listener; -1: there is none.
func guard(o wire.Order, listener int) error {
	if os.Geteuid() == 0 {
		if err := syscall.Setgroups(nil); err != nil && !errors.Is(err, unix.EPERM) {
			return wire.Step("setgroups", err)
		}
	}
	files := []uintptr{0, 1, 2, 0, fdStatus, fdOrder}
	if listener >= 0 {
		files = append(files, uintptr(listener))
		defer func() { _ = unix.Close(listener) }()
	}
	if o.Driver == wire.Reduced {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return wire.Step("subreaper", err)
		}
	}
	path, argv, sys, err := plan(o)
	if err != nil {
		return err
	}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return wire.Step("pipe", err)
	}
	files[fdOrder] = uintptr(p[0])
	var handle int
	sys.PidFD = &handle
	pid, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{Env: Env(), Files: files, Sys: sys})
	_ = unix.Close(p[0])
	if err != nil {
		return wire.Step("clone", err)
	}

	kill := func() { _ = unix.PidfdSendSignal(handle, unix.SIGKILL, nil, 0) } // nothing happens to one that was reaped
	go func() {
		wire.Either(fdOrder, -1, -1)
		kill()
	}()

	err = wire.WriteOrder(wire.FD(p[1]), o)
	_ = unix.Close(p[1])
	if err != nil {
		kill()
	}
	reap(pid)
	if o.Driver == wire.Reduced {
		killOrphans()
	}
	return err
}

// plan is how the driver starts init.
func plan(o wire.Order) (path string, argv []string, sys *syscall.SysProcAttr, err error) {
	argv = []string{"sandbox", marker, roleInner}
	sys = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	switch o.Driver {
	case wire.Bubblewrap:
		if os.Geteuid() == 0 && o.UID != 0 {
			sys.Credential = &syscall.Credential{Uid: uint32(o.UID), Gid: uint32(o.GID)}
		}
		return o.Bwrap, append([]string{"bwrap"}, bwrapArgs(o)...), sys, nil
	case wire.Reduced:
	default:
		return "", nil, nil, wire.Step("driver", fmt.Errorf("unknown driver %q", o.Driver))
	}
	return o.Self, argv, sys, nil
}
