//go:build linux

package sandbox

import (
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/sandbox/wire"
)

// served is a listener in the network of a program, which its init has made and sent to us: it stays in that
// network, and what we accept on it are connections of that program.
type served struct {
	socket, theirs *os.File
	done           chan struct{} // closed when there is nothing to wait for any more

	mu       sync.Mutex
	listener net.Listener
	ended    bool
}

func newServed() (*served, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make socket of the listener: %w", err)
	}
	return &served{socket: os.NewFile(uintptr(ends[0]), "listener"), theirs: os.NewFile(uintptr(ends[1]), "listener"), done: make(chan struct{})}, nil
}

// serve calls what serves the listener as soon as it is there. The end of init that was sent to it must be the only one.
func (s *served) serve(with func(net.Listener)) {
	_ = s.theirs.Close()
	go func() {
		defer close(s.done)
		if s.receive() == nil {
			with(s.listener)
		}
	}()
}

func (s *served) receive() error {
	files, err := wire.Receive(int(s.socket.Fd()))
	if err != nil {
		return err // init has ended, or its set-up has failed, which it reports
	}
	f := os.NewFile(uintptr(files[0]), "listener")
	defer f.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return net.ErrClosed
	}
	s.listener, err = net.FileListener(f)
	return err
}

// end closes the listener, and returns when it is not served any more.
func (s *served) end() {
	s.mu.Lock()
	s.ended = true
	if s.listener != nil {
		_ = s.listener.Close()
	}
	_ = unix.Shutdown(int(s.socket.Fd()), unix.SHUT_RDWR) // ends the wait for a listener that never came
	s.mu.Unlock()
	<-s.done
	_ = s.socket.Close()
}

// drop is end for what was never served.
func (s *served) drop() {
	_ = s.theirs.Close()
	_ = s.socket.Close()
}
