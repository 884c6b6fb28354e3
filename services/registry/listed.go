package registry

import (
	"context"
	"log/slog"
	"time"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/agents"
	"github.com/theclaw/agents/services/registry/internal/channels"
	"github.com/theclaw/agents/services/registry/internal/pins"
	"github.com/theclaw/agents/services/registry/internal/routing"
	"github.com/theclaw/agents/services/registry/internal/settings"
)

// listedEvery is how often the settings of the home are compared with those that the listed
// agents were last made by. Of a file that has not changed only its times are read.
const listedEvery = 2 * time.Second

// listed makes the agents of agents.list that do not exist, and starts those for which neither
// a start nor a stop was ever requested: after a crash between the two steps the next run
// finds such an agent. It does both once for each version of the settings, so that an agent
// that is deleted meanwhile is not made again. It also has the tools of MCP servers forgotten that are no longer in the
// settings, and the people of accounts about whom nothing holds any more, and sends new settings to those who watch them.
type listed struct {
	home interface {
		routing.Home
		Missing(id string) bool
	}
	agents *agents.Service
	pins   *pins.Service
	people *channels.Service
	// settings has watchers, who are sent what is new.
	settings *settings.Service
	states   interface {
		State(ctx context.Context, agent string) (store.InboxState, error)
	}
	log     *slog.Logger
	metrics *obs.RegistryMetrics

	done    string // the version that is complete
	refused string // the version and the agent of the last problem in the log
}

func (l *listed) run(ctx context.Context) {
	tick := time.NewTicker(listedEvery)
	defer tick.Stop()
	for {
		l.scan(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// scan makes what is missing. A problem is logged once for a version and tried again.
func (l *listed) scan(ctx context.Context) {
	l.settings.LogRefused(ctx, l.log)
	s, err := l.home.HomeSettings(ctx)
	if err == nil {
		l.settings.Seen(s.Version)
		l.metrics.SetBindings(len(s.Bindings))
		if err := l.pins.PruneSettled(ctx, s); err != nil && ctx.Err() == nil {
			l.log.Warn("tools of removed MCP servers are not forgotten", "error", fault.Chain(err))
		}
		if err := l.people.Prune(ctx); err != nil && ctx.Err() == nil {
			l.log.Warn("pairings that have ended are not forgotten", "error", fault.Chain(err))
		}
	}
	if err != nil || s.Version == l.done {
		return // the problem is reported by what reads settings for a message
	}
	complete := true
	for _, e := range s.Agents {
		if err := l.ensure(ctx, e.ID); err != nil && ctx.Err() == nil {
			complete = false
			if at := s.Version + e.ID; at != l.refused {
				l.refused = at
				l.log.Warn("an agent of agents.list is not started", "agent_id", e.ID, "error", fault.Chain(err))
			}
		}
	}
	if complete && ctx.Err() == nil {
		l.done = s.Version
	}
}

func (l *listed) ensure(ctx context.Context, id string) error {
	if l.home.Missing(id) {
		if _, err := l.agents.Make(ctx, id, agentdir.Spec{}); err != nil && !fault.Is(err, fault.AgentExists) {
			return err
		}
		fault.Point("registry:listed") // killed here: the agent has no desired state
	}
	state, err := l.states.State(ctx, id)
	if err != nil || state.Started || !state.Undecided {
		return err
	}
	_, err = l.agents.StartAgent(ctx, &registryv1.StartAgentRequest{AgentId: id})
	return err
}
