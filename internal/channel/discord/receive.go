package discord

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/history"
	"github.com/theclaw/agents/internal/pause"
)

const (
	// maxFrame is the most bytes of a frame. Those of messages are far smaller.
	maxFrame = 8 << 20
	// dialLimit bounds the time until a connection says hello.
	dialLimit = 30 * time.Second
	// writeLimit bounds the writing of a frame.
	writeLimit = 10 * time.Second
	// steady is how long a connection lives that is no reason to wait before the next one, as is one
	// over which something came.
	steady = 30 * time.Second
	// maxQuick is how many other ones may follow each other.
	maxQuick = 5
	// invalidWait bounds the wait after a session was refused, as the platform demands.
	invalidWait = 5 * time.Second
	// leastHeartbeat is the shortest time between two heartbeats.
	leastHeartbeat = 5 * time.Millisecond
	// maxUnanswered is how many heartbeats without an answer end a connection.
	maxUnanswered = 2
	// pressedLimit bounds the confirmation of a button, which the platform waits 3 s for.
	pressedLimit = 3 * time.Second
	maxPressed   = 64
	// confirmed is the answer to a button that changes nothing on the screen.
	confirmed = 6
)

// Operations of frames.
const (
	opDispatch       = 0
	opHeartbeat      = 1
	opIdentify       = 2
	opResume         = 6
	opReconnect      = 7
	opInvalidSession = 9
	opHello          = 10
	opAnswered       = 11
)

// intents are the events that the gateway is asked for: messages of guilds and direct ones, with
// their texts. Channels are asked for one by one: a session that is resumed lists none.
const intents = 1<<9 | 1<<12 | 1<<15

// Codes with which the platform closes a connection.
const (
	closedToken     = 4004
	closedSequence  = 4007
	closedTimeout   = 4009
	closedSharding  = 4011
	closedIntents   = 4014
	closedNotBefore = 4003
)

var (
	// errLost reports that the session cannot be resumed.
	errLost = errors.New("the session is lost")
	// errReconnect is the wish of the platform.
	errReconnect = errors.New("the platform wants another connection")
	// errSilent replaces a connection that does not answer.
	errSilent = fmt.Errorf("%d heartbeats were not answered", maxUnanswered)
)

// again is the wait before another connection.
var again = pause.Backoff{First: 50 * time.Millisecond, Last: 5 * time.Second}

// receiver takes in the messages of one account.
type receiver struct {
	name        string
	definition  channel.Definition
	resolve     channel.Resolve
	invalidWait time.Duration
}

// Receive implements [channel.Receiver].
func (r *receiver) Receive(ctx context.Context, in channel.Intake) error {
	c := newClient(r.name, r.definition, r.resolve, channel.NewTransport())
	defer c.transport.CloseIdleConnections()
	err := r.receive(ctx, c, in)
	if ctx.Err() != nil {
		return nil
	}
	return c.down(err)
}

