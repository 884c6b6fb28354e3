package channels

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/binding"
	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/sessionkey"
	"github.com/theclaw/agents/internal/source"
	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

const (
	// codeLetters are those of a code; none is mistaken for another when it is read aloud or written down.
	codeLetters = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
	codeLength  = 8
	codeLife    = time.Hour
	// maxWaiting people of an account have a code at a time.
	maxWaiting = 3
	// maxCodes of an account are made in the life of a code: each is a message of the account.
	maxCodes = 20
	// maxCounted messages of a person with a code are counted, each with a write.
	maxCounted = 1000
	// maxPeer is how long the id of a person may be that is paired, in bytes.
	maxPeer = 512
	// pruneEvery is how often pairings that ended are looked for.
	pruneEvery = time.Hour
	// maxPairings are listed.
	maxPairings = 1000
	// maxWrong codes of an owner in a chat are looked up in wrongFor.
	maxWrong = 5
	wrongFor = 10 * time.Minute
)

// errStranger reports that the person is to be paired.
var errStranger = errors.New("the person is not known")

// standing is what was decided about the author of a message; the zero value: nothing.
func (s *Service) standing(ctx context.Context, in inbound) (store.Pairing, error) {
	if len(in.m.GetPeerId()) > maxPeer {
		return store.Pairing{}, nil
	}
	p, found, err := s.Store.Pairing(ctx, in.account.Name, in.m.GetPeerId())
	if err != nil {
		return p, s.Fault("", "", err)
	}
	if !found || p.Type != in.account.Type { // the account was of another platform
		return store.Pairing{}, nil
	}
	return p, nil
}

// pair gives a stranger a code, or counts the message of one who has a code. Nothing of the message is stored but its
// key and the name of its author.
func (s *Service) pair(ctx context.Context, in inbound) (*registryv1.AcceptedMessage, error) {
	now, peer := time.Now(), in.m.GetPeerId()
	out := &registryv1.AcceptedMessage{
		Outcome: registryv1.AcceptOutcome_ACCEPT_OUTCOME_REFUSED, Reason: fault.PeerRefused,
		Message: "this person may not write to '" + in.account.Name + "'",
	}
	if in.m.GetBot() || len(peer) > maxPeer {
		return out, nil
	}
	err := s.Store.ChangePairings(ctx, in.account.Name, in.reader, func(list []store.Pairing) ([]store.Pairing, error) {
		list = unexpired(list, now)
		i := slices.IndexFunc(list, func(p store.Pairing) bool { return p.Peer == peer })
		if i >= 0 && list[i].Type == in.account.Type {
			p := &list[i]
			switch {
			case p.State == store.PairingBlocked:
				return list, nil
			case p.State == store.PairingApproved: // since the message was refused
				out.Outcome, out.RetryAfter = registryv1.AcceptOutcome_ACCEPT_OUTCOME_LATER, durationpb.New(time.Second)
				return list, nil
			case p.State == store.PairingPending && p.Expires.After(now) && p.CodeKey != in.m.GetKey():
				p.Messages = min(p.Messages+1, maxCounted)
				out.Outcome = registryv1.AcceptOutcome_ACCEPT_OUTCOME_PAIR
				return list, nil
			case p.State == store.PairingPending && p.Expires.After(now):
				// The answer to the message for which the code was made was lost. The code is the same, unless another
				// process made it.
				out.Outcome, out.Code, out.Notify = registryv1.AcceptOutcome_ACCEPT_OUTCOME_PAIR, s.code(*p), true
				p.CodeHash = hashCode(out.GetCode())
				return list, nil
			}
		}
		if waiting, made := codesOf(list, now); waiting >= maxWaiting || made >= maxCodes {
			return list, nil
		}
		p := store.Pairing{
			Account: in.account.Name, Peer: peer, Type: in.account.Type, Name: in.name, State: store.PairingPending, CodeKey: in.m.GetKey(),
			Expires: store.FromMillis(store.Millis(now.Add(codeLife))), At: now, Messages: 1,
		}
		out.Outcome, out.Code, out.Notify = registryv1.AcceptOutcome_ACCEPT_OUTCOME_PAIR, s.code(p), true
		p.CodeHash = hashCode(out.GetCode())
		if i < 0 {
			return append(list, p), nil
		}
		list[i] = p
		return list, nil
	})
	if err != nil {
		return outcome(s.Fault("", "", err))
	}
	if out.GetCode() != "" {
		s.count(ctx)
	}
	if out.GetOutcome() == registryv1.AcceptOutcome_ACCEPT_OUTCOME_PAIR {
		out.Reason, out.Message = "", ""
	}
	return out, nil
}

