package modeltest

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// RefusedURL is a base URL where connections are refused for as long as the
// test runs: the port is bound, so no other process can have it, and not listened on.
func RefusedURL(tb testing.TB) string {
	tb.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		tb.Fatalf("make socket: %v", err)
	}
	tb.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		tb.Fatalf("bind socket: %v", err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		tb.Fatalf("name socket: %v", err)
	}
	address, ok := name.(*unix.SockaddrInet4)
	if !ok {
		tb.Fatalf("socket has address %T", name)
	}
	return fmt.Sprintf("http://127.0.0.1:%d/v1", address.Port)
}
