package telegramtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Config is how a server starts. The zero value is ready to use.
type Config struct {
	Address  string // default 127.0.0.1:0
	Token    string // default DefaultToken
	Username string // of the bot; default demo_bot
	// OnCall is called after each call of a method, one at a time, and before Calls has it.
	OnCall func(Call)
	// OnAck is called with the number of each update that the bot acknowledges, before it is
	// forgotten. It must not call the server.
	OnAck func(update int64)
}

// DefaultToken is the token of a bot with the id 4242.
const DefaultToken = "4242:TEST-token_of-the-demo-bot"

// Server is a Bot API with one bot. It is safe for concurrent use.
type Server struct {
	cfg    Config
	bot    User
	listen net.Listener
	http   *http.Server
	served chan struct{}
	ctx    context.Context // ends with Close
	stop   context.CancelFunc

	calling sync.Mutex // one OnCall at a time, in the order of the calls

	mu          sync.Mutex
	changed     chan struct{} // closed and replaced at each change
	queue       []*queued
	head        int // of queue: what is before it was acknowledged
	nextUpdate  int64
	nextMessage int64
	chats       map[int64]*chatState
	files       map[string]*fileState
	calls       []Call
	faults      []*Fault
	poll        int // the number of the newest getUpdates
	repeat      int // acknowledged updates that the next answer has once more
	stats       Stats
	underway    map[string]int // calls without an answer, by method
}

// Stats are what a server counted.
type Stats struct {
	Updates   int `json:"updates"`   // that people caused
	Returned  int `json:"returned"`  // returned at least once
	Acked     int `json:"acked"`     // acknowledged
	Lost      int `json:"lost"`      // acknowledged without ever having been returned
	Repeated  int `json:"repeated"`  // returned again after they had been acknowledged
	Conflicts int `json:"conflicts"` // polls that ended because another began
	Polls     int `json:"polls"`
	Refused   int `json:"refused"` // calls that were answered with an error, faults included
}

// Call is a call of a method by the bot.
type Call struct {
	Method    string    `json:"method"`
	Chat      int64     `json:"chat,omitempty"`
	MessageID int64     `json:"message_id,omitempty"` // that was sent, edited, deleted or marked
	Text      string    `json:"text,omitempty"`
	Entities  []Entity  `json:"entities,omitempty"`
	Thread    int64     `json:"message_thread_id,omitempty"`
	ReplyTo   int64     `json:"reply_to,omitempty"`
	Buttons   []Button  `json:"buttons,omitempty"`
	NoPreview bool      `json:"no_preview,omitempty"`
	Detail    string    `json:"detail,omitempty"` // an action, a mark, the id of a callback or of a file
	Status    int       `json:"status"`
	At        time.Time `json:"at"`
}

// Start serves a Bot API until Close.
func Start(c Config) (*Server, error) {
	c.Address = cmp.Or(c.Address, "127.0.0.1:0")
	c.Token = cmp.Or(c.Token, DefaultToken)
	c.Username = cmp.Or(c.Username, "demo_bot")
	var id int64
	if _, err := fmt.Sscanf(c.Token, "%d:", &id); err != nil || id <= 0 {
		return nil, errors.New("a token has the form 123456:ABC")
	}
	l, err := net.Listen("tcp", c.Address)
	if err != nil {
		return nil, fmt.Errorf("serve the Bot API: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{
		cfg: c, bot: User{ID: id, IsBot: true, FirstName: "Demo", Username: c.Username},
		listen: l, served: make(chan struct{}), ctx: ctx, stop: stop, changed: make(chan struct{}),
		nextUpdate: 9001, nextMessage: 5501, chats: map[int64]*chatState{}, files: map[string]*fileState{}, underway: map[string]int{},
	}
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(s.served)
		_ = s.http.Serve(l) // ends with Close
	}()
	return s, nil
}

// URL is the address for the setting api.
func (s *Server) URL() string { return "http://" + s.listen.Addr().String() }

// Token is the token of the bot.
func (s *Server) Token() string { return s.cfg.Token }

// Bot is the bot.
func (s *Server) Bot() User { return s.bot }

// Close ends all requests, and returns when nothing is served any more.
func (s *Server) Close() {
	s.stop()
	_ = s.http.Close() // of a listener and sockets on loopback
	<-s.served
}

// Stats returns the counts.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Underway returns how many calls of a method have no answer yet.
func (s *Server) Underway(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.underway[method]
}

// Calls returns the calls of a method, in their order; empty: those of all.
func (s *Server) Calls(method string) (list []Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if method == "" || c.Method == method {
			list = append(list, c)
		}
	}
	return list
}

// Messages returns what a chat shows of the bot: each message as it is now. 0: of all chats.
func (s *Server) Messages(chat int64) (list []Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, c := range s.chats {
		if chat != 0 && id != chat {
			continue
		}
		for _, m := range c.messages {
			if m.From != nil && m.From.ID == s.bot.ID {
				list = append(list, *m)
			}
		}
	}
	slices.SortFunc(list, func(a, b Message) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// Wait waits until a condition holds, which is checked after each change. The condition may call
// the methods of s.
func (s *Server) Wait(ctx context.Context, holds func() bool) error {
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if holds() {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the bot: %w", ctx.Err())
		case <-s.ctx.Done():
			return errors.New("wait for the bot: the server was closed")
		case <-changed:
		}
	}
}

// WaitText waits until the bot sent, or edited, a message that contains a text, after the message
// with the id after. It returns the message.
func (s *Server) WaitText(ctx context.Context, text string, after int64) (found Message, err error) {
	err = s.Wait(ctx, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, c := range s.calls {
			if c.Status == http.StatusOK && (c.Method == "sendMessage" || c.Method == "editMessageText") && c.MessageID > after && strings.Contains(c.Text, text) {
				if m := s.chats[c.Chat].message(c.MessageID); m != nil {
					found = *m
					return true
				}
			}
		}
		return false
	})
	return found, err
}

// touch wakes those who wait for a change. The lock is held.
func (s *Server) touch() {
	close(s.changed)
	s.changed = make(chan struct{})
}
