package main

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/obs"
)

// bind takes every TCP address before a service is made: an address that is taken ends the
// process at once, before it has accepted work. The registry of a worker learns its
// address, whose port may be one that the system chooses.
func (e *env) bind() (err error) {
	if e.options.metrics != "" {
		if e.metricsListener, err = obs.ListenMetrics(context.Background(), e.options.metrics, e.metricsRemote); err != nil {
			return cannotListen("--metrics-listen", e.options.metrics, err)
		}
	}
	if e.listen == "" {
		return nil
	}
	if e.listener, err = net.Listen("tcp", e.listen); err != nil {
		e.unbind()
		return cannotListen("--listen", e.listen, err)
	}
	return nil
}

// unbind closes the addresses that bind took; a server that has one closes it itself, and
// once more does nothing.
func (e *env) unbind() {
	for _, l := range []net.Listener{e.metricsListener, e.listener} {
		if l != nil {
			_ = l.Close()
		}
	}
}

// cannotListen is the error of an address that a flag names. It is not said which process
// has the address: the system does not tell that to every user.
func cannotListen(flag, address string, err error) error {
	what, fix := "cannot listen on "+address, "choose another "+flag+" address"
	var op *net.OpError
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		what, fix = what+": another process uses this address", "end that process, or choose another "+flag+" address"
	case errors.As(err, &op):
		what += ": " + op.Err.Error()
	default:
		what += ": " + err.Error()
		fix = "correct " + flag
	}
	return fault.Wrap(fault.New(codes.FailedPrecondition, fault.InvalidArgument, what, fix), err)
}

// advertised is the address that leases have of a worker: as --advertise says, else
// where it listens. One that listens on every address of its machine is called at the
// one from which the machine reaches the registry.
func (e *env) advertised() string {
	if e.advertise != "" || e.listener == nil {
		return cmp.Or(e.advertise, e.listen)
	}
	bound := e.listener.Addr().String()
	host, port, err := net.SplitHostPort(bound)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsUnspecified() {
		return bound
	}
	first, _, _ := strings.Cut(e.registry, ",")
	// A datagram socket that sends nothing: the system chooses its own address for it.
	if c, err := net.Dial("udp", strings.TrimPrefix(first, "dns:///")); err == nil { //nolint:gosec // whoever starts us names his registry
		defer func() { _ = c.Close() }()
		if local, _, err := net.SplitHostPort(c.LocalAddr().String()); err == nil {
			return net.JoinHostPort(local, port)
		}
	}
	name, err := os.Hostname()
	if err != nil {
		return bound
	}
	return net.JoinHostPort(name, port)
}
