//go:build linux

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/sandbox/isolation"
)

// setupError is a step of the set-up that failed in one of our processes.
type setupError struct {
	step  string
	text  string
	errno unix.Errno
}

func (e *setupError) Error() string { return e.step + ": " + e.text }
func (e *setupError) Unwrap() error {
	if e.errno == 0 {
		return nil
	}
	return e.errno
}

func driverText(l Level) string {
	abi := fmt.Sprintf("Landlock ABI %d, seccomp", isolation.LandlockABI())
	switch l {
	case LevelFull:
		return "built-in: user namespace, private root, " + abi
	case LevelBubblewrap:
		return "bubblewrap, " + abi
	case LevelPrivileged:
		return "built-in: namespaces by CAP_SYS_ADMIN, private root, " + abi
	case LevelReduced:
		return "built-in: " + abi + "; no namespaces"
	case LevelOff:
		return "none: programs run on the host, because sandbox.mode is off"
	}
	return "none works: no program is run"
}

// diagnose turns the failure of a driver into what is missing and how to get it.
func diagnose(l Level, err error) string {
	e, isSetup := errors.AsType[*setupError](err)
	switch {
	case errors.Is(err, errNoBwrap):
		return "bwrap is not in PATH; install the package bubblewrap"
	case errors.Is(err, errRootWorkdir):
		return err.Error() + "; run as an ordinary user"
	case isSetup && e.step == "landlock":
		return "the kernel has no usable Landlock (" + e.text + "); boot with landlock in the lsm= list, kernel 5.13 or later, 6.12 for the level reduced"
	case isSetup && e.step == "seccomp":
		return "the kernel refuses seccomp filters (" + e.text + "); CONFIG_SECCOMP_FILTER is needed"
	case isSetup && l == LevelFull && e.step == "clone":
		return "no user namespace (" + e.text + "); " + usernsFix(readSetting)
	case isSetup && l == LevelFull && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)):
		return "the user namespace has no rights (" + e.Error() + "); " + usernsFix(readSetting)
	case isSetup && l == LevelPrivileged && errors.Is(err, unix.EPERM):
		return "CAP_SYS_ADMIN is missing (" + e.Error() + "); run as root, or give the container that capability"
	case l == LevelBubblewrap:
		return "bwrap does not start (" + err.Error() + "); version 0.8 or later and user namespaces are needed"
	}
	return err.Error()
}

func readSetting(name string) string {
	b, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// usernsFix names the setting that forbids user namespaces.
func usernsFix(setting func(string) string) string {
	for _, s := range []struct{ name, bad, good string }{
		{"user.max_user_namespaces", "0", "10000"},
		{"kernel.unprivileged_userns_clone", "0", "1"},
		{"kernel.apparmor_restrict_unprivileged_userns", "1", "0"},
	} {
		if setting(s.name) == s.bad {
			return fmt.Sprintf("set %s=%s with sysctl", s.name, s.good)
		}
	}
	return "the container's seccomp profile or LSM must allow clone with CLONE_NEWUSER and mount inside it"
}

// weak names what the chosen driver cannot do here.
func (s *Sandbox) weak(l Level) []string {
	var out []string
	switch l {
	case LevelOff:
		return []string{"off: programs can read and change all that we can; set sandbox.mode to required"}
	case LevelReduced:
		out = append(out, "reduced: stat, chmod and utimes reach files outside the workdir, and command lines of other processes can be read")
	case LevelBubblewrap, LevelPrivileged:
		if isolation.LandlockABI() == 0 {
			out = append(out, "landlock: not in this kernel; boot with landlock in the lsm= list")
		}
	}
	if !s.cgroups.Memory {
		out = append(out, "memory cgroup: not writable, so memory is bounded for each process, not for all together; delegate the memory controller")
	}
	if !s.cgroups.PIDs && os.Geteuid() == 0 {
		out = append(out, "pids cgroup: not writable, and RLIMIT_NPROC does not bind root; delegate the pids controller or run as an ordinary user")
	}
	return out
}
