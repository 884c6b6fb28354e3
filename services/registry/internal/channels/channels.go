// Package channels implements ChannelService: it takes in the messages that people write on
// chat platforms.
//
//	message --> account --> route --> stored before? --> may it? --> inbox (T0, with its origin)
//	                          |             |                |
//	                     ROUTE_BROKEN   DUPLICATE         REFUSED, LATER
//
// It promises one event for each message, by its key, whatever is repeated, whichever registry
// is asked and however bindings change meanwhile; that no text of a message that is refused is
// stored; and that one message's outcome depends on no other's.
//
// It does not know the protocol of any platform, starts no account and sends nothing.
package channels

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/binding"
	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/sessionkey"
	"github.com/theclaw/agents/internal/source"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
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
}

// Deps are the dependencies of a Service.
type Deps struct {
	wire.Faults
	Router *routing.Router
	Agents Agents
	Inbox  Inbox
}

// Service serves the RPCs. The zero value is not usable; see New.
type Service struct {
	registryv1.UnimplementedChannelServiceServer
	Deps
}

// New returns the service.
func New(d Deps) *Service { return &Service{Deps: d} }

// AcceptMessages takes in messages of one account, one after the other.
func (s *Service) AcceptMessages(ctx context.Context, req *registryv1.AcceptMessagesRequest) (*registryv1.AcceptMessagesResponse, error) {
	account, err := s.Router.Account(ctx, req.GetAccount())
	if err != nil {
		return nil, err
	}
	out := &registryv1.AcceptMessagesResponse{}
	for _, m := range req.GetMessages() {
		r, err := s.accept(ctx, account, m)
		if err != nil {
			return nil, err
		}
		out.Results = append(out.Results, r)
	}
	return out, nil
}

// accept takes in one message. An error is one of the call: what was taken in before it stays, and
// a repeat finds it.
func (s *Service) accept(ctx context.Context, account layer.Account, m *registryv1.InboundMessage) (*registryv1.AcceptedMessage, error) {
	in, err := read(account, m)
	if err != nil {
		return outcome(err)
	}
	agent, got, err := s.Router.Push(ctx, in.request(), m.GetKey(), func(d routing.Decision) (store.Appended, error) { return s.put(ctx, d, in) })
	if err != nil {
		return outcome(err)
	}
	out := &registryv1.AcceptedMessage{
		Outcome: registryv1.AcceptOutcome_ACCEPT_OUTCOME_ACCEPTED, AgentId: agent, InboxId: got.IDs[0], RunId: got.Keys[0],
	}
	if got.Duplicate {
		out.Outcome = registryv1.AcceptOutcome_ACCEPT_OUTCOME_DUPLICATE
	}
	if o := got.Origins[0]; o != nil {
		out.SessionKey, out.ThreadId = o.Key, o.Thread
	}
	return out, nil
}

// outcome is what becomes of a message that an error kept out: the caller may send it again
// later, or it is refused. What is wrong with the call itself stays an error.
func outcome(err error) (*registryv1.AcceptedMessage, error) {
	f := fault.From(err)
	out := &registryv1.AcceptedMessage{Reason: f.Reason, Message: f.What}
	switch f.Code {
	case codes.ResourceExhausted, codes.Unavailable:
		out.Outcome, out.RetryAfter = registryv1.AcceptOutcome_ACCEPT_OUTCOME_LATER, durationpb.New(max(f.RetryAfter, time.Second))
	case codes.InvalidArgument, codes.PermissionDenied, codes.FailedPrecondition, codes.NotFound:
		out.Outcome = registryv1.AcceptOutcome_ACCEPT_OUTCOME_REFUSED
	default:
		return nil, err
	}
	return out, nil
}

// put stores a message that is no repeat, if the agent may get it.
func (s *Service) put(ctx context.Context, d routing.Decision, in inbound) (store.Appended, error) {
	a, err := s.Agents.Get(d.Agent)
	if err != nil {
		return store.Appended{}, err
	}
	set, err := s.Agents.Settings(ctx, a)
	if err != nil {
		return store.Appended{}, s.Fault(a.ID, thread.Inbox, err)
	}
	origin := &store.Origin{
		Thread: d.Thread, Key: d.Key, Account: in.account.Name, ProviderID: in.m.GetMessageId(), Rev: d.Revision, SentAt: in.sentAt,
	}
	o := store.AppendOptions{Key: in.m.GetKey(), Revision: d.Revision}
	why := in.admitted(d.Settings.Owners)
	if why == nil {
		var out store.Appended
		out, why = s.Inbox.Put(ctx, a, set, []store.NewEvent{{Source: in.from.String(), Type: thread.TypeMessage, Content: in.content(), Origin: origin}}, o)
		if why == nil || errors.Is(why, store.ErrRevision) {
			return out, why
		}
	}
	// A message that was stored before is a repeat, whatever the rules, the quotas or its text
	// are now.
	out, found, err := s.Router.Store.Pushed(ctx, store.Inbox(a.ID), o.Key)
	if err != nil || !found {
		return out, why
	}
	out.Duplicate = true
	return out, nil
}

