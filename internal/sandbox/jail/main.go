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
	roleTrampoline = "trampoline"
	roleInit       = "init"
	roleHold       = "hold" // sits in a user namespace until its input ends
)

// The descriptors above the standard three.
const (
	fdOrder    = 3 // order; for the trampoline also its lifeline
	fdStatus   = 4
	fdUserns   = 5 // trampoline: user namespace for the id-mapped mount
	fdLifeline = 5 // init
	fdTree     = 6 // init: the workdir, ready to be attached
)

// TrampolineArgs and HoldArgs are the arguments, after argv[0], of the roles that
// package sandbox starts.
func TrampolineArgs() []string { return []string{marker, roleTrampoline} }

// HoldArgs are the words of the holding process; see TrampolineArgs.
func HoldArgs() []string { return []string{marker, roleHold} }

// Env is the environment of our own processes: small, and quiet when they crash,
// because their standard error is the program's.
func Env() []string { return []string{"GOMAXPROCS=1", "GOTRACEBACK=none", "GOGC=off"} }

// Main runs this process's role and does not return, or returns at once when it
// has none.
func Main() {
	if len(os.Args) < 3 || os.Args[1] != marker {
		return
	}
	// PR_SET_PDEATHSIG, capabilities and seccomp belong to a thread. Everything
	// that matters happens on this one, which lives as long as the process.
	runtime.LockOSThread()
	code := 1
	switch os.Args[2] {
	case roleTrampoline:
		code = trampoline()
	case roleInit:
		code = initProcess()
	case roleHold:
		wire.Poll(0, unix.POLLIN)
	}
	// Not os.Exit: no exit hook of the large program may run here.
	syscall.Exit(code)
}
