//go:build linux

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// goAttempts need system calls a shell does not make.
var goAttempts = []attempt{
	// Network.
	{name: "tcp loopback", run: func() error { return dial(unix.AF_INET, unix.SOCK_STREAM, 0, in4(envTCP)) }},
	{name: "tcp6 loopback", run: func() error { return dial(unix.AF_INET6, unix.SOCK_STREAM, 0, in6(envTCP6)) }},
	{name: "mptcp loopback", run: func() error { return dial(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP, in4(envTCP)) }},
	{name: "udp loopback", run: func() error {
		// There is a loopback inside, too: whether it is the host's, its listener says.
		if err := dial(unix.AF_INET, unix.SOCK_DGRAM, 0, in4(envUDP)); err != nil {
			return err
		}
		return errors.New("sent, to nobody")
	}},
	{name: "udp outside", run: func() error {
		return dial(unix.AF_INET, unix.SOCK_DGRAM, 0, &unix.SockaddrInet4{Port: 53, Addr: [4]byte{192, 0, 2, 1}})
	}},
	{name: "path socket", run: func() error {
		return dial(unix.AF_UNIX, unix.SOCK_STREAM, 0, &unix.SockaddrUnix{Name: os.Getenv(envUnix)})
	}},
	{name: "abstract socket", run: func() error {
		return dial(unix.AF_UNIX, unix.SOCK_STREAM, 0, &unix.SockaddrUnix{Name: "@" + os.Getenv(envAbstract)})
	}},
	{name: "abstract datagram", run: func() error {
		return dial(unix.AF_UNIX, unix.SOCK_DGRAM, 0, &unix.SockaddrUnix{Name: "@" + os.Getenv(envAbstract)})
	}},
	{name: "raw socket", run: func() error { return socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP) }},
	{name: "packet socket", run: func() error { return socket(unix.AF_PACKET, unix.SOCK_RAW, 0) }},
	{name: "netlink socket", run: func() error { return socket(unix.AF_NETLINK, unix.SOCK_RAW, 0) }},
	{name: "vsock", run: func() error { return socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0) }},
	{name: "alg socket", run: func() error { return socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0) }},
	// Namespaces and mounts.
	{name: "unshare user", run: func() error { return unix.Unshare(unix.CLONE_NEWUSER) }},
	{name: "unshare mount", run: func() error { return unix.Unshare(unix.CLONE_NEWNS) }},
	{name: "clone user namespace", run: func() error {
		c := exec.Command("/bin/true")
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}
		return c.Run()
	}},
	{name: "clone3", run: func() error { return unlike(unix.SYS_CLONE3, unix.ENOSYS) }},
	{name: "setns", run: func() error {
		f, err := os.Open("/proc/self/ns/net")
		if err != nil {
			return err
		}
		return unix.Setns(int(f.Fd()), 0)
	}},
	{name: "mount tmpfs", run: func() error { return unix.Mount("x", "/tmp", "tmpfs", 0, "") }},
	{name: "mount proc", run: func() error { return unix.Mount("x", "/tmp", "proc", 0, "") }},
	{name: "bind root", run: func() error { return unix.Mount("/", "/tmp", "", unix.MS_BIND|unix.MS_REC, "") }},
	{name: "remount root", run: func() error { return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, "") }},
	{name: "umount", run: func() error { return unix.Unmount("/proc", unix.MNT_DETACH) }},
	{name: "pivot_root", run: func() error { return unix.PivotRoot(".", ".") }},
	{name: "chroot", run: func() error { return unix.Chroot("/") }},
	{name: "fsopen", run: func() error { _, err := unix.Fsopen("tmpfs", 0); return err }},
	{name: "open_tree", run: func() error { _, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE); return err }},
	{name: "mount_setattr", run: func() error {
		return unix.MountSetattr(unix.AT_FDCWD, "/", 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
	}},
	{name: "move_mount", run: func() error { return unlike(unix.SYS_MOVE_MOUNT, unix.EPERM) }},
	{name: "open_by_handle_at", run: func() error {
		h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, ".", 0)
		if err != nil {
			return err
		}
		_, err = unix.OpenByHandleAt(unix.AT_FDCWD, h, unix.O_RDONLY)
		return err
	}},
	// Processes.
	{name: "ptrace outside", run: func() error { return unix.PtraceSeize(pid()) }},
	{name: "ptrace init", run: func() error { return unix.PtraceSeize(1) }},
	{name: "ptrace child", run: func() error {
		runtime.LockOSThread()
		c := exec.Command("/bin/true")
		c.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
		return c.Start()
	}},
	{name: "read memory outside", run: func() error { return peek(pid()) }},
	{name: "read memory of init", run: func() error { return peek(os.Getppid()) }},
	{name: "descriptor outside", run: func() error {
		fd, err := unix.PidfdOpen(pid(), 0)
		if err != nil {
			return err
		}
		_, err = unix.PidfdGetfd(fd, 0, 0)
		return err
	}},
	{name: "descriptor of init", run: func() error {
		fd, err := unix.PidfdOpen(os.Getppid(), 0)
		if err != nil {
			return err
		}
		_, err = unix.PidfdGetfd(fd, 4, 0)
		return err
	}},
	{name: "signal everybody", run: func() error {
		// Inside, this finds init and nobody else; the world outside is looked at later.
		if err := unix.Kill(-1, 0); err != nil {
			return err
		}
		return unix.Kill(pid(), 0)
	}},
	{name: "shared memory", run: func() error {
		key, err := strconv.Atoi(os.Getenv(envShm))
		if err != nil {
			return err
		}
		id, err := unix.SysvShmGet(key, 4096, 0)
		if err != nil {
			return err
		}
		_, err = unix.SysvShmAttach(id, 0, 0)
		return err
	}},
	// The kernel.
	{name: "bpf", run: func() error { return unlike(unix.SYS_BPF, unix.EPERM) }},
	{name: "perf_event_open", run: func() error { return unlike(unix.SYS_PERF_EVENT_OPEN, unix.EPERM) }},
	{name: "userfaultfd", run: func() error { return unlike(unix.SYS_USERFAULTFD, unix.EPERM) }},
	{name: "io_uring", run: func() error { return unlike(unix.SYS_IO_URING_SETUP, unix.EPERM) }},
	{name: "keyctl", run: func() error { _, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, true); return err }},
	{name: "add_key", run: func() error { _, err := unix.AddKey("user", "x", []byte("x"), unix.KEY_SPEC_USER_KEYRING); return err }},
	{name: "request_key", run: func() error { return unlike(unix.SYS_REQUEST_KEY, unix.EPERM) }},
	{name: "unknown system call", run: func() error { return unlike(600, unix.ENOSYS) }},
	{name: "x32 system call", run: func() error { return unlike(0x40000000|unix.SYS_GETPID, unix.ENOSYS) }},
	// Rights.
	{name: "become root", run: func() error { return syscall.Setresuid(0, 0, 0) }, moot: true},
	{name: "join group root", run: func() error { return syscall.Setgroups([]int{0}) }},
	{name: "take capabilities", run: func() error {
		h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		d := [2]unix.CapUserData{{Effective: 1 << unix.CAP_SYS_ADMIN, Permitted: 1 << unix.CAP_SYS_ADMIN}}
		return unix.Capset(&h, &d[0])
	}},
	{name: "set time", run: func() error { return unix.ClockSettime(unix.CLOCK_REALTIME, &unix.Timespec{Sec: -1}) }},
	{name: "xattr outside", run: func() error { return unix.Setxattr(os.Getenv(envSecret), "user.x", []byte("x"), 0) }, leaks: []Level{LevelReduced}},
	{name: "symlink race", run: raceSymlink},
}

