package jail

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/sandbox/isolation"
	"github.com/theclaw/agents/internal/sandbox/wire"
)

// trampoline starts init as the order says, and stays until all of it is dead.
func trampoline() int {
	for _, f := range []int{fdOrder, fdStatus, fdUserns} {
		unix.CloseOnExec(f)
	}
	status := wire.FD(fdStatus)
	o, err := wire.ReadOrder(wire.FD(fdOrder))
	if err != nil {
		status.Fail(err)
		return 1
	}
	start := launch
	if o.Driver == wire.Off {
		start = direct
	}
	if err := start(o, status); err != nil {
		status.Fail(err)
		return 1
	}
	return 0
}

// direct starts the program itself, without init: the driver off isolates nothing, and
// what remains to do (limits, a clean environment, an end to the complete tree) the
// trampoline can do in its own process. It saves the start of one process a call.
func direct(o wire.Order, status wire.FD) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return wire.Step("subreaper", err)
	}
	if err := join(o.Cgroups, os.Getpid()); err != nil {
		return err
	}
	if err := unix.Chdir(o.Workdir); err != nil {
		return wire.Step("chdir workdir", err)
	}
	if err := isolation.SetLimits(o); err != nil {
		return wire.Step("rlimits", err)
	}
	hangup := make(chan struct{})
	go func() {
		wire.AwaitHangup(fdOrder)
		close(hangup)
		killOrphans() // the program is a child as well
		syscall.Exit(137)
	}()
	handleSignals()
	ended := run(o)
	killOrphans()
	select {
	case <-hangup: // ended by us: how is the runner's to say
		select {}
	default:
		status.Say(ended)
	}
	return nil
}

func launch(o wire.Order, status wire.FD) error {
	if os.Geteuid() == 0 {
		// Groups would survive in a user namespace as nameless, working ones.
		if err := syscall.Setgroups(nil); err != nil && !errors.Is(err, unix.EPERM) {
			return wire.Step("setgroups", err)
		}
	}
	files := []uintptr{0, 1, 2, 0, fdStatus, fdOrder}
	if o.Idmap {
		// Started as root the program must not be root: RLIMIT_NPROC does not bind
		// the host's uid 0, and files of root stay writable for it without any
		// capability. Yet the workdir is root's. An id-mapped mount solves both:
		// the program is an unprivileged uid everywhere, and in the workdir alone
		// the kernel translates it to the owner and back, so that what it creates
		// belongs to the owner. File systems that cannot (overlayfs in some
		// containers) leave the owner's uid itself; then the pids cgroup counts.
		if tree, err := isolation.IdmappedTree(o.Workdir, fdUserns); err == nil {
			files = append(files, uintptr(tree))
		} else {
			o.Idmap, o.UID, o.GID = false, o.OwnerUID, o.OwnerGID
		}
	}
	// "echo x > /dev/stderr" opens the pipe again, which asks for its owner.
	_ = unix.Fchown(1, o.UID, o.GID)
	_ = unix.Fchown(2, o.UID, o.GID)
	if o.Driver == wire.Reduced {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return wire.Step("subreaper", err)
		}
	}
	path, argv, sys, err := plan(o)
	if err != nil {
		return err
	}
	if o.Driver == wire.Bubblewrap {
		// bwrap waits for nobody: it has to be born in the cgroups.
		if err := join(o.Cgroups, os.Getpid()); err != nil {
			return err
		}
	}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return wire.Step("pipe", err)
	}
	files[fdOrder] = uintptr(p[0])
	pid, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{Env: Env(), Files: files, Sys: sys})
	_ = unix.Close(p[0])
	if err != nil {
		return wire.Step("clone", err)
	}

	var mu sync.Mutex // held so that a pid that was reaped is never signalled
	alive := true
	kill := func() {
		mu.Lock()
		defer mu.Unlock()
		if alive {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	go func() {
		wire.AwaitHangup(fdOrder)
		kill()
	}()

	// init does nothing before it has its order, so it is in its cgroups in time.
	if o.Driver != wire.Bubblewrap {
		err = join(o.Cgroups, pid)
	}
	if err == nil {
		err = wire.WriteOrder(wire.FD(p[1]), o)
	}
	_ = unix.Close(p[1])
	if err != nil {
		kill()
	}
	for {
		var info unix.Siginfo
		// Seen first and reaped under the lock.
		if e := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil); !errors.Is(e, unix.EINTR) {
			break
		}
	}
	mu.Lock()
	_, _ = unix.Wait4(pid, nil, 0, nil)
	alive = false
	mu.Unlock()
	if o.Driver == wire.Reduced {
		killOrphans()
	}
	return err
}

// plan is how the driver starts init.
func plan(o wire.Order) (path string, argv []string, sys *syscall.SysProcAttr, err error) {
	argv = []string{"sandbox", marker, roleInit}
	sys = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	switch o.Driver {
	case wire.Full:
		userNamespace(o, sys)
	case wire.Privileged:
		sys.Cloneflags = namespaces(o)
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

func join(groups []string, pid int) error {
	for _, g := range groups {
		if err := os.WriteFile(g, fmt.Appendf(nil, "%d", pid), 0); err != nil {
			return wire.Step("cgroup", err)
		}
	}
	return nil
}
