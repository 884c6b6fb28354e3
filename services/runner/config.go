package runner

import (
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/obs/redact"
	"github.com/theclaw/agents/internal/obs/tracing"
	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/services/runner/internal/batch"
)

// Config of a runner; zero values take the defaults.
type Config struct {
	// Address is where this runner can be called; it is shown with its leases.
	Address string
	// Version of the program, which agents can read; empty: they cannot.
	Version string
	// Root holds the agents' workdir and sessions where the registry's own paths mean
	// nothing, on another machine; empty: the registry's paths.
	Root string
	// Slots is how many turns run at a time; default 512.
	Slots int
	// Agents is how many agents are worked on at a time; default 1,024.
	Agents int
	// TTL of leases; default 15 s.
	TTL time.Duration
	// Keep is how long a lease is kept without work; default 10 s.
	Keep time.Duration
	// Poll is how long one call waits for work; default 25 s.
	Poll time.Duration
	// Grace is how long a drain lets turns run; default 30 s.
	Grace time.Duration
	// Quarantine is how long an agent is set aside after three panics in a
	// minute; default 5 min.
	Quarantine time.Duration

	// Backoff is the longest wait before the second try of a model call, and
	// doubles twice; default 1 s.
	Backoff time.Duration
	// Probe is the time between probes of a provider that cannot be reached;
	// default 30 s.
	Probe time.Duration

	// ProvidersFile is providers.yaml of the home; it may be missing.
	ProvidersFile string
	// PaiConfig is an existing pai configuration; empty looks in the usual places.
	PaiConfig string
	// Agent is the program `agent`, with which programs in the sandbox of an agent that
	// may do so ask for new agents; empty: they find their own, or none.
	Agent string
	// Servers is the directory below which MCP servers have their own directories, by agent; empty: those that
	// need one are not started.
	Servers string
	// Home is the directory of the home: containers are labeled with it, and show nothing of it that is not a working
	// directory.
	Home string
	// Docker is the program docker; empty: it is looked for on the PATH.
	Docker string
	// Sandbox is the template for agents whose sandbox.mode is not that of
	// Deps.Sandbox.
	Sandbox sandbox.Options
}

// Deps are the live things a runner works with.
type Deps struct {
	// Registry is the connection to the registry.
	Registry grpc.ClientConnInterface
	// Holder is this process in leases; see lease.NewHolder.
	Holder string
	// Sandbox runs the tools of agents with the mode of Config.Sandbox; nil is
	// made, and probed, when first needed.
	Sandbox *sandbox.Sandbox
	// Getenv reads the environment: provider keys and defaults.
	Getenv func(string) string
	// Abort, when closed, ends a drain at once; nil never does.
	Abort <-chan struct{}
	// Redactor is that of the Logger: it gets each key of a provider before the key is
	// used; nil: no keys are redacted.
	Redactor *redact.Redactor
	Metrics  *obs.RunnerMetrics
	Trace    *tracing.Tracer // nil: no traces
	Logger   *slog.Logger
}

func (c Config) withDefaults() Config {
	set(&c.Slots, batch.DefaultSlots)
	set(&c.Agents, 1024)
	set(&c.Keep, lease.GrantKeep)
	set(&c.Quarantine, 5*time.Minute)
	set(&c.Sandbox.Mode, sandbox.Required)
	return c
}

func (d Deps) withDefaults() Deps {
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.Metrics == nil {
		d.Metrics = obs.NewRunnerMetrics(nil)
	}
	if d.Getenv == nil {
		d.Getenv = func(string) string { return "" }
	}
	return d
}

func set[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}
