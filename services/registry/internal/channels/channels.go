// Package channels implements ChannelService: it takes in the messages that people write on
// chat platforms.
//
//	message --> account --> route --> stored before? --> may it? --> inbox (T0, with its origin)
//	                          |             |                |
//	                     ROUTE_BROKEN   DUPLICATE         |   REFUSED, LATER, PAIR
//	                                                      '--> conversation, as context (CONTEXT)
//
// A stranger who writes directly to an account whose dm is pairing gets a code, which an owner approves:
//
//	stranger --> PENDING (1 hour) --approve--> APPROVED --revoke--> stranger
//	                |        '------deny-----> DENIED (may ask again)
//	                '---------------block----> BLOCKED --revoke--> stranger
//
// A person who is approved is to be notified (see notice.go): a gateway sends the notice and reports it.
//
// It promises one event for each message, by its key, whatever is repeated, whichever registry
// is asked and however bindings change meanwhile; that no text of a message that is refused is
// stored; and that messages of a conversation are stored in their order: those that come after one
// that has to be sent again have to be, too. Else one message's outcome depends on no other's.
// Of an account that connects to its platform nothing is stored, and nothing answered, but under the lease
// channel/NAME: of several gateways one receives, and one that was stopped and goes on is refused.
//
// It does not know the protocol of any platform, starts no account and sends nothing.
package channels

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/binding"
	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/chatcommand"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/sessionkey"
	"github.com/theclaw/agents/internal/source"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/admission"
	"github.com/theclaw/agents/services/registry/internal/routing"
	"github.com/theclaw/agents/services/registry/internal/state"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

const (
	// maxText is the most characters of a message; the rest is cut.
	maxText = 100_000
	// maxName is the most characters of a name.
	maxName = 64
	// anyone in a list stands for all.
	anyone = "*"
)

// Agents gives access to the agents of the registry.
type Agents interface {
	Get(id string) (*state.Agent, error)
	Settings(ctx context.Context, a *state.Agent) (*agentdir.Agent, error)
}

// Inbox stores messages: package threads.
type Inbox interface {
	// Put stores messages in the inbox of an agent within its limits and quotas.
	Put(ctx context.Context, a *state.Agent, set *agentdir.Agent, events []store.NewEvent, o store.AppendOptions) (store.Appended, error)
	// Note stores a record in a conversation, which is made when it is absent.
	Note(ctx context.Context, a *state.Agent, set *agentdir.Agent, threadID, tuple string, e store.NewEvent, o store.AppendOptions) (store.Appended, error)
}

// Deps are the dependencies of a Service.
type Deps struct {
	wire.Faults
	Router *routing.Router
	Agents Agents
	Inbox  Inbox
	Store  store.Channels
	Leases Leases
	Rates  Rates
	Meter  Meter
	Wakes  Wakes
}

// Rates bounds how many messages, and commands that are answered, come through an account: [admission.Quota].
type Rates interface {
	TakeAccount(account string, perMinute int) (back func(), err error)
}

// Meter has the metric of pairings; [obs.RegistryMetrics] does.
type Meter interface {
	// SetPairings notes how many pairings there are in a state: pending, approved, denied, blocked.
	SetPairings(state string, n int)
}

// Leases checks leases.
type Leases interface {
	// Check returns nil while the token is the current one of a live lease.
	Check(ctx context.Context, resource string, token uint64) error
}

// Service serves the RPCs. The zero value is not usable; see New.
type Service struct {
	registryv1.UnimplementedChannelServiceServer
	Deps
	secret []byte // of the codes of this process

	resolving sync.Mutex // one decision about people at a time
	wrong     wrongCodes // by owner; under resolving

	pruned time.Time // of Prune
}

// New returns the service.
func New(d Deps) *Service {
	s := &Service{Deps: d, secret: make([]byte, 32), wrong: wrongCodes{}}
	_, _ = rand.Read(s.secret) // it does not fail
	return s
}

