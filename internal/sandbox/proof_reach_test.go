//go:build linux && proof

package sandbox

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/sandbox/cgroup"
)

// proxied asks the proxy for a port of the host; where there is none, as without the sandbox, it needs none.
func proxied(request, name string) breach {
	return breach{name: name, proxy: true, before: port("tcp4", "127.0.0.1:0"), got: heard, shell: `if exec 3<>/dev/tcp/127.0.0.1/3128; then
		printf "` + request + ` HTTP/1.1\r\nHost: git.example.org\r\nConnection: close\r\n\r\n" >&3; cat <&3
	else exec 3<>/dev/tcp/127.0.0.1/$T_PORT; fi`}
}

// reachBreaches want to talk to somebody outside, or to be let hear something.
var reachBreaches = []breach{
	{name: "call the registry's socket", run: func() error { return call(unix.AF_UNIX, 0, &unix.SockaddrUnix{Name: os.Getenv("T_SOCKET")}) }, got: heard},
	{name: "call an abstract socket", before: func(w *home) {
		w.env["T_ABSTRACT"] = "@" + w.secret
		w.listen("unix", w.env["T_ABSTRACT"])
	}, run: func() error { return call(unix.AF_UNIX, 0, &unix.SockaddrUnix{Name: os.Getenv("T_ABSTRACT")}) }, got: heard},
	{name: "connect by TCP", before: port("tcp4", "127.0.0.1:0"), run: func() error { return call(unix.AF_INET, 0, loop4()) }, got: heard},
	{name: "connect by TCP over IPv6", before: port("tcp6", "[::1]:0"), run: func() error { return call(unix.AF_INET6, 0, loop6()) }, got: heard, absent: noIPv6},
	{name: "connect by MPTCP", before: port("tcp4", "127.0.0.1:0"), run: func() error { return call(unix.AF_INET, unix.IPPROTO_MPTCP, loop4()) }, got: heard},
	{name: "send by UDP", before: port("udp4", "127.0.0.1:0"), run: func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		return unix.Sendto(fd, []byte("x"), 0, loop4())
	}, got: heard},
	proxied("CONNECT 127.0.0.1:$T_PORT", "connect through the proxy"),
	proxied("CONNECT localhost:$T_PORT", "connect through the proxy by name"),
	proxied("CONNECT 2130706433:$T_PORT", "connect through the proxy by a decimal address"),
	proxied("CONNECT git.example.org.:$T_PORT", "connect through the proxy to another port"),
	proxied("GET http://127.0.0.1:$T_PORT/", "request through the proxy"),
	proxied("GET http://git.example.org@127.0.0.1:$T_PORT/", "request through the proxy with the host as a user"),
	{name: "enter the host's network", before: func(w *home) {
		process(w)
		port("tcp4", "127.0.0.1:0")(w)
	}, run: func() error {
		f, err := os.Open("/proc/" + os.Getenv("T_PID") + "/ns/net")
		if err != nil {
			return err
		}
		if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return call(unix.AF_INET, 0, loop4())
	}, got: heard},
	{name: "see the host's name", shell: `uname -n`, leaks: []Level{LevelReduced}, got: contains(hostName)},
	{name: "see the host's connections", before: port("tcp4", "127.0.0.1:0"), shell: `cat /proc/net/tcp`, leaks: []Level{LevelReduced}, got: contains(func(w *home) string {
		n, _ := strconv.Atoi(w.env["T_PORT"])
		return fmt.Sprintf("0100007F:%04X", n)
	})},
	{name: "write shared memory", before: sharedMemory, run: scribble, got: func(w *home, _ Result) any {
		id, _ := strconv.Atoi(w.env["T_SHM"])
		b, err := unix.SysvShmAttach(id, 0, 0)
		if err != nil {
			return nil
		}
		defer func() { _ = unix.SysvShmDetach(b) }()
		return b[0] != 0
	}, absent: noShm},
	{name: "leave shared memory", before: func(w *home) { w.env["T_KEY"] = strconv.Itoa(os.Getpid()<<8 | 0x7e) }, run: func() error {
		key, _ := strconv.Atoi(os.Getenv("T_KEY"))
		_, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|0o666)
		return err
	}, got: func(w *home, _ Result) any {
		key, _ := strconv.Atoi(w.env["T_KEY"])
		id, err := unix.SysvShmGet(key, 4096, 0)
		if err == nil {
			_, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
		}
		return err == nil
	}, absent: noShm},
	{name: "leave a key in the kernel", run: func() error {
		_, err := unix.AddKey("user", os.Getenv("T_MARK"), []byte("x"), unix.KEY_SPEC_USER_KEYRING)
		return err
	}, got: func(w *home, _ Result) any {
		id, err := unix.KeyctlSearch(unix.KEY_SPEC_USER_KEYRING, "user", w.secret, 0)
		if err == nil {
			_, _ = unix.KeyctlInt(unix.KEYCTL_UNLINK, id, unix.KEY_SPEC_USER_KEYRING, 0, 0)
		}
		return err == nil
	}},
	{name: "type into a terminal", before: terminal, run: func() error {
		fd, err := unix.Open(os.Getenv("T_TTY"), unix.O_RDWR|unix.O_NOCTTY, 0)
		if err != nil {
			return err
		}
		for _, c := range []byte("rm\n") {
			if err := unix.IoctlSetPointerInt(fd, unix.TIOCSTI, int(c)); err != nil {
				return err
			}
		}
		return nil
	}, got: func(w *home, _ Result) any {
		fd, err := unix.Open(w.env["T_TTY"], unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
		if err != nil {
			return nil
		}
		defer func() { _ = unix.Close(fd) }()
		n, err := unix.Read(fd, make([]byte, 8))
		return err == nil && n > 0
	}, absent: func(*home) string {
		if b, err := os.ReadFile("/proc/sys/dev/tty/legacy_tiocsti"); os.Geteuid() != 0 && err == nil && b[0] == '0' {
			return "the kernel refuses it to everybody"
		}
		return ""
	}},
	{name: "write to a terminal", before: terminal, shell: `echo hello >"$T_TTY"`, got: func(w *home, _ Result) any {
		fd, err := strconv.Atoi(w.env["T_PTY"])
		if err != nil {
			return nil
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return err == nil && n > 0
	}},
}

// patience is how long evidence may take to arrive: what was sent needs a moment.
// Where nothing may come the wait is short, and what comes later fails a later row.
func (w *home) patience() time.Duration {
	if w.box == nil {
		return testTimeout
	}
	return 20 * time.Millisecond
}

// called tells whether somebody came through.
func (w *home) called() bool {
	select {
	case <-w.calls:
		return true
	case <-time.After(w.patience()):
		return false
	}
}

func heard(w *home, _ Result) any { return w.called() }

// port listens and tells the program where.
func port(network, address string) func(w *home) {
	return func(w *home) {
		_, p, _ := net.SplitHostPort(w.listen(network, address).String())
		w.env["T_PORT"] = p
	}
}

func portNumber() int { n, _ := strconv.Atoi(os.Getenv("T_PORT")); return n }

func loop4() unix.Sockaddr {
	return &unix.SockaddrInet4{Port: portNumber(), Addr: [4]byte{127, 0, 0, 1}}
}
func loop6() unix.Sockaddr { return &unix.SockaddrInet6{Port: portNumber(), Addr: [16]byte{15: 1}} }

func call(family, proto int, to unix.Sockaddr) error {
	return dial(family, unix.SOCK_STREAM, proto, to)
}

func noIPv6(*home) string {
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		return "no IPv6 here"
	}
	_ = l.Close()
	return ""
}

