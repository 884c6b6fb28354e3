package telegramtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
)

type queued struct {
	id       int64
	kind     string
	doc      json.RawMessage
	returned bool
}

// refusal is an answer that is not ok.
type refusal struct {
	OK          bool   `json:"ok"`
	Code        int    `json:"error_code"`
	Description string `json:"description"`
	Parameters  struct {
		RetryAfter int   `json:"retry_after,omitempty"`
		MigratedTo int64 `json:"migrate_to_chat_id,omitempty"`
	} `json:"parameters"`
}

func bad(format string, args ...any) *refusal {
	return &refusal{Code: http.StatusBadRequest, Description: "Bad Request: " + fmt.Sprintf(format, args...)}
}

func refuse(w http.ResponseWriter, r *refusal) { write(w, r.Code, r) }

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that has gone away sees nothing
}

// Push queues an update of any form, and returns its number.
func (s *Server) Push(update map[string]any) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.push(update)
}

func (s *Server) push(update map[string]any) int64 {
	q := &queued{id: s.nextUpdate}
	s.nextUpdate++
	s.stats.Updates++
	for kind := range update {
		q.kind = kind
	}
	update["update_id"] = q.id
	doc, err := json.Marshal(update)
	if err != nil {
		doc = fmt.Appendf(nil, `{"update_id":%d}`, q.id)
	}
	q.doc = doc
	s.queue = append(s.queue, q)
	s.touch()
	return q.id
}

// Renumber makes next the number of the next update, as the platform does after a week without one.
func (s *Server) Renumber(next int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue, s.head, s.nextUpdate = s.queue[s.head:], 0, next
}

// ServeHTTP serves the Bot API, and below /control/ the people.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if rest, ok := strings.CutPrefix(r.URL.Path, "/control/"); ok {
		s.control(w, r, rest)
		return
	}
	token, path, isFile := tokenPath(r.URL.Path, "/file/bot")
	if !isFile {
		var ok bool
		if token, path, ok = tokenPath(r.URL.Path, "/bot"); !ok {
			refuse(w, &refusal{Code: http.StatusNotFound, Description: "Not Found"})
			return
		}
	}
	switch {
	case token != s.cfg.Token && !strings.Contains(token, ":"):
		refuse(w, &refusal{Code: http.StatusNotFound, Description: "Not Found"})
		return
	case token != s.cfg.Token:
		refuse(w, &refusal{Code: http.StatusUnauthorized, Description: "Unauthorized"})
		return
	case isFile:
		s.download(w, r, path)
		return
	}
	var p params
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "multipart/form-data" {
		if no := p.form(w, r); no != nil {
			refuse(w, no)
			return
		}
	} else if r.Method == http.MethodPost {
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&p); err != nil && !errors.Is(err, io.EOF) {
			refuse(w, bad("the body is not JSON"))
			return
		}
	}
	s.serve(w, r, path, &p)
}

// params are the parameters of all methods.
type params struct {
	Offset    int64           `json:"offset"`
	Limit     int             `json:"limit"`
	Timeout   int             `json:"timeout"`
	Allowed   []string        `json:"allowed_updates"`
	ChatID    json.RawMessage `json:"chat_id"`
	Thread    int64           `json:"message_thread_id"`
	MessageID int64           `json:"message_id"`
	Text      string          `json:"text"`
	Entities  []Entity        `json:"entities"`
	ParseMode string          `json:"parse_mode"`
	Preview   struct {
		Off bool `json:"is_disabled"`
	} `json:"link_preview_options"`
	Reply *struct {
		ID      int64 `json:"message_id"`
		Without bool  `json:"allow_sending_without_reply"`
	} `json:"reply_parameters"`
	Markup *struct {
		Rows [][]Button `json:"inline_keyboard"`
	} `json:"reply_markup"`
	Action     string `json:"action"`
	CallbackID string `json:"callback_query_id"`
	FileID     string `json:"file_id"`
	Reaction   []struct {
		Emoji string `json:"emoji"`
	} `json:"reaction"`

	file *File // of a form
}

