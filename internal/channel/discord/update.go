package discord

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/channel"
)

// Types of channels.
const (
	typeDM                 = 1
	typeGroupDM            = 3
	typeAnnouncementThread = 10
	typePublicThread       = 11
	typePrivateThread      = 12
	typeUnknown            = -1 // not of the platform
)

// Types of messages that people write.
const (
	typeDefault = 0
	typeReply   = 19
)

const (
	flagVoice        = 1 << 13
	referenceForward = 1
	// maxText bounds what is made of a message: texts of the platform are far shorter.
	maxText = 100_000
)

// place is a channel.
type place struct {
	Type   int    `json:"type"`
	Guild  string `json:"guild_id"`
	Parent string `json:"parent_id"`
}

// message is one of the platform.
type message struct {
	ID        string `json:"id"`
	ChannelID string `json:"channel_id"`
	GuildID   string `json:"guild_id"`
	Author    user   `json:"author"`
	Member    struct {
		Nick string `json:"nick"`
	} `json:"member"`
	Content     string       `json:"content"`
	Nonce       any          `json:"nonce"` // text or number, of who wrote it; often left out
	Timestamp   string       `json:"timestamp"`
	Edited      string       `json:"edited_timestamp"`
	Mentions    []user       `json:"mentions"`
	Attachments []attachment `json:"attachments"`
	Stickers    []struct {
		Name string `json:"name"`
	} `json:"sticker_items"`
	Type      int    `json:"type"`
	Flags     int64  `json:"flags"`
	WebhookID string `json:"webhook_id"`
	Reference struct {
		Type int    `json:"type"`
		ID   string `json:"message_id"`
	} `json:"message_reference"`
	Referenced *message `json:"referenced_message"`
	Snapshots  []struct {
		Message struct {
			Content     string       `json:"content"`
			Attachments []attachment `json:"attachments"`
		} `json:"message"`
	} `json:"message_snapshots"`
}

type attachment struct {
	Name string `json:"filename"`
	MIME string `json:"content_type"`
	Size int64  `json:"size"`
	URL  string `json:"url"`
}

// pressed is a button that was pressed.
type pressed struct {
	ID        string  `json:"id"`
	Token     string  `json:"token"` // with which it is confirmed
	Type      int     `json:"type"`
	ChannelID string  `json:"channel_id"`
	GuildID   string  `json:"guild_id"`
	User      user    `json:"user"` // of a direct channel
	Message   message `json:"message"`
	Member    struct {
		User user   `json:"user"`
		Nick string `json:"nick"`
	} `json:"member"`
	Data struct {
		Command string `json:"custom_id"`
	} `json:"data"`
}

// typePressed is the type of an interaction with a component.
const typePressed = 3