// Prune forgets the pairings that ended long ago, once in an hour. It is called again and again, by one goroutine.
func (s *Service) Prune(ctx context.Context) error {
	now := time.Now()
	if now.Sub(s.pruned) < pruneEvery {
		return nil
	}
	err := s.Store.ChangePairings(ctx, "", nil, func(list []store.Pairing) ([]store.Pairing, error) { return unexpired(list, now), nil })
	if err != nil {
		return s.Fault("", "", err)
	}
	s.pruned = now
	s.count(ctx)
	return nil
}

// count shows how many pairings there are: after each change of a state here, and once in an hour what others have
// changed. Nothing is read when metrics are collected.
func (s *Service) count(ctx context.Context) {
	list, err := s.Store.Pairings(ctx, "")
	if err != nil {
		return // the figures stay as they are until the next change
	}
	now, of := time.Now(), map[string]int{}
	for _, p := range list {
		if p.State != store.PairingPending || !p.Ended(now) {
			of[p.State]++
		}
	}
	for state := range pairingStates {
		s.Meter.SetPairings(state, of[state])
	}
}

// unexpired are the pairings but those that ended long ago.
func unexpired(list []store.Pairing, now time.Time) []store.Pairing {
	return slices.DeleteFunc(list, func(p store.Pairing) bool { return p.Ended(now) && now.Sub(p.At) > store.PairingsKept })
}

// codesOf counts the people who have a code, and the codes that were made in the life of one.
func codesOf(list []store.Pairing, now time.Time) (waiting, made int) {
	for _, p := range list {
		if p.Expires.After(now) {
			made++
			if p.State == store.PairingPending {
				waiting++
			}
		}
	}
	return waiting, made
}

// code is the code of a pairing. It depends on a secret of this process, so that it can be given again and is stored
// nowhere.
func (s *Service) code(p store.Pairing) string {
	h := hmac.New(sha256.New, s.secret)
	_, _ = fmt.Fprintf(h, "%q %q %q %d", p.Account, p.Peer, p.CodeKey, store.Millis(p.Expires)) // of a hash: no error
	sum := h.Sum(nil)
	out := make([]byte, codeLength)
	for i := range out {
		out[i] = codeLetters[sum[i]%byte(len(codeLetters))]
	}
	return string(out)
}

// hashCode is what is stored of a code, which people may write in small letters and with separators.
func hashCode(code string) string {
	code = strings.Map(func(r rune) rune {
		if r == ' ' || r == '-' {
			return -1
		}
		return r
	}, strings.ToUpper(code))
	sum := sha256.Sum256([]byte(code))
	return hex.EncodeToString(sum[:])
}

