package slack

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/channel"
)

// message is a message of an event, of the history, or inside message_changed. Its attachments are
// not read: they, and not the text, have what another one wrote and this person shares.
type message struct {
	Type        string   `json:"type"`
	Subtype     string   `json:"subtype"`
	Channel     string   `json:"channel"`
	ChannelType string   `json:"channel_type"`
	User        string   `json:"user"`
	BotID       string   `json:"bot_id"`
	Username    string   `json:"username"` // of a bot that names itself
	Team        string   `json:"team"`
	Text        string   `json:"text"`
	TS          string   `json:"ts"`
	ThreadTS    string   `json:"thread_ts"`
	ParentUser  string   `json:"parent_user_id"` // of a reply in a thread: who began that
	Root        *message `json:"root"`           // of a reply that the whole channel sees: what began the thread
	Files       []file   `json:"files"`
	Edited      *edited  `json:"edited"`
	Message     *message `json:"message"` // of message_changed
	Previous    *message `json:"previous_message"`
}

type edited struct {
	TS string `json:"ts"`
}

// delivered is the payload of an envelope of the type events_api.
type delivered struct {
	Team  string  `json:"team_id"`
	Event message `json:"event"`
}

// written are the subtypes of messages that people or programs wrote. Others report what happened
// in a channel: a person joined, a topic was set.
var written = []string{"", "file_share", "thread_broadcast", "me_message", "bot_message"}

// reader makes updates of what the platform delivers.
type reader struct {
	client    *client
	token     string
	who       me
	directory *directory
}

// read returns what an envelope says to the account; false when that is nothing: a reaction, a
// person who joined, an event of a kind that is not known.
func (r *reader) read(ctx context.Context, kind string, payload json.RawMessage) (channel.Update, bool) {
	switch kind {
	case "events_api":
		var d delivered
		if json.Unmarshal(payload, &d) != nil {
			return channel.Update{}, false
		}
		return r.readEvent(ctx, &d.Event, d.Team)
	case "interactive":
		var p pressed
		if json.Unmarshal(payload, &p) != nil {
			return channel.Update{}, false
		}
		return r.readPressed(ctx, &p)
	}
	return channel.Update{}, false
}

func (r *reader) readEvent(ctx context.Context, m *message, team string) (channel.Update, bool) {
	switch {
	case m.Type != "message" && m.Type != "app_mention":
		return channel.Update{}, false
	case m.Subtype == "message_changed":
		return r.readChanged(ctx, m, team)
	}
	return r.readMessage(ctx, m, m.Channel, m.ChannelType, team)
}

// readChanged reads an edit. Without edited, the platform itself changed the message: it shows
// where a link leads, or that a thread has an answer.
func (r *reader) readChanged(ctx context.Context, m *message, team string) (channel.Update, bool) {
	if m.Message == nil || m.Message.Edited == nil || m.Previous != nil && m.Previous.Text == m.Message.Text {
		return channel.Update{}, false
	}
	return r.readMessage(ctx, m.Message, m.Channel, m.ChannelType, team)
}

// readMessage reads a message. One that was edited is an edit of the message with its ts.
func (r *reader) readMessage(ctx context.Context, m *message, conversation, stated, team string) (channel.Update, bool) {
	var out channel.Update
	switch {
	case !slices.Contains(written, m.Subtype), !idRule().MatchString(conversation), !tsRule.MatchString(m.TS):
		return out, false
	case m.User == r.who.User, m.BotID != "" && m.BotID == r.who.Bot: // our own
		return out, false
	}
	out.Attachments = r.client.attachments(m.Files, r.token)
	if m.Text == "" && len(out.Attachments) == 0 {
		return out, false
	}
	out.Kind = r.directory.kind(ctx, conversation, stated)
	out.SessionID, out.MessageID, out.Team = conversation, m.TS, team
	if tsRule.MatchString(m.ThreadTS) && m.ThreadTS != m.TS { // the message that began a thread is not in it
		out.Thread = m.ThreadTS
	}
	out.Key = r.key(conversation, m.TS)
	out.PeerID, out.PeerName = m.User, m.Username
	if m.User == "" {
		out.PeerID = m.BotID
	} else if name := r.directory.name(ctx, m.User); name != "" {
		out.PeerName = name
	}
	if out.PeerID == "" {
		return out, false
	}
	out.Bot = m.BotID != "" || m.Subtype == "bot_message"
	out.Mentioned = m.Type == "app_mention" || mentions(m.Text, r.who.User)
	out.Text = r.text(ctx, m.Text)
	if out.Thread != "" {
		out.ReplyTo = r.replyTo(ctx, m, conversation, out.Mentioned || out.Kind == kindDM)
	}
	out.SentAt = date(m.TS)
	if m.Edited != nil && tsRule.MatchString(m.Edited.TS) {
		out.EditOf = out.Key
		out.Key += ":e" + m.Edited.TS
		out.SentAt = date(m.Edited.TS)
	}
	return out, true
}

