package slack

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/theclaw/agents/internal/channel"
)

const (
	methodOpen = "apps.connections.open"
	// maxFrame is the most bytes of an envelope.
	maxFrame = 4 << 20
	// writeLimit bounds the way of an acknowledgement.
	writeLimit = 10 * time.Second
	// helloLimit is when a connection without a greeting is given up.
	helloLimit = 30 * time.Second
	// lingerLimit is how long a connection that has a successor may still be used: what came over it
	// is acknowledged over it. The platform itself ends it after some seconds.
	lingerLimit = time.Minute
	// maxAcks is how many acknowledgements may wait; further ones are lost, and their envelopes come
	// again.
	maxAcks = 1024
)

// pace is how often the platform is asked whether it is there. One that does not answer for the
// limit is gone.
type pace struct{ every, limit time.Duration }

var pings = pace{15 * time.Second, 30 * time.Second}

// envelope is what the platform sends over a socket.
type envelope struct {
	Type    string          `json:"type"`
	ID      string          `json:"envelope_id"`
	Reason  string          `json:"reason"` // of a disconnect
	Payload json.RawMessage `json:"payload"`
	socket  *socket
}

// ack acknowledges an envelope: the platform forgets it.
func (e envelope) ack() {
	if e.ID == "" {
		return
	}
	select {
	case e.socket.acks <- e.ID:
	default:
	}
}

// socket is a connection of Socket Mode.
type socket struct {
	conn *websocket.Conn
	acks chan string
	// leaving is closed when the platform announces the end of the connection.
	leaving chan struct{}
	once    sync.Once
	// full is set while envelopes wait that are not taken: answers to pings wait behind them.
	full atomic.Bool
}

// connect opens a connection, and waits for its greeting.
func (c *client) connect(ctx context.Context) (*socket, error) {
	token, err := c.appToken(ctx)
	if err != nil {
		return nil, err
	}
	var a struct {
		URL string `json:"url"`
	}
	if err := c.read(ctx, token, methodOpen, nil, &a); err != nil {
		return nil, err
	}
	u, err := url.Parse(a.URL)
	local := err == nil && u.Scheme == "ws" && channel.Loopback(u.Hostname()) && c.api != publicAPI
	if err != nil || u.Host == "" || u.Scheme != "wss" && !local {
		return nil, &failure{method: methodOpen, why: "the answer has no address of a socket"}
	}
	ctx, cancel := context.WithTimeout(ctx, helloLimit)
	defer cancel()
	conn, res, err := websocket.Dial(ctx, a.URL, &websocket.DialOptions{HTTPClient: &http.Client{
		Transport:     c.transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}})
	if err != nil { // the error quotes the address, which has a ticket
		why := u.Host + " cannot be reached"
		if res != nil {
			why = fmt.Sprintf("%s answered %d", u.Host, res.StatusCode)
			_ = res.Body.Close() // nothing of it is used
		}
		return nil, &failure{method: "socket", why: why, cause: err}
	}
	conn.SetReadLimit(maxFrame)
	s := &socket{conn: conn, acks: make(chan string, maxAcks), leaving: make(chan struct{})}
	e, err := s.receive(ctx)
	if err == nil && e.Type != "hello" {
		err = leave(e)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// leave says why the platform ends a connection.
func leave(e envelope) error {
	if e.Type == "disconnect" && e.Reason == "link_disabled" {
		return &failure{method: "socket", why: "Socket Mode is switched off in the settings of the app"}
	}
	return &failure{method: "socket", why: "the platform ended the connection"}
}

func (s *socket) close() { _ = s.conn.CloseNow() } // it is given up

// receive reads the next envelope. One that is no JSON object is skipped: it cannot be
// acknowledged.
func (s *socket) receive(ctx context.Context) (envelope, error) {
	for {
		kind, doc, err := s.conn.Read(ctx)
		if err != nil {
			return envelope{}, &failure{method: "socket", why: "the connection was lost", cause: err}
		}
		e := envelope{socket: s}
		if kind == websocket.MessageText && json.Unmarshal(doc, &e) == nil {
			return e, nil
		}
	}
}

// run passes envelopes on until the connection is lost or ctx ends.
func (s *socket) run(ctx context.Context, out chan<- envelope) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer cancel(nil)
	defer s.close()
	helpers.Go(func() { cancel(s.write(ctx)) })
	helpers.Go(func() { cancel(s.ping(ctx)) })
	for {
		e, err := s.receive(ctx)
		switch {
		case err != nil:
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return err
		case e.Type == "disconnect" && e.Reason == "link_disabled":
			return leave(e)
		case e.Type == "disconnect":
			s.once.Do(func() { close(s.leaving) })
			continue
		case e.ID == "":
			continue
		}
		s.full.Store(len(out) == cap(out))
		select {
		case out <- e:
			s.full.Store(false)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// write sends acknowledgements until one cannot be sent or ctx ends.
func (s *socket) write(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case id := <-s.acks:
			doc, err := json.Marshal(map[string]string{"envelope_id": id})
			if err != nil {
				continue
			}
			within, cancel := context.WithTimeout(ctx, writeLimit)
			err = s.conn.Write(within, websocket.MessageText, doc)
			cancel()
			if err != nil {
				return &failure{method: "socket", why: "the connection was lost", cause: err}
			}
		}
	}
}

// ping checks that the platform is there, until it is not or ctx ends.
func (s *socket) ping(ctx context.Context) error {
	t := time.NewTicker(pings.every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		within, cancel := context.WithTimeout(ctx, pings.limit)
		err := s.conn.Ping(within)
		cancel()
		if err != nil && !s.full.Load() {
			return &failure{method: "socket", why: "the platform did not answer in time", cause: err}
		}
	}
}

// stay keeps a connection open, beginning with one, until it is lost or ctx ends. The successor of
// a connection that the platform is about to end is open before that.
func (c *client) stay(ctx context.Context, s *socket, out chan<- envelope) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		within, end := context.WithCancel(ctx)
		var err error
		ended := make(chan struct{})
		running.Go(func() {
			defer close(ended)
			err = s.run(within, out)
		})
		select {
		case <-s.leaving:
		case <-ended:
			select {
			case <-s.leaving: // it ended as announced
			default:
				end()
				return err
			}
		}
		next, err := c.connect(ctx)
		if err != nil {
			end()
			return err
		}
		running.Go(func() {
			t := time.NewTimer(lingerLimit)
			defer t.Stop()
			defer end()
			select {
			case <-ended:
			case <-t.C:
			case <-ctx.Done():
			}
		})
		s = next
	}
}
