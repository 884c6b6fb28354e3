package jail

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/sandbox/isolation"
	"github.com/theclaw/agents/internal/sandbox/wire"
)

// initProcess is the first process inside: it builds the walls, starts the
// program, reaps orphans and says how it ended. When it exits, its pid namespace
// and every process in it end.
//
// It does all of this on one thread: each further one would be stopped and changed with
// every right that is given up.
func initProcess() int {
	closeInherited()
	o, files, err := wire.ReceiveOrder(fdOrder)
	if err != nil {
		return 1 // the launcher does not need this process any more, or is dead
	}
	if len(files) < 4 {
		return 1
	}
	for i, f := range files[:3] {
		if err := unix.Dup3(f, i, 0); err != nil {
			return 1
		}
		_ = unix.Close(f)
	}
	if err := isolation.DefaultSignals(signals...); err != nil {
		wire.FD(files[3]).Fail(wire.Step("signals", err))
		return 1
	}
	listener := -1
	if o.Listen != "" {
		listener, files = files[len(files)-1], files[:len(files)-1]
	}
	return serve(o, wire.FD(files[3]), files[4:], listener, -1)
}

// innerProcess is init where another program has built the namespaces, or none has: it
// inherits its descriptors.
func innerProcess() int {
	closeInherited()
	o, err := wire.ReadOrder(wire.FD(fdOrder))
	if err != nil {
		return 1 // the trampoline has said why, or is dead
	}
	handleSignals()
	return serve(o, fdStatus, nil, fdListener, fdLifeline)
}

// closeInherited keeps from programs also what we inherited ourselves, from the process
// that started the runner.
func closeInherited() {
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		unix.CloseOnExec(fdOrder)
	}
}

func serve(o wire.Order, status wire.FD, mapped []int, listener, lifeline int) int {
	if err := build(o, mapped, listener); err != nil {
		status.Fail(err)
		return 1
	}
	ended := run(o, lifeline)
	if ended == (wire.Status{}) {
		return 137
	}
	status.Say(ended)
	return 0
}

// signals are those that a person or a terminal sends.
var signals = []os.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE}

// handleSignals handles and drops signals: an ignored one would stay ignored in the program.
func handleSignals() {
	signal.Notify(make(chan os.Signal, 1), signals...)
}

func build(o wire.Order, mapped []int, listener int) error {
	switch o.Driver {
	case wire.Full, wire.Privileged:
		if err := unix.Sethostname([]byte("sandbox")); err != nil {
			return wire.Step("sethostname", err)
		}
		if !o.Network {
			if err := loopback(); err != nil {
				return wire.Step("loopback", err)
			}
		}
		if err := listen(o, listener); err != nil {
			return wire.Step("listen", err)
		}
		if err := isolation.Enter(o, mapped); err != nil {
			return err
		}
	default:
		if err := listen(o, listener); err != nil {
			return wire.Step("listen", err)
		}
		if err := unix.Chdir(o.Workdir); err != nil {
			return wire.Step("chdir workdir", err)
		}
	}
	if err := isolation.Harden(o); err != nil {
		return err
	}
	// Again, as the user we are now: in a directory it may not enter nothing works.
	return wire.Step("chdir workdir", unix.Chdir(o.Workdir))
}

// tick is how often a process that watches its lifeline reaps what a running program has
// left.
const tick = time.Second

// run starts the program and returns when it has ended; others may still run. The result is
// the zero one when a lifeline that is not -1 was closed before.
//
// It needs no second thread: to pass the work between threads takes longer than the work.
func run(o wire.Order, lifeline int) wire.Status {
	argv := o.Argv
	if o.Shell != "" {
		argv = []string{shell(), "-c", o.Shell}
	}
	search := ""
	for _, e := range o.Env {
		if len(e) > 5 && e[:5] == "PATH=" {
			search = e[5:]
		}
	}
	_ = os.Setenv("PATH", search) // ours is not used; LookPath has no other way to be told
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return notRun(127, argv[0], "not found")
	}
	var handle, options int
	pid, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Dir: o.Workdir, Env: o.Env, Files: []uintptr{0, 1, 2},
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, PidFD: &handle},
	})
	if err != nil {
		return notRun(126, argv[0], err.Error())
	}
	if lifeline >= 0 {
		options = unix.WNOHANG
	}
	for {
		if lifeline >= 0 && wire.Either(lifeline, handle, tick) && wire.Either(lifeline, -1, 0) {
			return wire.Status{}
		}
		var ws unix.WaitStatus
		got, err := unix.Wait4(-1, &ws, options, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return wire.Status{Step: "wait", Err: err.Error()}
		case got == pid && ws.Exited():
			return wire.Status{Done: true, Exit: ws.ExitStatus()}
		case got == pid && ws.Signaled():
			return wire.Status{Done: true, Exit: 128 + int(ws.Signal()), Signal: int(ws.Signal())}
		}
	}
}

// notRun answers as a shell does.
func notRun(code int, name, why string) wire.Status {
	_, _ = wire.FD(2).Write(fmt.Appendf(nil, "%s: %s\n", name, why))
	return wire.Status{Done: true, Exit: code}
}

func shell() string {
	for _, p := range []string{"/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/run/current-system/sw/bin/bash"} {
		if unix.Access(p, unix.X_OK) == nil {
			return p
		}
	}
	return "/bin/sh"
}
