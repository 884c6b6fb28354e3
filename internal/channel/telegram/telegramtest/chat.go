package telegramtest

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf16"
)

// User is a person or a bot.
type User struct {
	ID        int64  `json:"id"`
	IsBot     bool   `json:"is_bot"`
	FirstName string `json:"first_name"`
	LastName  string `json:"last_name,omitempty"`
	Username  string `json:"username,omitempty"`
}

// Chat is a conversation.
type Chat struct {
	ID        int64  `json:"id"`
	Type      string `json:"type"` // private, group, supergroup or channel
	Title     string `json:"title,omitempty"`
	Username  string `json:"username,omitempty"`
	FirstName string `json:"first_name,omitempty"`
	IsForum   bool   `json:"is_forum,omitempty"`
}

// Private returns the chat of a person with the bot.
func Private(u User) Chat {
	return Chat{ID: u.ID, Type: "private", FirstName: u.FirstName, Username: u.Username}
}

// Entity marks a part of a text, in UTF-16 units.
type Entity struct {
	Type     string `json:"type"`
	Offset   int    `json:"offset"`
	Length   int    `json:"length"`
	URL      string `json:"url,omitempty"`
	User     *User  `json:"user,omitempty"`
	Language string `json:"language,omitempty"`
}

// Button is one below a message.
type Button struct {
	Text string `json:"text"`
	Data string `json:"callback_data"`
}

// File is a file of a message.
type File struct {
	// Kind is photo, document, voice, audio, video, video_note or sticker.
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	MIME    string `json:"mime"`
	Content []byte `json:"content"`
	// Size that is stated; 0: that of the content.
	Size int64 `json:"size"`
}

// Message is a message of a chat.
type Message struct {
	ID         int64    `json:"message_id"` // set by Say
	Chat       Chat     `json:"chat"`
	From       *User    `json:"from,omitempty"`
	SenderChat *Chat    `json:"sender_chat,omitempty"`
	Text       string   `json:"text"`
	Entities   []Entity `json:"entities,omitempty"` // nil: mentions and commands, as the platform finds them
	Thread     int64    `json:"message_thread_id,omitempty"`
	ReplyTo    int64    `json:"reply_to,omitempty"`
	Album      string   `json:"media_group_id,omitempty"`
	Files      []File   `json:"files,omitempty"`
	Buttons    []Button `json:"buttons,omitempty"`
	Marks      []string `json:"marks,omitempty"`
	Edits      int      `json:"edits,omitempty"`
	Forwarded  bool     `json:"forwarded,omitempty"` // another person wrote it first
	Date       int64    `json:"date"`                // 0: now
}

type chatState struct {
	Chat
	blocked    bool
	migratedTo int64
	topics     map[int64]bool
	messages   []*Message
}

func (c *chatState) message(id int64) *Message {
	for _, m := range c.messages {
		if m.ID == id {
			return m
		}
	}
	return nil
}

// chat returns the state of a chat, which it begins. The lock is held.
func (s *Server) chat(c Chat) *chatState {
	state := s.chats[c.ID]
	if state == nil {
		state = &chatState{Chat: c, topics: map[int64]bool{}}
		s.chats[c.ID] = state
	}
	return state
}

// AddChat makes a chat known that has no message yet.
func (s *Server) AddChat(c Chat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chat(c)
}

// Block makes a chat refuse the bot, or not any more.
func (s *Server) Block(chat int64, blocked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.chats[chat]; c != nil {
		c.blocked = blocked
	}
}

// Migrate makes a supergroup of a group. The bot learns of it by a message, as from the platform.
func (s *Server) Migrate(from, to int64) {
	s.mu.Lock()
	c := s.chats[from]
	if c == nil {
		s.mu.Unlock()
		return
	}
	c.migratedTo = to
	s.chat(Chat{ID: to, Type: "supergroup", Title: c.Title})
	s.nextMessage++
	id := s.nextMessage
	chat := c.Chat
	s.mu.Unlock()
	s.Push(map[string]any{"message": map[string]any{"message_id": id, "date": time.Now().Unix(), "chat": chat, "migrate_to_chat_id": to}})
}

