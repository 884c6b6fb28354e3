package slacktest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/coder/websocket"
)

// event is something that the bot has not acknowledged.
type event struct {
	ts, kind string
	payload  json.RawMessage
	tries    int
	envelope string // of the last delivery
	old      []string
	sent     time.Time
	socket   *socket
}

// socket is a connection of Socket Mode.
type socket struct {
	conn    *websocket.Conn
	out     chan []byte
	leaving bool // gets no further events
	mute    bool // reads nothing, not even pings
	end     context.CancelFunc
}

func (s *Server) push(ts string, event map[string]any) {
	s.lastID++
	s.enqueue(ts, "events_api", map[string]any{
		"token": "verification", "team_id": TeamID, "context_team_id": TeamID, "api_app_id": "A0DEMO", "event": event, "type": "event_callback",
		"event_id": fmt.Sprintf("Ev%06d", s.lastID), "event_time": time.Now().Unix(), "is_ext_shared_channel": false,
		"authorizations": []any{map[string]any{"team_id": TeamID, "user_id": BotUser, "is_bot": true}},
	})
}

func (s *Server) enqueue(ts, kind string, payload any) {
	doc, err := json.Marshal(payload)
	if err != nil {
		panic(err) // of the test
	}
	s.stats.Events++
	e := &event{ts: ts, kind: kind, payload: doc}
	s.queue = append(s.queue, e)
	s.deliver()
	s.touch()
}

// deliver sends what no open socket has, in its order. The lock is held.
func (s *Server) deliver() {
	var to *socket
	for _, one := range s.sockets {
		if !one.leaving {
			to = one
		}
	}
	if to == nil {
		return
	}
	kept := s.queue[:0]
	for _, e := range s.queue {
		if e.socket == nil && e.tries == s.cfg.Tries {
			s.stats.Lost++
			continue
		}
		kept = append(kept, e)
		if e.socket == nil {
			s.send(e, to)
		}
	}
	s.queue = kept
}

// send sends one event. The lock is held.
func (s *Server) send(e *event, to *socket) {
	s.lastID++
	if e.envelope != "" {
		e.old = append(e.old, e.envelope)
	}
	e.envelope = fmt.Sprintf("env-%06d", s.lastID)
	doc := map[string]any{"envelope_id": e.envelope, "type": e.kind, "payload": e.payload, "accepts_response_payload": e.kind != "events_api"}
	if e.kind == "events_api" {
		doc["retry_attempt"], doc["retry_reason"] = e.tries, ""
		if e.tries > 0 {
			doc["retry_reason"] = "timeout"
		}
	}
	if e.tries == 0 {
		s.stats.Delivered++
	} else {
		s.stats.Repeated++
	}
	e.tries++
	raw, err := json.Marshal(doc)
	if err != nil {
		panic(err) // of the test
	}
	select {
	case to.out <- raw:
		e.socket, e.sent = to, time.Now()
	default: // the socket is full; later
	}
}

// Forget gives up all events that are not acknowledged, as the platform does after some minutes.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Lost += len(s.queue)
	s.queue = nil
	s.touch()
}

// Repeat delivers the events that are not acknowledged once more, now.
func (s *Server) Repeat() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.queue {
		e.socket = nil
	}
	s.deliver()
	s.touch()
}

// Refresh announces the end of the sockets that are open, as the platform does each hour or so.
// They stay open until the next one is, and the bot ends them, or Cut does.
func (s *Server) Refresh(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.sockets {
		if !one.leaving {
			one.leaving = true
			one.out <- fmt.Appendf(nil, `{"type":"disconnect","reason":%q,"debug_info":{"host":"applink-1"}}`, reason)
		}
	}
}

// Cut closes all sockets; what was not acknowledged over them comes again.
func (s *Server) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.sockets {
		one.end()
	}
}

// CutLeaving closes the sockets whose end was announced, behind the announcement.
func (s *Server) CutLeaving() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.sockets {
		if one.leaving {
			one.out <- nil
		}
	}
}

// Mute makes the open sockets read nothing any more, as a network that lost its way does.
func (s *Server) Mute() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.sockets {
		one.mute = true
	}
}

// Open returns how many sockets are open.
func (s *Server) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sockets)
}

// link serves a socket.
func (s *Server) link(w http.ResponseWriter, r *http.Request) {
	ticket := r.URL.Query().Get("ticket")
	s.mu.Lock()
	valid := s.tickets[ticket]
	delete(s.tickets, ticket)
	fault := s.fault("socket", "")
	s.mu.Unlock()
	if fault != nil && !s.disturb(w, r, fault) {
		return
	}
	if !valid {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	ctx, end := context.WithCancel(s.ctx)
	one := &socket{conn: conn, out: make(chan []byte, 4096), end: end}
	defer func() { _ = conn.CloseNow() }()
	s.mu.Lock()
	if s.ctx.Err() != nil {
		s.mu.Unlock()
		end()
		return
	}
	s.work.Add(1)
	defer s.work.Done()
	s.stats.Sockets++
	s.sockets = append(s.sockets, one)
	one.out <- fmt.Appendf(nil, `{"type":"hello","num_connections":%d,"debug_info":{"host":"applink-1","build_number":1,"approximate_connection_time":18060},"connection_info":{"app_id":"A0DEMO"}}`, len(s.sockets))
	if fault != nil && fault.Body != "" {
		one.out <- []byte(fault.Body)
	}
	s.deliver()
	s.touch()
	s.mu.Unlock()
	s.work.Go(func() {
		defer end()
		s.feed(ctx, one)
	})
	for ctx.Err() == nil {
		s.mu.Lock()
		mute := one.mute
		s.mu.Unlock()
		if mute {
			<-ctx.Done()
			break
		}
		_, doc, err := conn.Read(ctx)
		if err != nil {
			break
		}
		s.acked(doc)
	}
	end()
	s.gone(one)
}

// gone forgets a socket; what it was sent comes again over another.
func (s *Server) gone(one *socket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, other := range s.sockets {
		if other == one {
			s.sockets = append(s.sockets[:i:i], s.sockets[i+1:]...)
			break
		}
	}
	for _, e := range s.queue {
		if e.socket == one {
			e.socket = nil
		}
	}
	s.deliver()
	s.touch()
}

// feed writes to a socket, and repeats what is not acknowledged in time.
func (s *Server) feed(ctx context.Context, one *socket) {
	t := time.NewTicker(s.cfg.AckLimit / 4)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			s.mu.Lock()
			for _, e := range s.queue {
				if e.socket == one && time.Since(e.sent) >= s.cfg.AckLimit {
					e.socket = nil
				}
			}
			s.deliver()
			s.touch()
			s.mu.Unlock()
		case doc := <-one.out:
			if doc == nil || one.conn.Write(ctx, websocket.MessageText, doc) != nil {
				return
			}
		}
	}
}

// acked takes an acknowledgement.
func (s *Server) acked(doc []byte) {
	var a struct {
		ID string `json:"envelope_id"`
	}
	if json.Unmarshal(doc, &a) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.touch()
	for i, e := range s.queue {
		if e.envelope == a.ID {
			s.stats.Acked++
			if s.cfg.OnAck != nil {
				s.cfg.OnAck(e.ts)
			}
			s.queue = append(s.queue[:i:i], s.queue[i+1:]...)
			return
		}
		for _, id := range e.old {
			if id == a.ID {
				s.stats.Late++
				return
			}
		}
	}
}
