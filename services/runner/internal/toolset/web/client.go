package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/netguard"
	"github.com/theclaw/agents/internal/pause"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

const (
	// MaxBody bounds what is read of a body, in bytes after it is decompressed.
	MaxBody      = 2 << 20
	maxRedirects = 5
	maxHeader    = 64 << 10
	maxAddress   = 8 << 10 // bytes of an address, which the result repeats
	userAgent    = "Mozilla/5.0 (compatible; TheClaw)"
)

// client makes the requests of one tool.
type client struct {
	http *http.Client
	wait func(context.Context, time.Duration) error
}

// guarded is the key of the guard of a request in its context.
type guarded struct{}

// control checks the address of a connection by the guard of the request; without one only public
// addresses pass.
func control(ctx context.Context, network, address string, c syscall.RawConn) error {
	guard, _ := ctx.Value(guarded{}).(netguard.Guard)
	return guard.Control(network, address, c)
}

// newClient returns a client that dials for each request, so that the address is checked
// each time, and net/http has no reason to repeat a request.
func newClient(wait func(context.Context, time.Duration) error) *client {
	if wait == nil {
		wait = pause.For
	}
	dialer := &net.Dialer{ControlContext: control}
	return &client{
		http: &http.Client{
			Transport: &http.Transport{
				DialContext:            dialer.DialContext,
				DisableKeepAlives:      true,
				MaxResponseHeaderBytes: maxHeader,
			},
			CheckRedirect: redirect,
		},
		wait: wait,
	}
}

// carried are the headers that a redirect to another server does not lose.
var carried = []string{"Accept", "Content-Type", "Idempotency-Key", "User-Agent"}

// redirectError is why a redirect is not followed, in words of ours.
type redirectError string

// Error implements error.
func (e redirectError) Error() string { return string(e) }

// redirect decides whether a redirect is followed; its address is checked when it is
// dialled. [http.ErrUseLastResponse] makes the redirect the response.
func redirect(next *http.Request, via []*http.Request) error {
	first := via[0]
	if next.Method != first.Method {
		return http.ErrUseLastResponse // the server would get a GET without the body
	}
	if err := supported(next.URL); err != nil {
		return redirectError("the server redirects to an address that is not one of http:// or https://")
	}
	if len(via) > maxRedirects {
		return redirectError(fmt.Sprintf("the server redirects more than %d times; request the address at which the redirects end", maxRedirects))
	}
	next.Header.Del("Referer")                                                 // the address may hold a token
	if slices.ContainsFunc(append(via[1:], next), func(r *http.Request) bool { // also when one leads back
		return r.URL.Scheme != first.URL.Scheme || !strings.EqualFold(r.URL.Host, first.URL.Host)
	}) {
		maps.DeleteFunc(next.Header, func(name string, _ []string) bool { return !slices.Contains(carried, name) })
	}
	return nil
}

// supported returns why an address cannot be requested.
func supported(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("only http:// and https:// addresses can be requested")
	case u.Hostname() == "":
		return errors.New("the address names no host; write it as in https://example.org/page")
	}
	return nil
}

// parse reads an address that a model wrote.
func parse(raw string) (*url.URL, error) {
	if len(raw) > maxAddress {
		return nil, fmt.Errorf("the address has %d bytes, and at most %d can be requested", len(raw), maxAddress)
	}
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil {
		return nil, errors.New("the address cannot be read; write it as in https://example.org/page")
	}
	return u, supported(u)
}

// request is what is sent in each attempt.
type request struct {
	method string
	url    *url.URL
	header http.Header
	body   string
	limits Limits
}

// once reports whether the request must not be repeated after it was sent.
func (r request) once() bool { return r.method == http.MethodPost || r.method == http.MethodPatch }

// response is the last response of a call.
type response struct {
	url    *url.URL // at which the redirects ended
	status int
	header http.Header
	body   []byte
	more   bool // the body is longer than MaxBody
}

// failure is why there is no response.
type failure struct {
	text string // sentences for the model
	// wait: the same request may succeed a little later.
	wait bool
}