// AcceptMessages takes in messages of one account, one after the other.
func (s *Service) AcceptMessages(ctx context.Context, req *registryv1.AcceptMessagesRequest) (*registryv1.AcceptMessagesResponse, error) {
	account, err := s.Router.Account(ctx, req.GetAccount())
	if err != nil {
		return nil, err
	}
	reader, err := readerOf(ctx, account)
	if err != nil {
		return nil, err
	}
	out := &registryv1.AcceptMessagesResponse{}
	stored := !req.GetCheck()                         // all that is answered
	later := map[string]*registryv1.AcceptedMessage{} // by conversation: what comes after waits, too
	for _, m := range req.GetMessages() {
		r := later[m.GetSessionId()]
		if r == nil {
			if r, err = s.accept(ctx, account, reader, m, req); err != nil {
				return nil, err
			}
			stored = stored && slices.Contains(written, r.GetOutcome())
			if r.GetOutcome() == registryv1.AcceptOutcome_ACCEPT_OUTCOME_LATER {
				later[m.GetSessionId()] = r
			}
		}
		out.Results = append(out.Results, r)
	}
	if reader != nil && !stored {
		if err := s.Leases.Check(ctx, reader.Resource, reader.Token); err != nil {
			return nil, s.Fault("", "", err)
		}
	}
	return out, nil
}

// written are the outcomes for which something was written, in a transaction that checked the lease. Others are
// answered after a check of their own: a late gateway sends no notice.
var written = []registryv1.AcceptOutcome{
	registryv1.AcceptOutcome_ACCEPT_OUTCOME_ACCEPTED, registryv1.AcceptOutcome_ACCEPT_OUTCOME_CONTEXT, registryv1.AcceptOutcome_ACCEPT_OUTCOME_PAIR,
}

// readerOf returns the lease under which a call receives for an account; nil: it needs none, because programs post
// to the account, or the caller is the owner. Errors: LEASE_LOST for a call that names none, PERMISSION_DENIED.
func readerOf(ctx context.Context, a layer.Account) (*store.Fence, error) {
	if !a.Connects() {
		return nil, nil
	}
	id, _ := rpc.IdentityFrom(ctx)
	if _, _, _, fenced := rpc.FenceFrom(ctx); !fenced && id.Kind == rpc.Owner {
		return nil, nil
	}
	f, err := wire.RequireFence(ctx, lease.ChannelResource(a.Name))
	return &f, err
}

// checked reports what would become of a message that was only checked; owner: an owner of the home
// wrote it.
type checked struct {
	outcome registryv1.AcceptOutcome
	owner   bool
}

func (checked) Error() string { return "the message would be taken in" }

// accept takes in one message; with req.check it stores nothing. An error is one of the call: what was
// taken in before it stays, and a repeat finds it.
func (s *Service) accept(ctx context.Context, account layer.Account, reader *store.Fence, m *registryv1.InboundMessage, req *registryv1.AcceptMessagesRequest) (*registryv1.AcceptedMessage, error) {
	check := req.GetCheck()
	in, err := read(account, m)
	if err != nil {
		return outcome(err)
	}
	in.reader = reader
	if at := req.GetConnectedAt(); at.IsValid() {
		in.gap = at.AsTime().Sub(in.sentAt)
	}
	var where routing.Decision
	got, err := s.Router.Push(ctx, in.request(), m.GetKey(), func(d routing.Decision) (routing.Stored, error) {
		where = d
		return s.put(ctx, d, in, check)
	})
	would, ok := errors.AsType[checked](err)
	switch {
	case ok:
		return &registryv1.AcceptedMessage{
			Outcome: would.outcome, AgentId: where.Agent, SessionKey: where.Key, ThreadId: where.Thread, Owner: would.owner,
		}, nil
	case errors.Is(err, errStranger) && check:
		return &registryv1.AcceptedMessage{Outcome: registryv1.AcceptOutcome_ACCEPT_OUTCOME_PAIR, Reason: fault.PeerRefused}, nil
	case errors.Is(err, errStranger):
		return s.pair(ctx, in)
	case err != nil:
		return outcome(err)
	}
	out := &registryv1.AcceptedMessage{
		Outcome: registryv1.AcceptOutcome_ACCEPT_OUTCOME_ACCEPTED, AgentId: got.Agent, SessionKey: got.Key, ThreadId: got.Thread,
	}
	if len(got.Keys) > 0 {
		out.InboxId, out.RunId = got.IDs[0], got.Keys[0]
	} else {
		out.Outcome = registryv1.AcceptOutcome_ACCEPT_OUTCOME_CONTEXT
	}
	if got.Duplicate {
		out.Outcome = registryv1.AcceptOutcome_ACCEPT_OUTCOME_DUPLICATE
	}
	return out, nil
}

