package openai

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

	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/theclaw/agents/services/runner/internal/model"
)

// maxErrorBody is how much of an error answer is read.
const maxErrorBody = 64 << 10

// intercept classifies what goes wrong before the stream. It stands outside
// the SDK's own error handling, which drops the status of an error whose body
// is not OpenAI's JSON and reads bodies without a bound.
func (d *Driver) intercept(req *http.Request, next func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	res, err := next(req)
	if err != nil {
		return nil, d.transportFailure(err)
	}
	if res.StatusCode < 300 && streams(res.Header.Get("Content-Type")) {
		return res, nil
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	if err != nil && len(body) == 0 && res.StatusCode < 300 {
		return nil, d.clean.wrap(model.CutStream, "the connection was lost", err)
	}
	report := parseReport(body)
	switch {
	case res.StatusCode >= 400:
		return nil, d.clean.status(res.StatusCode, res.Header, report)
	case res.StatusCode >= 300:
		return nil, d.clean.error(model.Config, res.StatusCode, "the endpoint redirects elsewhere; put its final address into base_url")
	case report.found:
		return nil, d.clean.event(report)
	}
	return nil, d.clean.error(model.BadResponse, res.StatusCode, "the endpoint does not answer with an event stream")
}

// streams reports whether a content type may carry server-sent events. Servers
// that name none, or plain text, exist; JSON and HTML never stream.
func streams(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err != nil || (media != "application/json" && media != "text/html")
}

// transportFailure classifies an error that came instead of an answer.
func (d *Driver) transportFailure(err error) error {
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
		return d.clean.wrap(model.Unreachable, "the host name "+dns.Name+" is not known", err)
	case errors.As(err, &cert):
		return d.clean.wrap(model.Unreachable, "the endpoint's certificate is not valid", err)
	case errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect"):
		return d.clean.wrap(model.Unreachable, "no connection to the endpoint: "+op.Err.Error(), err)
	}
	return d.clean.wrap(model.Unavailable, "the connection broke before the answer", err)
}

// failure gives every error of a call its class.
func (d *Driver) failure(ctx, call context.Context, err error, chunks int) *model.Error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return d.clean.wrap(model.Canceled, "the call was canceled", ctx.Err())
	case ctx.Err() != nil:
		return d.clean.wrap(model.Timeout, "the time for the answer is used up", ctx.Err())
	}
	if cause := context.Cause(call); cause != nil {
		class := model.Unavailable
		if errors.Is(cause, errIdle) && chunks > 0 {
			class = model.CutStream
		}
		return d.clean.wrap(class, cause.Error(), cause)
	}
	if e, ok := errors.AsType[*model.Error](err); ok {
		return d.clean.own(e)
	}
	if e, ok := errors.AsType[*ssestream.StreamError](err); ok {
		return d.clean.event(parseReport(e.Event.Data))
	}
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.Is(err, bufio.ErrTooLong), errors.As(err, &syntax), errors.As(err, &kind):
		return d.clean.wrap(model.BadResponse, "the stream holds something that is not a chunk", err)
	case isConnection(err):
		return d.clean.wrap(model.CutStream, "the connection was lost in the middle of the answer", err)
	}
	// What remains comes from the SDK's decoding of a chunk.
	return d.clean.wrap(model.BadResponse, "the answer cannot be decoded", err)
}

func isConnection(err error) bool {
	_, op := errors.AsType[*net.OpError](err)
	return op || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, http.ErrBodyReadAfterClose) || isHTTP2(err)
}

// isHTTP2 recognises a lost HTTP/2 stream; its error types are not exported by
// net/http.
func isHTTP2(err error) bool {
	return bytes.Contains([]byte(err.Error()), []byte("http2:")) ||
		bytes.HasPrefix([]byte(err.Error()), []byte("stream error:"))
}