// do makes a request, and makes it again where that may help.
func (c *client) do(ctx context.Context, r request) (res response, err error) {
	toolset.Retry(ctx, c.wait, func(n int) bool {
		var sent bool
		var failed *failure
		res, sent, failed = c.attempt(ctx, r)
		again := failed == nil && toolset.RetryStatus(res.status) || failed != nil && failed.wait
		sent = sent && r.once()
		err = explain(failed, n, sent)
		return again && !sent
	})
	return res, err
}

// explain is the error for a model; nil when there is a response. sent: the request must not
// be repeated, and the server may have it.
func explain(f *failure, attempts int, sent bool) error {
	if f == nil {
		return nil
	}
	text := f.text
	if attempts > 1 {
		text += fmt.Sprintf(" It was tried %d times.", attempts)
	}
	if sent {
		return sentError(text + " The request was sent, so it may have had its effect: find that out before you repeat it.")
	}
	return errors.New(text)
}

// sentError is why there is no response to a request that may have had its effect.
type sentError string

// Error implements error.
func (e sentError) Error() string { return string(e) }

// attempt makes a request once. sent: a connection was there to send it on.
func (c *client) attempt(ctx context.Context, r request) (response, bool, *failure) {
	var sent atomic.Bool
	within, cancel := context.WithTimeout(context.WithValue(ctx, guarded{}, netguard.Guard{Allow: r.limits.Allow}), r.limits.Timeout)
	defer cancel()
	within = httptrace.WithClientTrace(within, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }})
	req, err := http.NewRequestWithContext(within, r.method, r.url.String(), strings.NewReader(r.body))
	if err != nil {
		return response{}, false, &failure{text: "The request cannot be made: " + bounded(err) + "."}
	}
	req.Header = r.header.Clone()
	res, err := c.http.Do(req)
	if err != nil {
		return response{}, sent.Load(), c.failure(ctx, r, err)
	}
	defer res.Body.Close()
	body, err := boundary.Body(res.Body, MaxBody)
	more := errors.Is(err, boundary.ErrTooLarge)
	if err != nil && !more {
		return response{}, true, c.failure(ctx, r, fmt.Errorf("the response breaks off: %w", err))
	}
	return response{res.Request.URL, res.StatusCode, res.Header, body, more}, true, nil
}

// failure describes an error of the transport.
func (c *client) failure(ctx context.Context, r request, err error) *failure {
	host := r.url.Host
	if u, ok := errors.AsType[*url.Error](err); ok { // it names the request that failed, maybe after redirects
		if failed, parseErr := url.Parse(u.URL); parseErr == nil && failed.Host != "" {
			host = failed.Host
		}
		err = u.Err
	}
	host = boundary.Name(host)
	refused, isRefused := errors.AsType[*netguard.Refused](err)
	redirected, isRedirect := errors.AsType[redirectError](err)
	dns, isDNS := errors.AsType[*net.DNSError](err)
	var late interface{ Timeout() bool }
	switch {
	case ctx.Err() != nil:
		return &failure{text: "The turn was ended before there was a response."}
	case isRedirect:
		return &failure{text: fmt.Sprintf("The request to %s was given up: %s.", boundary.Name(r.url.Host), redirected)}
	case isRefused:
		return &failure{text: fmt.Sprintf("The host %s was not contacted: its address %s is not public. Use a public address.", host, boundary.Name(refused.Address))}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &failure{text: fmt.Sprintf("The host %s refuses connections. Check host and port, or try again later.", host), wait: true}
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &late) && late.Timeout():
		return &failure{text: fmt.Sprintf("The host %s did not respond within %s. Try again later, or use another source.", host, r.limits.Timeout), wait: true}
	case isDNS && dns.IsNotFound:
		return &failure{text: fmt.Sprintf("There is no host %s. Check its name.", host)}
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return &failure{text: fmt.Sprintf("The host %s closed the connection before its response was complete. Try again later.", host)}
	}
	// The error may hold what the server sent, which has no place outside of the marks.
	return &failure{text: fmt.Sprintf("The request to %s failed: it cannot be connected to, or does not answer in HTTP. Check the address.", host)}
}

// bounded is an error in one line.
func bounded(err error) string { return strings.TrimRight(oneLine(err.Error()), ".") }

// truncated says that a body was not read completely; empty: it was.
func (r response) truncated() string {
	if !r.more {
		return ""
	}
	return fmt.Sprintf("the body is longer than %d bytes, and the rest of it was not read", MaxBody)
}