// text returns what people see of a text.
func (r *reader) text(ctx context.Context, s string) string {
	looked := 0
	return readable(s, func(id string) string {
		if id == r.who.User {
			return r.who.Name
		}
		if looked++; looked > maxLookUps {
			return ""
		}
		return r.directory.name(ctx, id)
	})
}

// replyTo returns the message that began the thread of m: what is written in a thread answers it. Where m addresses the
// bot, or answers it, its text is fetched and quoted once for each thread; if that fails, it is missing. In a thread between others
// it is not fetched: few messages there start a turn, and those of all conversations would wait for it.
func (r *reader) replyTo(ctx context.Context, m *message, conversation string, addressed bool) *channel.ReplyTo {
	if m.Root != nil {
		r.begun(ctx, conversation, m.Root)
	}
	id, mine := rootID(conversation, m.ThreadTS), m.ParentUser == r.who.User
	if !addressed && !mine {
		return &channel.ReplyTo{ID: m.ThreadTS, Mine: r.directory.roots.entries[id].value.mine}
	}
	began := find(ctx, &r.directory.roots, id, r.fetchRoot)
	if began.text != "" { // the conversation of the thread has it from now on
		r.directory.roots.put(id, entry[root]{value: root{mine: began.mine}})
	}
	return &channel.ReplyTo{ID: m.ThreadTS, Text: began.text, Mine: began.mine || mine}
}

// begun notes a message that began a thread.
func (r *reader) begun(ctx context.Context, conversation string, m *message) {
	if tsRule.MatchString(m.TS) {
		r.directory.roots.put(rootID(conversation, m.TS), entry[root]{value: r.root(ctx, m)})
	}
}

func (r *reader) root(ctx context.Context, m *message) root {
	text := r.text(ctx, m.Text)
	if runes := []rune(text); len(runes) > maxQuote {
		text = string(runes[:maxQuote])
	}
	return root{text: text, mine: m.User == r.who.User || m.BotID != "" && m.BotID == r.who.Bot}
}

func (r *reader) fetchRoot(ctx context.Context, id string) (root, error) {
	conversation, thread, _ := strings.Cut(id, "/")
	var a struct {
		Messages []message `json:"messages"`
	}
	err := r.client.read(ctx, r.token, "conversations.replies", url.Values{"channel": {conversation}, "ts": {thread}, "limit": {"1"}}, &a)
	if err != nil || len(a.Messages) == 0 || a.Messages[0].TS != thread { // it was deleted
		return root{}, err
	}
	return r.root(ctx, &a.Messages[0]), nil
}

// pressed is the payload of an envelope of the type interactive.
type pressed struct {
	Type string `json:"type"`
	User struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"user"`
	Team struct {
		ID string `json:"id"`
	} `json:"team"`
	Channel struct {
		ID string `json:"id"`
	} `json:"channel"`
	Container struct {
		MessageTS string `json:"message_ts"`
		ThreadTS  string `json:"thread_ts"`
	} `json:"container"`
	Actions []struct {
		ID    string `json:"action_id"`
		Value string `json:"value"`
		TS    string `json:"action_ts"`
	} `json:"actions"`
}

// readPressed makes a message of a button that was pressed: its command, from who pressed it.
func (r *reader) readPressed(ctx context.Context, p *pressed) (channel.Update, bool) {
	if p.Type != "block_actions" || len(p.Actions) != 1 {
		return channel.Update{}, false
	}
	a := p.Actions[0]
	ours := strings.HasPrefix(a.ID, actionPrefix) && a.Value != ""
	if !ours || !tsRule.MatchString(a.TS) || !tsRule.MatchString(p.Container.MessageTS) ||
		!idRule().MatchString(p.User.ID) || !idRule().MatchString(p.Channel.ID) {
		return channel.Update{}, false
	}
	out := channel.Update{
		Key:       r.key(p.Channel.ID, p.Container.MessageTS+"-"+p.User.ID+"-"+a.TS), // a message is pressed more than once
		Kind:      r.directory.kind(ctx, p.Channel.ID, ""),
		SessionID: p.Channel.ID, PeerID: p.User.ID, PeerName: r.directory.name(ctx, p.User.ID), Team: p.Team.ID,
		MessageID: p.Container.MessageTS, Text: a.Value, Mentioned: true, SentAt: date(a.TS),
	}
	if out.PeerName == "" {
		out.PeerName = p.User.Name
	}
	if t := p.Container.ThreadTS; tsRule.MatchString(t) && t != p.Container.MessageTS {
		out.Thread = t
	}
	return out, true
}

func (r *reader) key(session, message string) string {
	return "slack:" + r.who.User + ":" + session + ":" + message
}

// date reads the time that a ts is; zero: it is none.
func date(ts string) time.Time {
	seconds, _, _ := strings.Cut(ts, ".")
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || n <= 0 {
		return time.Time{}
	}
	return time.Unix(n, 0)
}
