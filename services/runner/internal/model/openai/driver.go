package openai

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

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
	cfg    Config
	url    string
	client *http.Client
	clean  wire.Cleaner
}

var _ model.Driver = (*Driver)(nil)

// New checks the configuration and makes the driver; it opens no connection.
func New(cfg Config) (*Driver, error) {
	if err := wire.CheckEndpoint(cfg.Name, cfg.BaseURL, cfg.Client); err != nil {
		return nil, err
	}
	return &Driver{
		cfg: cfg, url: strings.TrimSuffix(cfg.BaseURL, "/") + "/chat/completions",
		client: wire.Client(cfg.Client), clean: wire.Cleaner{Provider: cfg.Name, Key: cfg.APIKey},
	}, nil
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
	a := answer{start: time.Now()}
	body, err := d.encode(req)
	if err != nil {
		return model.Response{}, err
	}
	call := wire.Begin(ctx, d.clean, d.cfg.IdleTimeout, d.cfg.CallTimeout)
	defer call.End()
	if err := d.read(call, body, &a, onDelta); err != nil {
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

// read sends a request and reads its answer, to its end or until it is full.
func (d *Driver) read(call *wire.Call, body []byte, a *answer, onDelta func(model.Delta)) error {
	res, err := d.send(call, body)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	stream := eventsOf(res.Body)
	defer stream.close()
	for !a.full {
		c, err := d.nextChunk(stream)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		before := a.size()
		if delta := a.add(c); delta != (model.Delta{}) {
			onDelta(delta)
		}
		call.Touch(a.size() > before)
	}
	return nil
}

// send makes the one HTTP request of a call. The answer is a stream.
func (d *Driver) send(call *wire.Call, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(call.Context, http.MethodPost, d.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json") // what OpenAI's own libraries send for streams too
	d.authorize(req)
	return call.Intercept(req, d.client.Do)
}

// authorize adds what every request to the endpoint has.
func (d *Driver) authorize(req *http.Request) {
	req.Header.Set("User-Agent", "theclaw")
	if d.cfg.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+d.cfg.APIKey)
	}
}
