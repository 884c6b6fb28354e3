package config

import (
	"strconv"
	"strings"

	"github.com/theclaw/agents/internal/egress"
)

// Network is what programs in the sandbox reach. The zero value is nothing but themselves.
type Network struct {
	// Open is the network of the host.
	Open bool
	// Hosts are the hosts that they reach by HTTP and HTTPS, through a proxy of the runner.
	Hosts []string
}

// The words for a network without hosts.
const (
	networkOff  = "off"
	networkOpen = "open"
)

// String writes the value for a reader: off, open or a list.
func (n Network) String() string {
	switch {
	case n.Open:
		return networkOpen
	case len(n.Hosts) > 0:
		return FlowList(n.Hosts)
	}
	return networkOff
}

// ParseNetwork reads off, open, or hosts as a list on one line; false and true are off and open. See [ParseNumber].
func ParseNetwork(s string, to *Network) string {
	switch s {
	case networkOff, strconv.FormatBool(false):
		*to = Network{}
	case networkOpen, strconv.FormatBool(true):
		*to = Network{Open: true}
	default:
		list := parseList(s)
		if len(list) == 0 || !strings.HasPrefix(strings.TrimSpace(s), "[") && !strings.ContainsAny(s, ".,") {
			return "must be off, open, or a list of hosts such as [git.example.org]"
		}
		*to = Network{Hosts: list}
	}
	return ""
}

// network is the rule of a [Network].
func network() Rule {
	return Rule{Form: "off, open, or at most 100 hosts such as git.example.org, *.example.net or git.example.org:8443", check: func(v any) string {
		if _, err := egress.Parse(v.(*Network).Hosts); err != nil {
			return err.Error()
		}
		return ""
	}}
}