// ListPairings answers who asked to write to accounts, but for those whose code has expired. Errors: CHANNEL_NOT_FOUND.
func (s *Service) ListPairings(ctx context.Context, req *registryv1.ListPairingsRequest) (*registryv1.ListPairingsResponse, error) {
	if req.GetAccount() != "" {
		if _, err := s.Router.Account(ctx, req.GetAccount()); err != nil {
			return nil, err
		}
	}
	list, err := s.Store.Pairings(ctx, req.GetAccount())
	if err != nil {
		return nil, s.Fault("", "", err)
	}
	now, want := time.Now(), req.GetState()
	list = slices.DeleteFunc(list, func(p store.Pairing) bool {
		return p.State == store.PairingPending && p.Ended(now) || want != registryv1.PairingState_PAIRING_STATE_UNSPECIFIED && pairingStates[p.State] != want
	})
	slices.SortStableFunc(list, func(a, b store.Pairing) int {
		if x, y := a.State == store.PairingPending, b.State == store.PairingPending; x != y {
			return map[bool]int{true: -1, false: 1}[x]
		}
		return b.At.Compare(a.At)
	})
	out := &registryv1.ListPairingsResponse{}
	for _, p := range list[:min(len(list), maxPairings)] {
		out.Pairings = append(out.Pairings, pairingMessage(p))
	}
	return out, nil
}

var pairingStates = map[string]registryv1.PairingState{
	store.PairingPending: registryv1.PairingState_PAIRING_STATE_PENDING, store.PairingApproved: registryv1.PairingState_PAIRING_STATE_APPROVED,
	store.PairingDenied: registryv1.PairingState_PAIRING_STATE_DENIED, store.PairingBlocked: registryv1.PairingState_PAIRING_STATE_BLOCKED,
}

func pairingMessage(p store.Pairing) *registryv1.Pairing {
	m := &registryv1.Pairing{
		Account: p.Account, Type: p.Type, PeerId: p.Peer, PeerName: p.Name, State: pairingStates[p.State], Owner: p.Owner, By: p.By, Messages: p.Messages, At: timestamppb.New(p.At),
		Notice: noticeStates[p.Notice()],
	}
	if p.State == store.PairingPending {
		m.Expires = timestamppb.New(p.Expires)
	}
	return m
}

// ResolvePairing decides about a person, and waits for the notice to one who was approved as long as the request says.
// Errors: PAIRING_NOT_FOUND, PAIRING_SHARED, PERMISSION_DENIED.
func (s *Service) ResolvePairing(ctx context.Context, req *registryv1.ResolvePairingRequest) (*registryv1.ResolvePairingResponse, error) {
	out, err := s.resolve(ctx, req)
	if err == nil && req.GetDecision() == registryv1.PairingDecision_PAIRING_DECISION_APPROVE {
		out.Pairing = s.awaitNotice(ctx, out.GetPairing(), min(req.GetWait().AsDuration(), maxNoticeWait))
	}
	return out, err
}

