package breaker

import (
	"time"

	"github.com/theclaw/agents/internal/channel"
)

// Permit is the permission to send once. It ensures that what was allowed is
// recorded exactly once. The zero value is no permit. It has one owner.
type Permit struct {
	set  *Set
	key  Key
	live bool
}

// Acquire is Allow with a Permit; without one, wait says when to ask again.
func (s *Set) Acquire(k Key) (p Permit, wait time.Duration) {
	ok, wait := s.Allow(k)
	if !s.AllClosed() {
		s.changed(k)
	}
	return Permit{set: s, key: k, live: ok}, wait
}

// For reports whether the permit may still be used for a send under k.
func (p *Permit) For(k Key) bool { return p.live && p.key == k }

// Record records how the send ended. Only the first call counts.
func (p *Permit) Record(err error) {
	if !p.live {
		return
	}
	p.live = false
	noted := !p.set.AllClosed()
	p.set.Record(p.key, err)
	if noted || !p.set.AllClosed() {
		p.set.changed(p.key)
	}
}

// Release ends a permit that no send used, if there is one.
func (p *Permit) Release() { p.Record(errUnused) }

var errUnused = &channel.Error{Class: channel.Interrupted, BeforeSend: true, What: "nothing was sent"}

func (s *Set) changed(k Key) {
	if s.OnChange != nil {
		s.OnChange(k.Channel)
	}
}

// State is the worst state of a channel over its hosts: closed, half_open or
// open.
func (s *Set) State(channel string) string {
	state := "closed"
	for _, d := range s.Down() {
		if d.Key.Channel != channel {
			continue
		}
		if !d.Probing {
			return "open"
		}
		state = "half_open"
	}
	return state
}
