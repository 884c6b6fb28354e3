package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/theclaw/agents/internal/netguard"
	"github.com/theclaw/agents/internal/reference"
)

// remote is the transport of a server at a URL.
type remote struct {
	sdk.StreamableClientTransport
	refused atomic.Int32 // status with which it has refused the credentials
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
	if refusal != "" {
		return nil, fmt.Errorf("%w: %s", errAuth, refusal)
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
		Endpoint: u.String(), MaxEventSize: maxMessage, MaxRetries: -1,
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
	ctx, cancel := context.WithCancel(req.Context())
	stop := context.AfterFunc(a.r.ended, cancel)
	over := func() { stop(); cancel() }
	req = req.Clone(ctx)
	for name, values := range a.header {
		req.Header[name] = values
	}
	res, err := a.r.client.RoundTrip(req)
	if err != nil {
		over()
		return nil, err
	}
	switch {
	case res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden:
		a.r.refused.Store(int32(res.StatusCode))
	case res.StatusCode < http.StatusMultipleChoices:
		a.r.refused.Store(0)
	}
	left := maxMessage
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		left = math.MaxInt // each event is bounded
	}
	res.Body = &bounded{res.Body, left, over}
	return res, nil
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
