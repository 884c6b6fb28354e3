package slacktest

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
	Address string // default 127.0.0.1:0
	// AckLimit is how long an envelope may be without an acknowledgement until it comes again;
	// default 3 s, as on the platform.
	AckLimit time.Duration
	// Tries is how often an event is delivered until it is given up; default 4, as on the platform.
	Tries int
	// OnCall is called after each call of a method, one at a time.
	OnCall func(Call)
	// OnAck is called with the ts of each message whose event the bot acknowledges. It must not
	// call the server.
	OnAck func(ts string)
}

// What the server accepts, and who the bot is.
const (
	BotToken = "xoxb-100-200-TEST-token-of-the-demo-bot"
	AppToken = "xapp-1-A0DEMO-300-TEST-token-of-the-demo-app"
	TeamID   = "T0DEMO"
	BotUser  = "U0BOT"
	BotID    = "B0BOT"
	BotName  = "demo_bot"
)

// Server is a workspace with one bot. It is safe for concurrent use.
type Server struct {
	cfg    Config
	listen net.Listener
	http   *http.Server
	served chan struct{}
	ctx    context.Context // ends with Close
	stop   context.CancelFunc
	work   sync.WaitGroup

	calling sync.Mutex // one OnCall at a time, in the order of the calls

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at each change
	channels map[string]*channelState
	users    map[string]User
	files    map[string][]byte
	uploads  map[string]*upload // by the ids of their files
	tickets  map[string]bool
	sockets  []*socket // open ones, the oldest first
	queue    []*event  // that are not acknowledged, in their order
	lastTS   int64
	lastID   int
	calls    []Call
	faults   []*Fault
	stats    Stats
}

// Stats are what a server counted.
type Stats struct {
	Events    int // that people caused
	Delivered int // sent to the bot at least once
	Acked     int
	Repeated  int // envelopes that were sent again, for want of an acknowledgement in time
	Late      int // acknowledgements of envelopes that were sent again before
	Lost      int // events that were given up: not acknowledged after all tries
	Sockets   int // that were opened
	Refused   int // calls that were answered with an error, faults included
}

// Call is a call of a method by the bot.
type Call struct {
	Method  string
	Channel string
	TS      string // of the message that was sent, edited, deleted or marked
	Thread  string
	Text    string
	Key     string // of the metadata
	Buttons []Button
	Quiet   bool   // it makes no mentions and no previews
	Detail  string // a mark, a status, the id of a person or of a file
	Error   string // that it was answered with
}

// Start serves a workspace until Close.
func Start(c Config) (*Server, error) {
	c.Address = cmp.Or(c.Address, "127.0.0.1:0")
	c.AckLimit = cmp.Or(c.AckLimit, 3*time.Second)
	c.Tries = cmp.Or(c.Tries, 4)
	l, err := net.Listen("tcp", c.Address)
	if err != nil {
		return nil, fmt.Errorf("serve the API of Slack: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{
		cfg: c, listen: l, served: make(chan struct{}), ctx: ctx, stop: stop, changed: make(chan struct{}),
		channels: map[string]*channelState{}, users: map[string]User{}, files: map[string][]byte{}, uploads: map[string]*upload{}, tickets: map[string]bool{},
		lastTS: time.Now().Unix(),
	}
	s.users[BotUser] = User{ID: BotUser, Name: BotName, RealName: "Demo", BotID: BotID}
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(s.served)
		_ = s.http.Serve(l) // ends with Close
	}()
	return s, nil
}

// URL is the address for the setting api.
func (s *Server) URL() string { return "http://" + s.listen.Addr().String() + "/api" }

// Resolve reads the references env:SLACK_BOT and env:SLACK_APP.
func (s *Server) Resolve(_ context.Context, ref string) (string, error) {
	switch ref {
	case "env:SLACK_BOT":
		return BotToken, nil
	case "env:SLACK_APP":
		return AppToken, nil
	}
	return "", errors.New("the environment variable is not set")
}

// Close ends all requests and sockets, and returns when nothing is served any more.
func (s *Server) Close() {
	s.stop()
	_ = s.http.Close() // of a listener and connections on loopback
	<-s.served
	s.Cut()
	s.work.Wait()
}

// Stats returns the counts.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
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

// Messages returns what a conversation shows of the bot: each message as it is now. Empty: of all
// conversations.
func (s *Server) Messages(channel string) (list []Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, c := range s.channels {
		if channel != "" && id != channel {
			continue
		}
		for _, m := range c.messages {
			if m.User == BotUser {
				list = append(list, *m)
			}
		}
	}
	slices.SortFunc(list, func(a, b Message) int { return cmp.Compare(a.TS, b.TS) })
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
// with the ts after. It returns the message.
func (s *Server) WaitText(ctx context.Context, text, after string) (found Message, err error) {
	err = s.Wait(ctx, func() bool {
		for _, m := range s.Messages("") {
			if m.TS > after && strings.Contains(m.Text, text) {
				found = m
				return true
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

// ts returns the next one. The lock is held.
func (s *Server) ts() string {
	s.lastTS++
	return fmt.Sprintf("%d.000100", s.lastTS)
}