// form reads the parameters of a method that takes a file.
func (p *params) form(w http.ResponseWriter, r *http.Request) *refusal {
	r.Body = http.MaxBytesReader(w, r.Body, maxUpload+1<<20)
	if r.ContentLength <= 0 || r.ParseMultipartForm(1<<20) != nil { //nolint:gosec // the body is bounded above
		return bad("the form cannot be read")
	}
	doc := map[string]json.RawMessage{}
	for name, values := range r.MultipartForm.Value {
		switch name {
		case "caption":
			doc["text"], _ = json.Marshal(values[0])
		case "caption_entities":
			doc["entities"] = json.RawMessage(values[0])
		default:
			if doc[name] = json.RawMessage(values[0]); !json.Valid(doc[name]) {
				doc[name], _ = json.Marshal(values[0])
			}
		}
	}
	all, err := json.Marshal(doc)
	if err != nil || json.Unmarshal(all, p) != nil {
		return bad("a parameter is not JSON")
	}
	for kind, files := range r.MultipartForm.File {
		in, err := files[0].Open()
		if err != nil {
			return bad("the file cannot be read")
		}
		content, err := io.ReadAll(in)
		_ = in.Close() // it is in memory, or in a file that was read
		if err != nil {
			return bad("the file cannot be read")
		}
		p.file = &File{Kind: kind, Name: files[0].Filename, MIME: files[0].Header.Get("Content-Type"), Content: content}
	}
	return nil
}

func (p *params) chat() (id int64) {
	_ = json.Unmarshal(p.ChatID, &id) // 0, which no chat is, for what is no number
	return id
}

// serve does one call, with what is to go wrong with it.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, method string, p *params) {
	s.mu.Lock()
	fault := s.fault(method, p.chat())
	s.underway[method]++
	s.touch()
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.underway[method]--
	}()
	if fault != nil && !s.disturb(w, r, fault) {
		s.record(Call{Method: method, Chat: p.chat(), Text: p.Text, Status: fault.Status})
		return
	}
	call := Call{Method: method, Chat: p.chat(), Text: p.Text, Entities: p.Entities, Thread: p.Thread, MessageID: p.MessageID, NoPreview: p.Preview.Off, Status: http.StatusOK}
	var result any
	var no *refusal
	if method == "getUpdates" {
		var late *Fault
		if result, no, late = s.updates(r.Context(), p); late != nil {
			if fault = late; !s.disturb(w, r, fault) {
				s.record(Call{Method: method, Status: fault.Status})
				return
			}
		}
	} else {
		s.mu.Lock()
		result, no = s.act(method, p, &call)
		s.mu.Unlock()
	}
	if no != nil {
		call.Status = no.Code
	}
	s.record(call)
	switch {
	case fault != nil && fault.Cut == CutAfter:
		panic(http.ErrAbortHandler) // closes the connection
	case fault != nil && fault.Body != "":
		garbage(w, fault.Body)
	case no != nil:
		refuse(w, no)
	default:
		write(w, http.StatusOK, map[string]any{"ok": true, "result": result})
	}
}

