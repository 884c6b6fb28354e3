package turns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/filter"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/sessionkey"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/state"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// maxSearched is how many of the newest messages of a conversation that several people share are searched for one
// of them.
const maxSearched = 100

// addressed reports whether a saying changes an earlier message, or goes to another conversation.
func addressed(said *registryv1.Saying) bool {
	return said.GetAction() != "" || said.GetChannel() != "" || said.GetTo() != ""
}

// target is where a saying of a turn goes, and what it changes there.
type target struct {
	rc        channel.ReplyContext
	messageID string // of the platform
	event     int64  // of the thread; 0: none
}

// targetOf decides where a saying goes. The agent writes in conversations that it has with people of the account, and to
// owners, and nowhere else; and elsewhere than in the conversation of the turn only when an owner wrote its message: what
// other people write could ask for it. Errors: INVALID_ARGUMENT, which the model reads.
func (s *Service) targetOf(ctx context.Context, a *state.Agent, set *agentdir.Agent, c state.Claim, threadID string, said *registryv1.Saying) (target, error) {
	if set.Config.Outbound != nil {
		return target{}, wire.Bad("the setting outbound decides where messages of this agent go, and they cannot be addressed", "send a text without action, channel and to")
	}
	var t target
	here, err := contextOf(c)
	if err != nil {
		return t, err
	}
	at := store.Ref{Agent: a.ID, Thread: threadID}
	id := said.GetMessageId()
	switch {
	case said.GetAction() == "" && id != "":
		return t, wire.Bad("message_id is of no use without an action", "name an action, or leave message_id out")
	case id != "" && boundary.Name(id) != id:
		return t, wire.Bad("message_id is no id of a message", "name an id that a call has returned, or that the platform shows")
	case id != "":
		if t.event, err = s.Store.SayID(ctx, at, store.SayKey(id)); err != nil {
			return t, s.Fault(a.ID, threadID, err)
		}
	}
	if t.rc, err = s.place(ctx, a, set, here, at, t.event, said); err != nil {
		return t, err
	}
	if !same(t.rc, here) {
		owned, err := s.withOwners(ctx, set)
		if err != nil {
			return t, err
		}
		if !fromOwner(owned, c.Source) {
			return t, wire.Bad("only for an owner the agent writes in another conversation than this one", "answer here; an owner can ask for it")
		}
	}
	account, err := accountOf(set, t.rc.ChannelID())
	if err != nil {
		return t, err
	}
	if said.GetAction() == "" {
		return t, nil
	}
	if t.event == 0 {
		if t.messageID = id; id == "" && said.GetAction() == channel.ActionReact && same(t.rc, here) {
			t.messageID = here.ReplyToID()
		}
	}
	switch {
	case !account.Connects():
		return t, wire.Bad(fmt.Sprintf("programs post to '%s': its messages cannot be changed", account.Name), "send a new message")
	case t.event == 0 && t.messageID == "":
		return t, wire.Bad("message_id is missing", "name an id that a call has returned, or that the platform shows")
	case said.GetAction() == channel.ActionEdit && strings.TrimSpace(said.GetText()) == "":
		return t, wire.Bad("text is missing: it is the new text of the message", "name it, or use the action delete")
	}
	return t, nil
}

func contextOf(c state.Claim) (rc channel.ReplyContext, err error) {
	if c.Tuple.Internal {
		return nil, nil // of another agent
	}
	if err := json.Unmarshal(c.ReplyContext, &rc); err != nil { // route.Of has written it
		return nil, fmt.Errorf("read the context of a turn: %w", err)
	}
	return rc, nil
}

// same reports whether two contexts are of one conversation of the platform.
func same(a, b channel.ReplyContext) bool {
	return a.ChannelID() == b.ChannelID() && a.SessionID() == b.SessionID() && a.PlatformThread() == b.PlatformThread()
}

// accountOf is the account with a name that can send.
func accountOf(set *agentdir.Agent, name string) (layer.Account, error) {
	var names []string
	for _, a := range set.Accounts {
		switch {
		case a.Name == name && a.Sends():
			return a, nil
		case a.Sends():
			names = append(names, a.Name)
		}
	}
	return layer.Account{}, wire.Bad(fmt.Sprintf("there is no account %q that sends", boundary.Name(name)), "name one of: "+strings.Join(names, ", "))
}

