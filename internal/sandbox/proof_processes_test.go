//go:build linux && proof

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// testTimeout bounds what a test waits for; nothing is measured by it.
const testTimeout = 30 * time.Second

func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(&b[0])) }

// untilUp waits for the stray, where there is a /proc to see it in.
const untilUp = `for i in {1..200}; do if cat /proc/[0-9]*/cmdline 2>/dev/null | grep -qa "[s]tray-$T_MARK"; then break; fi; done`

// stopping finds the state of a process that is stopped, or a SIGSTOP that waits for it.
var stopping = regexp.MustCompile(`(?m)^(State:\tT|(Sig|Shd)Pnd:\t[0-9a-f]{11}[4-7c-f])`)

func inMemory(w *home) string { return "memory:" + w.secret }

// processBreaches want to see, read, stop or change other processes, to outlive
// their run, or to gain rights.
var processBreaches = []breach{
	{name: "see command lines", before: process, shell: `tr '\0' ' ' <"/proc/$T_PID/cmdline"`, leaks: []Level{LevelReduced}, got: contains(theSecret)},
	{name: "list processes", before: process, shell: `cat /proc/[0-9]*/cmdline | tr '\0' '\n' | grep -a "^secret"`, leaks: []Level{LevelReduced}, got: contains(theSecret)},
	{name: "read an environment", before: process, shell: `tr '\0' '\n' <"/proc/$T_PID/environ" | grep T_SECRET`, got: contains(theSecret)},
	{name: "read the runner's environment", shell: `tr '\0' '\n' <"/proc/$T_RUNNER/environ"; tr '\0' '\n' <"/proc/1/environ"; env`, got: contains(func(*home) string { return hostSecret })},
	{name: "read by /proc/PID/root", before: process, shell: `cat "/proc/$T_PID/root$T_FILE"`, got: contains(theSecret)},
	{name: "read by /proc/PID/fd", before: process, shell: `cat "/proc/$T_PID/fd/$T_FD"`, got: contains(theSecret)},
	{name: "take a descriptor", before: process, run: takeDescriptor, got: contains(theSecret)},
	{name: "use an inherited descriptor", before: inherited, shell: `for n in {3..40} "$T_FD"; do eval "cat <&$n"; done </dev/null`, got: contains(theSecret)},
	{name: "read memory", before: process, run: readMemory, got: contains(inMemory)},
	{name: "read /proc/PID/mem", before: process, run: readMem, got: contains(inMemory)},
	{name: "trace a process", before: process, run: traceToDeath, got: dead},
	{name: "kill a process", before: process, shell: `kill -9 "$T_PID"`, got: dead},
	{name: "kill a process group", before: process, shell: `kill -9 -- "-$T_PID"`, got: dead},
	{name: "stop a process", before: process, shell: `kill -STOP "$T_PID"`, got: func(w *home, _ Result) any {
		b, err := os.ReadFile("/proc/" + w.env["T_PID"] + "/status")
		if err != nil {
			return "it is gone"
		}
		// On a busy machine it has the signal before it has had the time to stop.
		return stopping.Match(b)
	}},
	{name: "signal the runner", before: hear, shell: `kill -USR2 "$T_RUNNER"`, got: func(w *home, _ Result) any { return w.called() }},
	{name: "slow a process down", before: process, shell: `renice -n 19 -p "$T_PID"`, got: func(w *home, _ Result) any {
		n, err := unix.Getpriority(unix.PRIO_PROCESS, w.victim.Pid)
		return err == nil && n == 20-19 // as the kernel counts
	}},
	{name: "change a process's limits", before: process, shell: `prlimit --pid "$T_PID" --nofile=11:11`, got: func(w *home, _ Result) any {
		var l unix.Rlimit
		err := unix.Prlimit(w.victim.Pid, unix.RLIMIT_NOFILE, nil, &l)
		return err == nil && l.Cur == 11
	}},
	{name: "mark a process to be killed first", before: process, shell: `echo 777 >"/proc/$T_PID/oom_score_adj"`, got: func(w *home, _ Result) any {
		b, err := os.ReadFile("/proc/" + w.env["T_PID"] + "/oom_score_adj")
		return err == nil && string(b) == "777\n"
	}},
	{name: "stay in the background", shell: `(exec -a "stray-$T_MARK" sleep 1000) & disown; ` + untilUp, got: stray},
	{name: "stay as a daemon", shell: `setsid bash -c '(exec -a "stray-$T_MARK" sleep 1000 </dev/null >/dev/null 2>&1 &)'; ` + untilUp, got: stray},
	{
		name: "outlive the timeout", timeout: time.Second, got: stray,
		shell: `trap '' TERM HUP INT; setsid bash -c 'trap "" TERM HUP INT; exec -a "stray-$T_MARK" sleep 1000' & wait`,
	},
	{name: "have capabilities", shell: `grep Cap /proc/self/status`, got: powers},
	{name: "gain rights by a setuid program", shell: `su -s /bin/sh -c 'grep Cap /proc/self/status' </dev/null`, got: powers},
	{name: "make a user namespace", shell: `unshare --user --map-root-user --mount grep Cap /proc/self/status`, got: powers},
	{name: "make a cgroup", shell: `mkdir "$T_CGROUP"`, before: func(w *home) {
		if w.cgroup() != "" {
			w.env["T_CGROUP"] = w.cgroup() + "/" + w.secret
		}
	}, got: func(w *home, _ Result) any {
		defer os.Remove(w.env["T_CGROUP"])
		return is(w.env["T_CGROUP"])
	}, absent: func(w *home) string {
		if w.cgroup() == "" {
			return "no cgroup can be made here"
		}
		return ""
	}},
}

