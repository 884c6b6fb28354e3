package delivery

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/hook"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/obs/redact"
	"github.com/theclaw/agents/internal/obs/tracing"
	"github.com/theclaw/agents/services/deliverer/internal/breaker"
)

// DefaultConcurrency is how many threads are drained at a time by default.
const DefaultConcurrency = 64

// Config is how a Pool works; the zero value is right.
type Config struct {
	Concurrency int           // threads at a time over all agents; 0: DefaultConcurrency
	Keep        time.Duration // how long a drain without work keeps its lease; 0: lease.GrantKeep
}

// Channels finds the channel a reply takes; see package catalog.
type Channels interface {
	For(threadID, source string, rc channel.ReplyContext) (channel.Channel, bool)
}

// Deps are the live things a Pool needs. All but Open and Journal may be nil.
type Deps struct {
	Journal  Journal
	Open     func(channel.Settings) (Channels, error)
	Breakers *breaker.Set
	Metrics  *obs.DelivererMetrics
	Logger   *slog.Logger
	Redactor *redact.Redactor // applied to each error before it is recorded
	Trace    *tracing.Tracer
	// Hooks calls the hooks of messages; nil: none runs, and those that must decide fail.
	Hooks *hook.Caller
	// Media reads the files of messages; nil: there are none.
	Media Media
}

// Media reads a file that was stored for an agent, of a size in bytes. The reader fails when the data are damaged.
type Media func(ctx context.Context, agentID, sha256 string, size int64) (io.ReadCloser, error)

// Pool is what the drains of one process share: the workers in which lanes run,
// the connection to the journal, and the circuit breakers of the channels. Free,
// Active and Wait count lanes.
type Pool struct {
	cfg Config
	Deps
	*workerPool

	mu   sync.Mutex
	sent map[string]int64 // by the name of an account
}

// maxAccounts bounds the accounts whose messages are counted.
const maxAccounts = 1000

// addSent counts a message that the platform of an account took.
func (p *Pool) addSent(account string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.sent[account]; ok || len(p.sent) < maxAccounts {
		p.sent[account]++
	}
}

// Sent is how many messages the platform of each account took since the pool was made; of a message in parts each part
// counts. Accounts that sent nothing are left out.
func (p *Pool) Sent() map[string]int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.sent)
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
	if d.Hooks == nil {
		d.Hooks = &hook.Caller{Run: hook.At(nil), Meter: d.Metrics, Logger: d.Logger}
	}
	return &Pool{cfg: cfg, Deps: d, workerPool: newWorkerPool(cfg.Concurrency), sent: map[string]int64{}}
}

// submit queues a lane.
func (p *Pool) submit(l *lane) { p.run(func() { l.agent.run(l) }) }