func pid() int { n, _ := strconv.Atoi(os.Getenv(envPID)); return n }

func in4(env string) unix.Sockaddr {
	n, _ := strconv.Atoi(os.Getenv(env))
	return &unix.SockaddrInet4{Port: n, Addr: [4]byte{127, 0, 0, 1}}
}

func in6(env string) unix.Sockaddr {
	n, _ := strconv.Atoi(os.Getenv(env))
	return &unix.SockaddrInet6{Port: n, Addr: [16]byte{15: 1}}
}

func socket(family, kind, proto int) error {
	_, err := unix.Socket(family, kind, proto)
	return err
}

func dial(family, kind, proto int, to unix.Sockaddr) error {
	fd, err := unix.Socket(family, kind, proto)
	if err != nil {
		return err
	}
	if err := unix.Connect(fd, to); err != nil || kind == unix.SOCK_STREAM {
		return err
	}
	_, err = unix.Write(fd, []byte("x"))
	return err
}

// unlike makes the call without arguments and wants exactly this answer, which
// the kernel alone would not give.
func unlike(nr uintptr, want unix.Errno) error {
	_, _, e := unix.Syscall6(nr, 0, 0, 0, 0, 0, 0)
	if e == want {
		return e
	}
	fmt.Println("the answer is", e)
	return nil
}

func peek(pid int) error {
	var b [8]byte
	local := []unix.Iovec{{Base: &b[0], Len: 8}}
	remote := []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&b[0])), Len: 8}}
	_, err := unix.ProcessVMReadv(pid, local, remote, 0)
	if errors.Is(err, unix.EFAULT) {
		return nil // allowed, only the address was wrong
	}
	return err
}

// raceSymlink swaps a file and a link to the secret while reading.
func raceSymlink() error {
	if err := os.WriteFile("plain", []byte("plain"), 0o600); err != nil {
		return err
	}
	if err := os.Symlink(os.Getenv(envSecret), "link"); err != nil {
		return err
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, "plain", unix.AT_FDCWD, "link", unix.RENAME_EXCHANGE)
			}
		}
	}()
	for range 5000 {
		if b, err := os.ReadFile("plain"); err == nil && string(b) == "secret" {
			return nil
		}
	}
	return errors.New("never saw the secret")
}
