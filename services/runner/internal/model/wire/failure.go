package wire

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/services/runner/internal/model"
)

// What is read of an answer that is no stream, and for how long.
const (
	maxErrorBody  = 64 << 10
	errorBodyTime = 5 * time.Second
)

// Intercept classifies what goes wrong before the stream, and bounds the stream. It is also
// a middleware of an SDK and runs outside of its error handling, which drops the status of
// an error whose body is not the vendor's JSON and reads bodies without a bound.
func (c *Call) Intercept(req *http.Request, next func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	res, err := next(req)
	if err != nil {
		return nil, c.clean.transportFailure(err)
	}
	if res.StatusCode < 300 && streams(res.Header.Get("Content-Type")) {
		res.Body = c.streamOf(res.Body)
		return res, nil
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		return nil, c.refused(res)
	}
	body, err := errorBody(res)
	if err != nil && len(body) == 0 {
		return nil, c.clean.Wrap(model.CutStream, "the connection was lost", err)
	}
	if report := ParseReport(body); report.found {
		return nil, c.clean.Event(report)
	}
	return nil, c.clean.Error(model.BadResponse, res.StatusCode, "the endpoint does not answer with an event stream")
}

// Answer makes a request whose answer is no stream, and returns that answer, of at most limit bytes. It classifies what
// goes wrong.
func (c *Call) Answer(req *http.Request, do func(*http.Request) (*http.Response, error), limit int64) ([]byte, error) {
	res, err := do(req)
	if err != nil {
		return nil, c.clean.transportFailure(err)
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		return nil, c.refused(res)
	}
	body, err := boundary.Body(res.Body, limit)
	switch {
	case errors.Is(err, boundary.ErrTooLarge):
		return nil, errEndless
	case err != nil:
		return nil, c.clean.Wrap(model.CutStream, "the connection was lost", err)
	}
	return body, nil
}

// refused is the failure of an answer of 300 and above.
func (c *Call) refused(res *http.Response) *model.Error {
	if res.StatusCode < 400 {
		return c.clean.redirect(res)
	}
	body, _ := errorBody(res) // the status is known, whatever the body is
	return c.clean.Status(res.StatusCode, res.Header, ParseReport(body))
}

// errorBody reads what may report a failure. A body that does not end must not hold back what is known.
func errorBody(res *http.Response) ([]byte, error) {
	late := time.AfterFunc(errorBodyTime, func() { _ = res.Body.Close() })
	defer late.Stop()
	return io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
}

// redirect is the failure of an answer of 300 to 399. It names the host only: the rest of
// an address may hold a key.
func (c Cleaner) redirect(res *http.Response) *model.Error {
	where := "elsewhere"
	if to, err := res.Location(); err == nil && to.Host != "" {
		where = "to " + boundary.Name(to.Scheme+"://"+to.Host)
	}
	return c.Error(model.Config, res.StatusCode, "the endpoint redirects "+where+", which is not followed, since the key would go there; put its final address into base_url")
}

// streams reports whether a content type may carry server-sent events. Servers
// that name none, or plain text, exist; JSON and HTML never stream.
func streams(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err != nil || (media != "application/json" && media != "text/html")
}

// transportFailure classifies an error that came instead of an answer.
func (c Cleaner) transportFailure(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // without the URL
	}
	var (
		dns  *net.DNSError
		cert *tls.CertificateVerificationError
		op   *net.OpError
	)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err // Generate knows whose
	case errors.As(err, &dns):
		return c.Wrap(model.Unreachable, "the host name "+dns.Name+" is not known", err)
	case errors.As(err, &cert):
		return c.Wrap(model.Unreachable, "the endpoint's certificate is not valid", err)
	case errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect"):
		return c.Wrap(model.Unreachable, "no connection to the endpoint: "+op.Err.Error(), err)
	}
	return c.Wrap(model.Unavailable, "the connection broke before the answer", err)
}

// Failure classifies every error of a call; chunks is how much of the
// answer had arrived.
func (c *Call) Failure(err error, chunks int) *model.Error {
	switch {
	case errors.Is(c.parent.Err(), context.Canceled):
		return c.clean.Wrap(model.Canceled, "the call was canceled", c.parent.Err())
	case c.parent.Err() != nil:
		return c.clean.Wrap(model.Timeout, "the time for the answer is used up", c.parent.Err())
	}
	if cause := context.Cause(c.Context); cause != nil {
		class := model.Unavailable
		if errors.Is(cause, errIdle) && chunks > 0 {
			class = model.CutStream
		}
		return c.clean.Wrap(class, cause.Error(), cause)
	}
	if e, ok := errors.AsType[*model.Error](err); ok {
		return c.clean.Own(e)
	}
	if errors.Is(err, errEndless) || errors.Is(err, bufio.ErrTooLong) {
		return c.clean.Wrap(model.TooLarge, "the answer is larger than any answer should be", err)
	}
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax), errors.As(err, &kind):
		return c.clean.Wrap(model.BadResponse, "the stream holds something that is not a chunk", err)
	case isConnection(err):
		return c.clean.Wrap(model.CutStream, "the connection was lost in the middle of the answer", err)
	}
	// What remains comes from the decoding of a chunk.
	return c.clean.Wrap(model.BadResponse, "the answer cannot be decoded", err)
}

func isConnection(err error) bool {
	_, op := errors.AsType[*net.OpError](err)
	return op || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, http.ErrBodyReadAfterClose) || isHTTP2(err)
}

// isHTTP2 recognizes a lost HTTP/2 stream; its error types are not exported by
// net/http.
func isHTTP2(err error) bool {
	return bytes.Contains([]byte(err.Error()), []byte("http2:")) ||
		bytes.HasPrefix([]byte(err.Error()), []byte("stream error:"))
}