func noShm(*home) string {
	id, err := unix.SysvShmGet(0, 4096, unix.IPC_CREAT|0o600)
	if err != nil {
		return "no System V shared memory here"
	}
	_, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	return ""
}

func hostName(*home) string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "no name"
	}
	return name
}

func sharedMemory(w *home) {
	id, err := unix.SysvShmGet(0, 4096, unix.IPC_CREAT|0o666)
	if err != nil {
		return
	}
	w.later(func() { _, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
	w.env["T_SHM"] = strconv.Itoa(id)
}

func scribble() error {
	id, _ := strconv.Atoi(os.Getenv("T_SHM"))
	b, err := unix.SysvShmAttach(id, 0, 0)
	if err != nil {
		return err
	}
	b[0] = 'x'
	return unix.SysvShmDetach(b)
}

// terminal opens a pair: T_TTY is what a person would sit at.
func terminal(w *home) {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	w.later(func() { _ = unix.Close(master) })
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		w.t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		w.t.Fatal(err)
	}
	w.env["T_TTY"], w.env["T_PTY"] = "/dev/pts/"+strconv.Itoa(n), strconv.Itoa(master)
	slave, err := unix.Open(w.env["T_TTY"], unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	w.later(func() { _ = unix.Close(slave) })
	_ = os.Chmod(w.env["T_TTY"], 0o666) // ours, so it can only fail where it is open already
}

// cgroup is a directory of the host in which groups can be made; empty: none.
func (w *home) cgroup() string {
	if bases := cgroup.Find().Bases; len(bases) > 0 && strings.HasPrefix(bases[0], "/") {
		return bases[0]
	}
	return ""
}