// outcome is what becomes of a message that an error kept out: the caller may send it again
// later, or it is refused. What is wrong with the call itself stays an error.
func outcome(err error) (*registryv1.AcceptedMessage, error) {
	f := fault.From(err)
	out := &registryv1.AcceptedMessage{Reason: f.Reason, Message: f.What, Notify: f.Reason == fault.CommandForbidden || f.Reason == fault.QueueFull}
	switch {
	case errors.Is(err, admission.ErrRate): // what waits for it would only wait longer
		out.Outcome, out.Notify, out.RetryAfter = registryv1.AcceptOutcome_ACCEPT_OUTCOME_REFUSED, true, durationpb.New(f.RetryAfter)
	case f.Reason == fault.RouteBroken, f.Reason == fault.QueueFull:
		out.Outcome = registryv1.AcceptOutcome_ACCEPT_OUTCOME_REFUSED
	case f.Reason == fault.DiskFull, f.Reason == fault.ReadOnly, f.Reason == fault.RegistryUnavailable, f.Reason == fault.ChannelNotFound:
		return nil, err // of the registry, or of the account, and no agent: it is asked again without end
	case f.Reason == fault.AgentNotFound, // of a home that gets its first agent now
		f.Reason == fault.ConfigInvalid, f.Reason == fault.DatabaseCorrupt, f.Code == codes.FailedPrecondition, f.Code == codes.ResourceExhausted, f.Code == codes.Unavailable: // of one agent
		out.Outcome, out.RetryAfter = registryv1.AcceptOutcome_ACCEPT_OUTCOME_LATER, durationpb.New(max(f.RetryAfter, time.Second))
	case f.Code == codes.InvalidArgument, f.Code == codes.PermissionDenied, f.Code == codes.NotFound:
		out.Outcome = registryv1.AcceptOutcome_ACCEPT_OUTCOME_REFUSED
	default:
		return nil, err
	}
	return out, nil
}

