package slack

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf16"

	"github.com/theclaw/agents/internal/channel"
)

const (
	// maxCommand is the most bytes of the command of a button, maxLabel the most characters of its
	// text, maxButtons how many a message has.
	maxCommand, maxLabel, maxButtons = 2000, 75, 25
	// actionPrefix begins the names of our buttons.
	actionPrefix = "theclaw:"
	// eventType names our metadata of messages.
	eventType = "theclaw"
	// maxSeen is how many messages of a conversation are searched for a key, seenPages in how many
	// answers where it is a thread, whose messages the platform lists from the first on.
	maxSeen, seenPages = 20, 10
	// maxDocument is the largest file of a message, in bytes, and uploadLimit bounds the request with its content.
	maxDocument = 1 << 30
	uploadLimit = 2 * time.Minute
	// clockGap is how much the platform's clock may differ from ours.
	clockGap = 10 * time.Minute
	// statusTime is how long an assistant thread shows that an answer is written, less the way
	// there. noStatus is when what shows nothing is asked again.
	statusTime, noStatus = time.Minute, time.Hour
	// maxIdentities bounds the memory.
	maxIdentities = 16
)

// sender sends for one account.
type sender struct {
	*client

	mu  sync.Mutex
	who map[string]me // by fingerprints of tokens
}

var (
	_ channel.Channel = (*sender)(nil)
	_ channel.Limiter = (*sender)(nil)
	_ channel.Typer   = (*sender)(nil)
	_ channel.Editor  = (*sender)(nil)
	_ channel.Reactor = (*sender)(nil)
	_ channel.Finder  = (*sender)(nil)

	_ channel.Documenter = (*sender)(nil)
)

// Documents implements [channel.Documenter].
func (s *sender) Documents() channel.DocumentLimit {
	return channel.DocumentLimit{Max: maxDocument, Caption: maxText}
}

// Name returns the name of the account.
func (s *sender) Name() string { return s.name }

// Guarantee returns [channel.Query].
func (s *sender) Guarantee() channel.Guarantee { return channel.Query }

// Destination returns the conversation: each has limits of its own.
func (s *sender) Destination(m channel.Message) string {
	return channel.Clean(m.ReplyContext.SessionID(), 64)
}

// Limit implements [channel.Limiter].
func (s *sender) Limit() channel.Limit {
	return channel.Limit{
		Max: maxText, Buttons: maxSection, Units: utf16.RuneLen, Size: func(text string) int { return units(render(text, math.MaxInt)[0]) },
	}
}

// place is where a message goes.
type place struct {
	Channel string `json:"channel"`
	Thread  string `json:"thread_ts,omitempty"`
}

// outgoing are the parameters of chat.postMessage and chat.update.
type outgoing struct {
	place
	TS     string  `json:"ts,omitempty"` // of chat.update
	Text   string  `json:"text"`
	Blocks []block `json:"blocks,omitempty"`
	// Names and links of a text become no mentions and no previews.
	LinkNames   bool      `json:"link_names"`
	UnfurlLinks bool      `json:"unfurl_links"`
	UnfurlMedia bool      `json:"unfurl_media"`
	Metadata    *metadata `json:"metadata,omitempty"`
}

type metadata struct {
	Type    string `json:"event_type"`
	Payload struct {
		Key string `json:"key"`
	} `json:"event_payload"`
}

type block struct {
	Type     string   `json:"type"`
	Text     *words   `json:"text,omitempty"`
	Elements []button `json:"elements,omitempty"`
}

type words struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type button struct {
	Type  string `json:"type"`
	ID    string `json:"action_id"`
	Text  words  `json:"text"`
	Value string `json:"value"`
}

func misaddressed(what, fix string) *channel.Error {
	return channel.Reject(channel.ReasonReplyContext, what, fix)
}

// where reads the conversation of a reply_context.
func where(rc channel.ReplyContext) (place, error) {
	need, err := rc.Need("session_id")
	if err != nil {
		return place{}, err
	}
	p := place{Channel: need[0], Thread: rc.PlatformThread()}
	switch {
	case !idRule().MatchString(p.Channel):
		return place{}, misaddressed("session_id is not the id of a conversation of Slack", "answer an event from Slack")
	case p.Thread != "" && !tsRule.MatchString(p.Thread):
		return place{}, misaddressed("platform_thread is not the ts of a message of Slack", "answer an event from a thread")
	}
	return p, nil
}

