package jail

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/sandbox/isolation"
	"github.com/theclaw/agents/internal/sandbox/wire"
)

// initProcess is the first process inside: it builds the walls, starts the
// program, reaps orphans and says how it ended. When it exits, its pid namespace
// and every process in it end.
func initProcess() int {
	// Also what we inherited ourselves, from whoever started the runner.
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		unix.CloseOnExec(fdOrder)
	}
	status := wire.FD(fdStatus)
	o, err := wire.ReadOrder(wire.FD(fdOrder))
	if err != nil {
		return 1 // the trampoline has said why, or is dead
	}
	go func() {
		wire.AwaitHangup(fdLifeline)
		syscall.Exit(137)
	}()
	handleSignals()
	if err := build(o); err != nil {
		status.Fail(err)
		return 1
	}
	status.Say(run(o))
	return 0
}

// handleSignals handles and drops signals: an ignored one would stay ignored in the program.
func handleSignals() {
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE)
}

func build(o wire.Order) error {
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
		if err := isolation.Enter(o, fdTree); err != nil {
			return err
		}
	default:
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

// run starts the program and returns when it has ended; others may still run.
func run(o wire.Order) wire.Status {
	argv := o.Argv
	if o.Shell != "" {
		argv = []string{shell(), "-c", o.Shell}
	}
	for _, e := range o.Env {
		if len(e) > 5 && e[:5] == "PATH=" {
			// Ours was empty; LookPath has no other way to be told.
			_ = os.Setenv("PATH", e[5:])
		}
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return notRun(127, argv[0], "not found")
	}
	pid, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Dir: o.Workdir, Env: o.Env, Files: []uintptr{0, 1, 2},
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return notRun(126, argv[0], err.Error())
	}
	for {
		var ws unix.WaitStatus
		got, err := unix.Wait4(-1, &ws, 0, nil)
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
