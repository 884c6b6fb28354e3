package intake

import (
	"context"
	"errors"
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

// admitted are the people who were approved and whom this gateway is to notify, whoever approved them and where. The
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
	person  *registryv1.Pairing
	settled bool // the notice was sent, or refused
	sent    bool
}

func newAdmitted() *admitted {
	return &admitted{changed: make(chan struct{}, 1), people: map[string]*admission{}}
}

// add adds a person, unless it is there from the same approval.
func (l *admitted) add(p *registryv1.Pairing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := p.GetAccount() + ":" + p.GetPeerId() // the name of an account has no colon
	if have := l.people[key]; have == nil || !have.person.GetAt().AsTime().Equal(p.GetAt().AsTime()) {
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
	for {
		m, err := w.Recv()
		if err != nil {
			return err
		}
		received()
		d.admitted.add(m.GetPairing())
	}
}

// notifyAdmitted notifies people until ctx ends: at once where their account receives here, else when it does, and
// again after a while where that failed.
func (d *Decisions) notifyAdmitted(ctx context.Context) {
	for {
		for _, a := range d.admitted.list() {
			d.admit(ctx, a)
		}
		select {
		case <-d.admitted.changed:
		case <-time.After(showAgain):
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
		err := account.notifyAdmitted(ctx, p)
		e, _ := errors.AsType[*channel.Error](err)
		if err != nil && (e == nil || e.Class != channel.Rejected) {
			return
		}
		a.settled, a.sent = true, err == nil
	}
	ctx, cancel := context.WithTimeout(ctx, acceptLimit)
	defer cancel()
	if _, err := d.Channels.ReportNotice(ctx, &registryv1.ReportNoticeRequest{Account: p.GetAccount(), PeerId: p.GetPeerId(), Sent: a.sent}); err != nil {
		d.Logger.Warn("the notice to a person who was approved is not reported yet", "account", p.GetAccount(), "error", fault.Chain(err))
		return
	}
	d.admitted.remove(a)
}

// notifyAdmitted sends the notice to a person in the direct conversation with the account.
func (a *Account) notifyAdmitted(ctx context.Context, p *registryv1.Pairing) error {
	session, err := a.direct(ctx, p.GetPeerId())
	if err != nil {
		return err
	}
	u := channel.Update{Key: strings.Join([]string{p.GetAccount(), p.GetPeerId(), p.GetAt().AsTime().Format(time.RFC3339Nano)}, " "), Kind: channel.KindDM, SessionID: session, PeerID: p.GetPeerId()}
	return a.notify(u, "paired", approvedText)
}