// inbound is a message whose fields can be used.
type inbound struct {
	account layer.Account
	m       *registryv1.InboundMessage
	from    source.Address
	text    string
	name    string
	sentAt  time.Time
}

// read checks a message and makes its texts valid and bounded. Errors: INVALID_ARGUMENT.
func read(account layer.Account, m *registryv1.InboundMessage) (inbound, error) {
	in := inbound{account: account, m: m, sentAt: time.Now()}
	if at := m.GetSentAt(); at.IsValid() && at.AsTime().Before(in.sentAt) {
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

// admitted returns nil when the account takes the message. Errors: PEER_REFUSED, NOT_ADDRESSED.
func (in inbound) admitted(owners []string) error {
	who := in.m.GetPeerId()
	listed := func(list []string) bool { return slices.Contains(list, who) || slices.Contains(list, anyone) }
	refuse := func(what, fix string) error {
		return fault.New(codes.PermissionDenied, fault.PeerRefused, what, fix)
	}
	if !in.account.Enabled {
		return refuse("the account '"+in.account.Name+"' is not enabled", "set channels."+in.account.Name+".enabled: true")
	}
	if in.m.GetKind() == sessionkey.DM {
		if in.account.DM == "open" || slices.Contains(owners, in.account.Type+":"+who) || in.account.DM != "off" && listed(in.account.AllowFrom) {
			return nil
		}
		return refuse("this person may not write to '"+in.account.Name+"'", "add the person to channels."+in.account.Name+".allow_from")
	}
	g := in.account.Groups
	switch {
	case !slices.Contains(g.Allow, in.m.GetSessionId()) && !slices.Contains(g.Allow, in.m.GetParent()) && !slices.Contains(g.Allow, anyone):
		return refuse("this group may not write to '"+in.account.Name+"'", "add its id to channels."+in.account.Name+".groups.allow")
	case len(g.AllowFrom) > 0 && !listed(g.AllowFrom):
		return refuse("this person may not write to '"+in.account.Name+"' in groups", "add the person to channels."+in.account.Name+".groups.allow_from")
	case g.Mode == "off":
		return refuse("'"+in.account.Name+"' takes no messages of groups", "set channels."+in.account.Name+".groups.mode")
	case g.Mode == "always", in.m.GetMentioned(), in.m.GetReplyTo().GetMine():
		return nil
	}
	return fault.New(codes.PermissionDenied, fault.NotAddressed, "the message is not addressed to '"+in.account.Name+"'", "mention it, or set channels."+in.account.Name+".groups.mode: always")
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
		ID             string       `json:"id,omitempty"`
		ChannelID      string       `json:"channel_id"`
		PeerID         string       `json:"peer_id"`
		PeerName       string       `json:"peer_name,omitempty"`
		SessionID      string       `json:"session_id"`
		Text           string       `json:"text"`
		ReplyTo        *replyTo     `json:"reply_to,omitempty"`
		CreatedAt      string       `json:"created_at"`
		Kind           string       `json:"kind"`
		PlatformThread string       `json:"platform_thread,omitempty"`
		Mentioned      bool         `json:"mentioned,omitempty"`
		GuildID        string       `json:"guild_id,omitempty"`
		TeamID         string       `json:"team_id,omitempty"`
		ReplyContext   replyContext `json:"reply_context"`
	}{
		ID: m.GetMessageId(), ChannelID: in.account.Name, PeerID: m.GetPeerId(), PeerName: in.name, SessionID: m.GetSessionId(), Text: in.text,
		CreatedAt: thread.Stamp(in.sentAt), Kind: m.GetKind(), PlatformThread: m.GetPlatformThread(), Mentioned: m.GetMentioned(),
		GuildID: m.GetGuildId(), TeamID: m.GetTeamId(),
		ReplyContext: replyContext{
			"external", in.account.Name, m.GetPeerId(), m.GetSessionId(), m.GetKind(), m.GetPlatformThread(), m.GetMessageId(), m.GetGuildId(), m.GetTeamId(),
		},
	}
	if r := m.GetReplyTo(); r != nil {
		text, _ := boundary.Text(r.GetText(), 0)
		if runes := []rune(text); len(runes) > maxQuote {
			text = string(runes[:maxQuote])
		}
		content.ReplyTo = &replyTo{r.GetId(), text}
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(content) // strings and booleans: it cannot fail
	return strings.TrimSuffix(b.String(), "\n")
}

// maxQuote is the most characters of the message that another one answers.
const maxQuote = 500