var interactionToken = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_.-]{1,512}$`) })

// message makes a message of a button that was pressed: its command, from who pressed it.
func (p *pressed) message() (m message, ok bool) {
	m = message{ID: p.Message.ID, ChannelID: p.ChannelID, GuildID: p.GuildID, Author: p.User, Content: p.Data.Command}
	m.Member.Nick = p.Member.Nick
	if m.Author.ID == "" {
		m.Author = p.Member.User
	}
	return m, p.Type == typePressed && p.Data.Command != "" && isID(p.ID) && interactionToken().MatchString(p.Token) &&
		isID(m.ID) && isID(m.ChannelID) && isID(m.Author.ID)
}

// says reports whether an event says something to the account: a message that another one wrote,
// or changed. Previews of links change messages, too, without a time of the change.
func (m *message) says(edit bool, who user) bool {
	return isID(m.ID) && isID(m.ChannelID) && isID(m.Author.ID) && m.Author.ID != who.ID &&
		(m.Type == typeDefault || m.Type == typeReply) && (!edit || m.Edited != "") &&
		(m.text() != "" || len(m.files()) > 0)
}

// text returns what a message says, with the names of those it mentions.
func (m *message) text() string {
	text := m.Content
	if m.Reference.Type == referenceForward && text == "" {
		for _, s := range m.Snapshots {
			text += s.Message.Content
		}
	}
	for _, s := range m.Stickers {
		text = strings.TrimPrefix(fmt.Sprintf("%s\n[sticker %s]", text, channel.Clean(s.Name, 64)), "\n")
	}
	var names []string
	for _, u := range m.Mentions {
		names = append(names, "<@"+u.ID+">", "@"+u.Username, "<@!"+u.ID+">", "@"+u.Username)
	}
	text = strings.NewReplacer(names...).Replace(text)
	return text[:min(len(text), maxText)]
}

func (m *message) files() []attachment {
	list := m.Attachments
	if m.Reference.Type == referenceForward {
		for _, s := range m.Snapshots {
			list = append(slices.Clip(list), s.Message.Attachments...)
		}
	}
	return list
}

// read makes an update of a message.
func (r *reader) read(m *message, edit bool, where place) channel.Update {
	u := channel.Update{
		Key:       r.key(m.ChannelID, m.ID),
		SessionID: m.ChannelID, MessageID: m.ID, Guild: m.GuildID,
		PeerID: m.Author.ID, PeerName: cmp.Or(m.Member.Nick, m.Author.GlobalName, m.Author.Username),
		Text: m.text(), Bot: m.Author.Bot || m.WebhookID != "", SentAt: date(m.Timestamp),
	}
	switch {
	case where.Type == typeGroupDM:
		u.Kind = kindGroup
	case where.Type == typeDM, where.Type != typeUnknown && m.GuildID == "": // a group is not taken for one
		u.Kind = kindDM
	default:
		u.Kind = kindChannel
	}
	switch where.Type { // the parent of another channel is a category, which is no conversation
	case typeAnnouncementThread, typePublicThread, typePrivateThread:
		u.Parent = where.Parent
	}
	if edit {
		u.EditOf = u.Key
		u.Key += ":e" + strconv.FormatInt(date(m.Edited).UnixMicro(), 10)
		u.SentAt = date(m.Edited)
	}
	u.Forwarded = m.Reference.Type == referenceForward || len(m.Snapshots) > 0
	u.Mentioned = slices.ContainsFunc(m.Mentions, func(v user) bool { return v.ID == r.who.ID })
	if m.Reference.ID != "" && m.Reference.Type != referenceForward {
		u.ReplyTo = &channel.ReplyTo{ID: m.Reference.ID}
		if answered := m.Referenced; answered != nil { // else it was deleted
			u.ReplyTo.Text, u.ReplyTo.Mine = answered.text(), answered.Author.ID == r.who.ID
			u.Mentioned = u.Mentioned || u.ReplyTo.Mine
		}
	}
	for _, f := range m.files() {
		u.Attachments = append(u.Attachments, r.attachment(f, m.Flags&flagVoice != 0))
	}
	return u
}

func (r *reader) key(session, id string) string {
	return "discord:" + r.who.ID + ":" + session + ":" + id
}

// date reads a time of the platform; zero: it cannot be read.
func date(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}
	}
	return t
}

func (r *reader) attachment(f attachment, voice bool) channel.Attachment {
	kind := "file"
	switch class, _, _ := strings.Cut(f.MIME, "/"); {
	case class == "audio" && voice:
		kind = "voice"
	case class == "image", class == "audio", class == "video":
		kind = class
	}
	a := channel.Attachment{Type: kind, MIME: f.MIME, Name: f.Name, Size: max(f.Size, 0)}
	if r.holds(f.URL) {
		c := r.client
		a.Open = func(ctx context.Context, limit int64) (io.ReadCloser, error) { return c.open(ctx, f.URL, limit) }
	}
	return a
}

// open begins to fetch a file of at most limit bytes, without the token: the address is signed.
func (c *client) open(ctx context.Context, address string, limit int64) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, &failure{what: "file", why: "the address cannot be read", err: err}
	}
	req.Header.Set("User-Agent", agent)
	res, err := c.transport.RoundTrip(req)
	switch {
	case err != nil:
		return nil, &failure{what: "file", why: "cannot be fetched", err: err}
	case res.StatusCode != http.StatusOK:
		_ = res.Body.Close() // nothing of it is used
		return nil, fmt.Errorf("fetch a file: %w", &refusal{what: "file", status: res.StatusCode})
	}
	return channel.File(res.Body, res.ContentLength, limit)
}