// place is the conversation of a saying: that of the event which it changes, or the one that it names, or the one of the turn.
func (s *Service) place(ctx context.Context, a *state.Agent, set *agentdir.Agent, here channel.ReplyContext, at store.Ref, event int64, said *registryv1.Saying) (channel.ReplyContext, error) {
	if event > 0 {
		p, err := s.Store.Read(ctx, at, store.Query{After: event - 1, Upto: event, Limit: 1})
		if err != nil {
			return nil, s.Fault(a.ID, at.Thread, err)
		}
		if len(p.Events) == 1 {
			if c, err := channel.ParseContent(json.RawMessage(p.Events[0].Content)); err == nil && c.Action == "" && c.ReplyContext != nil {
				return c.ReplyContext, nil
			}
		}
		return nil, wire.Bad("message_id names no message that was sent", "name the id that a send has returned")
	}
	name, to := said.GetChannel(), said.GetTo()
	key, notKey := sessionkey.Parse(to)
	if name == "" {
		if name = here.ChannelID(); notKey == nil && key.Account != "" {
			name = key.Account
		}
	}
	if to == "" {
		if here == nil || name != here.ChannelID() {
			return nil, wire.Bad("to is missing: it names the conversation", "name a session key, or the id of a chat or a person at the platform")
		}
		return here, nil
	}
	account, err := accountOf(set, name)
	if err != nil {
		return nil, err
	}
	if notKey == nil {
		if key.Agent != a.ID {
			return nil, wire.Bad("to is a conversation of another agent", "name one of '"+a.ID+"'")
		}
		rc, err := s.newest(ctx, key, account, func(channel.ReplyContext) bool { return true })
		if err != nil || rc != nil {
			return rc, err
		}
	} else if rc, err := s.conversationWith(ctx, a, set, account, to); err != nil || rc != nil {
		return rc, err
	}
	return nil, wire.Bad(fmt.Sprintf("the agent has no conversation %.200q over '%s'", boundary.Name(to), account.Name),
		"name one that it has, or an owner; another person has to write to the agent first")
}

// conversationWith finds the conversation over an account in a chat, or with a person; nil: there is none.
func (s *Service) conversationWith(ctx context.Context, a *state.Agent, set *agentdir.Agent, account layer.Account, id string) (channel.ReplyContext, error) {
	for _, k := range []sessionkey.Key{
		{Scope: sessionkey.AccountChannelPeer, Type: account.Type, Account: account.Name, Peer: id},
		{Scope: sessionkey.Conversation, Type: account.Type, Kind: sessionkey.Group, Peer: id},
		{Scope: sessionkey.Conversation, Type: account.Type, Kind: sessionkey.ChannelGroup, Peer: id},
		{Scope: sessionkey.ChannelPeer, Type: account.Type, Peer: id},
		{Scope: sessionkey.Peer, Peer: id},
		{Scope: sessionkey.Channel, Type: account.Type, Account: account.Name},
		{Scope: sessionkey.Main, MainKey: set.Config.Session.MainKey},
	} {
		k.Agent = a.ID
		rc, err := s.newest(ctx, k, account, func(rc channel.ReplyContext) bool {
			return rc.SessionID() == id || rc.Kind() == channel.KindDM && rc.PeerID() == id
		})
		if err != nil || rc != nil {
			delete(rc, "platform_thread") // the chat was named, and no thread of it
			return rc, err
		}
	}
	owned, err := s.withOwners(ctx, set)
	if err != nil || !slices.Contains(owned.Owners, account.Type+":"+id) {
		return nil, err
	}
	return contextWith("channel_type", "external", "channel_id", account.Name, "peer_id", id, "kind", channel.KindDM), nil
}

func contextWith(pairs ...string) channel.ReplyContext {
	rc := channel.ReplyContext{}
	for i := 0; i < len(pairs); i += 2 {
		rc[pairs[i]] = thread.AppendString(nil, pairs[i+1])
	}
	return rc
}

// newest is the context of the newest message over an account in a conversation that fits; nil: there is none.
func (s *Service) newest(ctx context.Context, k sessionkey.Key, account layer.Account, fits func(channel.ReplyContext) bool) (channel.ReplyContext, error) {
	if k.Validate() != nil {
		return nil, nil
	}
	only, err := filter.Parse("type = '" + thread.TypeMessage + "' AND source LIKE 'external:" + account.Type + ":" + account.Name + ":%'")
	if err != nil {
		return nil, err
	}
	p, err := s.Store.Read(ctx, store.Ref{Agent: k.Agent, Thread: k.Thread()}, store.Query{Filter: only, Tail: true, Limit: maxSearched})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, s.Fault(k.Agent, k.Thread(), err)
	}
	for _, e := range slices.Backward(p.Events) {
		t, raw, err := route.Of(e.Source, e.Content)
		var rc channel.ReplyContext
		if err != nil || t.ChannelID != account.Name || json.Unmarshal(raw, &rc) != nil || rc.ChannelID() != account.Name || !fits(rc) {
			continue
		}
		delete(rc, "reply_to_id") // it answers no message
		return rc, nil
	}
	return nil, nil
}

// content is the content of the event.
func (t target) content(said *registryv1.Saying) (string, error) {
	rc, err := json.Marshal(t.rc)
	if err != nil {
		return "", fmt.Errorf("write the context of a message: %w", err)
	}
	content := replyContent(said.GetText(), rc, said.GetFile())
	if said.GetAction() == "" {
		return content, nil
	}
	b := append(thread.AppendString([]byte(`{"action":`), said.GetAction()), `,`...)
	if t.event > 0 {
		b = append(strconv.AppendInt(append(b, `"event":`...), t.event, 10), ',')
	} else {
		b = append(thread.AppendString(append(b, `"message_id":`...), t.messageID), ',')
	}
	return string(b) + content[1:], nil
}
