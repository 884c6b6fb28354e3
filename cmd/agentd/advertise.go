package main

import (
	"cmp"
	"net"
	"os"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
)

// bind takes the TCP address of a worker before anybody is told of it: the port may be
// one that the system chooses. A registry is not told of by itself, and binds when it
// is made.
func (e *env) bind() error {
	if e.listen == "" || len(e.services) != 1 || e.services[0].name == "registry" {
		return nil
	}
	var err error
	if e.listener, err = net.Listen("tcp", e.listen); err != nil {
		return cannotListen(e.listen, err)
	}
	return nil
}

func cannotListen(address string, err error) error {
	return fault.Wrap(fault.New(codes.FailedPrecondition, fault.InvalidArgument,
		"cannot listen on "+address, "choose another --listen, or end what uses it"), err)
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
