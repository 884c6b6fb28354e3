package anthropic

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/theclaw/agents/internal/thinking"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/wire"
)

// DefaultMaxOutput is asked for when the request sets no bound: the API demands
// one.
const DefaultMaxOutput = 4096

// Config is what a Driver needs.
type Config struct {
	// Name is the provider's name in the settings.
	Name string
	// BaseURL is the endpoint without /v1/messages; a closing /v1 does no harm.
	BaseURL string
	// APIKey is the key itself, already resolved; empty for servers that want
	// none.
	APIKey string `json:"-"`
	// Client makes the requests; it should have no Timeout of its own.
	Client *http.Client
	// CallTimeout bounds one call; 0 leaves it to the caller's context.
	CallTimeout time.Duration
	// IdleTimeout bounds the silence before and between events; 0 means
	// wire.DefaultIdleTimeout.
	IdleTimeout time.Duration
	// Thinking asks the model to think before it answers.
	Thinking thinking.Option
}

// asked is how a model thinks in a call that asks for it. A level is a number of tokens, except where the provider is
// set to adaptive: its models take no number, and choose themselves.
func (d *Driver) asked(s string) thinking.Option {
	o, _ := thinking.Parse(s) // it was checked where it came from
	if o.Level != "" && d.cfg.Thinking.Adaptive {
		return d.cfg.Thinking
	}
	return o
}

// String and GoString name the provider only, so that no way of printing a
// Config or a Driver shows the key.
func (c Config) String() string { return "anthropic provider " + c.Name }

// GoString is String.
func (c Config) GoString() string { return c.String() }

// Driver calls one endpoint. It is safe for concurrent use.
type Driver struct {
	cfg      Config
	messages sdk.MessageService
	clean    wire.Cleaner
}

var _ model.Driver = (*Driver)(nil)

// New checks the configuration and makes the driver; it opens no connection.
func New(cfg Config) (*Driver, error) {
	if err := wire.CheckEndpoint(cfg.Name, cfg.BaseURL, cfg.Client); err != nil {
		return nil, err
	}
	d := &Driver{cfg: cfg, clean: wire.Cleaner{Provider: cfg.Name, Key: cfg.APIKey}}
	options := []option.RequestOption{
		option.WithBaseURL(strings.TrimSuffix(strings.TrimSuffix(cfg.BaseURL, "/"), "/v1")),
		option.WithHTTPClient(wire.Client(cfg.Client)),
		option.WithMaxRetries(0),
	}
	if cfg.APIKey != "" {
		options = append(options, option.WithAPIKey(cfg.APIKey))
	}
	// The service is built directly: the SDK's client would look for keys in the
	// environment and in files.
	d.messages = sdk.NewMessageService(options...)
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
	params, options, err := d.params(req)
	if err != nil {
		return model.Response{}, err
	}
	call := wire.Begin(ctx, d.clean, d.cfg.IdleTimeout, d.cfg.CallTimeout)
	defer call.End()

	stream := d.messages.NewStreaming(call.Context, params, append(options, option.WithMiddleware(call.Intercept))...)
	defer func() { _ = stream.Close() }()
	a := answer{start: start}
	for !a.stopped && !a.full && stream.Next() {
		before := a.size
		delta, err := a.add(stream.Current())
		if err != nil {
			return model.Response{}, call.Failure(err, a.events)
		}
		if delta != (model.Delta{}) {
			onDelta(delta)
		}
		call.Touch(a.size > before)
	}
	if err := stream.Err(); err != nil {
		// An error event; the SDK's own text shows the request.
		if e, ok := errors.AsType[*sdk.Error](err); ok {
			err = d.clean.Event(wire.ParseReport([]byte(e.RawJSON())))
		}
		return model.Response{}, call.Failure(err, a.events)
	}
	response, err := a.finish()
	if err != nil {
		return model.Response{}, call.Failure(err, a.events)
	}
	return response, nil
}
