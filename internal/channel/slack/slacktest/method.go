package slacktest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// refuse answers with an error of the platform.
func refuse(w http.ResponseWriter, status int, word, needed string) {
	doc := map[string]any{"ok": false, "error": word}
	if needed != "" {
		doc["needed"], doc["provided"] = needed, "chat:write"
	}
	write(w, status, doc)
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that has gone away sees nothing
}

// ServeHTTP serves the API, files and sockets.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/link/" {
		s.link(w, r)
		return
	}
	if strings.HasPrefix(r.URL.Path, "/files-pri/") {
		s.download(w, r)
		return
	}
	if id, ok := strings.CutPrefix(r.URL.Path, "/upload/"); ok {
		s.takeUpload(w, r, id)
		return
	}
	method, ok := strings.CutPrefix(r.URL.Path, "/api/")
	if !ok || r.Method != http.MethodPost {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	p, word := parameters(w, r, method)
	if word == "" {
		word = authorize(r, method)
	}
	s.mu.Lock()
	fault := s.fault(method, p.place())
	s.mu.Unlock()
	if fault != nil && !s.disturb(w, r, fault) {
		s.record(Call{Method: method, Channel: p.place(), Text: p.Text, Error: strings.TrimSpace(fault.Error + " " + strconv.Itoa(fault.Status) + fault.Cut)})
		return
	}
	call := Call{Method: method, Channel: p.place(), Text: p.Text, Thread: p.Thread, TS: p.TS, Quiet: p.quiet()}
	result := map[string]any{}
	if word == "" {
		s.mu.Lock()
		word = s.act(method, p, &call, result)
		s.mu.Unlock()
	}
	call.Error = word
	s.record(call)
	switch {
	case fault != nil && fault.Cut == CutAfter:
		panic(http.ErrAbortHandler) // closes the connection
	case fault != nil && fault.Body != "":
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, fault.Body) // a client that has gone away sees nothing
	case word != "":
		refuse(w, http.StatusOK, word, "")
	default:
		result["ok"] = true
		write(w, http.StatusOK, result)
	}
}

func (s *Server) record(c Call) {
	s.calling.Lock()
	defer s.calling.Unlock()
	s.mu.Lock()
	if c.Error != "" {
		s.stats.Refused++
	}
	s.calls = append(s.calls, c)
	s.touch()
	s.mu.Unlock()
	if s.cfg.OnCall != nil {
		s.cfg.OnCall(c)
	}
}

// authorize refuses tokens that are wrong for a method.
func authorize(r *http.Request, method string) string {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	app := method == "apps.connections.open"
	switch {
	case !ok || token == "":
		return "not_authed"
	case token != BotToken && token != AppToken:
		return "invalid_auth"
	case app != (token == AppToken):
		return "not_allowed_token_type"
	}
	return ""
}

// upload is a file whose content comes, or has come, to an address of its own.
type upload struct {
	name    string
	length  int
	content []byte // nil: it has not come
}

// takeUpload takes the content of a file, of the length that was stated.
func (s *Server) takeUpload(w http.ResponseWriter, r *http.Request, id string) {
	content, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<20))
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.uploads[id]
	if err != nil || u == nil || r.Method != http.MethodPost || len(content) != u.length {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	u.content = content
}

// takesJSON are the methods that take JSON; all take forms.
var takesJSON = []string{"chat.postMessage", "chat.update", "chat.delete", "reactions.add", "reactions.remove", "conversations.open", "files.completeUploadExternal", "assistant.threads.setStatus"}