func (s *Service) resolve(ctx context.Context, req *registryv1.ResolvePairingRequest) (*registryv1.ResolvePairingResponse, error) {
	if (req.GetCode() == "") == (req.GetPeerId() == "") || (req.GetAccount() == "") != (req.GetPeerId() == "") {
		return nil, fault.New(codes.InvalidArgument, fault.InvalidArgument, "a person is named by a code, or by an account and a peer", "give one of them")
	}
	s.resolving.Lock() // what is found out about others holds until the change
	defer s.resolving.Unlock()
	list, err := s.Store.Pairings(ctx, "")
	if err != nil {
		return nil, s.Fault("", "", err)
	}
	now := time.Now()
	if err := s.mayResolve(ctx, req, list, now); err != nil {
		return nil, err
	}
	approve := req.GetDecision() == registryv1.PairingDecision_PAIRING_DECISION_APPROVE
	asked := func(p store.Pairing) bool {
		if req.GetCode() == "" {
			return p.Account == req.GetAccount() && p.Peer == req.GetPeerId()
		}
		// A code that was approved is known as long as it would have been valid: the approval may be repeated, because
		// its answer was lost.
		return (p.State == store.PairingPending || approve && p.State == store.PairingApproved) && p.Expires.After(now) &&
			hmac.Equal([]byte(p.CodeHash), []byte(hashCode(req.GetCode())))
	}
	i := slices.IndexFunc(list, asked)
	if i < 0 {
		if req.GetBy() != "" {
			s.wrong.add(req.GetBy(), now)
		}
		return nil, errNoPairing(req)
	}
	repeats := func(p store.Pairing) bool {
		return req.GetCode() != "" && p.State == store.PairingApproved && (p.Owner || !req.GetOwner())
	}
	found := list[i]
	if approve && !req.GetShareMain() && !repeats(found) {
		if err := s.shares(ctx, found, list); err != nil {
			return nil, err
		}
	}
	var set layer.HomeSettings
	if approve { // a person is blocked also while the settings cannot be read
		if set, err = s.Router.Home.HomeSettings(ctx); err != nil {
			return nil, err
		}
	}
	id, _ := rpc.IdentityFrom(ctx)
	by := boundary.Name(cmp.Or(req.GetBy(), id.Role(), "owner"))
	already := false
	err = s.Store.ChangePairings(ctx, found.Account, nil, func(list []store.Pairing) ([]store.Pairing, error) {
		i := slices.IndexFunc(list, asked) // another registry may have changed it since
		if i < 0 {
			return nil, errNoPairing(req)
		}
		if found = list[i]; repeats(found) {
			already = true
			return list, nil
		}
		if req.GetBy() != "" && found.Owner {
			return nil, fault.New(codes.PermissionDenied, fault.PermissionDenied, "nothing is decided about an owner in a chat", "use 'agentctl pair'")
		}
		if found = decide(found, req, by, set.Accounts, now); req.GetDecision() == registryv1.PairingDecision_PAIRING_DECISION_REVOKE {
			return slices.Delete(list, i, i+1), nil
		}
		list[i] = found
		return list, nil
	})
	if err != nil {
		return nil, s.Fault("", "", err)
	}
	if !already {
		s.count(ctx)
		s.Wakes.PairingChanged()
	}
	return &registryv1.ResolvePairingResponse{Pairing: pairingMessage(found), Already: already}, nil
}

func errNoPairing(req *registryv1.ResolvePairingRequest) error {
	what := "no person waits with this code"
	if req.GetCode() == "" {
		what = fmt.Sprintf("nothing was asked by or decided about a person %.80q of the account '%s'", req.GetPeerId(), req.GetAccount())
	}
	return fault.New(codes.NotFound, fault.PairingNotFound, what, "'agentctl pair list' shows who asked; a code ends after 1 hour, and the person gets another with the next message")
}

// mayResolve reports whether the caller may decide this. The owner may decide everything, and so may an owner in a
// chat, but for making other owners.
func (s *Service) mayResolve(ctx context.Context, req *registryv1.ResolvePairingRequest, list []store.Pairing, now time.Time) error {
	refuse := func(what, fix string) error {
		return fault.New(codes.PermissionDenied, fault.PermissionDenied, what, fix)
	}
	id, _ := rpc.IdentityFrom(ctx)
	if req.GetBy() == "" {
		if id.Kind != rpc.Owner {
			return refuse("the caller does not say which owner decides", "name an owner of the home, as type:peer")
		}
		return nil
	}
	set, err := s.Router.Home.HomeSettings(ctx)
	if err != nil {
		return err
	}
	switch {
	case !slices.Contains(set.Owners, req.GetBy()) && !slices.ContainsFunc(list, func(p store.Pairing) bool { return p.OwnerName() == req.GetBy() }):
		return refuse(fmt.Sprintf("%.80q is no owner of this home", req.GetBy()), "only an owner decides who may write")
	case req.GetOwner():
		return refuse("a person is not made an owner in a chat", "use 'agentctl pair approve CODE --owner'")
	case s.wrong.many(req.GetBy(), now):
		return errNoPairing(req) // whatever the code is
	}
	return nil
}