// dead is evidence that the process outside died: nobody else wants it to.
func dead(w *home, _ Result) any {
	select {
	case <-w.died:
		return true
	case <-time.After(w.patience()):
		return nil
	}
}

// powers is evidence that the kernel grants the program anything.
func powers(_ *home, r Result) any {
	for line := range strings.Lines(string(r.Stdout)) {
		name, set, _ := strings.Cut(strings.TrimSpace(line), ":")
		if (name == "CapEff" || name == "CapPrm" || name == "CapAmb") && strings.Trim(set, "\t0") != "" {
			return line
		}
	}
	return nil
}

// hear makes a signal to this process a call.
func hear(w *home) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, unix.SIGUSR2)
	done := make(chan struct{})
	go func() {
		select {
		case <-c:
			w.calls <- "signal"
		case <-done:
		}
	}()
	w.later(func() { signal.Stop(c); close(done) })
}

// inherited leaves a descriptor open over exec, as a careless program would.
func inherited(w *home) {
	fd, err := unix.Open(w.file, unix.O_RDONLY, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	w.later(func() { _ = unix.Close(fd) })
	w.env["T_FD"] = strconv.Itoa(fd)
}

func victimPID() int { n, _ := strconv.Atoi(os.Getenv("T_PID")); return n }

func victimAddress() uintptr {
	n, _ := strconv.ParseUint(os.Getenv("T_ADDRESS"), 16, 64)
	return uintptr(n)
}

func takeDescriptor() error {
	pidfd, err := unix.PidfdOpen(victimPID(), 0)
	if err != nil {
		return err
	}
	fd, err := unix.PidfdGetfd(pidfd, 3, 0)
	if err != nil {
		return err
	}
	return sayFile(fd)
}

func readMemory() error {
	b := make([]byte, 40)
	local := []unix.Iovec{{Base: &b[0], Len: uint64(len(b))}}
	n, err := unix.ProcessVMReadv(victimPID(), local, []unix.RemoteIovec{{Base: victimAddress(), Len: len(b)}}, 0)
	fmt.Println(string(b[:max(n, 0)]))
	return err
}

func readMem() error {
	f, err := os.Open("/proc/" + os.Getenv("T_PID") + "/mem")
	if err != nil {
		return err
	}
	b := make([]byte, 40)
	n, err := f.ReadAt(b, int64(victimAddress()))
	fmt.Println(string(b[:n]))
	return err
}

// traceToDeath attaches and asks the kernel to kill the traced with the tracer.
func traceToDeath() error {
	runtime.LockOSThread()
	pid := victimPID()
	if err := unix.PtraceSeize(pid); err != nil {
		return err
	}
	const exitKill = 0x100000 // PTRACE_O_EXITKILL
	if err := unix.PtraceInterrupt(pid); err != nil {
		return err
	}
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, unix.WALL, nil); err != nil {
		return err
	}
	return errors.Join(unix.PtraceSetOptions(pid, exitKill), unix.Kill(pid, unix.SIGKILL))
}