// Send sends m. The id of the receipt is the ts of the message; where the text took several, they
// are separated by commas.
func (s *sender) Send(ctx context.Context, m channel.Message) (channel.Receipt, error) {
	p, err := where(m.ReplyContext)
	if err != nil {
		return channel.Receipt{}, err
	}
	token, err := s.token(ctx)
	if err != nil {
		return channel.Receipt{}, err
	}
	if m.Document != nil {
		id, err := s.upload(ctx, token, p, m)
		if err != nil {
			return channel.Receipt{}, s.failed(ctx, err, false)
		}
		return channel.Receipt{ProviderID: id}, nil
	}
	var sent map[string]string
	if m.MaybeDuplicate {
		if sent, err = s.sent(ctx, token, p, m); err != nil {
			return channel.Receipt{}, s.failed(ctx, err, false)
		}
	}
	list := compose(m)
	var ids []string
	for i := range list {
		key := m.Key
		if i > 0 {
			key += ":" + strconv.Itoa(i+1)
		}
		id := sent[key]
		if id == "" {
			out := list[i]
			out.place, out.Metadata = p, &metadata{Type: eventType}
			out.Metadata.Payload.Key = key
			if id, err = s.post(ctx, token, out); err != nil {
				return channel.Receipt{}, s.failed(ctx, err, i > 0) // what was sent before is found by its key
			}
		}
		ids = append(ids, id)
	}
	return channel.Receipt{ProviderID: strings.Join(ids, ",")}, nil
}

// compose makes the messages of a text. Buttons are below the last one, whose text is then a
// section of its own.
func compose(m channel.Message) (list []outgoing) {
	text, buttons := m.Text, []button(nil)
	if !m.More {
		text, buttons = withButtons(m.Text, m.Buttons)
	}
	for _, part := range render(text, maxText) {
		list = append(list, outgoing{Text: part})
	}
	if len(buttons) == 0 {
		return list
	}
	last := &list[len(list)-1]
	if units(last.Text) > maxSection {
		list = list[:0]
		for _, part := range render(text, maxSection) {
			list = append(list, outgoing{Text: part})
		}
		last = &list[len(list)-1]
	}
	last.Blocks = []block{{Type: "section", Text: &words{"mrkdwn", last.Text}}, {Type: "actions", Elements: buttons}}
	return list
}

// withButtons returns the text and the buttons of a message. A command that does not fit a button
// is a line of the text.
func withButtons(text string, list []channel.Button) (string, []button) {
	var out []button
	for i, b := range list {
		label := b.Text
		if r := []rune(label); len(r) > maxLabel {
			label = string(r[:maxLabel-1]) + "…"
		}
		if len(b.Command) > maxCommand || b.Command == "" || label == "" || len(out) == maxButtons {
			text += fmt.Sprintf("\n\n%s: `%s`", b.Text, b.Command)
			continue
		}
		out = append(out, button{"button", actionPrefix + strconv.Itoa(i), words{"plain_text", label}, b.Command})
	}
	return text, out
}

// post sends one message and returns its ts. Where the platform refuses its buttons, it is sent
// once more without them.
func (s *sender) post(ctx context.Context, token string, out outgoing) (string, error) {
	for {
		if err := s.admit(ctx, token, out.Channel); err != nil {
			return "", err
		}
		var a struct {
			TS string `json:"ts"`
		}
		err := s.write(ctx, token, "chat.postMessage", out, &a)
		if r, ok := errors.AsType[*refusal](err); ok && len(out.Blocks) > 0 && strings.HasPrefix(r.code, "invalid_blocks") {
			for _, b := range out.Blocks[len(out.Blocks)-1].Elements {
				out.Text += fmt.Sprintf("\n%s: %s", escape.Replace(b.Text.Text), escape.Replace(b.Value))
			}
			out.Blocks = nil
			continue
		}
		if err == nil && !tsRule.MatchString(a.TS) {
			err = &failure{method: "chat.postMessage", why: "the answer has no ts", left: true}
		}
		return a.TS, err
	}
}

