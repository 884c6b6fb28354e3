package turns

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/source"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// withOwners are the settings with the people who were made owners with their pairing. A home without
// accounts has none.
func (s *Service) withOwners(ctx context.Context, set *agentdir.Agent) (*agentdir.Agent, error) {
	if len(set.Accounts) == 0 {
		return set, nil
	}
	paired, err := s.Owners.PairedOwners(ctx)
	if err != nil {
		return nil, s.Fault("", "", err)
	}
	if len(paired) == 0 {
		return set, nil
	}
	out := *set
	out.Owners = append(paired, set.Owners...)
	return &out, nil
}

// fromOwner reports whether an owner of the home wrote a message.
func fromOwner(set *agentdir.Agent, from string) bool { return source.IsOwner(from, set.Owners) }

// owners are the owners of a home in a fixed order, so that the prompts of all turns have the same bytes.
func owners(set *agentdir.Agent) []string {
	if len(set.Owners) == 0 {
		return nil
	}
	return slices.Compact(slices.Sorted(slices.Values(set.Owners)))
}

// mayElevate reports whether commands of a message may leave the sandbox.
func mayElevate(set *agentdir.Agent, from string) bool {
	a, err := source.Parse(from)
	return err == nil && a.Kind == source.External && slices.ContainsFunc(set.Config.Tools.Elevated.AllowFrom, func(s string) bool {
		return s == config.FromOwners && fromOwner(set, from) || s == a.ChannelType+":"+a.PeerID
	})
}

// beginnerOf is the source of a message, or of the one that has started the process whose end it reports: the registry
// alone writes such events.
func beginnerOf(ev thread.Event) string {
	if a, err := source.Parse(ev.Source); err != nil || !a.AboutProcess() { // what can be read in two ways is no one's
		return ev.Source
	}
	var process struct{ From string }
	_ = json.Unmarshal([]byte(ev.Content), &process) // what does not say it is no owner's
	return process.From
}

// setForSpeaker decides what follows from who wrote the message of a turn: by its source alone, never by its text.
func setForSpeaker(c *registryv1.TurnConfig, set *agentdir.Agent, ev thread.Event, se *store.Session) {
	if g := c.GetExternalGuard(); g != nil {
		g.Outsider = !fromOwner(set, beginnerOf(ev))
	}
	if e := c.GetElevated(); e != nil {
		e.Allowed = mayElevate(set, ev.Source)
		if se != nil && se.Elevated != "" {
			e.Mode = se.Elevated
		}
	}
}

// reads reports whether a person may read the arguments and the results of the calls for a message, and what the model
// thinks about it. They hold paths, commands and what others wrote, so they are for an owner, and for a conversation
// that no other person reads (S1-53).
func reads(set *agentdir.Agent, from string) bool {
	a, err := source.Parse(from)
	return err == nil && a.SessionType == source.DM && fromOwner(set, from)
}

// verboseNames shows the tools without their arguments.
const verboseNames = "names"

// setParts decides what precedes the text of the reply to a message. Where no channel sends the reply to a person it has
// the text alone: a console follows the run, and another agent would take the rest for words of this one.
func setParts(c *registryv1.TurnConfig, set *agentdir.Agent, from string, sent, console bool) {
	p := c.GetParts()
	if p.GetVerbose() != config.VerboseOff || p.GetReasoning() == config.ReasoningBlock {
		all := sent && reads(set, from)
		switch {
		case !sent:
			p.Verbose = config.VerboseOff
		case !all && p.GetVerbose() != config.VerboseOff:
			p.Verbose = verboseNames
		}
		if p.GetReasoning() == config.ReasoningBlock && !all {
			p.Reasoning = config.ReasoningOff
			if console {
				p.Reasoning = config.ReasoningStream
			}
		}
	}
	if !sent || p.GetVerbose() != config.VerboseOff || p.GetReasoning() == config.ReasoningBlock {
		c.Blocks = nil // there is no person to send them to, or what precedes the text is known at its end
	}
}