// put stores a message that is no repeat, if the agent may get it.
func (s *Service) put(ctx context.Context, d routing.Decision, in inbound, check bool) (_ routing.Stored, err error) {
	if in.account, err = accountOf(d.Settings, in.account); err != nil { // it goes by the settings that the route goes by
		return routing.Stored{}, err
	}
	a, err := s.Agents.Get(d.Agent)
	if err != nil {
		return routing.Stored{}, err
	}
	set, err := s.Agents.Settings(ctx, a)
	if err != nil {
		return routing.Stored{}, s.Fault(a.ID, thread.Inbox, err)
	}
	conversation := store.Ref{Agent: a.ID, Thread: d.Thread}
	group, edit := in.m.GetKind() != sessionkey.DM, in.m.GetEditOf() != ""
	owner, why := s.admit(ctx, d, set, in, check)
	switch {
	case why == nil && in.late() && !edit:
		why = errLate
	case why == nil && in.m.GetCommand() != nil:
		why = permitted(in.m.GetCommand(), d.Settings.Commands, owner, check)
	}
	if why == nil && (group || in.missed()) && !edit {
		out, found, err := s.Router.Pushed(ctx, conversation, in.m.GetKey()) // as context
		if err != nil || found {
			return routing.Stored{Appended: out, Agent: a.ID, Key: d.Key, Thread: d.Thread}, err
		}
	}
	switch {
	case why == nil && !edit && check:
		if why = s.answerable(in, owner); why == nil {
			why = checked{registryv1.AcceptOutcome_ACCEPT_OUTCOME_ACCEPTED, owner}
		}
	case why == nil && !edit:
		origin := &store.Origin{
			Thread: d.Thread, Key: d.Key, Account: in.account.Name, ProviderID: in.m.GetMessageId(), Rev: d.Revision, SentAt: in.sentAt,
		}
		if c := in.m.GetCommand(); c != nil {
			origin.Command = wire.StoredCommand(c)
		}
		var out store.Appended
		out, why = s.append(ctx, a, set, d, in, origin)
		if why == nil || errors.Is(why, store.ErrRevision) || fault.Is(why, fault.LeaseLost) {
			return routing.In(a.ID, out), why
		}
	}
	// A message that was stored before is a repeat, whatever the rules, the quotas or its text
	// are now.
	if out, found, err := s.Router.Pushed(ctx, store.Inbox(a.ID), in.m.GetKey()); err != nil || found {
		return routing.In(a.ID, out), err
	}
	if group || in.missed() {
		if out, found, err := s.Router.Pushed(ctx, conversation, in.m.GetKey()); err != nil || found {
			return routing.Stored{Appended: out, Agent: a.ID, Key: d.Key, Thread: d.Thread}, err
		}
	}
	noted := errors.Is(why, errLate) || errors.Is(why, errContext) && d.Scope == sessionkey.Conversation
	switch {
	case check && (edit && (why == nil || errors.Is(why, errContext)) || noted):
		return routing.Stored{}, checked{registryv1.AcceptOutcome_ACCEPT_OUTCOME_CONTEXT, owner}
	case edit && (why == nil || errors.Is(why, errContext)):
		return s.noteEdit(ctx, a, set, d, in)
	case noted:
		return s.note(ctx, a, set, routing.Stored{Agent: a.ID, Key: d.Key, Thread: d.Thread}, in)
	case errors.Is(why, errContext):
		return routing.Stored{}, notAddressed(in.account)
	}
	return routing.Stored{}, why
}

// accountOf returns the entry of an account in other settings. Errors: CHANNEL_NOT_FOUND.
func accountOf(set layer.HomeSettings, was layer.Account) (layer.Account, error) {
	for _, a := range set.Accounts {
		if a.Name == was.Name && a.Type == was.Type {
			return a, nil
		}
	}
	return was, fault.New(codes.NotFound, fault.ChannelNotFound, "the account '"+was.Name+"' was removed", "'agentctl channels list' lists the accounts")
}

// answerable counts a command that the gateway answers for the rate of its account: answers read the store and are
// sent as replies are. A decision of an owner is never refused for that. Errors: those of TakeAccount.
func (s *Service) answerable(in inbound, owner bool) error {
	spec, ok := chatcommand.Find(in.m.GetCommand().GetName())
	if !ok || chatcommand.Queued(spec.Name) || in.fetched() || owner && spec.Class == chatcommand.Decision {
		return nil
	}
	_, err := s.Rates.TakeAccount(in.account.Name, in.account.Rate)
	return err
}

// append stores a message in the inbox, within the rate of its account. A command that ends what was begun before it
// is never refused for that, nor is what was written while nothing received: it comes at once, and in bounded numbers.
func (s *Service) append(ctx context.Context, a *state.Agent, set *agentdir.Agent, d routing.Decision, in inbound, origin *store.Origin) (store.Appended, error) {
	back := func() {}
	if in.m.GetCommand().GetName() != chatcommand.Stop && !in.fetched() {
		var err error
		if back, err = s.Rates.TakeAccount(in.account.Name, in.account.Rate); err != nil {
			return store.Appended{}, err
		}
	}
	out, err := s.Inbox.Put(ctx, a, set, []store.NewEvent{{Source: in.from.String(), Type: thread.TypeMessage, Content: in.content(), Origin: origin}},
		store.AppendOptions{Key: in.m.GetKey(), PartKeys: in.m.GetPartKeys(), Revision: d.Revision, MaxPerPeer: most(set, in.m), Reader: in.reader})
	if err != nil || out.Duplicate {
		back()
	}
	return out, err
}

