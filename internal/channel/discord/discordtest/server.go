package discordtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// BotID and BotName are who the bot of each token is.
const (
	BotID   = "900000000000000001"
	BotName = "demo_bot"
)

// User is a person or a bot.
type User struct {
	ID         string `json:"id"`
	Username   string `json:"username"`
	GlobalName string `json:"global_name,omitempty"`
	Bot        bool   `json:"bot,omitempty"`
}

// Channel is a conversation: type 0 is a text channel of a guild, 1 a direct one, 3 a group, 11 a
// thread.
type Channel struct {
	ID       string `json:"id"`
	Type     int    `json:"type"`
	GuildID  string `json:"guild_id,omitempty"`
	ParentID string `json:"parent_id,omitempty"`
	// Recipients are the people of a direct one.
	Recipients []User `json:"recipients,omitempty"`
}

// Message is one of a channel.
type Message struct {
	ID          string          `json:"id"`
	ChannelID   string          `json:"channel_id"`
	GuildID     string          `json:"guild_id,omitempty"`
	Author      User            `json:"author"`
	Content     string          `json:"content"`
	Timestamp   string          `json:"timestamp"`
	Edited      *string         `json:"edited_timestamp"`
	Mentions    []User          `json:"mentions"`
	Attachments json.RawMessage `json:"attachments"`
	Type        int             `json:"type"`
	Flags       int             `json:"flags"`
	Nonce       string          `json:"nonce,omitempty"`
	Reference   *Reference      `json:"message_reference,omitempty"`
	Referenced  *Message        `json:"referenced_message,omitempty"`
	Reactions   []Reaction      `json:"reactions,omitempty"`
	Components  []Row           `json:"components,omitempty"`
	// Notified is who is notified by it; it is not of the platform.
	Notified bool `json:"-"`
}

// Row is buttons of a message.
type Row struct {
	Type    int      `json:"type"`
	Buttons []Button `json:"components"`
}

// Button is one below a message.
type Button struct {
	Type    int    `json:"type"`
	Style   int    `json:"style"`
	Label   string `json:"label"`
	Command string `json:"custom_id"`
}

// Reference names the message that another one answers.
type Reference struct {
	ID        string `json:"message_id"`
	ChannelID string `json:"channel_id,omitempty"`
}

// Reaction is a mark of a message.
type Reaction struct {
	Me    bool `json:"me"`
	Count int  `json:"count"`
	Emoji struct {
		ID   *string `json:"id"`
		Name string  `json:"name"`
	} `json:"emoji"`
}

// Fault is what a request meets in place of its answer.
type Fault struct {
	// Status of the answer; 0: the connection is cut.
	Status int
	Body   string
	Header map[string]string
	// Acts means that the request has its effect all the same.
	Acts bool
	// Times that it happens; 0: once.
	Times int
}

// Server is the platform.
type Server struct {
	// URL is the address of the API.
	URL string

	token  string
	server *http.Server
	stop   context.CancelFunc
	served chan struct{}

	mu        sync.Mutex
	changed   chan struct{} // closed with each change of log
	log       []string
	channels  map[string]Channel
	people    map[string]User // who can be written to
	messages  map[string][]*Message
	files     map[string][]byte
	faults    map[string]*Fault
	nextID    int64
	heartbeat time.Duration
	mute      bool
	noContent bool
	nonces    bool
	starts    int
	sessions  map[string]*session
	sockets   sync.WaitGroup
}

