package breaker

import "github.com/theclaw/agents/internal/channel"

// Permit is the permission to send once. It ensures that what was allowed is
// recorded exactly once. The zero value is no permit. It has one owner.
type Permit struct {
	set   *Set
	key   Key
	live  bool
	probe bool // it finds out whether the destination is up again
}

// For reports whether the permit may still be used for a send under k.
func (p *Permit) For(k Key) bool { return p.live && p.key == k }

// Record records how the send ended. Only the first call counts.
func (p *Permit) Record(err error) {
	if !p.live {
		return
	}
	p.live = false
	p.set.record(p, err)
}

// Release ends a permit that no send used, if there is one.
func (p *Permit) Release() { p.Record(errUnused) }

var errUnused = &channel.Error{Class: channel.Interrupted, BeforeSend: true, What: "nothing was sent"}
