package webhook

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/theclaw/agents/internal/channel"
)

// guard is the rule for one webhook's addresses.
type guard struct {
	allowPrivate bool // addresses that are not public may be dialled
	plain        bool // http://: only those may be
}

var (
	errNotPublic = errors.New("address is not public")
	errPlain     = errors.New("http:// to a public address")
)

// control is the net.Dialer hook: it runs after name resolution, once for each
// address tried, before the socket connects.
func (g guard) control(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return refuse("an address that cannot be read", err)
	}
	if err := g.check(ap.Addr()); err != nil {
		return refuse(ap.Addr().String(), err)
	}
	return nil
}

func refuse(address string, cause error) *channel.Error {
	fix := "use a public https address, or set allow_private for this channel"
	if errors.Is(cause, errPlain) {
		fix = "use https://"
	}
	return &channel.Error{
		Class: channel.Rejected, Reason: channel.ReasonAddressRefused, BeforeSend: true,
		What: fmt.Sprintf("the webhook leads to %s: %v", address, cause), Fix: fix, Err: cause,
	}
}

func (g guard) check(a netip.Addr) error {
	switch {
	case never(a):
		return errNotPublic
	case public(a):
		if g.plain {
			return errPlain
		}
	case !g.allowPrivate:
		return errNotPublic
	}
	return nil
}

// never reports addresses at which no receiver can be, whatever the
// configuration says.
func never(a netip.Addr) bool {
	a = a.WithZone("").Unmap()
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

// public reports whether a is an address of the open internet. IPv6 forms that
// carry an IPv4 address are as public as that one; a mapped address never
// comes from a resolver (Go unmaps it) and is refused as such.
func public(a netip.Addr) bool {
	if a.Is4In6() || a.Zone() != "" {
		return false
	}
	if a.Is6() {
		b := a.As16()
		switch {
		case nat64.Contains(a):
			return public(netip.AddrFrom4([4]byte(b[12:16])))
		case sixToFour.Contains(a):
			return public(netip.AddrFrom4([4]byte(b[2:6])))
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