// New starts a server for a bot.
func New(token string) (*Server, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{
		URL: "http://" + l.Addr().String(), token: token, stop: stop, served: make(chan struct{}),
		changed: make(chan struct{}), channels: map[string]Channel{}, people: map[string]User{}, messages: map[string][]*Message{}, files: map[string][]byte{},
		faults: map[string]*Fault{}, nextID: (time.Now().UnixMilli() - 1_420_070_400_000) << 22, heartbeat: 41250 * time.Millisecond, starts: 1000, sessions: map[string]*session{},
	}
	mux := http.NewServeMux()
	for pattern, h := range map[string]func(http.ResponseWriter, *http.Request){
		"GET /users/@me": s.me, "GET /gateway/bot": s.gateway, "GET /channels/{id}": s.channel, "POST /users/@me/channels": s.open,
		"GET /channels/{id}/messages": s.list, "POST /channels/{id}/messages": s.create, "POST /channels/{id}/typing": s.typing,
		"GET /channels/{id}/messages/{message}": s.one, "PATCH /channels/{id}/messages/{message}": s.edit,
		"POST /interactions/{id}/{token}/callback":                   s.confirm,
		"DELETE /channels/{id}/messages/{message}":                   s.remove,
		"PUT /channels/{id}/messages/{message}/reactions/{mark}/@me": s.react, "DELETE /channels/{id}/messages/{message}/reactions/{mark}/@me": s.react,
	} {
		verb, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(verb+" /api/v10"+path, s.guard(verb+" "+strings.NewReplacer("{id}", "ID", "{message}", "ID", "{mark}", "MARK", "{token}", "TOKEN").Replace(path), h))
	}
	mux.HandleFunc("GET /attachments/{name}", s.file)
	mux.HandleFunc("GET /gateway/", func(w http.ResponseWriter, r *http.Request) { s.accept(ctx, w, r) })
	s.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { defer close(s.served); _ = s.server.Serve(l) }()
	return s, nil
}

// Close stops the server.
func (s *Server) Close() {
	s.stop()
	_ = s.server.Close() // a test ends
	<-s.served
	s.sockets.Wait()
}

// Heartbeat sets how often new connections have to send heartbeats.
func (s *Server) Heartbeat(every time.Duration) { s.set(func() { s.heartbeat = every }) }

// Mute makes the gateway answer no heartbeats.
func (s *Server) Mute(on bool) { s.set(func() { s.mute = on }) }

// NoContent takes the intent for texts from the bot.
func (s *Server) NoContent(on bool) { s.set(func() { s.noContent = on }) }

// ListNonces makes lists of messages have their nonces.
func (s *Server) ListNonces(on bool) { s.set(func() { s.nonces = on }) }

// Starts sets how many sessions may still begin today.
func (s *Server) Starts(n int) { s.set(func() { s.starts = n }) }

// Token changes the token of the bot.
func (s *Server) Token(token string) { s.set(func() { s.token = token }) }

// AddChannel adds a conversation.
func (s *Server) AddChannel(c Channel) { s.set(func() { s.channels[c.ID] = c }) }

// AddUser adds a person whom the bot can write to.
func (s *Server) AddUser(u User) { s.set(func() { s.people[u.ID] = u }) }

// AddFile adds a file and returns its address.
func (s *Server) AddFile(name string, content []byte) string {
	s.set(func() { s.files[name] = content })
	return s.URL + "/attachments/" + name
}

// Fail makes a request, such as "POST /channels/ID/messages", meet a fault.
func (s *Server) Fail(request string, f Fault) {
	f.Times = max(f.Times, 1)
	s.set(func() { s.faults[request] = &f })
}

func (s *Server) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Log returns what happened: requests, and what clients sent over the gateway.
func (s *Server) Log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

func (s *Server) note(format string, a ...any) {
	s.log = append(s.log, fmt.Sprintf(format, a...))
	close(s.changed)
	s.changed = make(chan struct{})
}

// Wait waits until so many entries of the log begin with a text.
func (s *Server) Wait(ctx context.Context, begin string, n int) error {
	for {
		s.mu.Lock()
		changed, seen := s.changed, 0
		for _, l := range s.log {
			if strings.HasPrefix(l, begin) {
				seen++
			}
		}
		s.mu.Unlock()
		if seen >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d times %q: %w", seen, n, begin, ctx.Err())
		case <-changed:
		}
	}
}

// Messages returns those of a channel, oldest first.
func (s *Server) Messages(channel string) (list []Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.messages[channel] {
		list = append(list, *m)
	}
	return list
}

// Say writes a message and returns it. Its id and time are new unless it has them.
func (s *Server) Say(m Message) Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(m)
}

func (s *Server) add(m Message) Message {
	if m.ID == "" {
		s.nextID++
		m.ID = strconv.FormatInt(s.nextID, 10)
	}
	if m.Timestamp == "" {
		m.Timestamp = time.Now().UTC().Format("2006-01-02T15:04:05.000000+00:00")
	}
	if m.Mentions == nil {
		m.Mentions = []User{}
	}
	if m.Attachments == nil {
		m.Attachments = json.RawMessage("[]")
	}
	m.GuildID = s.channels[m.ChannelID].GuildID
	s.messages[m.ChannelID] = append(s.messages[m.ChannelID], &m)
	s.dispatch("MESSAGE_CREATE", m)
	return m
}

