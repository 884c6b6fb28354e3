package isolation

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/sandbox/wire"
)

// refused are the system calls no program here needs: new namespaces and mounts,
// other processes' memory, kernel interfaces with a history of holes, the clock
// and the machine. The answer is EPERM.
var refused = []uint32{
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_LISTNS,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
	unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR, unix.SYS_MOVE_MOUNT, unix.SYS_MOUNT_SETATTR,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE,
	unix.SYS_PROCESS_MRELEASE, unix.SYS_KCMP, unix.SYS_PIDFD_GETFD, unix.SYS_MOVE_PAGES, unix.SYS_MIGRATE_PAGES,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_FANOTIFY_INIT,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_NFSSERVCTL,
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
	unix.SYS_SYSLOG, unix.SYS_VHANGUP, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX,
}

// refusedShared are refused in addition where the host's IPC objects and processes
// are in reach, that is without namespaces.
var refusedShared = []uint32{
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP,
	unix.SYS_SEMCTL, unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL, unix.SYS_MQ_OPEN,
	unix.SYS_MQ_UNLINK, unix.SYS_SETPRIORITY, unix.SYS_IOPRIO_SET, unix.SYS_SCHED_SETAFFINITY,
	unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETATTR,
}

// A maker gives a file its mode, by argument number mode; where flags is not -1, only
// when that argument says that a file is made.
type maker struct {
	nr          uint32
	mode, flags int
}

// makers must not make a setuid or setgid program: in the workdir it would belong to
// whom the workdir belongs, outside, where no mount option forbids what it is for.
var makers = []maker{
	{unix.SYS_FCHMOD, 1, -1},
	{unix.SYS_FCHMODAT, 2, -1},
	{unix.SYS_FCHMODAT2, 2, -1},
	{unix.SYS_MKDIRAT, 2, -1},
	{unix.SYS_MKNODAT, 2, -1},
	{unix.SYS_OPENAT, 3, 2},
}

const (
	setIDs = unix.S_ISUID | unix.S_ISGID
	makes  = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY
)

// newest is the highest number this list was made for. What is above did not exist
// then, so nobody has judged it, and programs know how to live without.
const newest = unix.SYS_RSEQ_SLICE_YIELD

const cloneNew = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// Offsets in struct seccomp_data; arguments are 64 bits, low half first on both
// architectures we support.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16
)

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

func answer(action uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
}

func errno(e unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(e) }

// jump compares the accumulator: true skips t instructions, false f.
func jump(test uint16, k uint32, t, f uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | test | unix.BPF_K, K: k, Jt: t, Jf: f}
}

// when is "if number == nr { body }"; the body must end in an answer.
func when(nr uint32, body ...unix.SockFilter) []unix.SockFilter {
	return append([]unix.SockFilter{jump(unix.BPF_JEQ, nr, 0, uint8(len(body)))}, body...)
}

func program(o wire.Order) []unix.SockFilter {
	allow, deny := answer(unix.SECCOMP_RET_ALLOW), answer(errno(unix.EPERM))
	p := []unix.SockFilter{
		load(offArch), jump(unix.BPF_JEQ, auditArch, 1, 0), answer(unix.SECCOMP_RET_KILL_PROCESS),
		load(offNumber),
		// Also every x32 number, which is a normal one with bit 30 set.
		jump(unix.BPF_JGT, newest, 0, 1), answer(errno(unix.ENOSYS)),
	}
	// Its flags are in memory, where a filter cannot look; libc falls back to clone.
	p = append(p, when(unix.SYS_CLONE3, answer(errno(unix.ENOSYS)))...)
	p = append(p, when(unix.SYS_CLONE, load(offArgs), jump(unix.BPF_JSET, cloneNew, 0, 1), deny, allow)...)
	// Limits of other processes; 0 is the caller itself.
	p = append(p, when(unix.SYS_PRLIMIT64, load(offArgs), jump(unix.BPF_JEQ, 0, 1, 0), deny, allow)...)
	// Typing into a terminal.
	p = append(p, when(unix.SYS_IOCTL, load(offArgs+8),
		jump(unix.BPF_JEQ, unix.TIOCSTI, 1, 0), jump(unix.BPF_JEQ, unix.TIOCLINUX, 0, 1), deny, allow)...)
	p = append(p, when(unix.SYS_SOCKET, families(o)...)...)
	// Its mode is in memory too; whoever calls it knows how to live without.
	p = append(p, when(unix.SYS_OPENAT2, answer(errno(unix.ENOSYS)))...)
	for _, m := range append(append([]maker{}, makers...), makersArch...) {
		body := []unix.SockFilter{load(offArgs + 8*uint32(m.mode)), jump(unix.BPF_JSET, setIDs, 0, 1), deny, allow}
		if m.flags >= 0 {
			body = append([]unix.SockFilter{load(offArgs + 8*uint32(m.flags)), jump(unix.BPF_JSET, makes, 0, 3)}, body...)
		}
		p = append(p, when(m.nr, body...)...)
	}
	list := append(append([]uint32{}, refused...), refusedArch...)
	if o.Driver == wire.Reduced {
		list = append(list, refusedShared...)
	}
	for _, nr := range list {
		p = append(p, when(nr, deny)...)
	}
	return append(p, allow)
}

// families answers socket(): AF_VSOCK would reach a hypervisor from any network
// namespace, and the rare families are where kernels break.
func families(o wire.Order) []unix.SockFilter {
	if o.Driver == wire.Reduced {
		return []unix.SockFilter{answer(errno(unix.EACCES))} // the host's network is in reach
	}
	ok := []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6}
	if o.Network {
		ok = append(ok, unix.AF_NETLINK) // getaddrinfo asks it for addresses
	}
	b := []unix.SockFilter{load(offArgs)}
	for i, f := range ok {
		b = append(b, jump(unix.BPF_JEQ, f, uint8(len(ok)-i), 0))
	}
	return append(b, answer(errno(unix.EAFNOSUPPORT)), answer(unix.SECCOMP_RET_ALLOW))
}

// filterSyscalls installs the program on every thread. no_new_privs must be set.
func filterSyscalls(o wire.Order) error {
	p := program(o)
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	r, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if e != 0 {
		return e
	}
	if r != 0 {
		return unix.EBUSY // the id of a thread that could not follow
	}
	return nil
}
