package discordtest

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// session is one of the gateway. It outlives its connections.
type session struct {
	id     string
	events []json.RawMessage // as they were sent, from sequence 1
	socket *websocket.Conn   // nil: none is connected
}

// frameIn is what clients send.
type frameIn struct {
	Op   int             `json:"op"`
	Data json.RawMessage `json:"d"`
}

const contentIntent = 1 << 15

// dispatch sends an event to all sessions, also to those without a connection, which get it when
// they are resumed.
func (s *Server) dispatch(kind string, data any) {
	for _, one := range s.sessions {
		s.sendTo(one, kind, data)
	}
}

func (s *Server) sendTo(one *session, kind string, data any) {
	doc, err := json.Marshal(map[string]any{"op": 0, "t": kind, "s": len(one.events) + 1, "d": data})
	if err != nil {
		return // all that is sent can be encoded
	}
	one.events = append(one.events, doc)
	write(one.socket, doc)
}

func write(c *websocket.Conn, doc []byte) {
	if c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = c.Write(ctx, websocket.MessageText, doc) // what is lost is sent again when the session is resumed
}

// Send sends a frame to all connections: {"op":7,"d":null} asks for another connection,
// {"op":9,"d":false} ends the session.
func (s *Server) Send(doc string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.sessions {
		write(one.socket, []byte(doc))
	}
}

// Dispatch sends an event of any kind.
func (s *Server) Dispatch(kind, data string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dispatch(kind, json.RawMessage(data))
}

// Cut ends all connections, with a code or, for 0, without.
func (s *Server) Cut(code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.sessions {
		c := one.socket
		one.socket = nil
		switch {
		case c == nil:
		case code == 0:
			_ = c.CloseNow() // as a cable does
		default:
			s.sockets.Go(func() { _ = c.Close(websocket.StatusCode(code), "") })
		}
	}
}

// Forget ends all connections and sessions: none can be resumed.
func (s *Server) Forget() {
	s.Cut(0)
	s.set(func() { clear(s.sessions) })
}

// accept serves a connection.
func (s *Server) accept(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	if r.FormValue("v") != "10" || r.FormValue("encoding") != "json" {
		http.Error(w, "unknown version", http.StatusBadRequest)
		return
	}
	s.sockets.Add(1)
	defer s.sockets.Done()
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = c.CloseNow() }() // the end of a connection
	c.SetReadLimit(4096)
	s.mu.Lock()
	every := s.heartbeat
	s.mu.Unlock()
	write(c, []byte(`{"op":10,"d":{"heartbeat_interval":`+strconv.FormatInt(every.Milliseconds(), 10)+`}}`))
	var own *session
	for {
		within, cancel := context.WithTimeout(ctx, 20*every) // a client that sends no heartbeats is gone
		_, doc, err := c.Read(within)
		cancel()
		var f frameIn
		if err == nil && json.Unmarshal(doc, &f) != nil {
			_ = c.Close(4002, "Error while decoding payload.")
			err = errClosed
		}
		if err == nil {
			own, err = s.frame(c, own, f)
		}
		if err != nil {
			s.left(own, c)
			return
		}
	}
}

// left notes that a connection ended.
func (s *Server) left(own *session, c *websocket.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note("left")
	if own != nil && own.socket == c {
		own.socket = nil
	}
}

// closedError ends a connection.
type closedError struct{}

func (closedError) Error() string { return "closed" }

var errClosed = closedError{}

// frame does what a frame wants.
func (s *Server) frame(c *websocket.Conn, own *session, f frameIn) (*session, error) {
	code := 0
	s.mu.Lock()
	switch {
	case f.Op == 1:
		s.note("heartbeat %s", f.Data)
		if !s.mute {
			write(c, []byte(`{"op":11}`))
		}
	case f.Op != 2 && f.Op != 6:
		code = 4001
	case own != nil:
		code = 4005
	case f.Op == 2:
		own, code = s.identify(c, f.Data)
	default:
		own, code = s.resume(c, f.Data)
	}
	s.mu.Unlock()
	if code != 0 {
		_ = c.Close(websocket.StatusCode(code), "") // the client may be gone
		return own, errClosed
	}
	return own, nil
}

func (s *Server) identify(c *websocket.Conn, data json.RawMessage) (*session, int) {
	var in struct {
		Token      string            `json:"token"`
		Intents    *int64            `json:"intents"`
		Properties map[string]string `json:"properties"`
	}
	switch err := json.Unmarshal(data, &in); {
	case err != nil || in.Properties == nil:
		return nil, 4002
	case in.Token != s.token:
		s.note("refused token")
		return nil, 4004
	case in.Intents == nil:
		return nil, 4013
	case s.noContent && *in.Intents&contentIntent != 0:
		return nil, 4014
	}
	s.starts--
	own := &session{id: "session" + strconv.Itoa(len(s.log)), socket: c}
	s.sessions[own.id] = own
	s.note("identify %d", *in.Intents)
	s.sendTo(own, "READY", map[string]any{
		"v": 10, "user": s.bot(), "guilds": []any{}, "session_id": own.id, "resume_gateway_url": "ws" + strings.TrimPrefix(s.URL, "http") + "/gateway",
		"application": map[string]any{"id": BotID, "flags": 0},
	})
	return own, 0
}

func (s *Server) resume(c *websocket.Conn, data json.RawMessage) (*session, int) {
	var in struct {
		Token    string `json:"token"`
		Session  string `json:"session_id"`
		Sequence int    `json:"seq"`
	}
	if json.Unmarshal(data, &in) != nil {
		return nil, 4002
	}
	if in.Token != s.token {
		return nil, 4004
	}
	own := s.sessions[in.Session]
	if own == nil {
		s.note("resume refused")
		write(c, []byte(`{"op":9,"d":false}`))
		return nil, 0
	}
	if in.Sequence < 0 || in.Sequence > len(own.events) {
		s.note("resume of a wrong sequence %d", in.Sequence)
		delete(s.sessions, in.Session)
		return nil, 4007
	}
	if own.socket != nil {
		_ = own.socket.CloseNow() // one connection has a session
	}
	own.socket = c
	s.note("resume %d", in.Sequence)
	for _, doc := range own.events[in.Sequence:] {
		write(c, doc)
	}
	s.sendTo(own, "RESUMED", map[string]any{})
	return own, 0
}
