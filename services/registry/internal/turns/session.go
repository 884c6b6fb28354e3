package turns

import (
	"strings"
	"time"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/sessionkey"
	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// sessionOf is what a claim must know of the session of its conversation; nil: it has none.
func sessionOf(agentID, threadID string, set *agentdir.Agent, origin *store.Origin, t route.Tuple) *store.BeginSession {
	b := &store.BeginSession{}
	if origin != nil && origin.Key != "" {
		b.Key = origin.Key
	} else if k, ok := sessionkey.OfThread(agentID, threadID, set.Config.Session.MainKey, t); ok {
		b.Key = k.String()
	} else {
		return nil
	}
	reset := set.Config.Session.Reset
	if reset.Daily() {
		b.Before = reset.Before(time.Now(), set.Config.Zone())
	}
	if reset.Idles() {
		b.Idle = reset.Idle
	}
	return b
}

// setForSession makes what people set for a conversation count over the agent's settings.
func setForSession(c *registryv1.TurnConfig, s *store.Session) {
	if s.Model != "" {
		c.Model = s.Model
		if provider, model, ok := strings.Cut(s.Model, "/"); ok {
			c.Provider, c.Model = provider, model
		}
	}
	c.Thinking = s.Thinking
}
