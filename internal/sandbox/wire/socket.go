//go:build linux

package wire

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// Send passes descriptors over a socket that keeps messages apart.
func Send(socket int, files ...int) error { return send(socket, []byte{0}, files) }

func send(socket int, b []byte, files []int) error {
	for {
		err := unix.Sendmsg(socket, b, unix.UnixRights(files...), nil, unix.MSG_NOSIGNAL)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Receive is the other end of Send; io.EOF says that the other side has closed its end.
func Receive(socket int) ([]int, error) {
	var b [1]byte
	return receive(socket, b[:])
}

// SendOrder sends o and descriptors over a stream socket.
func SendOrder(socket FD, o Order, files []int) error {
	b, err := encode(o)
	if err != nil {
		return err
	}
	if err := send(int(socket), b[:headSize], files); err != nil {
		return fmt.Errorf("send order: %w", err)
	}
	if _, err := socket.Write(b[headSize:]); err != nil {
		return fmt.Errorf("send order: %w", err)
	}
	return nil
}

// ReceiveOrder is the other end of SendOrder.
func ReceiveOrder(socket FD) (Order, []int, error) {
	var head [headSize]byte
	files, err := receive(int(socket), head[:])
	if err != nil {
		return Order{}, nil, fmt.Errorf("read order: %w", err)
	}
	o, err := body(socket, head)
	return o, files, err
}

// maxFiles is the most descriptors in a message.
const maxFiles = 8

func receive(socket int, b []byte) ([]int, error) {
	oob := make([]byte, unix.CmsgSpace(4*maxFiles))
	for {
		n, size, _, _, err := unix.Recvmsg(socket, b, oob, unix.MSG_CMSG_CLOEXEC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, err
		case n < len(b):
			return nil, io.EOF
		}
		messages, err := unix.ParseSocketControlMessage(oob[:size])
		if err != nil || len(messages) != 1 {
			return nil, errors.Join(err, unix.EBADMSG)
		}
		return unix.ParseUnixRights(&messages[0])
	}
}

// Ready reads a byte from a socket, if there is one, and reports whether there was.
func (f FD) Ready() bool {
	var b [1]byte
	for {
		n, _, err := unix.Recvfrom(int(f), b[:], unix.MSG_DONTWAIT)
		if !errors.Is(err, unix.EINTR) {
			return n == 1 && err == nil
		}
	}
}
