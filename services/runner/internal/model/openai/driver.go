package openai

import (
	"context"
	"errors"
	"net/http"
	"time"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/wire"
)

// Config is what a Driver needs.
type Config struct {
	// Name is the provider's name in the settings.
	Name string
	// BaseURL is the endpoint up to and without /chat/completions.
	BaseURL string
	// APIKey is the key itself, already resolved; empty for servers that want
	// none.
	APIKey string `json:"-"`
	// Client makes the requests; it should have no Timeout of its own, which
	// would cut long answers. Required, so that connections are shared.
	Client *http.Client
	// CallTimeout bounds one call; 0 leaves it to the caller's context. When it
	// ends a call the error is Unavailable, not Timeout: the turn goes on.
	CallTimeout time.Duration
	// IdleTimeout bounds the silence before and between chunks; 0 means
	// wire.DefaultIdleTimeout.
	IdleTimeout time.Duration
	// ReplayReasoning sends Message.Reasoning back as reasoning_content, which
	// some thinking models demand in tool rounds and OpenAI itself refuses.
	ReplayReasoning bool
}

// String and GoString name the provider only, so that no way of printing a
// Config or a Driver shows the key.
func (c Config) String() string { return "openai provider " + c.Name }

// GoString is String.
func (c Config) GoString() string { return c.String() }

// Driver calls one endpoint. It is safe for concurrent use.
type Driver struct {
	cfg   Config
	chat  sdk.ChatCompletionService
	clean wire.Cleaner
}

var _ model.Driver = (*Driver)(nil)

// New checks the configuration and makes the driver; it opens no connection.
func New(cfg Config) (*Driver, error) {
	if err := wire.CheckEndpoint(cfg.Name, cfg.BaseURL, cfg.Client); err != nil {
		return nil, err
	}
	d := &Driver{cfg: cfg, clean: wire.Cleaner{Provider: cfg.Name, Key: cfg.APIKey}}
	options := []option.RequestOption{
		option.WithBaseURL(cfg.BaseURL),
		option.WithHTTPClient(wire.Client(cfg.Client)),
		option.WithMaxRetries(0),
	}
	if cfg.APIKey != "" {
		options = append(options, option.WithAPIKey(cfg.APIKey))
	}
	// The service is built directly: the SDK's client would read a dozen
	// environment variables.
	d.chat = sdk.NewChatCompletionService(options...)
	return d, nil
}

// Name is the provider's name.
func (d *Driver) Name() string { return d.cfg.Name }

// String is the provider's name; see Config.String.
func (d *Driver) String() string { return d.cfg.String() }

// GoString is String.
func (d *Driver) GoString() string { return d.String() }

// Generate makes one streamed call.
func (d *Driver) Generate(ctx context.Context, req model.Request, onDelta func(model.Delta)) (model.Response, error) {
	return model.Receive(req, onDelta, func(onDelta func(model.Delta)) (model.Response, error) { return d.generate(ctx, req, onDelta) })
}

func (d *Driver) generate(ctx context.Context, req model.Request, onDelta func(model.Delta)) (model.Response, error) {
	start := time.Now()
	params, err := d.params(req)
	if err != nil {
		return model.Response{}, err
	}
	call := wire.Begin(ctx, d.clean, d.cfg.IdleTimeout, d.cfg.CallTimeout)
	defer call.End()
	stream := d.chat.NewStreaming(call.Context, params, option.WithMiddleware(call.Intercept))
	defer func() { _ = stream.Close() }()
	a := answer{start: start}
	for !a.full && stream.Next() {
		before := a.size()
		if delta := a.add(stream.Current()); delta != (model.Delta{}) {
			onDelta(delta)
		}
		call.Touch(a.size() > before)
	}
	if err := stream.Err(); err != nil {
		if e, ok := errors.AsType[*ssestream.StreamError](err); ok {
			err = d.clean.Event(wire.ParseReport(e.Event.Data))
		}
		return model.Response{}, call.Failure(err, a.chunks)
	}
	if delta := a.rest(); delta != (model.Delta{}) {
		onDelta(delta)
	}
	response, err := a.finish()
	if err != nil {
		return model.Response{}, call.Failure(err, a.chunks)
	}
	return response, nil
}
