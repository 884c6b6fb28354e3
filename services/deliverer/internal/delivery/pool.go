package delivery

import (
	"context"
	"log/slog"
	"time"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/obs/redact"
	"github.com/theclaw/agents/internal/obs/tracing"
	"github.com/theclaw/agents/services/deliverer/internal/breaker"
	"github.com/theclaw/agents/services/deliverer/internal/place"
)

// DefaultConcurrency is how many threads are drained at a time by default.
const DefaultConcurrency = 64

// Config is how a Pool works; the zero value is right.
type Config struct {
	Concurrency int           // threads at a time over all agents; 0: DefaultConcurrency
	Keep        time.Duration // how long a drain without work keeps its lease; 0: lease.GrantKeep
}

// Ways finds the channel a reply takes; see package catalog.
type Ways interface {
	For(threadID, source string, rc channel.ReplyContext) (channel.Channel, bool)
}

// Deps are the live things a Pool needs. All but Open and Journal may be nil.
type Deps struct {
	Journal  Journal
	Open     func(channel.Settings) (Ways, error)
	Breakers *breaker.Set
	Metrics  *obs.DelivererMetrics
	Logger   *slog.Logger
	Redactor *redact.Redactor // applied to each error before it is recorded
	Trace    *tracing.Tracer
}

// Pool is what the drains of one process share: the places in which lanes run,
// the way to the journal, and the judgement which channels are up.
type Pool struct {
	cfg Config
	Deps

	places *place.Pool
}

// NewPool makes a pool. It starts nothing.
func NewPool(cfg Config, d Deps) *Pool {
	if cfg.Concurrency <= 0 {
		cfg.Concurrency = DefaultConcurrency
	}
	if cfg.Keep <= 0 {
		cfg.Keep = lease.GrantKeep
	}
	if d.Breakers == nil {
		d.Breakers = new(breaker.Set)
	}
	if d.Metrics == nil {
		d.Metrics = obs.NewDelivererMetrics(nil)
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.Redactor == nil {
		d.Redactor = redact.New()
	}
	return &Pool{cfg: cfg, Deps: d, places: place.New(cfg.Concurrency)}
}

// submit queues a lane.
func (p *Pool) submit(l *lane) { p.places.Submit(func() { l.agent.run(l) }) }

// Free waits until a lane could run at once and answers how many could; 0 when
// ctx ends first. One caller at a time.
func (p *Pool) Free(ctx context.Context) int { return p.places.Free(ctx) }

// Active is the number of lanes that run or wait for a place.
func (p *Pool) Active() int { return p.places.Active() }

// Wait returns when no lane runs. Call it after the last Agent's Run returned.
func (p *Pool) Wait() { p.places.Wait() }
