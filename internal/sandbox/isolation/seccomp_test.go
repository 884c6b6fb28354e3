package isolation

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/sandbox/wire"
)

// eval runs a filter as the kernel would, for the instructions it uses.
func eval(t *testing.T, p []unix.SockFilter, nr, arch uint32, args ...uint64) uint32 {
	t.Helper()
	data := binary.NativeEndian.AppendUint32(nil, nr)
	data = binary.NativeEndian.AppendUint32(data, arch)
	data = append(data, make([]byte, 8)...)
	for i := range 6 {
		var a uint64
		if i < len(args) {
			a = args[i]
		}
		data = binary.NativeEndian.AppendUint64(data, a)
	}
	var acc uint32
	for pc := 0; pc < len(p); pc++ {
		in := p[pc]
		truth := false
		switch in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			acc = binary.NativeEndian.Uint32(data[in.K:])
			continue
		case unix.BPF_RET | unix.BPF_K:
			return in.K
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			truth = acc == in.K
		case unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K:
			truth = acc > in.K
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			truth = acc&in.K != 0
		default:
			t.Fatalf("instruction %d has code %#x", pc, in.Code)
		}
		if truth {
			pc += int(in.Jt)
		} else {
			pc += int(in.Jf)
		}
	}
	t.Fatal("the program ran off its end")
	return 0
}

func TestFilter(t *testing.T) {
	const allow = uint32(unix.SECCOMP_RET_ALLOW)
	closed, open, reduced := program(wire.Order{Driver: wire.Full}), program(wire.Order{Driver: wire.Full, Network: true}), program(wire.Order{Driver: wire.Reduced})
	type row struct {
		name string
		p    []unix.SockFilter
		nr   uint32
		args []uint64
		want uint32
	}
	rows := []row{
		{"read", closed, unix.SYS_READ, nil, allow},
		{"execve", closed, unix.SYS_EXECVE, nil, allow},
		{"landlock", closed, unix.SYS_LANDLOCK_RESTRICT_SELF, nil, allow},
		{"thread", closed, unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND}, allow},
		{"fork", closed, unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD)}, allow},
		{"new user", closed, unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, errno(unix.EPERM)},
		{"new net", closed, unix.SYS_CLONE, []uint64{unix.CLONE_NEWNET}, errno(unix.EPERM)},
		{"new cgroup", closed, unix.SYS_CLONE, []uint64{unix.CLONE_NEWCGROUP}, errno(unix.EPERM)},
		{"clone3", closed, unix.SYS_CLONE3, nil, errno(unix.ENOSYS)},
		{"unknown", closed, newest + 1, nil, errno(unix.ENOSYS)},
		{"x32", closed, 0x40000000, nil, errno(unix.ENOSYS)},
		{"own limit", closed, unix.SYS_PRLIMIT64, []uint64{0}, allow},
		{"other's limit", closed, unix.SYS_PRLIMIT64, []uint64{1}, errno(unix.EPERM)},
		{"tiocsti", closed, unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI}, errno(unix.EPERM)},
		{"tiocsti, high bits", closed, unix.SYS_IOCTL, []uint64{0, 1<<32 | unix.TIOCSTI}, errno(unix.EPERM)},
		{"tioclinux", closed, unix.SYS_IOCTL, []uint64{0, unix.TIOCLINUX}, errno(unix.EPERM)},
		{"window size", closed, unix.SYS_IOCTL, []uint64{0, unix.TIOCGWINSZ}, allow},
		{"unix", closed, unix.SYS_SOCKET, []uint64{unix.AF_UNIX}, allow},
		{"inet", closed, unix.SYS_SOCKET, []uint64{unix.AF_INET}, allow},
		{"inet6", closed, unix.SYS_SOCKET, []uint64{unix.AF_INET6}, allow},
		{"netlink", closed, unix.SYS_SOCKET, []uint64{unix.AF_NETLINK}, errno(unix.EAFNOSUPPORT)},
		{"vsock", closed, unix.SYS_SOCKET, []uint64{unix.AF_VSOCK}, errno(unix.EAFNOSUPPORT)},
		{"packet", open, unix.SYS_SOCKET, []uint64{unix.AF_PACKET}, errno(unix.EAFNOSUPPORT)},
		{"netlink, open", open, unix.SYS_SOCKET, []uint64{unix.AF_NETLINK}, allow},
		{"openat2", closed, unix.SYS_OPENAT2, nil, errno(unix.ENOSYS)},
		{"read a file", closed, unix.SYS_OPENAT, []uint64{0, 0, unix.O_RDONLY, 0o6777}, allow},
		{"make a file", closed, unix.SYS_OPENAT, []uint64{0, 0, unix.O_CREAT, 0o1777}, allow},
		{"make a setuid file", closed, unix.SYS_OPENAT, []uint64{0, 0, unix.O_CREAT, 0o4755}, errno(unix.EPERM)},
		{"make one without a name", closed, unix.SYS_OPENAT, []uint64{0, 0, unix.O_TMPFILE | unix.O_RDWR, 0o2755}, errno(unix.EPERM)},
		{"open a directory", closed, unix.SYS_OPENAT, []uint64{0, 0, unix.O_DIRECTORY, 0o4755}, allow},
		{"chmod", reduced, unix.SYS_FCHMODAT, []uint64{0, 0, 0o755}, allow},
		{"chmod setuid", reduced, unix.SYS_FCHMODAT, []uint64{0, 0, 0o4755}, errno(unix.EPERM)},
		{"chmod setgid by descriptor", reduced, unix.SYS_FCHMOD, []uint64{0, 0o2755}, errno(unix.EPERM)},
		{"mkdir setgid", closed, unix.SYS_MKDIRAT, []uint64{0, 0, 0o2755}, errno(unix.EPERM)},
		{"unix, reduced", reduced, unix.SYS_SOCKET, []uint64{unix.AF_UNIX}, errno(unix.EACCES)},
		{"pair, reduced", reduced, unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX}, allow},
		{"shm, full", closed, unix.SYS_SHMGET, nil, allow},
		{"shm, reduced", reduced, unix.SYS_SHMGET, nil, errno(unix.EPERM)},
	}
	for _, nr := range append(append([]uint32{}, refused...), refusedArch...) {
		rows = append(rows, row{"refused", closed, nr, nil, errno(unix.EPERM)})
	}
	for _, r := range rows {
		if got := eval(t, r.p, r.nr, auditArch, r.args...); got != r.want {
			t.Errorf("%s (%d): got %#x, want %#x", r.name, r.nr, got, r.want)
		}
	}
	// A 32-bit program has other numbers for everything.
	for _, arch := range []uint32{unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_ARM, 0} {
		if got := eval(t, closed, unix.SYS_READ, arch); got != unix.SECCOMP_RET_KILL_PROCESS {
			t.Errorf("architecture %#x: got %#x", arch, got)
		}
	}
}
