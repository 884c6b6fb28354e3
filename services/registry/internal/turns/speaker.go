package turns

import (
	"slices"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/source"
	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// consoleType is the channel of `agentctl chat`, which is the owner's.
const consoleType = "console"

// setForSpeaker decides what follows from who wrote the message of a turn: by its source alone, never by its text.
func setForSpeaker(c *registryv1.TurnConfig, set *agentdir.Agent, from string, se *store.Session) {
	a, err := source.Parse(from) // what can be read in two ways is no one's
	person := err == nil && a.Kind == source.External
	who := a.ChannelType + ":" + a.PeerID
	owner := person && (a.ChannelType == consoleType || slices.Contains(set.Owners, who))
	if g := c.GetExternalGuard(); g != nil {
		g.Outsider = !owner && !(err == nil && a.AboutProcess()) // the registry itself reports about a process
	}
	if e := c.GetElevated(); e != nil {
		e.Allowed = person && slices.ContainsFunc(set.Config.Tools.Elevated.AllowFrom, func(s string) bool {
			return s == config.FromOwners && owner || s == who
		})
		if se != nil && se.Elevated != "" {
			e.Mode = se.Elevated
		}
	}
}
