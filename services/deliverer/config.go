package deliverer

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/hook"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/obs/redact"
	"github.com/theclaw/agents/internal/obs/tracing"
	"github.com/theclaw/agents/services/deliverer/internal/delivery"
)

// Config is how a deliverer works; the zero value is right.
type Config struct {
	Address     string        // where this deliverer can be called; for those who find a lease held
	Concurrency int           // threads at a time; 0: 64
	Grace       time.Duration // for sends under way at a stop; 0: worker.DefaultGrace
	TTL         time.Duration // of leases; 0: lease.DefaultTTL; 100 ms to 10 min
	Poll        time.Duration // of one wait for work; 0: worker.DefaultPoll; at most 60 s
	Keep        time.Duration // of a lease whose work ran out; 0: lease.GrantKeep
	Probe       time.Duration // between probes of a channel that is down; 0: 30 s
	XGW         XGW
	// Starter is the program that starts what sends for a channel, as sandbox.FindProgram
	// found it; empty: this program, which starts ten times as slowly.
	Starter string
}

// XGW is how the xgw program is started.
type XGW struct {
	Path        string        // empty: xgw, searched in PATH of Deps.Environ
	SessionFlag string        // empty: --session, corrected once by asking the program
	Timeout     time.Duration // of one send; 0: 60 s
}

// Deps are the live things a deliverer needs. Registry and Holder are required.
type Deps struct {
	Registry grpc.ClientConnInterface
	Holder   string // this process in leases; see lease.NewHolder
	// Runners run the programs of hooks; nil: there is none, and what a hook must decide waits.
	Runners hook.Runners
	// Resolve turns a reference to a secret (env:NAME, file:PATH) into its
	// value; nil: webhooks that name a secret fail.
	Resolve  func(ctx context.Context, ref string) (string, error)
	Metrics  *obs.DelivererMetrics
	Trace    *tracing.Tracer // nil: no traces
	Logger   *slog.Logger
	Redactor *redact.Redactor // knows each secret after its first use; nil: a new one
	Environ  []string         // NAME=value, of which xgw gets its allow-listed part
	Abort    <-chan struct{}  // closed: a drain ends at once (second SIGTERM); nil never
}

func (c Config) withDefaults() Config {
	if c.Concurrency <= 0 {
		c.Concurrency = delivery.DefaultConcurrency
	}
	return c
}

func (d Deps) withDefaults() Deps {
	if d.Metrics == nil {
		d.Metrics = obs.NewDelivererMetrics(nil)
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.Redactor == nil {
		d.Redactor = redact.New()
	}
	return d
}

func (x XGW) settings() channel.XGW {
	return channel.XGW{Path: x.Path, SessionFlag: x.SessionFlag, Timeout: x.Timeout}
}
