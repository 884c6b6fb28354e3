package plugin

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/channel"
	channelv1 "github.com/theclaw/agents/proto/gen/theclaw/channel/v1"
)

const (
	// noTyping is when a plugin that shows no typing is asked again.
	noTyping = time.Hour
	// maxSession, maxMessageID, maxGroup and maxMark are the most bytes of ids of conversations and
	// people, of messages, of what groups conversations, and of a mark.
	maxSession, maxMessageID, maxGroup, maxMark = 4096, 1024, 256, 64
	// maxProviderID is the most characters of the id of a receipt.
	maxProviderID = 128
)

// sender sends for one account.
type sender struct {
	*account
	known
	definition channel.Definition
}

var (
	_ channel.Channel = (*sender)(nil)
	_ channel.Limiter = (*sender)(nil)
	_ channel.Typer   = (*sender)(nil)
	_ channel.Editor  = (*sender)(nil)
	_ channel.Reactor = (*sender)(nil)
	_ channel.Finder  = (*sender)(nil)
)

// Name returns the name of the account.
func (s *sender) Name() string { return s.name }

// Guarantee returns what the plugin declares, and [channel.None] until that is known. The plugin
// keeps it: each send has its key, and says whether it may be a repeat.
func (s *sender) Guarantee() channel.Guarantee {
	if d := s.now(); d != nil {
		return d.guarantee
	}
	return channel.None
}

// Destination returns the conversation: a platform may have limits for each.
func (s *sender) Destination(m channel.Message) string {
	return channel.Clean(m.ReplyContext.SessionID(), 64)
}

// Limit implements [channel.Limiter]. While the plugin was never reached it is none, and sends are
// refused until it is known.
func (s *sender) Limit() channel.Limit {
	if d := s.now(); d != nil {
		return d.limit()
	}
	return channel.Limit{}
}

// now is what is known of the plugin; nil: nothing.
func (s *sender) now() *description {
	ctx, cancel := context.WithTimeout(context.Background(), connectLimit)
	defer cancel()
	d, _, _ := s.get(ctx, s.account) // the send that follows reports why it is not known
	return d
}

// target is the place of a reply_context.
func target(rc channel.ReplyContext) (*channelv1.Target, error) {
	need, err := rc.Need("session_id")
	if err != nil {
		return nil, err
	}
	t := &channelv1.Target{
		Conversation: &channelv1.Conversation{
			SessionId: valid(need[0]), Thread: valid(rc.PlatformThread()), GuildId: valid(rc.GuildID()), TeamId: valid(rc.TeamID()),
		},
		PeerId: valid(rc.PeerID()), ReplyToId: valid(rc.ReplyToID()),
	}
	for kind, name := range kinds {
		if name == rc.Kind() {
			t.Conversation.Kind = kind
		}
	}
	switch {
	case len(t.GetConversation().GetThread()) > maxSession, len(t.GetPeerId()) > maxSession, len(t.GetReplyToId()) > maxMessageID,
		len(t.GetConversation().GetGuildId()) > maxGroup, len(t.GetConversation().GetTeamId()) > maxGroup:
		return nil, channel.Reject(channel.ReasonReplyContext, "an id in the reply_context is too long", "answer an event of the account")
	case t.GetConversation().GetKind() == channelv1.Kind_KIND_UNSPECIFIED:
		t.Conversation.Kind = channelv1.Kind_KIND_DM
	}
	return t, nil
}

// valid is a text as UTF-8: gRPC sends no other.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Send sends m. The plugin gives the id of the receipt.
func (s *sender) Send(ctx context.Context, m channel.Message) (channel.Receipt, error) {
	to, err := target(m.ReplyContext)
	if err != nil {
		return channel.Receipt{}, err
	}
	// Without the setting the program decides what it shows.
	if s.definition.ReplyTo != "" && !s.definition.Names(m) {
		to.ReplyToId = ""
	}
	d, fresh, err := s.get(ctx, s.account)
	if err != nil {
		return channel.Receipt{}, err
	}
	text, buttons := compose(d, m)
	if err := s.fits(d, text, fresh); err != nil {
		return channel.Receipt{}, err
	}
	var id string
	err = s.call(ctx, sendLimit, func(ctx context.Context, c *conn) error {
		r, err := c.Send(ctx, &channelv1.SendRequest{
			Target: to, Key: m.Key, Text: text, Buttons: buttons, MaybeDuplicate: m.MaybeDuplicate, Attempt: int32(m.Attempt), Part: int32(m.Part), More: m.More,
		})
		id = r.GetMessageId()
		return err
	})
	return channel.Receipt{ProviderID: channel.Clean(id, maxProviderID)}, err
}

// compose returns the text and the buttons of a message. Without buttons the text says what they
// stand for.
func compose(d *description, m channel.Message) (string, []*channelv1.Button) {
	text := valid(m.Text)
	if m.More {
		return text, nil
	}
	var list []*channelv1.Button
	for _, b := range m.Buttons {
		if d.can.GetButtons() {
			list = append(list, &channelv1.Button{Text: valid(b.Text), Command: valid(b.Command)})
		}
	}
	return text, list
}

