package telegram

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/theclaw/agents/internal/channel"
)

// allowed are the kinds of updates that the platform is asked for.
var allowed = []string{"message", "edited_message", "channel_post", "edited_channel_post", "callback_query"}

// update is one update. Exactly one of its parts is set, or none for a kind that is not known.
type update struct {
	ID      int64
	message *message
	edit    bool
	pressed *pressed
}

// readUpdate reads an update. One of a form that is not known is an update without parts: it is
// acknowledged, because the platform would send it each time. The error is for one without a number.
func readUpdate(doc json.RawMessage) (update, error) {
	var id struct {
		ID int64 `json:"update_id"`
	}
	if err := json.Unmarshal(doc, &id); err != nil || id.ID <= 0 {
		return update{}, &failure{method: "getUpdates", why: "an update has no number", cause: err}
	}
	var u struct {
		Message       *message
		EditedMessage *message `json:"edited_message"`
		ChannelPost   *message `json:"channel_post"`
		EditedPost    *message `json:"edited_channel_post"`
		Pressed       *pressed `json:"callback_query"`
	}
	if json.Unmarshal(doc, &u) != nil {
		return update{ID: id.ID}, nil
	}
	return update{
		ID: id.ID, message: cmp.Or(u.Message, u.ChannelPost, u.EditedMessage, u.EditedPost),
		edit: u.EditedMessage != nil || u.EditedPost != nil, pressed: u.Pressed,
	}, nil
}

type user struct {
	ID        int64  `json:"id"`
	IsBot     bool   `json:"is_bot"`
	FirstName string `json:"first_name"`
	LastName  string `json:"last_name"`
	Username  string `json:"username"`
}

type chat struct {
	ID       int64  `json:"id"`
	Type     string `json:"type"`
	Title    string `json:"title"`
	Username string `json:"username"`
}

// content is what a message says. The message that another one answers has the same.
type content struct {
	ID       int64     `json:"message_id"`
	From     *user     `json:"from"`
	Text     string    `json:"text"`
	Caption  string    `json:"caption"`
	Sticker  *sticker  `json:"sticker"`
	NewTopic *struct{} `json:"forum_topic_created"`
}

// forwarded are the marks of a message that another one wrote first. Servers of the Bot API before
// version 7.0 set the last three.
type forwarded struct {
	Origin     *struct{} `json:"forward_origin"`
	Author     *struct{} `json:"forward_from"`
	Source     *struct{} `json:"forward_from_chat"`
	SenderName string    `json:"forward_sender_name"`
}

func (f forwarded) set() bool {
	return f.Origin != nil || f.Author != nil || f.Source != nil || f.SenderName != ""
}

type message struct {
	content
	ThreadID        int64    `json:"message_thread_id"`
	IsTopic         bool     `json:"is_topic_message"`
	SenderChat      *chat    `json:"sender_chat"`
	Chat            chat     `json:"chat"`
	Date            int64    `json:"date"`
	EditDate        int64    `json:"edit_date"`
	MovedTo         int64    `json:"migrate_to_chat_id"` // of a group that became a supergroup
	Album           string   `json:"media_group_id"`
	Entities        []entity `json:"entities"`
	CaptionEntities []entity `json:"caption_entities"`
	ReplyTo         *content `json:"reply_to_message"`
	Quote           *struct {
		Text string `json:"text"`
	} `json:"quote"`
	Location *struct {
		Latitude  float64 `json:"latitude"`
		Longitude float64 `json:"longitude"`
	} `json:"location"`
	Contact *struct {
		Phone     string `json:"phone_number"`
		FirstName string `json:"first_name"`
		LastName  string `json:"last_name"`
	} `json:"contact"`
	forwarded
	media
}

// entity marks a part of a text. Its place is in UTF-16 units.
type entity struct {
	Type   string `json:"type"`
	Offset int    `json:"offset"`
	Length int    `json:"length"`
	User   *user  `json:"user"`
}

// pressed is a button that was pressed.
type pressed struct {
	ID      string   `json:"id"`
	From    user     `json:"from"`
	Message *message `json:"message"`
	Data    string   `json:"data"`
}

// read returns what an update says to the account; false when that is nothing: a person who joined,
// a poll, an update of a kind that is not known.
func (c *client) read(u update, who me, token string) (channel.Update, bool) {
	if u.pressed != nil {
		return readPressed(u.pressed, who)
	}
	if u.message == nil {
		return channel.Update{}, false
	}
	return c.readMessage(u.message, u.edit, who, token)
}

