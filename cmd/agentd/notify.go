package main

import (
	"fmt"
	"net"
	"strings"
	"time"
)

// supervisor notifies the supervisor; one that cannot be reached is logged.
func (e *env) supervisor(state string) {
	if err := e.notify(state); err != nil {
		e.log.Warn("the supervisor does not know the state", "state", state, "error", err)
	}
}

// notify reports a state, such as READY=1, to the supervisor that started this process:
// sd_notify(3) of systemd. It does nothing when the supervisor has given no socket. The
// datagram is not answered, and the write has a deadline: a supervisor that hangs stops
// nothing here.
func (e *env) notify(state string) error {
	path := e.getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	if !strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "@") { // vsock and the like
		return fmt.Errorf("notify the supervisor: NOTIFY_SOCKET=%q is no Unix socket", path)
	}
	c, err := net.DialTimeout("unixgram", path, time.Second)
	if err != nil {
		return fmt.Errorf("notify the supervisor: %w", err)
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return fmt.Errorf("notify the supervisor: %w", err)
	}
	if _, err := c.Write([]byte(state)); err != nil {
		return fmt.Errorf("notify the supervisor: %w", err)
	}
	return nil
}
