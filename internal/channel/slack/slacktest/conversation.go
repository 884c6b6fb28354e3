package slacktest

import (
	"fmt"
	"regexp"
	"strings"
)

// User is a person or a bot.
type User struct {
	ID       string
	Name     string
	RealName string
	BotID    string // of a bot
}

// Channel is a conversation.
type Channel struct {
	ID   string
	Type string // im, mpim, channel or group
	Name string
	// With is the person of an im.
	With string
	// Archived refuses messages, as does one in which the bot is no Member.
	Archived, Outside bool
}

// IM returns the direct conversation of a person with the bot.
func IM(u User) Channel { return Channel{ID: "D" + u.ID[1:], Type: "im", With: u.ID} }

// Button is one below a message.
type Button struct{ Text, Value string }

// File is a file of a message.
type File struct {
	Name, MIME, Subtype, Mode string
	Content                   []byte
	Size                      int64  // that is stated; 0: that of the content
	URL                       string // empty: at this server
}

// Message is a message of a conversation.
type Message struct {
	TS       string // set by Say
	Channel  Channel
	User     string
	BotID    string
	Username string // of a bot that names itself
	Subtype  string
	Text     string // as Slack writes it: <@U1>, &lt;
	Thread   string
	Files    []File
	Buttons  []Button
	Marks    map[string][]string // users by names of emoji
	Key      string
	Edits    int
	Quiet    bool
	files    []any
}

type channelState struct {
	Channel
	messages []*Message
}

func (c *channelState) message(ts string) *Message {
	for _, m := range c.messages {
		if m.TS == ts {
			return m
		}
	}
	return nil
}

// channel returns the state of a conversation, which it begins. The lock is held.
func (s *Server) channel(c Channel) *channelState {
	state := s.channels[c.ID]
	if state == nil {
		state = &channelState{Channel: c}
		s.channels[c.ID] = state
	}
	return state
}

// AddChannel makes a conversation known, or changes it.
func (s *Server) AddChannel(c Channel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.channel(c).Channel = c
}

// AddUser makes a person known.
func (s *Server) AddUser(u User) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users[u.ID] = u
}

// Say makes a person or a program write a message, and returns its ts. A mention of the bot in a
// channel makes two events, as on the platform.
func (s *Server) Say(m Message) (ts string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.channel(m.Channel)
	m.TS = s.ts()
	for i := range m.Files {
		m.files = append(m.files, s.attach(&m.Files[i]))
	}
	if m.Subtype == "" && len(m.Files) > 0 {
		m.Subtype = "file_share"
	}
	c.messages = append(c.messages, &m)
	doc := s.document(&m)
	doc["channel"], doc["channel_type"], doc["event_ts"] = c.ID, c.Type, m.TS
	s.push(m.TS, doc)
	if strings.Contains(m.Text, "<@"+BotUser+">") && c.Type != "im" {
		mention := s.document(&m)
		mention["type"], mention["channel"], mention["event_ts"] = "app_mention", c.ID, m.TS
		delete(mention, "subtype")
		s.push(m.TS, mention)
	}
	return m.TS
}

// Edit makes a person change a message.
func (s *Server) Edit(channel, ts, text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.channels[channel]
	if c == nil || c.message(ts) == nil {
		return fmt.Errorf("there is no message %s in %s", ts, channel)
	}
	m := c.message(ts)
	before := s.document(m)
	m.Text = text
	m.Edits++
	at := s.ts()
	after := s.document(m)
	after["edited"] = map[string]string{"user": m.User, "ts": at}
	s.push(ts, map[string]any{
		"type": "message", "subtype": "message_changed", "hidden": true, "channel": c.ID, "channel_type": c.Type, "ts": at, "event_ts": at,
		"message": after, "previous_message": before,
	})
	return nil
}