func (c *client) readMessage(m *message, edit bool, who me, token string) (channel.Update, bool) {
	out, ok := conversation(m, who)
	if !ok {
		return out, false
	}
	entities := m.Entities
	out.Text = m.Text
	if m.Caption != "" {
		out.Text, entities = m.Caption, m.CaptionEntities
	}
	switch {
	case out.Text != "":
	case m.Location != nil:
		out.Text = fmt.Sprintf("[location %.6f, %.6f]", m.Location.Latitude, m.Location.Longitude)
	case m.Contact != nil:
		out.Text = fmt.Sprintf("[contact %s, %s]", fullName(m.Contact.FirstName, m.Contact.LastName), m.Contact.Phone)
	case m.Sticker != nil:
		out.Text = m.Sticker.Emoji
	}
	out.Attachments = c.attachments(m, token)
	if out.Text == "" && len(out.Attachments) == 0 || edit && m.Location != nil {
		return out, false // a place that is shared live is edited all the time
	}
	switch {
	case m.SenderChat != nil:
		out.PeerID, out.PeerName = number(m.SenderChat.ID), cmp.Or(m.SenderChat.Title, m.SenderChat.Username)
	case out.Kind == kindChannel || m.From == nil:
		out.PeerID, out.PeerName = number(m.Chat.ID), cmp.Or(m.Chat.Title, m.Chat.Username)
	default:
		out.PeerID, out.PeerName, out.Bot = number(m.From.ID), m.From.name(), m.From.IsBot
	}
	out.Mentioned = mentions(out.Text, entities, who)
	out.ReplyTo = replyTo(m, who)
	out.Album = m.Album
	out.Forwarded = m.forwarded.set()
	out.SentAt = date(m.Date)
	if edit {
		out.EditOf = out.Key
		out.Key += ":e" + number(m.EditDate) + "-" + digest(out)
		out.SentAt = date(cmp.Or(m.EditDate, m.Date))
	}
	return out, true
}

// digest tells edits of one second from each other, by what they say.
func digest(u channel.Update) string {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%q", u.Text) // never fails
	for _, a := range u.Attachments {
		_, _ = fmt.Fprintf(h, " %s %q %d", a.Type, a.Name, a.Size)
	}
	return strconv.FormatUint(h.Sum64(), 36)
}

// conversation says where a message is, and which key it has.
func conversation(m *message, who me) (out channel.Update, ok bool) {
	switch m.Chat.Type {
	case "private":
		out.Kind = kindDM
	case "group", "supergroup":
		out.Kind = kindGroup
	case "channel":
		out.Kind = kindChannel
	default:
		return out, false
	}
	if m.Chat.ID == 0 || m.ID == 0 {
		return out, false
	}
	out.SessionID, out.MessageID = number(m.Chat.ID), number(m.ID)
	if m.IsTopic && m.ThreadID != 0 { // without is_topic_message it numbers the replies to a message
		out.Thread = number(m.ThreadID)
	}
	out.Key = key(who, out.SessionID, out.MessageID)
	return out, true
}

// readPressed makes a message of a button that was pressed: its command, from who pressed it.
func readPressed(p *pressed, who me) (channel.Update, bool) {
	if p.Message == nil || p.Data == "" || p.ID == "" {
		return channel.Update{}, false
	}
	out, ok := conversation(p.Message, who)
	if !ok {
		return out, false
	}
	out.Key = key(who, out.SessionID, "q"+p.ID) // the message is pressed more than once
	out.PeerID, out.PeerName, out.Bot = number(p.From.ID), p.From.name(), p.From.IsBot
	out.Text, out.Mentioned = p.Data, true
	return out, true
}

func key(who me, session, message string) string {
	return "telegram:" + number(who.ID) + ":" + session + ":" + message
}

// mentions reports whether a text addresses the account.
func mentions(text string, entities []entity, who me) bool {
	var units []uint16
	name := "@" + who.Username
	for _, e := range entities {
		switch e.Type {
		case "text_mention":
			if e.User != nil && e.User.ID == who.ID {
				return true
			}
		case "mention", "bot_command":
			if units == nil {
				units = utf16.Encode([]rune(text))
			}
			if e.Offset < 0 || e.Length < 0 || e.Offset > len(units) || e.Length > len(units)-e.Offset {
				continue // the platform's mistake
			}
			part := string(utf16.Decode(units[e.Offset : e.Offset+e.Length]))
			if e.Type == "bot_command" {
				_, to, ok := strings.Cut(part, "@")
				if !ok {
					continue
				}
				part = "@" + to
			}
			if len(name) > 1 && strings.EqualFold(part, name) {
				return true
			}
		}
	}
	return false
}

// replyTo returns the message that m answers. In a topic each message answers the one that began
// the topic, which means nothing.
func replyTo(m *message, who me) *channel.ReplyTo {
	r := m.ReplyTo
	if r == nil || r.ID == 0 || r.NewTopic != nil {
		return nil
	}
	out := &channel.ReplyTo{ID: number(r.ID), Text: cmp.Or(r.Text, r.Caption), Mine: r.From != nil && r.From.ID == who.ID}
	if m.Quote != nil && m.Quote.Text != "" {
		out.Text = m.Quote.Text
	}
	return out
}

func (u user) name() string {
	return cmp.Or(fullName(u.FirstName, u.LastName), u.Username)
}

func fullName(first, last string) string { return strings.TrimSpace(first + " " + last) }

func number(n int64) string { return strconv.FormatInt(n, 10) }

func date(seconds int64) time.Time {
	if seconds <= 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}
