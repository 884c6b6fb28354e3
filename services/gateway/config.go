package gateway

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/hook"
	"github.com/theclaw/agents/internal/netguard"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/obs/redact"
	"github.com/theclaw/agents/internal/obs/tracing"
	"github.com/theclaw/agents/services/gateway/internal/intake"
	"github.com/theclaw/agents/services/gateway/internal/stream"
)

// Config is how a gateway works.
type Config struct {
	// HTTP is the address to listen at; empty: it does not listen.
	HTTP string
	// TTL of the leases of accounts; 0: lease.DefaultTTL.
	TTL time.Duration
	// Problem is why it cannot listen as the settings and the environment say; empty: nothing is
	// wrong with them. With a problem HTTP is empty.
	Problem string
	// PublicURL is the address of a proxy before it, https://HOST or https://HOST:PORT; empty:
	// there is none.
	PublicURL string
	// TrustedProxies are the senders of which requests are taken besides those of loopback.
	TrustedProxies []netip.Prefix
}

// Runners run the programs of hooks, stream runs and list their models; [runs.Client] finds the one that does.
type Runners interface {
	hook.Runners
	stream.Runs
	intake.Models
}

// Deps are the live things a gateway needs. Registry, Holder and Runners are required.
type Deps struct {
	Registry grpc.ClientConnInterface
	Holder   string // this process; see lease.NewHolder
	Runners  Runners
	// Version of the program, which people can read with /status; empty: they cannot.
	Version string
	// Resolve turns a reference to a secret (env:NAME, file:PATH) into its value; nil: accounts
	// that name a secret do not start.
	Resolve func(ctx context.Context, ref string) (string, error)
	// Guard is for the addresses from which the attachments of posts are fetched; the zero value: public ones.
	Guard    netguard.Guard
	Trace    *tracing.Tracer // nil: no traces
	Metrics  *obs.GatewayMetrics
	Logger   *slog.Logger
	Redactor *redact.Redactor // knows each secret after its first use; nil: a new one
}

func (d Deps) withDefaults() Deps {
	if d.Metrics == nil {
		d.Metrics = obs.NewGatewayMetrics(nil)
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.Redactor == nil {
		d.Redactor = redact.New()
	}
	return d
}
