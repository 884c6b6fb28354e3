package isolation

import (
	"errors"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"

	"github.com/theclaw/agents/internal/sandbox/wire"
)

// noRoot is SECBIT_NOROOT and its lock: uid 0 is nothing special at an exec.
const noRoot = 1<<0 | 1<<1

// Harden takes from init, and so from the program, all it does not need. The
// order matters: each step still has the rights it needs, and seccomp is last.
func Harden(o wire.Order) error {
	if err := dropBounding(o); err != nil {
		return err
	}
	if o.Driver == wire.Privileged || (o.Driver == wire.Reduced && syscall.Geteuid() == 0) {
		if err := takeIDs(o.UID, o.GID); err != nil {
			return err
		}
	}
	if err := SetLimits(o); err != nil {
		return wire.Step("rlimits", err)
	}
	if err := allThreads(unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return wire.Step("no_new_privs", err)
	}
	if err := restrictPaths(o); err != nil {
		return wire.Step("landlock", err)
	}
	if err := dropCapabilities(); err != nil {
		return wire.Step("drop capabilities", err)
	}
	// The program has our uid: without this it could open /proc/1/fd and /proc/1/mem.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return wire.Step("dumpable", err)
	}
	// A change of ids has cleared the one the trampoline set.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return wire.Step("pdeathsig", err)
	}
	return wire.Step("seccomp", filterSyscalls(o))
}

// DefaultSignals gives up the handlers that the Go runtime has for signals. The kernel drops
// one that has none when it is sent to the init of a pid namespace from inside, and a
// program does not inherit that one is ignored.
func DefaultSignals(signals ...os.Signal) error {
	var none [4]uint64 // struct sigaction of the kernel: SIG_DFL, no flags, no mask
	for _, s := range signals {
		if _, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s.(syscall.Signal)), uintptr(unsafe.Pointer(&none)), 0, 8, 0, 0); e != 0 {
			return e
		}
	}
	return nil
}

// takeIDs makes this process that user, with no other group.
func takeIDs(uid, gid int) error {
	if err := syscall.Setgroups(nil); err != nil && !errors.Is(err, unix.EPERM) {
		return wire.Step("setgroups", err) // refused in a user namespace, where the trampoline did it
	}
	if err := syscall.Setresgid(gid, gid, gid); err != nil {
		return wire.Step("setresgid", err)
	}
	return wire.Step("setresuid", syscall.Setresuid(uid, uid, uid))
}

func dropBounding(o wire.Order) error {
	if o.Driver == wire.Privileged || o.Driver == wire.Reduced {
		// Should the workdir belong to root, the program is uid 0 here, and an exec
		// must give nothing back. Without the right to set this there is nothing to give.
		if err := unix.Prctl(unix.PR_SET_SECUREBITS, noRoot, 0, 0, 0); err != nil && !errors.Is(err, unix.EPERM) {
			return wire.Step("securebits", err)
		}
	}
	for c := uintptr(0); ; c++ {
		set, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			return nil // past the last one this kernel knows
		}
		if err != nil || set == 0 {
			continue
		}
		// On this thread alone, which is the one that forks. The others lose their
		// capabilities and may not gain any, so their bounding set says nothing; and
		// forty calls on every thread would be most of the time a spawn takes.
		err = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EPERM) && (o.Driver == wire.Bubblewrap || o.Driver == wire.Reduced) {
			// An ordinary user cannot; no_new_privs makes the set meaningless.
			return nil
		}
		if err != nil {
			return wire.Step("drop bounding set", err)
		}
	}
}

func dropCapabilities() error {
	// Emptying the permitted set empties the ambient one as well.
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if _, _, e := psx.Syscall3(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&h)), uintptr(unsafe.Pointer(&none[0])), 0); e != 0 {
		return e
	}
	return nil
}

// allThreads is prctl on every thread of the runtime: these are thread settings.
func allThreads(option, arg uintptr) error {
	if _, _, e := psx.Syscall6(unix.SYS_PRCTL, option, arg, 0, 0, 0, 0); e != 0 {
		return e
	}
	return nil
}