func (r *receiver) receive(ctx context.Context, c *client, in channel.Intake) error {
	token, err := c.token(ctx)
	if err != nil {
		return err
	}
	who, err := c.identify(ctx, token)
	if err != nil {
		return err
	}
	if err := in.Connected(who.ID, "@"+who.Username); err != nil {
		return err
	}
	value, err := in.Cursor(ctx, cursorName)
	if err != nil {
		return fmt.Errorf("read the cursor: %w", err)
	}
	p := newPosition(value, c.api, func(value string) { in.Keep(cursorName, value) })
	defer p.close()

	seen, err := history.Load(ctx, in, written)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	s := &stream{
		reader: newReader(c, token, who), position: p, seen: seen, intake: in, pressed: make(chan pressed, maxPressed), waiting: newWaiting(), running: &running,
	}
	running.Go(func() { s.confirm(ctx) })
	defer running.Wait()
	defer cancel()
	for quick := 0; ; {
		_, _, before := p.resume()
		began := time.Now()
		ready, err := s.connect(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if ended, ok := errors.AsType[*final](err); ok {
			return ended.error
		}
		lost := errors.Is(err, errLost)
		if !ready && !lost {
			return err
		}
		wait := again.Wait(quick)
		if _, _, last := p.resume(); last > before+1 || time.Since(began) > steady { // one more is of RESUMED
			quick, wait = 0, 0
		}
		if quick++; quick >= maxQuick {
			return err
		}
		if lost {
			p.forget()
			wait = r.invalidWait/5 + rand.N(r.invalidWait*4/5)
		}
		if err := pause.For(ctx, wait); err != nil {
			return err
		}
	}
}

// final is an error after which another connection is of no use.
type final struct{ error }

// stream is the messages of an account, over one connection after the other.
type stream struct {
	*reader
	position *position
	seen     *history.Positions
	intake   channel.Intake
	pressed  chan pressed // buttons whose commands are stored
	waiting  *waiting
	running  *sync.WaitGroup // what goes on next to the connections
}

// frame is what the gateway and its clients send.
type frame struct {
	Op       int             `json:"op"`
	Data     json.RawMessage `json:"d"`
	Sequence int64           `json:"s,omitempty"`
	Type     string          `json:"t,omitempty"`
}

// connect follows one connection to its end, which is always an error. ready means that its session
// began or went on.
func (s *stream) connect(receiving context.Context) (ready bool, err error) {
	session, url, last := s.position.resume()
	if url == "" || !s.trusted(url) {
		if url, err = s.gateway(receiving); err != nil {
			return false, err
		}
	}
	// What is on its way when the connection ends is stored all the same.
	take := func(u channel.Update, stored func()) error { return s.intake.Take(receiving, u, stored) }
	ctx, cancel := context.WithCancelCause(receiving)
	defer cancel(nil)
	conn, hello, err := s.dial(ctx, url)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.CloseNow() }() // a closing handshake would end the session
	l := &link{
		conn: conn, take: take,
		catchUp: func(stored func()) error { return s.catchUp(receiving, stored) },
		find:    func(id string) { s.running.Go(func() { s.find(receiving, id) }) },
	}
	l.last.Store(last)
	var beating sync.WaitGroup
	beating.Go(func() { l.beat(ctx, hello, cancel) })
	defer beating.Wait()
	defer cancel(nil)

	if session != "" {
		err = l.write(ctx, opResume, map[string]any{"token": s.token, "session_id": session, "seq": last})
	} else {
		err = l.write(ctx, opIdentify, map[string]any{
			"token": s.token, "intents": intents,
			"properties": map[string]string{"os": "linux", "browser": "theclaw", "device": "theclaw"},
		})
	}
	for err == nil {
		var f frame
		if f, err = l.read(ctx); err == nil {
			err = s.handle(ctx, l, f, &ready)
		}
	}
	if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
		err = cause
	}
	return ready, s.closed(err)
}

// gateway asks where the gateway is, and whether another session may begin.
func (s *stream) gateway(ctx context.Context) (string, error) {
	var g struct {
		URL   string `json:"url"`
		Limit struct {
			Total      int64   `json:"total"`
			Remaining  int64   `json:"remaining"`
			ResetAfter float64 `json:"reset_after"` // ms
		} `json:"session_start_limit"`
	}
	_, err := s.call(ctx, s.token, request{what: "gateway/bot", verb: http.MethodGet, path: "/gateway/bot"}, &g)
	if err != nil {
		return "", err
	}
	if g.Limit.Total > 0 && g.Limit.Remaining <= 0 {
		return "", &channel.Error{
			Class: channel.Unavailable, What: "discord permits no further session of this bot today",
			RetryAfter: max(duration(g.Limit.ResetAfter/1000), time.Second), Fix: "wait; find out why so many sessions began",
		}
	}
	if !s.trusted(g.URL) {
		return "", &failure{what: "gateway/bot", why: "the answer names no gateway of the platform"}
	}
	return g.URL, nil
}