// Change gives a message another text.
func (s *Server) Change(channel, id, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.messages[channel] {
		if m.ID == id {
			now := time.Now().UTC().Format("2006-01-02T15:04:05.000000+00:00")
			m.Content, m.Edited = text, &now
			s.dispatch("MESSAGE_UPDATE", *m)
		}
	}
}

// answer writes a JSON document.
func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}

func refuse(w http.ResponseWriter, status, code int, message string) {
	answer(w, status, map[string]any{"message": message, "code": code})
}

// guard checks the token, and has faults happen. Handlers have the lock.
func (s *Server) guard(name string, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.note("%s", name)
		switch {
		case r.Header.Get("Authorization") != "Bot "+s.token:
			refuse(w, http.StatusUnauthorized, 0, "401: Unauthorized")
			return
		case !strings.HasPrefix(r.Header.Get("User-Agent"), "DiscordBot ("):
			refuse(w, http.StatusForbidden, 40333, "internal network error")
			return
		}
		f := s.faults[name]
		if f == nil {
			h(w, r)
			return
		}
		if f.Times--; f.Times == 0 {
			delete(s.faults, name)
		}
		if f.Acts {
			h(discard{}, r)
		}
		if f.Status == 0 {
			panic(http.ErrAbortHandler)
		}
		for k, v := range f.Header {
			w.Header().Set(k, v)
		}
		w.WriteHeader(f.Status)
		_, _ = w.Write([]byte(f.Body)) // the client may be gone
	}
}

// discard is an answer that is not sent.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

func (s *Server) bot() User { return User{ID: BotID, Username: BotName, Bot: true} }

func (s *Server) me(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, s.bot()) }

func (s *Server) gateway(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{
		"url": "ws" + strings.TrimPrefix(s.URL, "http") + "/gateway", "shards": 1,
		"session_start_limit": map[string]any{"total": 1000, "remaining": s.starts, "reset_after": 14400000, "max_concurrency": 1},
	})
}

// known answers 404 for a channel that there is not.
func (s *Server) known(w http.ResponseWriter, r *http.Request) (Channel, bool) {
	c, ok := s.channels[r.PathValue("id")]
	if !ok {
		refuse(w, http.StatusNotFound, 10003, "Unknown Channel")
	}
	return c, ok
}

func (s *Server) channel(w http.ResponseWriter, r *http.Request) {
	if c, ok := s.known(w, r); ok {
		answer(w, http.StatusOK, c)
	}
}

// open answers with the direct channel of a person, which it makes when there is none.
func (s *Server) open(w http.ResponseWriter, r *http.Request) {
	var p struct {
		Recipient string `json:"recipient_id"`
	}
	if json.NewDecoder(r.Body).Decode(&p) != nil || r.Header.Get("Content-Type") != "application/json" {
		refuse(w, http.StatusBadRequest, 50109, "The request body contains invalid JSON.")
		return
	}
	who, ok := s.people[p.Recipient]
	if !ok || who.Bot {
		refuse(w, http.StatusBadRequest, 50033, "Invalid Recipient(s)")
		return
	}
	for _, c := range s.channels {
		if c.Type == 1 && slices.ContainsFunc(c.Recipients, func(u User) bool { return u.ID == who.ID }) {
			answer(w, http.StatusOK, c)
			return
		}
	}
	s.nextID++
	c := Channel{ID: strconv.FormatInt(s.nextID, 10), Type: 1, Recipients: []User{who}}
	s.channels[c.ID] = c
	answer(w, http.StatusOK, c)
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	c, ok := s.known(w, r)
	limit, err := strconv.Atoi(r.FormValue("limit"))
	if !ok {
		return
	}
	if err != nil || limit < 1 || limit > 100 {
		refuse(w, http.StatusBadRequest, 50035, "Invalid Form Body")
		return
	}
	list, before := []Message{}, r.FormValue("before")
	for _, m := range slices.Backward(s.messages[c.ID]) {
		if len(list) < limit && (before == "" || m.ID < before) {
			without := *m
			without.GuildID = ""
			if !s.nonces {
				without.Nonce = ""
			}
			list = append(list, without)
		}
	}
	answer(w, http.StatusOK, list)
}

