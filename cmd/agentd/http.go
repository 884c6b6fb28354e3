package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"

	"github.com/theclaw/agents/internal/agentdir/layer"
)

// The variables of the environment that change gateway.http.
const (
	hostVariable = "HOST"
	portVariable = "PORT"
)

// listenHTTP returns the address of the gateway: that of the settings, else that of the profile,
// with the host and the port of the environment and the port of --port. Empty: it does not
// listen, because the settings say off, or for the problem.
func listenHTTP(o options, at layer.Gateway, log *slog.Logger) (addr, problem string) {
	addr = cmp.Or(at.HTTP, layer.ProfileHTTP(o.profile))
	if addr == layer.HTTPOff {
		if o.port == "" { // the environment often has the two for another program
			return "", ""
		}
		addr = layer.ProfileHTTP(o.profile)
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil { // the settings were checked
		return "", err.Error()
	}
	changed := "--port"
	if p := o.getenv(portVariable); p != "" && o.port == "" {
		if !isPort(p) {
			return "", fmt.Sprintf("%s in the environment is %.40q and not a port", portVariable, p)
		}
		port, changed = p, portVariable+" in the environment"
	}
	port = cmp.Or(o.port, port)
	h := o.getenv(hostVariable)
	switch a, err := netip.ParseAddr(h); {
	case h == "":
	case h == "localhost":
		host = "127.0.0.1"
	case err != nil: // some shells export it as the name of the machine
		log.Info("the gateway does not use HOST of the environment: it is not an address", "host", fmt.Sprintf("%.80q", h))
	default:
		host, changed = a.String(), hostVariable+" in the environment"
	}
	addr = net.JoinHostPort(host, port)
	if why := at.Check(addr); why != "" {
		return "", changed + ": " + why
	}
	return addr, ""
}

func isPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}
