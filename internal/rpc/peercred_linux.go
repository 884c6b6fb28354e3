package rpc

import "golang.org/x/sys/unix"

// peerIDs asks the kernel who is at the other end of a socket.
func peerIDs(fd int) (uid uint32, pid int32, err error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, 0, err
	}
	return cred.Uid, cred.Pid, nil
}
