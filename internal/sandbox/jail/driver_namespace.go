package jail

import (
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/sandbox/wire"
)

// namespaces are those of the drivers full and privileged.
func namespaces(k kind) uintptr {
	f := uintptr(unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP)
	if !k.network {
		f |= unix.CLONE_NEWNET
	}
	return f
}

// userNamespace adds the user namespace: one uid and one gid are mapped, no other
// exists. The ids are taken by init itself, later: until it has opened the paths
// it shows, it needs the rights the launcher has in the host's directories.
func userNamespace(k kind, sys *syscall.SysProcAttr) {
	sys.Cloneflags = namespaces(k) | unix.CLONE_NEWUSER
	sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: wire.ID, HostID: k.uid, Size: 1}}
	sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: wire.ID, HostID: k.gid, Size: 1}}
	// There is no uid 0 inside, so capabilities survive the exec of init only as
	// ambient ones.
	sys.AmbientCaps = []uintptr{
		unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP, unix.CAP_NET_ADMIN, unix.CAP_SETUID, unix.CAP_SETGID,
	}
}

// listen makes the listener of an order in our network, and sends it over a socket to the process that
// serves it. The program gets neither of them.
func listen(o wire.Order, to int) error {
	if o.Listen == "" {
		return nil
	}
	at, err := netip.ParseAddrPort(o.Listen)
	if err != nil || !at.Addr().Is4() {
		return unix.EINVAL
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	if err := unix.Bind(s, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}); err != nil {
		return err
	}
	if err := unix.Listen(s, unix.SOMAXCONN); err != nil {
		return err
	}
	if err := wire.Send(to, s); err != nil {
		return err
	}
	return unix.Close(to)
}

// loopback brings lo up: test servers inside the sandbox can be reached from inside.
func loopback() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, r)
}