// seen is a message of the history.
type seen struct {
	TS       string    `json:"ts"`
	Metadata *metadata `json:"metadata"`
}

// sent returns which keys newer messages of a conversation have, with their ts. A conversation is
// listed from its last message on, a thread from its first.
func (s *sender) sent(ctx context.Context, token string, p place, m channel.Message) (map[string]string, error) {
	params := url.Values{"channel": {p.Channel}, "limit": {strconv.Itoa(maxSeen)}, "include_all_metadata": {"true"}}
	method, pages := "conversations.history", 1
	if p.Thread != "" {
		method, pages = "conversations.replies", seenPages
		params.Set("ts", p.Thread)
		params.Set("limit", "100")
		if at, err := time.Parse(time.RFC3339Nano, m.CreatedAt); err == nil {
			params.Set("oldest", strconv.FormatInt(at.Add(-clockGap).Unix(), 10)+".000000")
		}
	}
	keys := map[string]string{}
	for range pages {
		var a struct {
			Messages []seen `json:"messages"`
			Next     struct {
				Cursor string `json:"next_cursor"`
			} `json:"response_metadata"`
		}
		if err := s.read(ctx, token, method, params, &a); err != nil {
			return nil, err
		}
		for _, one := range a.Messages {
			if one.Metadata != nil && one.Metadata.Type == eventType && tsRule.MatchString(one.TS) {
				keys[one.Metadata.Payload.Key] = one.TS
			}
		}
		if a.Next.Cursor == "" {
			break
		}
		params.Set("cursor", a.Next.Cursor)
	}
	return keys, nil
}

// failed says how a send ended that did not succeed. ctx is the caller's, so that its end differs
// from a platform that is slow. before means that other parts of the message were sent.
func (s *sender) failed(ctx context.Context, err error, before bool) *channel.Error {
	e := s.down(err)
	if f, ok := errors.AsType[*failure](err); ok && errors.Is(ctx.Err(), context.Canceled) {
		e.Class, e.What, e.Fix, e.InDoubt = channel.Interrupted, "the send was stopped", "", f.left
	}
	e.InDoubt = e.InDoubt || before
	return e
}

// Typing implements [channel.Typer]: a thread with an assistant shows a status, other
// conversations of the platform show nothing.
func (s *sender) Typing(ctx context.Context, to channel.ReplyContext) (time.Duration, error) {
	p, err := where(to)
	if err != nil {
		return 0, err
	}
	if p.Thread == "" || !strings.HasPrefix(p.Channel, "D") {
		return noStatus, nil
	}
	return statusTime, s.act(ctx, "assistant.threads.setStatus", struct {
		Channel string `json:"channel_id"`
		Thread  string `json:"thread_ts"`
		Status  string `json:"status"`
	}{p.Channel, p.Thread, "is writing..."})
}

// messagesOf reads the ids of a receipt.
func messagesOf(providerID string) ([]string, error) {
	list := strings.Split(providerID, ",")
	for _, ts := range list {
		if !tsRule.MatchString(ts) {
			return nil, misaddressed("the id is not the ts of a message of Slack", "name the id that the send returned")
		}
	}
	return list, nil
}

// Edit implements [channel.Editor]. A text that is longer than one message is refused. Of a
// message that took several, the first is changed.
func (s *sender) Edit(ctx context.Context, providerID string, m channel.Message) error {
	ids, err := messagesOf(providerID)
	if err != nil {
		return err
	}
	p, err := where(m.ReplyContext)
	if err != nil {
		return err
	}
	list := compose(m)
	if len(list) != 1 {
		return channel.Reject("", "the new text is longer than a message of Slack may be", "send a shorter text")
	}
	token, err := s.token(ctx)
	if err != nil {
		return err
	}
	if err := s.admit(ctx, token, p.Channel); err != nil {
		return err
	}
	out := list[0]
	out.Channel, out.TS = p.Channel, ids[0]
	if err := s.write(ctx, token, "chat.update", out, nil); err != nil {
		return s.failed(ctx, err, false)
	}
	return nil
}