// fits refuses a text that is longer than the platform takes. fresh means that its limit was not
// known when the message was cut: then it is cut again.
func (s *sender) fits(d *description, text string, fresh bool) error {
	if d.limit().Length(text) <= d.maxText {
		return nil
	}
	e := channel.Reject("", fmt.Sprintf("the text is longer than the %d of a message of the plugin of %s", d.maxText, s.name), "send a shorter text")
	if fresh {
		e.Class = channel.Unavailable
	}
	return e
}

// call makes one call over a connection of its own. Its error is an [*channel.Error].
func (s *sender) call(ctx context.Context, limit time.Duration, f func(ctx context.Context, c *conn) error) error {
	c, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := f(within, c); err != nil {
		return s.down(ctx, err)
	}
	return nil
}

// able returns the description of a plugin that has a capability.
func (s *sender) able(ctx context.Context, what string, has func(*channelv1.Capabilities) bool) (*description, error) {
	d, _, err := s.get(ctx, s.account)
	if err != nil {
		return nil, err
	}
	if !has(d.can) {
		return nil, channel.Reject("", fmt.Sprintf("the platform of %s cannot %s", s.name, what), "")
	}
	return d, nil
}

// Typing implements [channel.Typer].
func (s *sender) Typing(ctx context.Context, to channel.ReplyContext) (time.Duration, error) {
	place, err := target(to)
	if err != nil {
		return 0, err
	}
	d, _, err := s.get(ctx, s.account)
	if err != nil {
		return 0, err
	}
	if d.typing == 0 {
		return noTyping, nil
	}
	return d.typing, s.call(ctx, callLimit, func(ctx context.Context, c *conn) error {
		_, err := c.SetTyping(ctx, &channelv1.SetTypingRequest{Target: place})
		return err
	})
}

// checkID refuses what cannot be the id of a message.
func checkID(providerID string) error {
	if providerID == "" || len(providerID) > maxMessageID {
		return channel.Reject(channel.ReasonReplyContext, "this is not the id of a message", "name the id that the send returned")
	}
	return nil
}

// Edit implements [channel.Editor].
func (s *sender) Edit(ctx context.Context, providerID string, m channel.Message) error {
	if err := checkID(providerID); err != nil {
		return err
	}
	to, err := target(m.ReplyContext)
	if err != nil {
		return err
	}
	d, err := s.able(ctx, "change messages", (*channelv1.Capabilities).GetEdit)
	if err != nil {
		return err
	}
	text, buttons := compose(d, m)
	if err := s.fits(d, text, false); err != nil {
		return err
	}
	return s.call(ctx, sendLimit, func(ctx context.Context, c *conn) error {
		_, err := c.Edit(ctx, &channelv1.EditRequest{Target: to, MessageId: valid(providerID), Text: text, Buttons: buttons})
		return err
	})
}

// Delete implements [channel.Editor].
func (s *sender) Delete(ctx context.Context, providerID string, to channel.ReplyContext) error {
	if err := checkID(providerID); err != nil {
		return err
	}
	place, err := target(to)
	if err != nil {
		return err
	}
	if _, err := s.able(ctx, "remove messages", (*channelv1.Capabilities).GetDelete); err != nil {
		return err
	}
	return s.call(ctx, callLimit, func(ctx context.Context, c *conn) error {
		_, err := c.Delete(ctx, &channelv1.DeleteRequest{Target: place, MessageId: valid(providerID)})
		return err
	})
}

// React implements [channel.Reactor].
func (s *sender) React(ctx context.Context, providerID, mark string, to channel.ReplyContext) error {
	if err := checkID(providerID); err != nil {
		return err
	}
	if len(mark) > maxMark {
		return channel.Reject("", "the mark is longer than 64 bytes", "name one character")
	}
	place, err := target(to)
	if err != nil {
		return err
	}
	if _, err := s.able(ctx, "mark messages", (*channelv1.Capabilities).GetReact); err != nil {
		return err
	}
	return s.call(ctx, callLimit, func(ctx context.Context, c *conn) error {
		_, err := c.React(ctx, &channelv1.ReactRequest{Target: place, MessageId: valid(providerID), Mark: valid(mark)})
		return err
	})
}

// Find implements [channel.Finder]. Where the plugin has no other names for direct conversations, it
// is the id of the person.
func (s *sender) Find(ctx context.Context, peerID string) (string, error) {
	if peerID == "" || len(peerID) > maxSession {
		return "", channel.Reject(channel.ReasonReplyContext, "this is not the id of a person", "name the id that the platform shows")
	}
	d, _, err := s.get(ctx, s.account)
	if err != nil {
		return "", err
	}
	if !d.can.GetFind() {
		return peerID, nil
	}
	var session string
	err = s.call(ctx, callLimit, func(ctx context.Context, c *conn) error {
		r, err := c.Find(ctx, &channelv1.FindRequest{PeerId: valid(peerID)})
		session = r.GetSessionId()
		return err
	})
	if err == nil && (session == "" || len(session) > maxSession) {
		err = &channel.Error{Class: channel.Rejected, What: fmt.Sprintf("the plugin of %s found no conversation with the person", s.name)}
	}
	return session, err
}