// dial opens a connection and waits for its hello, which says how often the heart beats.
func (s *stream) dial(ctx context.Context, url string) (*websocket.Conn, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	conn, res, err := websocket.Dial(ctx, url+"/?v=10&encoding=json", &websocket.DialOptions{ //nolint:bodyclose // the connection has it
		HTTPClient: &http.Client{
			Transport:     s.transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		HTTPHeader: http.Header{"User-Agent": {agent}},
	})
	if err != nil {
		status := 0
		if res != nil {
			status = res.StatusCode
		}
		return nil, 0, &failure{what: "gateway", why: fmt.Sprintf("cannot be reached (status %d)", status), err: err}
	}
	conn.SetReadLimit(maxFrame)
	f, err := (&link{conn: conn}).read(ctx)
	var hello struct {
		Interval int64 `json:"heartbeat_interval"` // ms
	}
	if err == nil && (f.Op != opHello || json.Unmarshal(f.Data, &hello) != nil || hello.Interval <= 0) {
		err = &failure{what: "gateway", why: "does not begin with a hello"}
	}
	if err != nil {
		_ = conn.CloseNow() // nothing began on it
		return nil, 0, s.closed(err)
	}
	return conn, max(time.Duration(hello.Interval)*time.Millisecond, leastHeartbeat), nil
}

// closed says what the end of a connection means.
func (s *stream) closed(err error) error {
	code := websocket.CloseStatus(err)
	switch code {
	case closedToken:
		return &final{s.tokenRefused(err)}
	case closedIntents:
		return &final{&channel.Error{
			Class: channel.Unavailable, Reason: channel.ReasonAuth, What: "discord does not let the bot of " + s.name + " read messages",
			Fix: "enable the Message Content Intent of the bot in the developer portal, then restart the account", Err: err,
		}}
	case closedSharding:
		return &final{&channel.Error{
			Class: channel.Unavailable, Reason: channel.ReasonAuth, What: "the bot of " + s.name + " is in more guilds than one connection may have",
			Fix: "remove it from guilds, then restart the account", Err: err,
		}}
	case closedSequence, closedTimeout, closedNotBefore:
		return fmt.Errorf("%w: closed with %d", errLost, code)
	case -1:
		return err
	}
	return &failure{what: "gateway", why: fmt.Sprintf("closed the connection with %d", code), err: err}
}

// handle does what a frame wants.
func (s *stream) handle(ctx context.Context, l *link, f frame, ready *bool) error {
	switch f.Op {
	case opHeartbeat:
		return l.heartbeat(ctx)
	case opAnswered:
		l.unanswered.Store(0)
	case opReconnect:
		return errReconnect
	case opInvalidSession:
		if string(f.Data) == "true" {
			return errReconnect
		}
		return errLost
	case opDispatch:
		if f.Type == "READY" || f.Type == "RESUMED" {
			*ready = true
		}
		return s.dispatch(ctx, l, f)
	}
	return nil
}

// dispatch takes an event. While it waits for the intake nothing is read, also no answer to a
// heartbeat.
func (s *stream) dispatch(ctx context.Context, l *link, f frame) error {
	if f.Type == "READY" {
		var began struct {
			Session string `json:"session_id"`
			URL     string `json:"resume_gateway_url"`
		}
		if err := json.Unmarshal(f.Data, &began); err != nil || began.Session == "" {
			return &failure{what: "gateway", why: "a session without an id", err: err}
		}
		s.position.begin(began.Session, began.URL)
	}
	if !s.position.fresh(f.Sequence) {
		return nil
	}
	l.busy.Store(true)
	defer l.busy.Store(false)
	e, ok := s.event(f)
	waits := ok && s.waiting.has(e.ChannelID)
	var where place
	if ok && !waits {
		var err error
		if where, err = s.place(ctx, e.ChannelID); passing(err) {
			waits = true
		} else if err != nil {
			return err
		}
	}
	if waits {
		select {
		case s.waiting.space <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	stored := s.position.take(f.Sequence)
	l.last.Store(f.Sequence)
	switch {
	case f.Type == "READY":
		return l.catchUp(stored)
	case !ok:
		if f.Type != "RESUMED" { // which is of the connection
			s.intake.Ignored()
		}
		stored()
		return nil
	case waits:
		if s.waiting.add(queued{e, stored}) {
			l.find(e.ChannelID)
		}
		return nil
	}
	u, done := s.say(e, where)
	if err := l.take(u, func() { stored(); done() }); err != nil {
		return &final{fmt.Errorf("take a message: %w", err)}
	}
	return nil
}

// catchUp takes what was written before a session began, as far as it can be fetched. stored runs when
// all of it is stored: a start before that begins another session, and fetches the rest.
func (s *stream) catchUp(receiving context.Context, stored func()) error {
	g := s.seen.Gap(s.intake, pageSize, stored)
	more, err := g.Fetch(receiving, s.reader)
	if err != nil {
		return &final{fmt.Errorf("take a message: %w", err)}
	}
	if more {
		other := newReader(s.client, s.token, s.who)            // s.reader is in use
		s.running.Go(func() { _ = g.Finish(receiving, other) }) // it ends early with the account alone
	}
	return nil
}

// event is a message that was written or changed, or a button that was pressed.
type event struct {
	message
	edit    bool
	pressed pressed
}

// event reads an event; false: it is none for the account.
func (s *stream) event(f frame) (e event, ok bool) {
	switch f.Type {
	case "MESSAGE_CREATE", "MESSAGE_UPDATE":
		e.edit = f.Type == "MESSAGE_UPDATE"
		ok = json.Unmarshal(f.Data, &e.message) == nil && e.says(e.edit, s.who)
	case "INTERACTION_CREATE":
		if json.Unmarshal(f.Data, &e.pressed) == nil {
			e.message, ok = e.pressed.message()
		}
	}
	return e, ok
}

// say returns the update of an event in a channel. done runs when it is stored.
func (s *stream) say(e event, where place) (u channel.Update, done func()) {
	u = s.read(&e.message, e.edit, where)
	switch {
	case u.EditOf != "":
		return u, func() {}
	case e.pressed.ID == "":
		return u, func() { s.seen.Stored(u) }
	}
	u.Key, u.Mentioned = s.key(e.ChannelID, "i"+e.pressed.ID), true // a message has buttons that are pressed more than once
	return u, func() {
		select {
		case s.pressed <- e.pressed:
		default: // shows as failed to who pressed it
		}
	}
}

// confirm shows people that the button they pressed was noticed, until ctx ends. What is lost of
// it shows to them as a failure, and has no other effect.
func (s *stream) confirm(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-s.pressed:
			within, cancel := context.WithTimeout(ctx, pressedLimit)
			_, _ = s.call(within, s.token, request{
				what: "interaction", verb: http.MethodPost, path: "/interactions/" + p.ID + "/" + p.Token + "/callback",
				in: map[string]int{"type": confirmed},
			}, nil)
			cancel()
		}
	}
}

// link is one connection.
type link struct {
	conn       *websocket.Conn
	take       func(channel.Update, func()) error
	catchUp    func(stored func()) error
	find       func(id string) // begins to ask for a channel
	last       atomic.Int64    // sequence that the next heartbeat states
	unanswered atomic.Int32    // heartbeats
	busy       atomic.Bool     // nothing is read now
}

func (l *link) read(ctx context.Context) (frame, error) {
	_, doc, err := l.conn.Read(ctx)
	if err != nil {
		return frame{}, fmt.Errorf("read of the gateway: %w", err)
	}
	var f frame
	if err := json.Unmarshal(doc, &f); err != nil {
		return frame{}, &failure{what: "gateway", why: "a frame cannot be read", err: err}
	}
	return f, nil
}

func (l *link) write(ctx context.Context, op int, data any) error {
	doc, err := json.Marshal(map[string]any{"op": op, "d": data})
	if err != nil {
		return fmt.Errorf("encode a frame: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	if err := l.conn.Write(ctx, websocket.MessageText, doc); err != nil {
		return fmt.Errorf("write to the gateway: %w", err)
	}
	return nil
}

func (l *link) heartbeat(ctx context.Context) error {
	var sequence any // null before the first event
	if last := l.last.Load(); last > 0 {
		sequence = last
	}
	return l.write(ctx, opHeartbeat, sequence)
}

// beat sends heartbeats until ctx ends. It ends the connection when they are not answered, but not
// for the time in which no answer could be read.
func (l *link) beat(ctx context.Context, interval time.Duration, end context.CancelCauseFunc) {
	for wait := cmp.Or(rand.N(interval), interval); pause.For(ctx, wait) == nil; wait = interval {
		switch {
		case l.busy.Load():
			l.unanswered.Store(0)
		case l.unanswered.Load() >= maxUnanswered:
			end(errSilent)
			return
		}
		l.unanswered.Add(1)
		if err := l.heartbeat(ctx); err != nil {
			end(err)
			return
		}
	}
}