// posted is a message as a client sends it.
type posted struct {
	files   json.RawMessage // of a form
	Content string          `json:"content"`
	Nonce   string          `json:"nonce"`
	Enforce bool            `json:"enforce_nonce"`
	Flags   int             `json:"flags"`
	Rows    []Row           `json:"components"`
	Allowed *struct {
		Parse   []string `json:"parse"`
		Replied bool     `json:"replied_user"`
	} `json:"allowed_mentions"`
	Reference *struct {
		ID   string `json:"message_id"`
		Fail *bool  `json:"fail_if_not_exists"`
	} `json:"message_reference"`
}

// read reads a message, and refuses what the platform refuses.
func (s *Server) read(w http.ResponseWriter, r *http.Request) (p posted, ok bool) {
	doc, form := io.Reader(http.MaxBytesReader(w, r.Body, 1<<20)), false
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "multipart/form-data" {
		form = true
		r.Body = http.MaxBytesReader(w, r.Body, maxUpload+1<<20)
		if r.ContentLength <= 0 || r.ParseMultipartForm(1<<20) != nil {
			refuse(w, http.StatusBadRequest, 50035, "Invalid Form Body")
			return p, false
		}
		doc = strings.NewReader(r.FormValue("payload_json"))
		in, header, err := r.FormFile("files[0]")
		if err != nil || header.Size == 0 {
			refuse(w, http.StatusBadRequest, 50006, "Cannot send an empty message")
			return p, false
		}
		defer in.Close()
		if header.Size > maxUpload {
			refuse(w, http.StatusRequestEntityTooLarge, 40005, "Request entity too large")
			return p, false
		}
		content, err := io.ReadAll(in)
		if err != nil {
			refuse(w, http.StatusBadRequest, 50035, "Invalid Form Body")
			return p, false
		}
		s.files[header.Filename] = content
		p.files, _ = json.Marshal([]map[string]any{{ // of texts and numbers
			"id": "1", "filename": header.Filename, "size": header.Size, "content_type": header.Header.Get("Content-Type"), "url": s.URL + "/attachments/" + header.Filename,
		}})
	}
	d := json.NewDecoder(doc)
	d.DisallowUnknownFields()
	err := d.Decode(&p)
	switch {
	case err != nil || !form && r.Header.Get("Content-Type") != "application/json":
		refuse(w, http.StatusBadRequest, 50109, "The request body contains invalid JSON.")
	case p.files == nil && strings.TrimSpace(p.Content) == "":
		refuse(w, http.StatusBadRequest, 50006, "Cannot send an empty message")
	case utf8.RuneCountInString(p.Content) > 2000 || len(p.Nonce) > 25 || !valid(p.Rows):
		refuse(w, http.StatusBadRequest, 50035, "Invalid Form Body")
	default:
		return p, true
	}
	return p, false
}

// maxUpload is the largest file of a message.
const maxUpload = 10 << 20

// valid reports whether the platform takes such buttons.
func valid(rows []Row) bool {
	commands := map[string]bool{}
	for _, r := range rows {
		if r.Type != 1 || len(r.Buttons) == 0 || len(r.Buttons) > 5 {
			return false
		}
		for _, b := range r.Buttons {
			if b.Type != 2 || b.Style < 1 || b.Style > 4 || b.Label == "" || utf8.RuneCountInString(b.Label) > 80 ||
				b.Command == "" || utf8.RuneCountInString(b.Command) > 100 || commands[b.Command] {
				return false
			}
			commands[b.Command] = true
		}
	}
	return len(rows) <= 5
}

// Press has a person press a button of a message.
func (s *Server) Press(m Message, who User, command string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextID++
	id, c := strconv.FormatInt(s.nextID, 10), s.channels[m.ChannelID]
	p := map[string]any{
		"id": id, "application_id": BotID, "token": "aW50ZXJhY3Rpb24-" + id, "type": 3, "version": 1, "channel_id": c.ID, "channel": c,
		"data": map[string]any{"component_type": 2, "custom_id": command}, "message": m,
	}
	if c.GuildID == "" {
		p["user"] = who
	} else {
		p["guild_id"], p["member"] = c.GuildID, map[string]any{"user": who, "nick": nil, "permissions": "0"}
	}
	s.dispatch("INTERACTION_CREATE", p)
}

