package rpc

import "golang.org/x/sys/unix"

// peerIDs asks the kernel who is at the other end of a socket.
func peerIDs(fd int) (uid uint32, pid int32, err error) {
	cred, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, 0, err
	}
	n, err := unix.GetsockoptInt(fd, unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	return cred.Uid, int32(n), err
}