// params are the parameters of all methods.
type params struct {
	Channel   string          `json:"channel"`
	ChannelID string          `json:"channel_id"`
	TS        string          `json:"ts"`
	Timestamp string          `json:"timestamp"`
	Thread    string          `json:"thread_ts"`
	Text      string          `json:"text"`
	Blocks    []block         `json:"blocks"`
	LinkNames *bool           `json:"link_names"`
	Links     *bool           `json:"unfurl_links"`
	Media     *bool           `json:"unfurl_media"`
	Metadata  json.RawMessage `json:"metadata"`
	Name      string          `json:"name"`
	User      string          `json:"user"`
	Users     string          `json:"users"`
	Status    string          `json:"status"`
	Comment   string          `json:"initial_comment"`
	Files     []struct {
		ID    string `json:"id"`
		Title string `json:"title"`
	} `json:"files"`
	FileName string `json:"-"`
	Length   int    `json:"-"`
	Oldest   string `json:"-"`
	Limit    int    `json:"-"`
	Cursor   string `json:"-"`
	All      bool   `json:"-"`
}

type block struct {
	Type string `json:"type"`
	Text struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"text"`
	Elements []struct {
		Type string `json:"type"`
		ID   string `json:"action_id"`
		Text struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"text"`
		Value string `json:"value"`
	} `json:"elements"`
}

func (p *params) place() string {
	if p.Channel == "" {
		return p.ChannelID
	}
	return p.Channel
}

func (p *params) quiet() bool {
	off := func(b *bool) bool { return b != nil && !*b }
	return off(p.LinkNames) && off(p.Links) && off(p.Media)
}

// parameters reads those of a call, as a form or as JSON.
func parameters(w http.ResponseWriter, r *http.Request, method string) (*params, string) {
	p := &params{}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		if !slices.Contains(takesJSON, method) {
			return p, "invalid_form_data"
		}
		if json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(p) != nil {
			return p, "invalid_json"
		}
		return p, ""
	}
	r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
	if r.ParseForm() != nil {
		return p, "invalid_form_data"
	}
	f := r.PostForm
	p.Channel, p.TS, p.Timestamp, p.User, p.Oldest = f.Get("channel"), f.Get("ts"), f.Get("timestamp"), f.Get("user"), f.Get("oldest")
	p.All = f.Get("include_all_metadata") == "true"
	p.Cursor = f.Get("cursor")
	p.Limit, _ = strconv.Atoi(f.Get("limit")) // 0: the default
	p.FileName = f.Get("filename")
	p.Length, _ = strconv.Atoi(f.Get("length")) // 0 is refused
	return p, ""
}

