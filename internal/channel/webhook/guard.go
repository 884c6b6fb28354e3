package webhook

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/netguard"
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
	var rule netguard.Guard
	if g.allowPrivate {
		rule.Allow = netguard.Everywhere
	}
	switch {
	case rule.Check(a) != nil:
		return errNotPublic
	case g.plain && netguard.Public(a):
		return errPlain
	}
	return nil
}
