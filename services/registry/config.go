package registry

import (
	"log/slog"
	"time"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/obs/agentlog"
	"github.com/theclaw/agents/internal/obs/tracing"
	"github.com/theclaw/agents/services/registry/internal/cluster"
	"github.com/theclaw/agents/services/registry/internal/standalone"
)

// Config of a registry; zero values take the defaults.
type Config struct {
	Sweep      time.Duration // how often the inboxes of a home are scanned; default 30 s
	MaxPending int64         // events an inbox takes beyond its ack; default 10,000
	MaxPerPeer int64         // the same for one source; default 200
	MinFree    int64         // bytes free on disk below which pushes are refused; default 64 MiB
	// ApprovalLife is how long a question waits for an answer; default as the settings of
	// its agent say (tools.approval_timeout).
	ApprovalLife time.Duration
	// DeliveryWaits are the waits before the second and each later try of a send;
	// default store.DeliveryWaits (5 s, 60 s).
	DeliveryWaits []time.Duration
}

type (
	// HomeEngine is the storage of NewStandalone, as package sqlite makes it.
	HomeEngine = standalone.Engine
	// ClusterEngine is the storage of NewCluster, as package postgres opens it.
	ClusterEngine = cluster.Engine
	// Copies takes agents out of the database and back.
	Copies = cluster.Copies
)

// Deps are the live things a registry works with.
type Deps struct {
	Home    *agentdir.Home
	Logger  *slog.Logger
	Metrics *obs.RegistryMetrics
	Log     *agentlog.Log // agents' logs/agent.log
	Trace   *tracing.Tracer
	// Notifier returns where the external notifier keeps its tasks, if there is one;
	// nil: there is none.
	Notifier func() (home string, ok bool)
	Redact   func(string) string // takes secrets out of the audit log; nil: none are known
	// Copies takes agents out of the database and back, for backups; NewCluster needs it.
	Copies Copies
}

func (c Config) withDefaults() Config {
	def := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	num := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.Sweep, 30*time.Second)
	num(&c.MaxPending, 10_000)
	num(&c.MaxPerPeer, 200)
	num(&c.MinFree, 64<<20)
	return c
}