// act is each method. It returns the platform's word for what it refuses. The lock is held.
func (s *Server) act(method string, p *params, call *Call, out map[string]any) string {
	switch method {
	case "auth.test":
		out["url"], out["team"], out["user"], out["team_id"], out["user_id"], out["bot_id"] = "https://demo.slack.invalid/", "Demo", BotName, TeamID, BotUser, BotID
		return ""
	case "apps.connections.open":
		ticket := fmt.Sprintf("ticket-%d", len(s.calls))
		s.tickets[ticket] = true
		out["url"] = "ws://" + s.listen.Addr().String() + "/link/?ticket=" + ticket + "&app_id=A0DEMO"
		return ""
	case "users.info":
		call.Detail = p.User
		u, ok := s.users[p.User]
		if !ok {
			return "user_not_found"
		}
		out["user"] = map[string]any{
			"id": u.ID, "team_id": TeamID, "name": u.Name, "real_name": u.RealName, "is_bot": u.BotID != "",
			"profile": map[string]any{"real_name": u.RealName, "display_name": u.Name},
		}
		return ""
	case "files.getUploadURLExternal":
		if p.FileName == "" || p.Length <= 0 {
			return "invalid_arguments"
		}
		s.lastID++
		id := fmt.Sprintf("F%08d", s.lastID)
		s.uploads[id] = &upload{name: p.FileName, length: p.Length}
		out["file_id"], out["upload_url"] = id, "http://"+s.listen.Addr().String()+"/upload/"+id
		return ""
	case "conversations.open":
		call.Detail = p.Users
		u, ok := s.users[p.Users]
		switch {
		case !ok:
			return "user_not_found"
		case u.BotID != "":
			return "cannot_dm_bot"
		}
		c := s.channel(IM(u))
		out["channel"] = map[string]any{"id": c.ID}
		return ""
	}
	c := s.channels[p.place()]
	if c == nil {
		return "channel_not_found"
	}
	switch method {
	case "files.completeUploadExternal":
		if len(p.Files) != 1 || s.uploads[p.Files[0].ID] == nil || s.uploads[p.Files[0].ID].content == nil {
			return "file_not_found"
		}
		u := s.uploads[p.Files[0].ID]
		delete(s.uploads, p.Files[0].ID)
		call.Detail, call.Text = u.name, p.Comment
		c.messages = append(c.messages, &Message{
			TS: s.ts(), Channel: c.Channel, User: BotUser, BotID: BotID, Text: p.Comment, Thread: p.Thread, Files: []File{{Name: u.name, Content: u.content}},
		})
		return ""
	case "conversations.info":
		out["channel"] = map[string]any{"id": c.ID, "name": c.Name, "is_im": c.Type == "im", "is_mpim": c.Type == "mpim", "is_channel": c.Type == "channel", "is_group": c.Type == "group", "is_archived": c.Archived}
		return ""
	case "conversations.history", "conversations.replies":
		return s.history(method, c, p, out)
	case "assistant.threads.setStatus":
		call.Detail = p.Status
		return ""
	case "chat.postMessage":
		return s.post(c, p, call, out)
	}
	ts := p.TS
	if p.Timestamp != "" {
		ts = p.Timestamp
	}
	call.TS = ts
	m := c.message(ts)
	if m == nil {
		return "message_not_found"
	}
	switch method {
	case "chat.update":
		buttons, word := check(p)
		switch {
		case m.User != BotUser:
			return "cant_update_message"
		case word != "":
			return word
		}
		m.Text, m.Buttons = p.Text, buttons
		m.Edits++
		out["channel"], out["ts"], out["text"] = c.ID, m.TS, m.Text
		return ""
	case "chat.delete":
		if m.User != BotUser {
			return "cant_delete_message"
		}
		c.messages = slices.DeleteFunc(c.messages, func(one *Message) bool { return one == m })
		return ""
	case "reactions.get":
		var list []any
		for name, users := range m.Marks {
			list = append(list, map[string]any{"name": name, "users": users, "count": len(users)})
		}
		doc := s.document(m)
		doc["reactions"] = list
		out["type"], out["channel"], out["message"] = "message", c.ID, doc
		return ""
	case "reactions.add", "reactions.remove":
		call.Detail = p.Name
		return m.mark(p.Name, method == "reactions.add")
	}
	return "unknown_method"
}

func (m *Message) mark(name string, add bool) string {
	has := slices.Contains(m.Marks[name], BotUser)
	switch {
	case name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_+-:'") != "":
		return "invalid_name"
	case add && has:
		return "already_reacted"
	case !add && !has:
		return "no_reaction"
	}
	if m.Marks == nil {
		m.Marks = map[string][]string{}
	}
	if add {
		m.Marks[name] = append(m.Marks[name], BotUser)
	} else {
		m.Marks[name] = slices.DeleteFunc(m.Marks[name], func(u string) bool { return u == BotUser })
	}
	return ""
}

func (s *Server) post(c *channelState, p *params, call *Call, out map[string]any) string {
	buttons, word := check(p)
	switch {
	case c.Archived:
		return "is_archived"
	case c.Outside:
		return "not_in_channel"
	case word != "":
		return word
	case p.Thread != "" && c.message(p.Thread) == nil:
		return "thread_not_found"
	}
	key := ""
	if len(p.Metadata) > 0 {
		var m struct {
			Type    string         `json:"event_type"`
			Payload map[string]any `json:"event_payload"`
		}
		if json.Unmarshal(p.Metadata, &m) != nil || m.Type == "" || m.Payload == nil {
			return "invalid_metadata_format"
		}
		key, _ = m.Payload["key"].(string)
	}
	m := &Message{TS: s.ts(), Channel: c.Channel, User: BotUser, BotID: BotID, Text: p.Text, Thread: p.Thread, Buttons: buttons, Key: key, Quiet: p.quiet()}
	c.messages = append(c.messages, m)
	call.TS, call.Key, call.Buttons = m.TS, key, buttons
	out["channel"], out["ts"], out["message"] = c.ID, m.TS, s.document(m)
	// The platform reports the bot's own messages to it as well.
	doc := s.document(m)
	doc["channel"], doc["channel_type"] = c.ID, c.Type
	s.push(m.TS, doc)
	return ""
}

