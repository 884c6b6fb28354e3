package world

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Outage is an address on loopback where connections are refused until end is
// called, which answers them with a handler from then on. Nobody else can have
// the port meanwhile: it is bound, and not listened on.
func Outage(tb testing.TB) (url string, end func(http.Handler)) {
	tb.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		tb.Fatalf("make socket: %v", err)
	}
	socket := os.NewFile(uintptr(fd), "outage")
	tb.Cleanup(func() { _ = socket.Close() })
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
	return fmt.Sprintf("http://127.0.0.1:%d", address.Port), func(h http.Handler) {
		tb.Helper()
		if err := unix.Listen(fd, unix.SOMAXCONN); err != nil {
			tb.Fatalf("listen: %v", err)
		}
		l, err := net.FileListener(socket)
		if err != nil {
			tb.Fatalf("listen: %v", err)
		}
		s := &httptest.Server{Listener: l, Config: &http.Server{Handler: h}} //nolint:gosec // a test's server
		s.Start()
		tb.Cleanup(s.Close)
	}
}