// most is how many messages of the person may wait in the conversation with this one; 0: any number. A command is
// never refused for what waits: it may be the one that ends it.
func most(set *agentdir.Agent, m *registryv1.InboundMessage) int64 {
	if q := set.Config.Queue; q.Drop == config.DropNew && m.GetCommand() == nil {
		return int64(q.Cap)
	}
	return 0
}

// admit returns nil when the agent gets the message, and whether an owner of the home wrote it, which is
// looked up for commands and checks alone. Errors: those of admitted.
func (s *Service) admit(ctx context.Context, d routing.Decision, set *agentdir.Agent, in inbound, check bool) (owner bool, err error) {
	p, err := s.standing(ctx, in)
	if err != nil {
		return false, err
	}
	patterns, owners := set.Entry.GroupChat.MentionPatterns, d.Settings.Owners
	why := in.admitted(owners, patterns, p)
	refused := errors.Is(why, errStranger) || fault.Is(why, fault.PeerRefused)
	if !check && in.m.GetCommand() == nil && (!refused || p.State == store.PairingBlocked || in.m.GetKind() != sessionkey.DM) {
		return false, why
	}
	// The person may be an owner by another account of the type.
	paired, err := s.Store.PairedOwners(ctx)
	if err != nil {
		return false, s.Fault("", "", err)
	}
	owners = append(paired, owners...)
	owner = slices.Contains(owners, in.account.Type+":"+in.m.GetPeerId())
	switch {
	case refused && p.State != store.PairingBlocked && in.m.GetKind() == sessionkey.DM:
		why = in.admitted(owners, patterns, p)
	case errors.Is(why, errContext) && owner && in.m.GetCommand() != nil: // an owner need not mention the agent
		why = nil
	}
	return owner, why
}

// permitted returns nil when a person may use a command. Errors: COMMAND_FORBIDDEN,
// INVALID_ARGUMENT for what is no command, or is none of the inbox.
func permitted(c *registryv1.ChatCommand, set layer.Commands, owner, check bool) error {
	spec, ok := chatcommand.Find(c.GetName())
	if !ok {
		return wire.Bad(fmt.Sprintf("%q is no command", c.GetName()), "send the text as a message")
	}
	switch may, who := set.Permits(spec, owner); {
	case !may && who == layer.CommandsOfNone:
		return fault.New(codes.PermissionDenied, fault.CommandForbidden, "no one may use /"+spec.Name+" in a chat", "commands.allow of the settings decides it")
	case !may:
		return fault.New(codes.PermissionDenied, fault.CommandForbidden, "only an owner may use /"+spec.Name, "an owner uses it")
	case !check && !chatcommand.Queued(spec.Name):
		return wire.Bad("/"+spec.Name+" is answered by the gateway", "send it with check")
	}
	return nil
}

// inbound is a message whose fields can be used.
type inbound struct {
	account layer.Account
	reader  *store.Fence // see readerOf
	m       *registryv1.InboundMessage
	from    source.Address
	text    string
	name    string
	sentAt  time.Time
	given   string        // when it was sent by a clock that is ahead of ours; empty: sentAt is that time
	gap     time.Duration // how long it was sent before the account received
}

// missed reports whether a message was sent before the account received, fetched that it was so for certain: platforms
// state whole seconds. One that is late is too old to start a turn.
func (in inbound) missed() bool  { return in.gap > 0 }
func (in inbound) fetched() bool { return in.gap >= time.Second }
func (in inbound) late() bool    { return in.gap > in.account.CatchUp }