// check refuses the texts and blocks that the platform refuses, or cuts.
func check(p *params) (buttons []Button, word string) {
	switch n := utf8.RuneCountInString(p.Text); {
	case strings.TrimSpace(p.Text) == "":
		return nil, "no_text"
	case n > 4000:
		return nil, "msg_too_long"
	case len(p.Blocks) > 50:
		return nil, "invalid_blocks"
	}
	ids := map[string]bool{}
	for _, b := range p.Blocks {
		switch b.Type {
		case "section":
			if n := utf8.RuneCountInString(b.Text.Text); b.Text.Type != "mrkdwn" || n == 0 || n > 3000 {
				return nil, "invalid_blocks"
			}
		case "actions":
			if len(b.Elements) == 0 || len(b.Elements) > 25 {
				return nil, "invalid_blocks"
			}
			for _, e := range b.Elements {
				if e.Type != "button" || e.ID == "" || ids[e.ID] || e.Text.Type != "plain_text" || e.Text.Text == "" || utf8.RuneCountInString(e.Text.Text) > 75 || len(e.Value) > 2000 {
					return nil, "invalid_blocks"
				}
				ids[e.ID] = true
				buttons = append(buttons, Button{e.Text.Text, e.Value})
			}
		default:
			return nil, "invalid_blocks"
		}
	}
	return buttons, ""
}

// history lists a conversation from its last message on, or a thread from its first.
func (s *Server) history(method string, c *channelState, p *params, out map[string]any) string {
	thread := method == "conversations.replies"
	if thread && (!tsForm.MatchString(p.TS) || c.message(p.TS) == nil) {
		return "thread_not_found"
	}
	list := []map[string]any{}
	for _, m := range c.messages {
		if thread && m.TS != p.TS && (m.Thread != p.TS || m.TS <= p.Oldest) ||
			!thread && (m.Thread != "" && m.Subtype != "thread_broadcast" || m.TS <= p.Oldest) {
			continue
		}
		doc := s.document(m)
		if !p.All {
			delete(doc, "metadata")
		}
		if last := c.latestReply(m.TS); last != "" {
			doc["thread_ts"], doc["latest_reply"] = m.TS, last
		}
		list = append(list, doc)
	}
	if !thread {
		slices.Reverse(list)
	}
	limit := p.Limit
	if limit <= 0 || limit > 999 {
		limit = 100
	}
	// A cursor is the last message before the page, so that new messages move none.
	first := 0
	if p.Cursor != "" {
		first = slices.IndexFunc(list, func(doc map[string]any) bool { return doc["ts"] == p.Cursor }) + 1
		if first == 0 {
			return "invalid_cursor"
		}
	}
	list = list[first:]
	next := ""
	if len(list) > limit {
		list = list[:limit]
		next, _ = list[limit-1]["ts"].(string)
	}
	out["messages"], out["has_more"] = list, next != ""
	out["response_metadata"] = map[string]string{"next_cursor": next}
	return ""
}

// download serves the content of a file. Without the token it is a page to log in, as on the
// platform.
func (s *Server) download(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	content, known := s.files[r.URL.Path]
	fault := s.fault("file", "")
	s.mu.Unlock()
	if fault != nil && !s.disturb(w, r, fault) {
		return
	}
	switch {
	case r.Header.Get("Authorization") != "Bearer "+BotToken || fault != nil && fault.Body != "":
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, "<!DOCTYPE html><title>Sign in</title>") // a client that has gone away sees nothing
		return
	case !known:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.WriteHeader(http.StatusOK) // without a length: who reads must count
	for len(content) > 0 {
		n := min(len(content), 64<<10)
		if _, err := w.Write(content[:n]); err != nil {
			return
		}
		content = content[n:]
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
	}
}
