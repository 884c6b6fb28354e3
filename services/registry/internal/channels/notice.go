package channels

import (
	"context"
	"slices"
	"time"

	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

const (
	// maxNoticeWait is how long a decision waits for the notice to the person.
	maxNoticeWait = 10 * time.Second
	// noticeWake names the changes of notices among those of approvals, whose ids are others.
	noticeWake = "pairing notices"
)

// Wakes notifies the calls that wait for a change of the notices, at all registries.
type Wakes interface {
	AwaitApproval(id string) (woken <-chan struct{}, done func())
	ApprovalChanged(id string)
	Again() <-chan time.Time
}

var noticeStates = map[string]registryv1.PairingNotice{
	store.NoticeWaiting: registryv1.PairingNotice_PAIRING_NOTICE_WAITING, store.NoticeSent: registryv1.PairingNotice_PAIRING_NOTICE_SENT,
	store.NoticeFailed: registryv1.PairingNotice_PAIRING_NOTICE_FAILED,
}

// firstNotice is the notice of a person who is approved: it waits, unless the person was approved before, or programs post
// to the account, over which no notice can be sent.
func (s *Service) firstNotice(ctx context.Context, p store.Pairing) (string, error) {
	if p.State == store.PairingApproved {
		return p.Notice(), nil
	}
	set, err := s.Router.Home.HomeSettings(ctx)
	if err != nil {
		return "", err
	}
	if slices.ContainsFunc(set.Accounts, func(a layer.Account) bool { return a.Name == p.Account && a.Type == p.Type && a.Connects() }) {
		return store.NoticeWaiting, nil
	}
	return "", nil
}

// awaitNotice waits until the notice of a person waits no more, and returns the pairing as it is then.
func (s *Service) awaitNotice(ctx context.Context, p *registryv1.Pairing, wait time.Duration) *registryv1.Pairing {
	left := time.NewTimer(max(wait, 0))
	defer left.Stop()
	for over := wait <= 0; p.GetNotice() == registryv1.PairingNotice_PAIRING_NOTICE_WAITING && !over; {
		woken, done := s.Wakes.AwaitApproval(noticeWake)
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

// WatchPairings sends each person who was approved and whose notice waits, and then each one as it begins to.
func (s *Service) WatchPairings(_ *registryv1.WatchPairingsRequest, out registryv1.ChannelService_WatchPairingsServer) error {
	ctx := out.Context()
	for sent := map[[2]string]time.Time{}; ; {
		woken, done := s.Wakes.AwaitApproval(noticeWake)
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

// sendWaiting sends the people whose notice waits and who were not sent yet. sent has those that were, by account and
// peer, with the time of the approval.
func (s *Service) sendWaiting(out registryv1.ChannelService_WatchPairingsServer, sent map[[2]string]time.Time) error {
	list, err := s.Store.Pairings(out.Context(), "")
	if err != nil {
		return s.Fault("", "", err)
	}
	for _, p := range list {
		key := [2]string{p.Account, p.Peer}
		if p.Notice() != store.NoticeWaiting {
			delete(sent, key)
			continue
		}
		if sent[key].Equal(p.At) {
			continue
		}
		sent[key] = p.At
		if err := out.Send(&registryv1.WatchPairingsResponse{Pairing: pairingMessage(p)}); err != nil {
			return err
		}
	}
	return nil
}

// ReportNotice stores what has become of the notice of a person.
func (s *Service) ReportNotice(ctx context.Context, req *registryv1.ReportNoticeRequest) (*registryv1.ReportNoticeResponse, error) {
	outcome := store.NoticeFailed
	if req.GetSent() {
		outcome = store.NoticeSent
	}
	err := s.Store.ChangePairings(ctx, req.GetAccount(), nil, func(list []store.Pairing) ([]store.Pairing, error) {
		for i, p := range list {
			if p.Peer == req.GetPeerId() && p.Notice() == store.NoticeWaiting {
				list[i].CodeKey = outcome
			}
		}
		return list, nil
	})
	if err != nil {
		return nil, s.Fault("", "", err)
	}
	s.Wakes.ApprovalChanged(noticeWake)
	return &registryv1.ReportNoticeResponse{}, nil
}
