package wire

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/theclaw/agents/services/runner/internal/model"
)

// DefaultIdleTimeout is how long a provider may send nothing. Reasoning models
// behind gateways that send no keep-alives think for minutes.
const DefaultIdleTimeout = 3 * time.Minute

// Bounds on one answer, so that a broken provider can neither fill the memory nor send
// without end. An answer over the first two is truncated there; one over the last two is an
// error of class TooLarge. All count what was decompressed.
const (
	// MaxAnswerBytes bounds the texts of an answer.
	MaxAnswerBytes = 8 << 20
	MaxToolCalls   = 128
	// maxEventBytes bounds what is read between two events that bring a part of the answer.
	maxEventBytes = 16 << 20
	// maxStreamBytes bounds a stream: an event holds a few characters of the answer in
	// some hundred bytes.
	maxStreamBytes = 512 << 20
)

// Client is a client that follows no redirect: the key and the conversation go to the
// configured endpoint and nowhere else.
func Client(c *http.Client) *http.Client {
	out := *c
	out.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &out
}

// CheckEndpoint says why a base URL or a client cannot be used; its error is of
// class Config and shows nothing of the URL, which may hold a secret.
func CheckEndpoint(provider, baseURL string, client *http.Client) error {
	base, err := url.Parse(baseURL)
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return model.Errorf(model.Config, "provider %s: base_url must be an http or https URL", provider)
	}
	if base.User != nil || base.RawQuery != "" {
		return model.Errorf(model.Config, "provider %s: base_url must not carry credentials or a query; use api_key", provider)
	}
	if client == nil {
		return model.Errorf(model.Config, "provider %s: no HTTP client given", provider)
	}
	return nil
}

// Call is one request in progress, with two timers of ours next to the caller's end: a
// provider that is silent for too long, and a call that takes too long.
type Call struct {
	// Context is the request's.
	Context context.Context //nolint:containedctx // a call is the lifetime of its context

	parent  context.Context //nolint:containedctx // to distinguish the caller's end from ours
	clean   Cleaner
	cancel  context.CancelCauseFunc
	silence time.Duration
	idle    *time.Timer
	whole   *time.Timer
	// read counts the bytes of the stream, of which since came after the last part of the
	// answer.
	read, since int64
}

// Begin starts the timers of a call; whole 0 means no bound but the caller's.
// The caller defers End.
func Begin(ctx context.Context, c Cleaner, silence, whole time.Duration) *Call {
	if silence <= 0 {
		silence = DefaultIdleTimeout
	}
	call := &Call{parent: ctx, clean: c, silence: silence}
	call.Context, call.cancel = context.WithCancelCause(ctx)
	call.idle = time.AfterFunc(silence, func() { call.cancel(errIdle) })
	if whole > 0 {
		call.whole = time.AfterFunc(whole, func() { call.cancel(errSlow) })
	}
	return call
}

// Touch notes that an event has arrived, and whether it brought a part of the answer. It is
// called by the reader of the stream.
func (c *Call) Touch(progress bool) {
	c.idle.Reset(c.silence)
	if progress {
		c.since = 0
	}
}

// stream is the body of an answer within its bounds.
type stream struct {
	body io.ReadCloser
	// head is what was read to see whether there is a bom, and is still to be handed on.
	head []byte
	call *Call
}

// bom may stand in front of a stream of events, and is no part of it.
const bom = "\uFEFF"

// streamOf is the body of an answer within the bounds of its call.
func (c *Call) streamOf(body io.ReadCloser) io.ReadCloser {
	return &stream{body: body, call: c}
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (n int, err error) {
	if s.call.read == 0 && s.head == nil {
		if err := s.begin(); err != nil {
			return 0, err
		}
	}
	if len(s.head) > 0 {
		n = copy(p, s.head)
		s.head = s.head[n:]
	} else {
		n, err = s.body.Read(p)
	}
	s.call.read += int64(n)
	s.call.since += int64(n)
	if s.call.since > maxEventBytes || s.call.read > maxStreamBytes {
		return n, errEndless
	}
	return n, err
}

// begin reads as much as shows whether there is a bom, and leaves it out.
func (s *stream) begin() error {
	s.head = make([]byte, len(bom))
	n, err := io.ReadFull(s.body, s.head[:1])
	if err == nil && s.head[0] == bom[0] {
		more, rest := io.ReadFull(s.body, s.head[1:])
		n, err = n+more, rest
	}
	if s.head = s.head[:n]; string(s.head) == bom {
		s.head = s.head[:0]
	}
	if n > 0 { // the end comes again with the next read
		err = nil
	}
	return err
}

// Close implements io.Closer.
func (s *stream) Close() error { return s.body.Close() }

// End stops the timers and closes the connection.
func (c *Call) End() {
	c.idle.Stop()
	if c.whole != nil {
		c.whole.Stop()
	}
	c.cancel(nil)
}

// Why our own timers ended a call; distinguished from the caller's context.
var (
	errIdle = errors.New("the provider sent nothing for too long")
	errSlow = errors.New("the call took too long")
	// errEndless ends the reading of a stream that is larger than any answer should be.
	errEndless = errors.New("the provider sent more than an answer can be")
)