func (s *Server) record(c Call) {
	c.At = time.Now()
	s.calling.Lock()
	defer s.calling.Unlock()
	polled := c.Method == "getUpdates"
	if s.cfg.OnCall != nil && !polled {
		s.cfg.OnCall(c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Status != http.StatusOK {
		s.stats.Refused++
	}
	if !polled {
		s.calls = append(s.calls, c)
	}
	s.touch()
}

// updates is getUpdates: what is below the offset is acknowledged, what is not is returned each
// time. A second call ends the first. A fault that is set meanwhile ends the call.
func (s *Server) updates(ctx context.Context, p *params) (any, *refusal, *Fault) {
	limit := p.Limit
	if limit <= 0 || limit > 100 {
		limit = 100
	}
	if p.Offset < 0 {
		return nil, bad("a negative offset is not served here"), nil
	}
	timeout, cancel := context.WithTimeout(ctx, time.Duration(min(max(p.Timeout, 0), 50))*time.Second)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.poll++
	s.stats.Polls++
	me := s.poll
	s.touch()
	s.ack(p.Offset)
	for {
		if s.poll != me {
			s.stats.Conflicts++
			return nil, &refusal{Code: http.StatusConflict, Description: "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"}, nil
		}
		if f := s.fault("getUpdates", 0); f != nil {
			return []json.RawMessage{}, nil, f
		}
		if list := s.answer(p, limit); len(list) > 0 || timeout.Err() != nil {
			return list, nil, nil
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-timeout.Done():
		case <-s.ctx.Done():
			cancel()
		}
		s.mu.Lock()
	}
}

// ack acknowledges what is below an offset. One that is far above all numbers is of another
// server, and acknowledges nothing.
func (s *Server) ack(offset int64) {
	if offset > s.nextUpdate+10 {
		return
	}
	for s.head < len(s.queue) && s.queue[s.head].id < offset {
		q := s.queue[s.head]
		s.stats.Acked++
		if !q.returned {
			s.stats.Lost++
		}
		if s.cfg.OnAck != nil {
			s.cfg.OnAck(q.id)
		}
		s.head++
	}
}

// answer lists what getUpdates returns now.
func (s *Server) answer(p *params, limit int) []json.RawMessage {
	list := []json.RawMessage{}
	for _, q := range s.queue[max(s.head-s.repeat, 0):s.head] {
		list = append(list, q.doc)
		s.stats.Repeated++
	}
	s.repeat = 0
	for _, q := range s.queue[s.head:] {
		if len(list) == limit {
			break
		}
		if !allows(p.Allowed, q.kind) {
			continue
		}
		if !q.returned {
			q.returned = true
			s.stats.Returned++
		}
		list = append(list, q.doc)
	}
	return list
}

func allows(allowed []string, kind string) bool {
	for _, a := range allowed {
		if a == kind {
			return true
		}
	}
	return len(allowed) == 0 || kind == "unknown_kind" // a kind of the future comes whatever is asked for
}

// act is each method but getUpdates.
func (s *Server) act(method string, p *params, call *Call) (any, *refusal) {
	switch method {
	case "getMe":
		return map[string]any{
			"id": s.bot.ID, "is_bot": true, "first_name": s.bot.FirstName, "username": s.bot.Username,
			"can_join_groups": true, "can_read_all_group_messages": false, "supports_inline_queries": false,
		}, nil
	case "answerCallbackQuery":
		call.Detail = p.CallbackID
		return true, nil
	case "getFile":
		call.Detail = p.FileID
		f := s.files[p.FileID]
		switch {
		case f == nil:
			return nil, bad("invalid file_id")
		case f.size > maxFile:
			return nil, bad("file is too big")
		}
		return map[string]any{"file_id": p.FileID, "file_unique_id": "u" + p.FileID, "file_size": f.size, "file_path": f.path}, nil
	}
	c := s.chats[p.chat()]
	switch {
	case c == nil:
		return nil, bad("chat not found")
	case c.blocked:
		return nil, &refusal{Code: http.StatusForbidden, Description: "Forbidden: bot was blocked by the user"}
	case c.migratedTo != 0:
		no := bad("group chat was upgraded to a supergroup chat")
		no.Parameters.MigratedTo = c.migratedTo
		return nil, no
	case p.Thread != 0 && !c.topics[p.Thread]:
		return nil, bad("message thread not found")
	}
	switch method {
	case "sendMessage":
		return s.send(c, p, call)
	case "sendDocument", "sendPhoto":
		kind := strings.ToLower(strings.TrimPrefix(method, "send"))
		switch {
		case p.file == nil || p.file.Kind != kind:
			return nil, bad("there is no %s in the request", kind)
		case len(p.file.Content) == 0:
			return nil, bad("file must be non-empty")
		case len(p.file.Content) > maxUpload:
			return nil, &refusal{Code: http.StatusRequestEntityTooLarge, Description: "Request Entity Too Large"}
		case kind == "photo" && (len(p.file.Content) > maxUpload/5 || !strings.HasPrefix(http.DetectContentType(p.file.Content), "image/")):
			return nil, bad("PHOTO_INVALID_DIMENSIONS")
		}
		call.Detail = p.file.Name
		return s.send(c, p, call)
	case "sendChatAction":
		call.Detail = p.Action
		return true, nil
	}
	m := c.message(p.MessageID)
	switch method {
	case "editMessageText":
		if m == nil || m.From == nil || m.From.ID != s.bot.ID {
			return nil, bad("message to edit not found")
		}
		buttons, no := s.check(p)
		switch {
		case no != nil:
			return nil, no
		case m.Text == p.Text && len(m.Entities) == len(p.Entities):
			return nil, bad("message is not modified: specified new message content and reply markup are exactly the same as a current content and reply markup of the message")
		}
		m.Text, m.Entities, m.Buttons = p.Text, p.Entities, buttons
		m.Edits++
		call.Buttons = buttons
		return s.document(c, m), nil
	case "deleteMessage":
		for i, one := range c.messages {
			if one == m && m != nil {
				c.messages = append(c.messages[:i:i], c.messages[i+1:]...)
				return true, nil
			}
		}
		return nil, bad("message to delete not found")
	case "setMessageReaction":
		if m == nil {
			return nil, bad("message to react not found")
		}
		m.Marks = nil
		for _, r := range p.Reaction {
			m.Marks = append(m.Marks, r.Emoji)
		}
		call.Detail = strings.Join(m.Marks, " ")
		return true, nil
	}
	return nil, &refusal{Code: http.StatusNotFound, Description: "Not Found: method not found"}
}

func (s *Server) send(c *chatState, p *params, call *Call) (any, *refusal) {
	buttons, no := s.check(p)
	if no != nil {
		return nil, no
	}
	s.nextMessage++
	m := &Message{ID: s.nextMessage, Chat: c.Chat, From: &s.bot, Text: p.Text, Entities: p.Entities, Thread: p.Thread, Buttons: buttons, Date: time.Now().Unix()}
	if p.Reply != nil {
		switch {
		case c.message(p.Reply.ID) != nil:
			m.ReplyTo = p.Reply.ID
		case !p.Reply.Without:
			return nil, bad("message to be replied not found")
		}
	}
	if p.file != nil {
		m.Files = []File{*p.file}
	}
	c.messages = append(c.messages, m)
	call.MessageID, call.ReplyTo, call.Buttons = m.ID, m.ReplyTo, buttons
	return s.document(c, m), nil
}

// kinds are the types of entities that a bot may send.
var kinds = map[string]bool{
	"bold": true, "italic": true, "underline": true, "strikethrough": true, "spoiler": true, "blockquote": true,
	"expandable_blockquote": true, "code": true, "pre": true, "text_link": true, "text_mention": true,
}

// check refuses the texts and buttons that the platform refuses.
func (s *Server) check(p *params) (buttons []Button, _ *refusal) {
	n := units(p.Text)
	switch {
	case p.ParseMode != "":
		return nil, bad("can't parse entities: parse_mode is refused here")
	case p.file != nil && n > 1024:
		return nil, bad("message caption is too long")
	case p.file == nil && strings.TrimSpace(p.Text) == "":
		return nil, bad("message text is empty")
	case n > 4096:
		return nil, bad("message is too long")
	case len(p.Entities) > 100:
		return nil, bad("can't parse entities: too many")
	}
	for _, e := range p.Entities {
		if e.Offset < 0 || e.Length <= 0 || e.Offset+e.Length > n || !kinds[e.Type] || e.Type == "text_link" && e.URL == "" {
			return nil, bad("can't parse entities: entity %s at %d of length %d is beyond the text or unknown", e.Type, e.Offset, e.Length)
		}
	}
	if p.Markup == nil {
		return nil, nil
	}
	for _, row := range p.Markup.Rows {
		for _, b := range row {
			switch {
			case b.Text == "":
				return nil, bad("inline keyboard button text must be non-empty")
			case b.Data == "" || len(b.Data) > 64:
				return nil, bad("BUTTON_DATA_INVALID")
			}
			buttons = append(buttons, b)
		}
	}
	return buttons, nil
}