// read checks a message and makes its texts valid and bounded. Errors: INVALID_ARGUMENT.
func read(account layer.Account, m *registryv1.InboundMessage) (inbound, error) {
	in := inbound{account: account, m: m, sentAt: time.Now()}
	if at := m.GetSentAt(); at.IsValid() && at.AsTime().After(in.sentAt) {
		in.given = thread.Stamp(at.AsTime())
	} else if at.IsValid() {
		in.sentAt = at.AsTime()
	}
	in.text, _ = boundary.Text(m.GetText(), 0)
	if n := utf8.RuneCountInString(in.text); n > maxText {
		in.text = string([]rune(in.text)[:maxText]) + fmt.Sprintf("\n[the message had %d characters; the rest was cut]", n)
	}
	in.name = personName(m.GetPeerName())
	in.from = source.Address{
		Kind: source.External, ChannelType: account.Type, ChannelID: account.Name, SessionType: m.GetKind(), SessionID: m.GetSessionId(), PeerID: m.GetPeerId(),
	}
	if _, _, err := source.ParseLenient(in.from.String()); err != nil {
		return in, err
	}
	return in, nil
}

// personName is a name that people gave themselves: in one line, without characters that
// cannot be seen or that change the direction of a text, and bounded.
func personName(s string) string {
	s, _ = boundary.Text(s, 0)
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == utf8.RuneError || r == ' ' || !unicode.IsPrint(r) }), " ")
	if runes := []rune(s); len(runes) > maxName {
		s = string(runes[:maxName])
	}
	return s
}

// peer is the conversation that bindings name.
func (in inbound) peer() binding.Peer {
	if in.m.GetKind() == sessionkey.DM {
		return binding.Peer{Kind: sessionkey.DM, ID: in.m.GetPeerId()}
	}
	return binding.Peer{Kind: in.m.GetKind(), ID: in.m.GetSessionId()}
}

func (in inbound) request() binding.Request {
	r := binding.Request{
		Channel: in.account.Type, Account: in.account.Name, Peer: in.peer(), Author: in.m.GetPeerId(), Guild: in.m.GetGuildId(), Team: in.m.GetTeamId(),
		ThreadID: in.m.GetPlatformThread(),
	}
	if p := in.m.GetParent(); p != "" {
		r.Parent = binding.Peer{Kind: in.m.GetKind(), ID: p}
	}
	return r
}

// admitted returns nil when the account takes the message of a person about whom p was decided. Errors: PEER_REFUSED,
// errStranger, errContext.
func (in inbound) admitted(owners, patterns []string, p store.Pairing) error {
	who, a := in.m.GetPeerId(), in.account
	named := func(list []string) bool { return slices.Contains(list, who) }
	listed := func(list []string) bool { return named(list) || slices.Contains(list, anyone) }
	refuse := func(what, fix string) error {
		return fault.New(codes.PermissionDenied, fault.PeerRefused, what, fix)
	}
	switch {
	case !a.Enabled:
		return refuse("the account '"+a.Name+"' is not enabled", "set channels."+a.Name+".enabled: true")
	case p.State == store.PairingBlocked:
		return refuse("this person is blocked at '"+a.Name+"'", "'agentctl pair revoke' ends that")
	}
	owner, approved := slices.Contains(owners, a.Type+":"+who), p.State == store.PairingApproved
	// Two programs that answer each other would never stop: one is listed by its own id, or all are let in, which only the
	// rate of the account bounds.
	stranger := in.m.GetBot() && !a.Bots && !owner && !approved && !named(a.AllowFrom) && !named(a.Groups.AllowFrom)
	if in.m.GetKind() == sessionkey.DM {
		switch {
		case owner, a.DM != "off" && !stranger && (a.DM == "open" || listed(a.AllowFrom) || approved):
			return nil
		case a.DM == "pairing":
			return errStranger
		}
		return refuse("this person may not write to '"+a.Name+"'", "add the person to channels."+a.Name+".allow_from")
	}
	g := a.Groups
	switch {
	case !slices.Contains(g.Allow, in.m.GetSessionId()) && !slices.Contains(g.Allow, in.m.GetParent()) && !slices.Contains(g.Allow, anyone):
		return refuse("this group may not write to '"+a.Name+"'", "add its id to channels."+a.Name+".groups.allow")
	case len(g.AllowFrom) > 0 && !listed(g.AllowFrom):
		return refuse("this person may not write to '"+a.Name+"' in groups", "add the person to channels."+a.Name+".groups.allow_from")
	case g.Mode == "off":
		return refuse("'"+a.Name+"' takes no messages of groups", "set channels."+a.Name+".groups.mode")
	case !stranger && (g.Mode == "always" || in.m.GetMentioned() || in.m.GetReplyTo().GetMine() || mentions(in.text, patterns)):
		return nil
	}
	return errContext
}