// Delete implements [channel.Editor]. A message that is not there any more is deleted.
func (s *sender) Delete(ctx context.Context, providerID string, to channel.ReplyContext) error {
	ids, err := messagesOf(providerID)
	if err != nil {
		return err
	}
	p, err := where(to)
	if err != nil {
		return err
	}
	for _, ts := range ids {
		err := s.act(ctx, "chat.delete", struct {
			Channel string `json:"channel"`
			TS      string `json:"ts"`
		}{p.Channel, ts})
		if err != nil && !refusedAs(err, "message_not_found") {
			return err
		}
	}
	return nil
}

func refusedAs(err error, code string) bool {
	r, ok := errors.AsType[*refusal](err)
	return ok && r.code == code
}

// mark is a reaction.
type mark struct {
	Channel string `json:"channel"`
	TS      string `json:"timestamp"`
	Name    string `json:"name"`
}

// React implements [channel.Reactor].
func (s *sender) React(ctx context.Context, providerID, character string, to channel.ReplyContext) error {
	p, err := where(to)
	if err != nil {
		return err
	}
	ids, err := messagesOf(providerID)
	if err != nil {
		return err
	}
	if character == "" {
		return s.unmark(ctx, p.Channel, ids[0])
	}
	name, ok := emojiName(character)
	if !ok {
		return channel.Reject("", "Slack has no name for this mark", "name it as Slack does, such as :eyes:")
	}
	err = s.act(ctx, "reactions.add", mark{p.Channel, ids[0], name})
	if refusedAs(err, "already_reacted") {
		return nil
	}
	return err
}

// unmark removes the marks that the bot set.
func (s *sender) unmark(ctx context.Context, conversation, ts string) error {
	token, err := s.token(ctx)
	if err != nil {
		return err
	}
	who, err := s.self(ctx, token)
	if err != nil {
		return s.failed(ctx, err, false)
	}
	var a struct {
		Message struct {
			Reactions []struct {
				Name  string   `json:"name"`
				Users []string `json:"users"`
			} `json:"reactions"`
		} `json:"message"`
	}
	params := url.Values{"channel": {conversation}, "timestamp": {ts}, "full": {"true"}}
	err = s.read(ctx, token, "reactions.get", params, &a)
	if err != nil {
		return s.failed(ctx, err, false)
	}
	for _, r := range a.Message.Reactions {
		if !slices.Contains(r.Users, who.User) {
			continue
		}
		if err := s.act(ctx, "reactions.remove", mark{conversation, ts, r.Name}); err != nil && !refusedAs(err, "no_reaction") {
			return err
		}
	}
	return nil
}

// self is the bot of a token.
func (s *sender) self(ctx context.Context, token string) (me, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := channel.Fingerprint(token)
	if who, ok := s.who[name]; ok {
		return who, nil
	}
	who, err := s.identify(ctx, token)
	if err != nil {
		return who, err
	}
	if s.who == nil || len(s.who) >= maxIdentities {
		s.who = map[string]me{}
	}
	s.who[name] = who
	return who, nil
}

// Find implements [channel.Finder].
func (s *sender) Find(ctx context.Context, peerID string) (string, error) {
	if !idRule().MatchString(peerID) {
		return "", misaddressed("this is not the id of a person of Slack", "name an id such as U012AB3CD")
	}
	token, err := s.token(ctx)
	if err != nil {
		return "", err
	}
	var a struct {
		Channel struct {
			ID string `json:"id"`
		} `json:"channel"`
	}
	err = s.write(ctx, token, "conversations.open", map[string]string{"users": peerID}, &a)
	if err == nil && !idRule().MatchString(a.Channel.ID) {
		err = &failure{method: "conversations.open", why: "the answer has no id"}
	}
	if err != nil {
		return "", s.failed(ctx, err, false)
	}
	return a.Channel.ID, nil
}

// act calls a method whose answer says nothing.
func (s *sender) act(ctx context.Context, method string, params any) error {
	token, err := s.token(ctx)
	if err != nil {
		return err
	}
	if err := s.write(ctx, token, method, params, nil); err != nil {
		return s.failed(ctx, err, false)
	}
	return nil
}

// emojiName returns the platform's name of a mark: a character, or a name between colons.
func emojiName(mark string) (string, bool) {
	if name := strings.Trim(mark, ":"); len(mark) > len(name)+1 && nameRule().MatchString(name) {
		return name, true
	}
	name, ok := emoji[strings.TrimSuffix(mark, "\ufe0f")]
	return name, ok
}
