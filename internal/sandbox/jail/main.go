package jail

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/sandbox/wire"
)

// marker is the first argument of a process that is one of ours. It only selects
// a role: a program that uses it itself gains nothing, for it has no order to give.
const marker = "theclaw-sandbox-process"

// The roles.
const (
	roleLauncher   = "launcher"
	roleTrampoline = "trampoline"
	roleInit       = "init"
	roleInner      = "inner" // init without namespaces of its own making
	roleHold       = "hold"  // sits in a user namespace until its input ends
)

// The descriptors above the standard three.
const (
	fdOrder    = 3 // order; launcher, trampoline, init: a socket, which is a lifeline as well
	fdStatus   = 4 // trampoline, inner
	fdLifeline = 5 // inner
	fdListener = 6 // inner, with Order.Listen: the socket over which the listener is sent
)

// LauncherArgs are the arguments, after argv[0], of the process that starts all others. Its
// descriptor 3 is a socket of the type SEQPACKET, over which [wire.Send] makes a call.
func LauncherArgs() []string { return []string{marker, roleLauncher} }

// HoldArgs are the arguments of the process that holds a user namespace.
func HoldArgs() []string { return []string{marker, roleHold} }

// Env is the environment of our own processes: small, and quiet when they crash,
// because their standard error is the program's.
func Env() []string { return []string{"GOMAXPROCS=1", "GOTRACEBACK=none", "GOGC=off"} }

// LauncherEnv is the environment of the launcher, which lives long: it collects garbage, but
// seldom.
func LauncherEnv() []string { return append(Env(), "GOMEMLIMIT=8MiB") }

var called bool

// Called reports whether the program has called Main, without which it must not start itself.
func Called() bool { return called }

// Main runs this process's role and does not return, or returns at once when it
// has none.
func Main() {
	called = true
	if len(os.Args) < 3 || os.Args[1] != marker {
		return
	}
	// PR_SET_PDEATHSIG, capabilities and seccomp belong to a thread. Everything
	// that matters happens on this one, which lives as long as the process.
	runtime.LockOSThread()
	code := 1
	switch os.Args[2] {
	case roleLauncher:
		code = launch()
	case roleTrampoline:
		code = trampoline()
	case roleInit:
		code = initProcess()
	case roleInner:
		code = innerProcess()
	case roleHold:
		wire.Poll(0, unix.POLLIN)
	}
	// Not os.Exit: no exit hook of the large program may run here.
	syscall.Exit(code)
}
