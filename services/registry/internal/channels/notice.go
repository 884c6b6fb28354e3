package channels

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// maxNoticeWait is how long a decision waits for the notice to the person.
const maxNoticeWait = 10 * time.Second

// Wakes notifies the calls that wait for a change of the notices, at all registries.
type Wakes interface {
	AwaitPairing() (woken <-chan struct{}, done func())
	PairingChanged()
	Again() <-chan time.Time
}

var noticeStates = map[string]registryv1.PairingNotice{
	store.NoticeWaiting: registryv1.PairingNotice_PAIRING_NOTICE_WAITING, store.NoticeSent: registryv1.PairingNotice_PAIRING_NOTICE_SENT,
	store.NoticeFailed: registryv1.PairingNotice_PAIRING_NOTICE_FAILED,
}

// firstNotice is the notice of a person who is approved: it waits, unless the person was approved before, or programs post
// to the account, over which no notice can be sent.
func firstNotice(p store.Pairing, accounts []layer.Account) string {
	if p.State == store.PairingApproved {
		return p.Notice()
	}
	if slices.ContainsFunc(accounts, func(a layer.Account) bool { return a.Name == p.Account && a.Type == p.Type && a.Connects() }) {
		return store.NoticeWaiting
	}
	return ""
}

// awaitNotice waits until the notice of a person waits no more, and returns the pairing as it is then.
func (s *Service) awaitNotice(ctx context.Context, p *registryv1.Pairing, wait time.Duration) *registryv1.Pairing {
	left := time.NewTimer(max(wait, 0))
	defer left.Stop()
	for over := wait <= 0; p.GetNotice() == registryv1.PairingNotice_PAIRING_NOTICE_WAITING && !over; {
		woken, done := s.Wakes.AwaitPairing()
		now, found, err := s.Store.Pairing(ctx, p.GetAccount(), p.GetPeerId())
		if err != nil || !found { // it was decided all the same
			done()
			return p
		}
		if p = pairingMessage(now); p.GetNotice() == registryv1.PairingNotice_PAIRING_NOTICE_WAITING {
			select {
			case <-woken:
			case <-s.Wakes.Again():
			case <-left.C:
				over = true
			case <-rpc.Draining(ctx):
				over = true
			case <-ctx.Done():
				over = true
			}
		}
		done()
	}
	return p
}

// WatchPairings sends each person who was approved and whose notice waits, and then each one as it begins to, or no longer
// does.
func (s *Service) WatchPairings(_ *registryv1.WatchPairingsRequest, out registryv1.ChannelService_WatchPairingsServer) error {
	ctx := out.Context()
	for sent := map[waiter]time.Time{}; ; {
		woken, done := s.Wakes.AwaitPairing()
		err := s.sendWaiting(out, sent)
		if err == nil {
			select {
			case <-woken:
			case <-s.Wakes.Again():
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		done()
		if err != nil {
			return err
		}
	}
}

// waiter is a person whose notice waits.
type waiter struct{ account, peer string }

// sendWaiting sends the people whose notice waits and who were not sent yet, and those who were and whose notice waits no
// longer. sent has those that wait as they were sent, with the time of the approval.
func (s *Service) sendWaiting(out registryv1.ChannelService_WatchPairingsServer, sent map[waiter]time.Time) error {
	list, err := s.Store.WaitingNotices(out.Context())
	if err != nil {
		return s.Fault("", "", err)
	}
	ended := maps.Clone(sent)
	for _, p := range list {
		delete(ended, waiter{p.Account, p.Peer})
	}
	for key := range ended {
		delete(sent, key)
		if err := out.Send(&registryv1.WatchPairingsResponse{Pairing: &registryv1.Pairing{Account: key.account, PeerId: key.peer}}); err != nil {
			return err
		}
	}
	for _, p := range list {
		if key := (waiter{p.Account, p.Peer}); !sent[key].Equal(p.At) {
			sent[key] = p.At
			if err := out.Send(&registryv1.WatchPairingsResponse{Pairing: pairingMessage(p)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// ReportNotice stores what has become of the notice of an approval: a later one has a notice of its own.
func (s *Service) ReportNotice(ctx context.Context, req *registryv1.ReportNoticeRequest) (*registryv1.ReportNoticeResponse, error) {
	outcome := store.NoticeFailed
	if req.GetSent() {
		outcome = store.NoticeSent
	}
	err := s.Store.ChangePairings(ctx, req.GetAccount(), nil, func(list []store.Pairing) ([]store.Pairing, error) {
		for i, p := range list {
			if p.Peer == req.GetPeerId() && p.Notice() == store.NoticeWaiting && p.At.Equal(req.GetAt().AsTime()) {
				list[i].CodeKey = outcome
			}
		}
		return list, nil
	})
	if err != nil {
		return nil, s.Fault("", "", err)
	}
	s.Wakes.PairingChanged()
	return &registryv1.ReportNoticeResponse{}, nil
}
