package intake

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/fault"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// approvedText is the notice to a person who was approved.
const approvedText = "You may write to this assistant now. What you wrote before was not stored: please send it again."

// admitted are the people who were approved, in a chat or elsewhere, and whom this gateway is to notify. The
// registry keeps the list. A notice is sent before it is reported: when the gateway is killed between the two, the
// person gets it once more, and never not at all; a platform that knows the key of a message drops the second. The
// approval was stored before either.
type admitted struct {
	changed chan struct{} // has one when people were added or an account has come up

	mu     sync.Mutex
	people map[string]*admission // by account and peer
}

// admission is a person with the outcome of the notice.
type admission struct {
	person *registryv1.Pairing
	logged bool // that the notice was not sent; of the goroutine that sends
	// settled means that the notice was sent, or refused. The same goroutine writes it, under the lock of the list.
	settled, sent bool
}

// admittedKey names a person of an account, whose name has no colon.
func admittedKey(p *registryv1.Pairing) string { return p.GetAccount() + ":" + p.GetPeerId() }

func newAdmitted() *admitted {
	return &admitted{changed: make(chan struct{}, 1), people: map[string]*admission{}}
}

// begin forgets the people: the stream begins with those whose notice waits now. A notice that was sent and is not
// reported yet is not sent again.
func (l *admitted) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.people, func(_ string, a *admission) bool { return !a.settled })
}

// take adds a person, unless it is there from the same approval, and removes one whose notice waits no longer.
func (l *admitted) take(p *registryv1.Pairing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := admittedKey(p)
	if p.GetNotice() != registryv1.PairingNotice_PAIRING_NOTICE_WAITING {
		delete(l.people, key)
	} else if have := l.people[key]; have == nil || !have.person.GetAt().AsTime().Equal(p.GetAt().AsTime()) {
		l.people[key] = &admission{person: p}
		poke(l.changed)
	}
}

// list returns the people that are there, by account and peer.
func (l *admitted) list() []*admission {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*admission
	for _, key := range slices.Sorted(maps.Keys(l.people)) {
		out = append(out, l.people[key])
	}
	return out
}

// has reports whether a person is there, from the same approval.
func (l *admitted) has(a *admission) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.people[admittedKey(a.person)] == a
}

// settle notes the outcome of a notice.
func (l *admitted) settle(a *admission, sent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.settled, a.sent = true, sent
}

// remove forgets a person whose notice was reported.
func (l *admitted) remove(a *admission) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.people, func(_ string, have *admission) bool { return have == a })
}

// watchPairings takes over the people who are to be notified.
func (d *Decisions) watchPairings(ctx context.Context, received func()) error {
	w, err := d.Channels.WatchPairings(ctx, &registryv1.WatchPairingsRequest{})
	if err != nil {
		return err
	}
	d.admitted.begin()
	for {
		m, err := w.Recv()
		if err != nil {
			return err
		}
		received()
		d.admitted.take(m.GetPairing())
	}
}

// notifyAdmitted notifies people until ctx ends: at once where their account receives here, else when it does, and
// again after a while where that failed.
func (d *Decisions) notifyAdmitted(ctx context.Context) {
	for {
		for _, a := range d.admitted.list() {
			if d.admitted.has(a) { // those before it may have taken long
				d.admit(ctx, a)
			}
		}
		var later <-chan time.Time
		if len(d.admitted.list()) > 0 {
			later = time.After(showAgain)
		}
		select {
		case <-d.admitted.changed:
		case <-later:
		case <-ctx.Done():
			return
		}
	}
}

// admit notifies a person and reports it.
func (d *Decisions) admit(ctx context.Context, a *admission) {
	p := a.person
	account := d.live.named(p.GetAccount())
	if !a.settled {
		if account == nil || account.kind.Name != p.GetType() {
			return // it receives at another gateway, or later
		}
		err := account.notifyAdmitted(p)
		if err != nil && !a.logged && account.ctx.Err() == nil { // once: it is tried again and again
			a.logged = true
			d.Logger.Warn("a person who was approved was not notified", "account", p.GetAccount(), "error", err)
		}
		if err != nil && channel.AsError(err).Class != channel.Rejected {
			return
		}
		d.admitted.settle(a, err == nil)
	}
	ctx, cancel := context.WithTimeout(ctx, acceptLimit)
	defer cancel()
	if _, err := d.Channels.ReportNotice(ctx, &registryv1.ReportNoticeRequest{Account: p.GetAccount(), PeerId: p.GetPeerId(), Sent: a.sent, At: p.GetAt()}); err != nil {
		d.Logger.Warn("the notice to a person who was approved is not reported yet", "account", p.GetAccount(), "error", fault.Chain(err))
		return
	}
	d.admitted.remove(a)
}

// notifyAdmitted sends the notice to a person in the direct conversation with the account. It takes noticeLimit at most,
// so that others are notified whose accounts work.
func (a *Account) notifyAdmitted(p *registryv1.Pairing) error {
	ctx, cancel := context.WithTimeout(a.ctx, noticeLimit)
	defer cancel()
	session, err := a.direct(ctx, p.GetPeerId())
	if err != nil {
		return err
	}
	u := channel.Update{Key: strings.Join([]string{p.GetAccount(), p.GetPeerId(), p.GetAt().AsTime().Format(time.RFC3339Nano)}, " "), Kind: channel.KindDM, SessionID: session, PeerID: p.GetPeerId()}
	return a.try(ctx, u, "paired", approvedText)
}
