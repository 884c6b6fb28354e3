package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/theclaw/agents/internal/netguard"
	"github.com/theclaw/agents/internal/reference"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// maxStreams bounds how often a session asks its server for a stream: one that ends is opened again.
const maxStreams = 1000

// remote is the transport of a server at a URL.
type remote struct {
	sdk.StreamableClientTransport
	refused atomic.Int32 // status with which it has refused the credentials
	streams atomic.Int32 // that were asked for
	client  *http.Transport
	ended   context.Context //nolint:containedctx // of all requests of the session
	cancel  context.CancelFunc
}

var _ transport = (*remote)(nil)

// end implements [transport]: it ends all requests.
func (r *remote) end() { r.cancel() }

// failure implements [transport].
func (r *remote) failure(err error) (why string, refused bool) {
	r.end()
	r.client.CloseIdleConnections()
	if status := int(r.refused.Load()); status != 0 {
		return fmt.Sprintf("%d %s", status, http.StatusText(status)), true
	}
	return clean(err.Error()), false
}

// guard permits every address at which there can be a server: the owner has named the host, so one of a private
// network is none that a stranger chose.
var guard = netguard.Guard{Allow: netguard.Everywhere}

// remote is a transport to the URL of a server, and to no other address.
func (s *server) remote(p launch) (*remote, error) {
	u, err := url.Parse(p.server.GetUrl())
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	for name, value := range p.server.GetHeaders() {
		if reference.Is(value) {
			if value, err = s.value(p, name, value); err != nil {
				return nil, err
			}
		}
		header.Set(name, value)
	}
	sent, refusal := s.o.Values.Put(u, header, nil, p.secrets)
	if refusal != nil {
		return nil, fmt.Errorf("%w: %w", errUnsent, refusal)
	}
	for value, name := range sent {
		p.sent[value] = name
	}
	r := &remote{}
	r.ended, r.cancel = context.WithCancel(context.Background())
	dialer := &net.Dialer{Timeout: 10 * time.Second, Control: guard.Control}
	r.client = &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if host, _, err := net.SplitHostPort(address); err != nil || !strings.EqualFold(host, u.Hostname()) {
				return nil, fmt.Errorf("the address %s is not the one of the settings", address)
			}
			return dialer.DialContext(ctx, network, address)
		},
		MaxResponseHeaderBytes: 64 << 10, TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: time.Minute,
	}
	r.StreamableClientTransport = sdk.StreamableClientTransport{
		Endpoint: u.String(), MaxEventSize: maxMessage, MaxRetries: maxStreams,
		HTTPClient: &http.Client{
			Transport: &authorized{r, header},
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return errors.New("the server redirects; write the address at which it is")
			},
		},
	}
	return r, nil
}

// authorized adds the headers of the settings to each request, and bounds each response.
type authorized struct {
	r      *remote
	header http.Header
}

// RoundTrip implements [http.RoundTripper].
func (a *authorized) RoundTrip(req *http.Request) (*http.Response, error) {
	given := req.Context()
	x, ofCall := exchangeOf(given)
	ctx, cancel := context.WithCancel(x.trace(given))
	stop := context.AfterFunc(a.r.ended, cancel)
	over := func() { stop(); cancel() }
	req = req.Clone(ctx)
	for name, values := range a.header {
		req.Header[name] = values
	}
	res, err := a.r.client.RoundTrip(req)
	x.ended(res, err)
	if req.Method == http.MethodGet && given.Err() == nil && (err != nil || a.r.streams.Add(1) > maxStreams || res.StatusCode/100 == 3) {
		// The status of a server that has no stream: the client of the protocol would ask again and again before the session
		// begins.
		if err == nil {
			_ = res.Body.Close() // nothing of it was read
		}
		res, err = &http.Response{StatusCode: http.StatusMethodNotAllowed, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
	}
	if err != nil {
		over()
		return nil, err
	}
	switch {
	case res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden:
		a.r.refused.Store(int32(res.StatusCode))
	case res.StatusCode < http.StatusMultipleChoices:
		a.r.refused.Store(0)
	case ofCall && res.StatusCode >= http.StatusInternalServerError:
		res.StatusCode = http.StatusBadGateway // the client of the protocol ends the session for some of these
	}
	left := maxMessage
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		left = math.MaxInt // each event is bounded
	}
	res.Body = &bounded{res.Body, left, over}
	return res, nil
}

// exchange is what became of the HTTP request of one call. The protocol reports a response such as 503 as if the server
// had answered with an error of its own. That of a call to a process stays empty.
type exchange struct {
	used atomic.Bool // by the request of the call; the one that follows a call that is given up is not noted

	mu     sync.Mutex
	unsent bool  // there is no connection on which the request can have been sent
	reused bool  // the connection was open before; its other end may be gone
	status int   // of the response; 0: there is none
	err    error // why there is no response
}

// exchangeKey is the key of the exchange of a call in its context.
type exchangeKey struct{}

// exchangeOf returns the exchange of a request; that of one that is no call has no reader.
func exchangeOf(ctx context.Context) (x *exchange, ofCall bool) {
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok && !x.used.Swap(true) {
		return x, true
	}
	return &exchange{}, false
}

// trace returns a context whose request is noted.
func (x *exchange) trace(ctx context.Context) context.Context {
	note := func(unsent, reused bool) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.unsent, x.reused = unsent, reused
	}
	note(true, false)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { note(true, false) }, // again only when nothing was written to the connection before
		GotConn: func(c httptrace.GotConnInfo) { note(false, c.Reused) },
	})
}

// ended notes the end of the request.
func (x *exchange) ended(res *http.Response, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err = err; err == nil {
		x.status = res.StatusCode
	}
}

// lost reports whether there is no response: what the protocol reports as an error is then none of the server.
func (x *exchange) lost() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.err != nil
}

// missed reports whether the server does not have the session any more, as after its restart: it has begun nothing.
func (x *exchange) missed() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.status == http.StatusNotFound
}

// failure is why the server has not answered the call; nil: it has, or its session has ended.
func (x *exchange) failure() *unansweredError {
	x.mu.Lock()
	defer x.mu.Unlock()
	var late interface{ Timeout() bool }
	switch {
	case toolset.RetryStatus(x.status):
		why := strings.TrimSpace(fmt.Sprintf("it responded with status %d %s", x.status, http.StatusText(x.status)))
		// With 429 a server refuses a request before it does anything for it. What sends 5xx, 503 too, may be a proxy that
		// has passed the request on.
		return &unansweredError{why, x.status != http.StatusTooManyRequests, true}
	case x.err != nil && !errors.Is(x.err, context.Canceled):
		again := x.reused || errors.Is(x.err, syscall.ECONNREFUSED) || errors.As(x.err, &late) && late.Timeout()
		return &unansweredError{x.err.Error(), !x.unsent, again}
	}
	return nil
}

// late is why a call has no answer that took too long.
func (x *exchange) late() *unansweredError {
	x.mu.Lock()
	defer x.mu.Unlock()
	return &unansweredError{errTimeout.Error(), !x.unsent, true}
}

// bounded is a body that fails when it is longer than a message may be.
type bounded struct {
	io.ReadCloser
	left int
	over func()
}

// Close implements [io.Closer].
func (b *bounded) Close() error {
	defer b.over()
	return b.ReadCloser.Close()
}

// Read implements [io.Reader].
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("the message is larger than %d MiB", maxMessage>>20)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