// decide returns a pairing after a decision; accounts are those of the settings. The hash of a code stays with an
// approval, which may be repeated, and so does the time of one whose notice waits: it is the same notice.
func decide(p store.Pairing, req *registryv1.ResolvePairingRequest, by string, accounts []layer.Account, now time.Time) store.Pairing {
	hash, notice := "", ""
	switch req.GetDecision() {
	case registryv1.PairingDecision_PAIRING_DECISION_APPROVE:
		if p.Notice() == store.NoticeWaiting {
			now = p.At
		}
		p.Owner, notice = req.GetOwner() || p.Owner, firstNotice(p, accounts)
		p.State, hash = store.PairingApproved, p.CodeHash
	case registryv1.PairingDecision_PAIRING_DECISION_DENY:
		p.State, p.Owner = store.PairingDenied, false
	case registryv1.PairingDecision_PAIRING_DECISION_BLOCK:
		p.State, p.Owner = store.PairingBlocked, false
	default:
		return p // it goes
	}
	p.CodeHash, p.CodeKey, p.By, p.At = hash, notice, by, now
	return p
}

// shares refuses a person whose messages would be in the same conversation as those of another one: each would read
// what the other wrote. Others are those who were approved, and those whom the settings name. Errors: PAIRING_SHARED.
func (s *Service) shares(ctx context.Context, p store.Pairing, list []store.Pairing) error {
	set, err := s.Router.Home.HomeSettings(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(set.Accounts, func(a layer.Account) bool { return a.Name == p.Account && a.Type == p.Type }) {
		return nil // it receives nothing
	}
	at, err := s.Router.Decide(ctx, requestOf(p.Type, p.Account, p.Peer))
	if err != nil || at.Scope != sessionkey.Main {
		return err
	}
	for _, o := range peopleOf(set, list) {
		if o.Type == p.Type && o.Peer == p.Peer {
			continue
		}
		other, err := s.Router.Decide(ctx, requestOf(o.Type, o.Account, o.Peer))
		if err == nil && other.Agent == at.Agent && other.Scope == sessionkey.Main {
			return fault.New(codes.FailedPrecondition, fault.PairingShared,
				fmt.Sprintf("agent '%s' has one conversation for all people, and %s writes in it: each would read what the other writes", at.Agent, boundary.Name(o.Type+":"+o.Peer)),
				"set session.dm_scope: per-channel-peer, or accept it with --share-main")
		}
	}
	return nil
}

// peopleOf are the people who may write directly to accounts, as far as they are known.
func peopleOf(set layer.HomeSettings, list []store.Pairing) (out []store.Pairing) {
	for _, a := range set.Accounts {
		for _, peer := range a.AllowFrom {
			if peer != anyone {
				out = append(out, store.Pairing{Account: a.Name, Type: a.Type, Peer: peer})
			}
		}
		for _, o := range set.Owners {
			if kind, peer, ok := strings.Cut(o, ":"); ok && kind == a.Type {
				out = append(out, store.Pairing{Account: a.Name, Type: a.Type, Peer: peer})
			}
		}
		for _, p := range list {
			if p.Account == a.Name && p.Type == a.Type && p.State == store.PairingApproved {
				out = append(out, p)
			}
		}
	}
	return out
}

func requestOf(kind, account, peer string) binding.Request {
	return binding.Request{Channel: kind, Account: account, Peer: binding.Peer{Kind: source.DM, ID: peer}, Author: peer}
}

// wrongCodes counts the wrong codes of owners in chats, so that a code cannot be found by trying.
type wrongCodes map[string][]time.Time

// many reports whether no more codes of an owner are looked up now.
func (w wrongCodes) many(by string, now time.Time) bool {
	list := w[by]
	return len(list) >= maxWrong && now.Sub(list[len(list)-1]) < wrongFor
}

// add counts one. Those of long ago no longer count.
func (w wrongCodes) add(by string, now time.Time) {
	w[by] = append(slices.DeleteFunc(w[by], func(at time.Time) bool { return now.Sub(at) >= wrongFor }), now)
}