// confirm takes the answer to a button.
func (s *Server) confirm(w http.ResponseWriter, r *http.Request) {
	var p struct {
		Type int `json:"type"`
	}
	id := r.PathValue("id")
	if json.NewDecoder(r.Body).Decode(&p) != nil || p.Type != 6 || r.PathValue("token") != "aW50ZXJhY3Rpb24-"+id {
		refuse(w, http.StatusNotFound, 10062, "Unknown interaction")
		return
	}
	s.note("confirmed %s", id)
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	c, ok := s.known(w, r)
	if !ok {
		return
	}
	p, ok := s.read(w, r)
	if !ok {
		return
	}
	for _, m := range s.messages[c.ID] {
		if p.Enforce && p.Nonce != "" && m.Nonce == p.Nonce {
			answer(w, http.StatusOK, m)
			return
		}
	}
	m := Message{ChannelID: c.ID, Author: s.bot(), Content: strings.TrimSpace(p.Content), Nonce: p.Nonce, Flags: p.Flags, Components: p.Rows, Attachments: p.files}
	m.Notified = p.Allowed == nil || len(p.Allowed.Parse) > 0 || p.Allowed.Replied
	if p.Reference != nil {
		for _, old := range s.messages[c.ID] {
			if old.ID == p.Reference.ID {
				m.Type, m.Reference, m.Referenced = 19, &Reference{ID: old.ID, ChannelID: c.ID}, old
			}
		}
		if m.Reference == nil && (p.Reference.Fail == nil || *p.Reference.Fail) {
			refuse(w, http.StatusBadRequest, 50035, "Invalid Form Body")
			return
		}
	}
	answer(w, http.StatusOK, s.add(m))
}

func (s *Server) typing(w http.ResponseWriter, r *http.Request) {
	if c, ok := s.known(w, r); ok {
		s.note("typing %s", c.ID)
		w.WriteHeader(http.StatusNoContent)
	}
}

// message returns the one of a request.
func (s *Server) message(w http.ResponseWriter, r *http.Request) *Message {
	for _, m := range s.messages[r.PathValue("id")] {
		if m.ID == r.PathValue("message") {
			return m
		}
	}
	refuse(w, http.StatusNotFound, 10008, "Unknown Message")
	return nil
}

func (s *Server) one(w http.ResponseWriter, r *http.Request) {
	if m := s.message(w, r); m != nil {
		answer(w, http.StatusOK, m)
	}
}

// own refuses to change a message of another one.
func (s *Server) own(w http.ResponseWriter, r *http.Request) *Message {
	m := s.message(w, r)
	if m != nil && m.Author.ID != BotID {
		refuse(w, http.StatusForbidden, 50005, "Cannot edit a message authored by another user")
		return nil
	}
	return m
}

func (s *Server) edit(w http.ResponseWriter, r *http.Request) {
	m := s.own(w, r)
	if m == nil {
		return
	}
	if p, ok := s.read(w, r); ok {
		m.Content = p.Content
		m.Notified = m.Notified || p.Allowed == nil || len(p.Allowed.Parse) > 0
		answer(w, http.StatusOK, m)
	}
}

func (s *Server) remove(w http.ResponseWriter, r *http.Request) {
	if m := s.own(w, r); m != nil {
		s.messages[m.ChannelID] = slices.DeleteFunc(s.messages[m.ChannelID], func(o *Message) bool { return o == m })
		w.WriteHeader(http.StatusNoContent)
	}
}

func (s *Server) react(w http.ResponseWriter, r *http.Request) {
	m := s.message(w, r)
	if m == nil {
		return
	}
	mark := r.PathValue("mark")
	if utf8.RuneCountInString(mark) > 8 {
		refuse(w, http.StatusBadRequest, 10014, "Unknown Emoji")
		return
	}
	m.Reactions = slices.DeleteFunc(m.Reactions, func(o Reaction) bool { return o.Emoji.Name == mark })
	if r.Method == http.MethodPut {
		n := Reaction{Me: true, Count: 1}
		n.Emoji.Name = mark
		m.Reactions = append(m.Reactions, n)
	}
	w.WriteHeader(http.StatusNoContent)
}

// file serves a file. Its address is signed: a token has no place there.
func (s *Server) file(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	content, ok := s.files[r.PathValue("name")]
	s.mu.Unlock()
	if !ok || r.Header.Get("Authorization") != "" {
		http.Error(w, "This content is no longer available.", http.StatusNotFound)
		return
	}
	_, _ = w.Write(content) // the client may be gone
}
