// Package netguard decides which network addresses a request may reach.
//
// It promises: the check is made on the address of the socket, after name resolution and
// before the connection, once for each address that is tried. So a name that resolves to
// another address the second time, an address in an odd form (decimal, octal, mapped into
// IPv6) and each redirect meet the same check. Addresses that are not of the open internet
// are refused: loopback, link-local, private, carrier-grade NAT, multicast, unspecified,
// documentation and other special ranges; IPv6 forms that carry an IPv4 address (mapped,
// NAT64, 6to4) count as what they carry or are refused; an address with a zone is not public.
//
// It does not resolve names, make requests or judge URLs.
package netguard

import (
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

// Guard is the rule for the requests of one caller. The zero value permits public
// addresses only.
type Guard struct {
	// Allow lists addresses that are permitted although they are not public.
	Allow []netip.Prefix
}

// Everywhere is the Allow that permits all addresses at which there can be a server.
var Everywhere = prefixes("0.0.0.0/0", "::/0")

// Refused is the error for an address that may not be reached.
type Refused struct {
	Address string
}

// Error implements error.
func (r *Refused) Error() string { return fmt.Sprintf("the address %s is not public", r.Address) }

// Control is the hook for [net.Dialer.Control].
func (g Guard) Control(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return &Refused{Address: address}
	}
	return g.Check(ap.Addr())
}

// Check returns nil when a request may reach a, else a [*Refused].
func (g Guard) Check(a netip.Addr) error {
	bare := a.WithZone("").Unmap()
	if Public(a) || !never(bare) && slices.ContainsFunc(g.Allow, func(p netip.Prefix) bool { return p.Contains(bare) }) {
		return nil
	}
	return &Refused{Address: a.String()}
}

// never reports addresses at which no server can be, whatever is allowed.
func never(a netip.Addr) bool {
	return !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a == broadcast
}

var (
	broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})
	nat64     = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052: the last four bytes are an IPv4 address
	sixToFour = netip.MustParsePrefix("2002::/16")    // RFC 3056: bytes 2 to 5 are
	global6   = netip.MustParsePrefix("2000::/3")     // all IPv6 unicast that IANA has given out

	// special holds what the IANA special-purpose registries take out of the
	// public space (RFC 6890 and its updates).
	special = prefixes(
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
		"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
		"168.63.129.16/32", // an address of Azure inside its machines
		"198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
		"2001::/23", "2001:db8::/32", "3fff::/20",
	)
)

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// Public reports whether a is an address of the open internet. IPv6 forms that
// carry an IPv4 address are as public as that one; a mapped address never
// comes from a resolver (Go unmaps it) and is refused as such.
func Public(a netip.Addr) bool {
	if a.Is4In6() || a.Zone() != "" {
		return false
	}
	if a.Is6() {
		b := a.As16()
		switch {
		case nat64.Contains(a):
			return Public(netip.AddrFrom4([4]byte(b[12:16])))
		case sixToFour.Contains(a):
			return Public(netip.AddrFrom4([4]byte(b[2:6])))
		case !global6.Contains(a):
			return false
		}
	}
	for _, p := range special {
		if p.Contains(a) {
			return false
		}
	}
	return a.IsValid()
}