// content is the content of the event, with the keys of the external gateway.
func (in inbound) content() string {
	m := in.m
	type replyTo struct {
		ID   string `json:"id"`
		Text string `json:"text,omitempty"`
	}
	type replyContext struct {
		ChannelType    string `json:"channel_type"`
		ChannelID      string `json:"channel_id"`
		PeerID         string `json:"peer_id"`
		SessionID      string `json:"session_id"`
		Kind           string `json:"kind"`
		PlatformThread string `json:"platform_thread,omitempty"`
		ReplyToID      string `json:"reply_to_id,omitempty"`
		GuildID        string `json:"guild_id,omitempty"`
		TeamID         string `json:"team_id,omitempty"`
	}
	content := struct {
		ID             string            `json:"id,omitempty"`
		ChannelID      string            `json:"channel_id"`
		PeerID         string            `json:"peer_id"`
		PeerName       string            `json:"peer_name,omitempty"`
		SessionID      string            `json:"session_id"`
		Text           string            `json:"text"`
		ReplyTo        *replyTo          `json:"reply_to,omitempty"`
		CreatedAt      string            `json:"created_at"`
		SentAt         string            `json:"sent_at,omitempty"`
		Kind           string            `json:"kind"`
		PlatformThread string            `json:"platform_thread,omitempty"`
		Mentioned      bool              `json:"mentioned,omitempty"`
		GuildID        string            `json:"guild_id,omitempty"`
		TeamID         string            `json:"team_id,omitempty"`
		Attachments    []wire.Attachment `json:"attachments,omitempty"`
		Extra          map[string]string `json:"extra,omitempty"`
		ReplyContext   replyContext      `json:"reply_context"`
	}{
		ID: m.GetMessageId(), ChannelID: in.account.Name, PeerID: m.GetPeerId(), PeerName: in.name, SessionID: m.GetSessionId(), Text: in.text,
		CreatedAt: thread.Stamp(in.sentAt), SentAt: in.given, Kind: m.GetKind(), PlatformThread: m.GetPlatformThread(), Mentioned: m.GetMentioned(),
		GuildID: m.GetGuildId(), TeamID: m.GetTeamId(),
		ReplyContext: replyContext{
			"external", in.account.Name, m.GetPeerId(), m.GetSessionId(), m.GetKind(), m.GetPlatformThread(), m.GetMessageId(), m.GetGuildId(), m.GetTeamId(),
		},
	}
	for _, f := range m.GetAttachments() {
		file := wire.Attachment{Type: f.GetType(), MIME: f.GetMime(), Name: f.GetName(), Size: f.GetSize(), Error: f.GetError()}
		if f.GetSha256() != "" {
			file.Media = "sha256:" + f.GetSha256()
		}
		content.Attachments = append(content.Attachments, file)
	}
	if extra := m.GetExtra(); len(extra) > 0 {
		content.Extra = make(map[string]string, len(extra))
		for name, value := range extra {
			name, _ = boundary.Text(name, 0)
			content.Extra[name], _ = boundary.Text(value, 0)
		}
	}
	if r := m.GetReplyTo(); r != nil {
		text, _ := boundary.Text(r.GetText(), 0)
		if runes := []rune(text); len(runes) > maxQuote {
			text = string(runes[:maxQuote])
		}
		content.ReplyTo = &replyTo{r.GetId(), text}
	}
	out := encode(content)
	if len(out) > thread.MaxEvent && content.Extra != nil { // the rest is bounded by read and the limits of the message
		content.Extra = nil
		out = encode(content)
	}
	return out
}

// maxQuote is the most characters of the message that another one answers.
const maxQuote = 500
