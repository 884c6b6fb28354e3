package pool

import (
	"time"

	"golang.org/x/sys/unix"
)

// limitSilence ends a connection whose data is not acknowledged for a while.
func limitSilence(fd int, d time.Duration) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
}