// Press makes a person press the button with a value, or the first one, of a message of the bot.
func (s *Server) Press(channel, ts, user, value string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.channels[channel]
	if c == nil || c.message(ts) == nil || len(c.message(ts).Buttons) == 0 {
		return fmt.Errorf("message %s in %s has no buttons", ts, channel)
	}
	m := c.message(ts)
	for i, b := range m.Buttons {
		if value != "" && b.Value != value {
			continue
		}
		container := map[string]any{"type": "message", "message_ts": ts, "channel_id": c.ID, "is_ephemeral": false}
		if m.Thread != "" {
			container["thread_ts"] = m.Thread
		}
		s.enqueue(ts, "interactive", map[string]any{
			"type": "block_actions", "user": map[string]string{"id": user, "username": s.users[user].Name, "name": s.users[user].Name, "team_id": TeamID},
			"api_app_id": "A0DEMO", "token": "verification", "container": container, "trigger_id": "1." + ts, "team": map[string]string{"id": TeamID, "domain": "demo"},
			"channel": map[string]string{"id": c.ID, "name": c.Name}, "message": s.document(m), "response_url": "https://hooks.slack.invalid/actions",
			"actions": []any{map[string]any{
				"action_id": fmt.Sprintf("theclaw:%d", i), "block_id": "b1", "type": "button", "value": b.Value, "action_ts": s.ts(),
				"text": map[string]any{"type": "plain_text", "text": b.Text, "emoji": true},
			}},
		})
		return nil
	}
	return fmt.Errorf("message %s has no button with %s", ts, value)
}

// Push delivers an event of any form.
func (s *Server) Push(event map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ts, _ := event["ts"].(string)
	s.push(ts, event)
}

// PushEnvelope delivers an envelope of any type.
func (s *Server) PushEnvelope(kind string, payload any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enqueue("", kind, payload)
}

// document is a message as the API shows it. The lock is held.
func (s *Server) document(m *Message) map[string]any {
	doc := map[string]any{"type": "message", "ts": m.TS, "text": m.Text, "team": TeamID}
	for key, value := range map[string]string{"user": m.User, "bot_id": m.BotID, "username": m.Username, "subtype": m.Subtype, "thread_ts": m.Thread} {
		if value != "" {
			doc[key] = value
		}
	}
	if c := s.channels[m.Channel.ID]; m.Thread != "" && c != nil {
		switch began := c.message(m.Thread); {
		case began == nil: // it was deleted
		case m.Subtype == "thread_broadcast":
			doc["root"] = s.document(began)
		case began.User != "":
			doc["parent_user_id"] = began.User
		}
	}
	if m.User != "" && m.BotID == "" {
		doc["client_msg_id"] = "c-" + m.TS
	}
	if len(m.files) > 0 {
		doc["files"] = m.files
	}
	if m.Key != "" {
		doc["metadata"] = map[string]any{"event_type": "theclaw", "event_payload": map[string]any{"key": m.Key}}
	}
	return doc
}

// latestReply is the last message of the thread that a message began; empty: there is none.
func (c *channelState) latestReply(ts string) (last string) {
	for _, m := range c.messages {
		if m.Thread == ts {
			last = max(last, m.TS)
		}
	}
	return last
}

// attach makes the document of a file. The lock is held.
func (s *Server) attach(f *File) any {
	id := fmt.Sprintf("F%04d", len(s.files)+1)
	size := f.Size
	if size == 0 {
		size = int64(len(f.Content))
	}
	path := "/files-pri/" + TeamID + "-" + id + "/download"
	s.files[path] = f.Content
	address := f.URL
	if address == "" {
		address = "http://" + s.listen.Addr().String() + path
	}
	doc := map[string]any{"id": id, "name": f.Name, "title": f.Name, "mimetype": f.MIME, "size": size, "mode": "hosted", "url_private": address, "url_private_download": address}
	if f.Mode != "" {
		doc["mode"] = f.Mode
	}
	if f.Subtype != "" {
		doc["subtype"] = f.Subtype
	}
	return doc
}

var tsForm = regexp.MustCompile(`^[0-9]{10}\.[0-9]{6}$`)