// Say makes a person write a message, and returns the numbers of the update and of the message.
func (s *Server) Say(m Message) (update, message int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.chat(m.Chat)
	s.nextMessage++
	m.ID = s.nextMessage
	if m.Date == 0 {
		m.Date = time.Now().Unix()
	}
	if m.Thread != 0 {
		c.topics[m.Thread] = true
	}
	if m.Entities == nil {
		m.Entities = found(m.Text)
	}
	c.messages = append(c.messages, &m)
	kind := "message"
	if m.Chat.Type == "channel" {
		kind = "channel_post"
	}
	return s.push(map[string]any{kind: s.document(c, &m)}), m.ID
}

// Edit makes a person change a message.
func (s *Server) Edit(chat, message int64, text string) (update int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.chats[chat]
	if c == nil || c.message(message) == nil {
		return 0, fmt.Errorf("there is no message %d in chat %d", message, chat)
	}
	m := c.message(message)
	m.Text, m.Entities = text, found(text)
	m.Edits++
	doc := s.document(c, m)
	doc["edit_date"] = m.Date + int64(m.Edits)
	kind := "edited_message"
	if c.Type == "channel" {
		kind = "edited_channel_post"
	}
	return s.push(map[string]any{kind: doc}), nil
}

// Press makes a person press the button with a command, or the first one, of a message of the bot.
func (s *Server) Press(chat, message int64, from User, data string) (update int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.chats[chat]
	if c == nil || c.message(message) == nil || len(c.message(message).Buttons) == 0 {
		return 0, fmt.Errorf("message %d in chat %d has no buttons", message, chat)
	}
	m := c.message(message)
	if data == "" {
		data = m.Buttons[0].Data
	}
	for _, b := range m.Buttons {
		if b.Data == data {
			id := fmt.Sprint(700000 + s.nextUpdate)
			return s.push(map[string]any{"callback_query": map[string]any{
				"id": id, "from": from, "chat_instance": "1", "data": data, "message": s.document(c, m),
			}}), nil
		}
	}
	return 0, fmt.Errorf("message %d has no button with %s", message, data)
}

// document is a message as the Bot API shows it. The lock is held.
func (s *Server) document(c *chatState, m *Message) map[string]any {
	doc := map[string]any{"message_id": m.ID, "date": m.Date, "chat": c.Chat}
	if m.From != nil {
		doc["from"] = m.From
	}
	if m.SenderChat != nil {
		doc["sender_chat"] = m.SenderChat
	}
	if m.Thread != 0 {
		doc["message_thread_id"] = m.Thread
		doc["is_topic_message"] = true
	}
	if m.Album != "" {
		doc["media_group_id"] = m.Album
	}
	if m.Forwarded {
		doc["forward_origin"] = map[string]any{"type": "hidden_user", "date": m.Date, "sender_user_name": "Another"}
	}
	text, entities := "text", "entities"
	for i := range m.Files {
		text, entities = "caption", "caption_entities"
		s.attach(doc, &m.Files[i])
	}
	if m.Text != "" {
		doc[text] = m.Text
		if len(m.Entities) > 0 {
			doc[entities] = m.Entities
		}
	}
	if r := c.message(m.ReplyTo); m.ReplyTo != 0 && r != nil {
		answered := *r
		answered.ReplyTo = 0 // the Bot API shows one level
		doc["reply_to_message"] = s.document(c, &answered)
	}
	return doc
}

var marked = regexp.MustCompile(`(^|\s)(@[A-Za-z0-9_]{3,32}|/[a-z0-9_]{1,32}(@[A-Za-z0-9_]{3,32})?)`)

// found returns the mentions and commands of a text.
func found(text string) (list []Entity) {
	for _, at := range marked.FindAllStringSubmatchIndex(text, -1) {
		kind := "mention"
		if strings.HasPrefix(text[at[4]:at[5]], "/") {
			kind = "bot_command"
		}
		list = append(list, Entity{Type: kind, Offset: units(text[:at[4]]), Length: units(text[at[4]:at[5]])})
	}
	return list
}

// units is the length of a text as the Bot API counts.
func units(s string) int { return len(utf16.Encode([]rune(s))) }
