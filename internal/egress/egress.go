// Package egress is a list of hosts that may be reached by name, and nothing else. Package proxy below it lets
// programs in a sandbox reach them.
//
// A host is permitted by its exact name or below a `*.`, on the ports 80 and 443 or on the one that the entry
// names. It does not resolve names, and makes no connection.
package egress

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/theclaw/agents/internal/boundary"
)

// MaxHosts bounds a list.
const MaxHosts = 100

// Hosts is a list of hosts.
type Hosts struct{ entries []entry }

// entry is a host, or what is below one.
type entry struct {
	name  string // lower case, without the final dot
	below bool   // the entry was *.name
	port  int    // 0: 80 and 443
}

// Parse reads a list. The error is a sentence about the first entry that is no host.
func Parse(list []string) (Hosts, error) {
	var h Hosts
	if len(list) > MaxHosts {
		return h, fmt.Errorf("%d hosts, and %d are the most", len(list), MaxHosts)
	}
	for _, text := range list {
		e := entry{name: strings.ToLower(text)}
		if name, port, err := net.SplitHostPort(e.name); err == nil {
			n, err := strconv.ParseUint(port, 10, 16)
			if err != nil || n == 0 {
				name = "" // it is no host
			}
			e.name, e.port = name, int(n)
		}
		e.name, e.below = strings.CutPrefix(e.name, "*.")
		e.name = strings.TrimSuffix(e.name, ".")
		_, err := netip.ParseAddr(e.name)
		if !isName(e.name) && (err != nil || e.below) {
			return h, fmt.Errorf("%s is no host: write a name such as git.example.org, *.example.net or git.example.org:8443", boundary.Name(text))
		}
		h.entries = append(h.entries, e)
	}
	return h, nil
}

// isName reports whether a text can be the name of a host: labels of letters, digits and hyphens.
func isName(s string) bool {
	if len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, r := range label {
			if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_' {
				return false
			}
		}
	}
	return true
}

// Permits reports whether a program may reach a host on a port.
func (h Hosts) Permits(host string, port int) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	for _, e := range h.entries {
		if e.port != port && (e.port != 0 || port != 80 && port != 443) {
			continue
		}
		if !e.below && host == e.name || e.below && strings.HasSuffix(host, "."+e.name) {
			return true
		}
	}
	return false
}
