package wire

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/theclaw/agents/services/runner/internal/model"
)

// DefaultIdleTimeout is how long a provider may send nothing. Reasoning models
// behind gateways that send no keep-alives think for minutes.
const DefaultIdleTimeout = 3 * time.Minute

// Bounds on one answer, so that a broken provider cannot fill the memory.
const (
	MaxAnswerBytes = 8 << 20
	MaxToolCalls   = 128
)

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

// Touch notes that a piece of the answer has arrived.
func (c *Call) Touch() { c.idle.Reset(c.silence) }

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
)
