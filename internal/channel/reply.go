package channel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// MaxHops is how many times a message may pass from agent to agent before it
// is dead: the end of every ping-pong.
const MaxHops = 8

// ReplyContext says where an answer goes. Unknown keys are carried untouched.
type ReplyContext map[string]json.RawMessage

// Content is what a channel reads of the content of an event.
type Content struct {
	Text         string
	ReplyContext ReplyContext // nil: missing
	Attachments  []SentFile
	// Action is what is done to an earlier message: edit, react or delete; empty: the event is sent.
	// MessageID is its id at the platform; empty: the registry finds it.
	Action, MessageID string
	// UsageFooter is a line in Markdown that the text ends with in a chat, about what the turn has used; empty: none.
	UsageFooter string
	Question    Question // that the text asks; without an ID: none
}

// Question is a question of an agent with the answers that people choose from.
type Question struct {
	ID      string   `json:"id"`
	Options []string `json:"options"`
}

// Buttons are the options as buttons, each with its number: two may begin alike. Their commands are made here alone, of an id and a number: no content makes
// another command of a button.
func (q Question) Buttons() (out []Button) {
	if !questionID().MatchString(q.ID) {
		return nil
	}
	for n, o := range q.Options {
		out = append(out, Button{Text: fmt.Sprintf("%d. %s", n+1, Clean(o, maxOption)), Command: fmt.Sprintf("/answer %s %d", q.ID, n+1)})
	}
	return out
}

// maxOption is how many characters of an option a button shows.
const maxOption = 40

var questionID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-z-]{1,40}$`) })

// SentFile is a file of a message that an agent sends. Media names its data, sha256: and 64 hex digits.
type SentFile struct {
	MIME  string `json:"mime"`
	Name  string `json:"name"`
	Size  int64  `json:"size"` // bytes
	Media string `json:"media"`
}

// ParseContent reads an event's content. A content
// that is no object, a text that is no string and a reply_context that is no
// object are Rejected; a missing reply_context is nil, because not every
// channel needs one.
func ParseContent(content json.RawMessage) (out Content, err error) {
	var c struct {
		Text         *string         `json:"text"`
		ReplyContext json.RawMessage `json:"reply_context"`
		Attachments  json.RawMessage `json:"attachments"`
		Action       string          `json:"action"`
		MessageID    string          `json:"message_id"`
		UsageFooter  string          `json:"usage_footer"`
		Question     json.RawMessage `json:"question"`
	}
	if err := json.Unmarshal(content, &c); err != nil || c.Text == nil {
		return out, Reject(ReasonReplyContext, "event content holds no text", "push content as {\"text\", \"reply_context\"}")
	}
	if raw := bytes.TrimSpace(c.ReplyContext); len(raw) > 0 && string(raw) != "null" {
		if err := json.Unmarshal(raw, &out.ReplyContext); err != nil {
			return Content{}, Reject(ReasonReplyContext, "reply_context is not an object", "push reply_context as a JSON object")
		}
	}
	out.Text, out.Action, out.MessageID, out.UsageFooter = *c.Text, c.Action, c.MessageID, c.UsageFooter
	if len(c.Attachments) > 0 && json.Unmarshal(c.Attachments, &out.Attachments) != nil {
		out.Attachments = nil // of another program: the text is sent
	}
	if len(c.Question) > 0 && json.Unmarshal(c.Question, &out.Question) != nil {
		out.Question = Question{} // the same
	}
	return out, nil
}

// ChannelType returns channel_type.
func (rc ReplyContext) ChannelType() string { return rc.text("channel_type") }

// ChannelID returns channel_id.
func (rc ReplyContext) ChannelID() string { return rc.text("channel_id") }

// PeerID returns peer_id.
func (rc ReplyContext) PeerID() string { return rc.text("peer_id") }

// SessionID returns session_id.
func (rc ReplyContext) SessionID() string { return rc.text("session_id") }

// Kind returns kind: dm, group or channel.
func (rc ReplyContext) Kind() string { return rc.text("kind") }

// PlatformThread returns platform_thread.
func (rc ReplyContext) PlatformThread() string { return rc.text("platform_thread") }

// ReplyToID returns reply_to_id.
func (rc ReplyContext) ReplyToID() string { return rc.text("reply_to_id") }

// GuildID returns guild_id.
func (rc ReplyContext) GuildID() string { return rc.text("guild_id") }

// TeamID returns team_id.
func (rc ReplyContext) TeamID() string { return rc.text("team_id") }

// SourceAgentID returns source_agent_id.
func (rc ReplyContext) SourceAgentID() string { return rc.text("source_agent_id") }

// Hops returns how many agents the message has passed. A value that is no
// count is read as the limit: a forged one must not restart a loop.
func (rc ReplyContext) Hops() int {
	raw, ok := rc["hops"]
	if !ok {
		return 0
	}
	var n int
	if err := json.Unmarshal(raw, &n); err != nil || n < 0 || n > MaxHops {
		return MaxHops
	}
	return n
}

// Need returns the values of keys in order, or a Rejected error that names the
// first one missing. A peer's id may be any text, line breaks included, but NUL
// ends an argument, so a value that holds one counts as missing too.
func (rc ReplyContext) Need(keys ...string) ([]string, error) {
	values := make([]string, len(keys))
	for i, key := range keys {
		values[i] = rc.text(key)
		if values[i] == "" || len(values[i]) > maxID || strings.ContainsRune(values[i], 0) {
			return nil, Reject(ReasonReplyContext, fmt.Sprintf("reply_context has no usable %s", key), "answer an event that states its "+key)
		}
	}
	return values, nil
}

// maxID bounds an id in bytes; longer ones would only exhaust an argument list.
const maxID = 4096

// text returns a string value, or the digits of a number: some gateways write
// numeric chat ids. Anything else is empty.
func (rc ReplyContext) text(key string) string {
	raw := bytes.TrimSpace(rc[key])
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var n json.Number
	if json.Unmarshal(raw, &n) == nil {
		return n.String()
	}
	return ""
}
