package hook

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/toolpolicy"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Limits of hooks.
const (
	Max = 64 // hooks of an agent, those of the home included

	DefaultTimeout = 5 * time.Second
	LeastTimeout   = 100 * time.Millisecond
	MostTimeout    = time.Minute

	MostPriority = 1000 // and the least is its negative
)

// Words of on_failure.
const (
	Open   = "open"
	Closed = "closed"
)

// Hook is a program that is called at events.
type Hook struct {
	Name    string
	Events  []string
	Match   Match
	Command []string
	// Priority orders hooks, the highest first; 0 by default.
	Priority int
	Timeout  time.Duration // of one call; DefaultTimeout by default
	// OnFailure is open or closed; empty: what the event says.
	OnFailure string
	Env       map[string]string // references
	// OfHome is true for a hook of theclaw.yaml, false for one of a config.yaml.
	OfHome bool
}

// Match selects events by globs, in which * matches any characters. A list without an entry matches all.
type Match struct{ Agents, Sessions, Channels []string }

// nameRule is the form of a name.
var nameRule = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// Problem is what is wrong with a hook of the settings, and with which of its keys; empty: nothing.
func (h Hook) Problem() (key, problem string) {
	if !nameRule.MatchString(h.Name) {
		return "name", "a hook has a name of lower-case letters, digits, _ and -, at most 64"
	}
	if len(h.Events) == 0 {
		return "events", "name one or more of " + strings.Join(Known(), ", ")
	}
	for _, name := range h.Events {
		s := find(name)
		switch {
		case s == nil:
			return "events", fmt.Sprintf("there is no event %.64q that is called; there are %s", name, strings.Join(Known(), ", "))
		case s.home && !h.OfHome:
			return "events", name + " is before an agent is chosen; set this hook in theclaw.yaml"
		case s.home && len(h.Match.Agents)+len(h.Match.Sessions) > 0:
			return "match", name + " is before an agent is chosen; leave out agents and sessions"
		case !s.channel && len(h.Match.Channels) > 0:
			return "match", name + " is of no account; leave out channels"
		}
	}
	switch {
	case h.Priority < -MostPriority || h.Priority > MostPriority:
		return "priority", fmt.Sprintf("%d is not between %d and %d", h.Priority, -MostPriority, MostPriority)
	case h.Timeout < LeastTimeout || h.Timeout > MostTimeout:
		return "timeout", fmt.Sprintf("%s is not between %s and %s", h.Timeout, LeastTimeout, MostTimeout)
	case h.OnFailure != "" && h.OnFailure != Open && h.OnFailure != Closed:
		return "on_failure", fmt.Sprintf("%.64q is not %s or %s", h.OnFailure, Open, Closed)
	}
	return "", ""
}

// For returns the hooks that are called at one of the events and may concern the agent, in their order
// in the settings.
func For(hooks []Hook, agent string, events ...string) (out []Hook) {
	for _, h := range hooks {
		if h.Match.agent(agent) && slices.ContainsFunc(events, func(e string) bool { return h.at(e) > 0 }) {
			out = append(out, h)
		}
	}
	return out
}

// Matches reports whether the hook is called at an event.
func (h Hook) Matches(e *Event) bool {
	return h.IsFor(e.Name) && h.Match.agent(e.Agent) && anyOf(h.Match.Sessions, e.SessionKey) && anyOf(h.Match.Channels, e.Payload.Account)
}

// IsFor reports whether the hook names an event, or the general one of it.
func (h Hook) IsFor(event string) bool { return h.at(event) > 0 }

// at is 1 when the hook names the general event of one, 2 when it names only the event, and 0 when it names neither.
func (h Hook) at(event string) int {
	if s := find(event); s != nil && s.of != "" && slices.Contains(h.Events, s.of) {
		return 1
	}
	if slices.Contains(h.Events, event) {
		return 2
	}
	return 0
}

func (m Match) agent(id string) bool { return anyOf(m.Agents, id) }

func anyOf(globs []string, text string) bool {
	return len(globs) == 0 || slices.ContainsFunc(globs, func(g string) bool { return toolpolicy.Match(g, text) })
}

// closed reports whether a failure of the hook stops what is about to happen.
func (h Hook) closed(s *spec) bool {
	return h.OnFailure == Closed || h.OnFailure == "" && s.closed
}

// matching returns the hooks that are called at an event, in their order.
func matching(hooks []Hook, e *Event) (out []Hook) {
	for _, h := range hooks {
		if h.Matches(e) {
			out = append(out, h)
		}
	}
	slices.SortStableFunc(out, func(a, b Hook) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.at(e.Name), b.at(e.Name)))
	})
	return out
}

// Proto converts hooks for a call.
func Proto(hooks []Hook) (out []*registrypb.Hook) {
	for _, h := range hooks {
		out = append(out, &registrypb.Hook{
			Name: h.Name, Events: h.Events, Agents: h.Match.Agents, Sessions: h.Match.Sessions, Channels: h.Match.Channels, Command: h.Command,
			Priority: int32(h.Priority), Timeout: durationpb.New(h.Timeout), OnFailure: h.OnFailure, Env: h.Env, OfHome: h.OfHome,
		})
	}
	return out
}

// FromProto converts the hooks of a call.
func FromProto(hooks []*registrypb.Hook) (out []Hook) {
	for _, h := range hooks {
		out = append(out, Hook{
			Name: h.GetName(), Events: h.GetEvents(), Match: Match{h.GetAgents(), h.GetSessions(), h.GetChannels()}, Command: h.GetCommand(),
			Priority: int(h.GetPriority()), Timeout: h.GetTimeout().AsDuration(), OnFailure: h.GetOnFailure(), Env: h.GetEnv(), OfHome: h.GetOfHome(),
		})
	}
	return out
}
