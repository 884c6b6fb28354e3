package turn

import (
	"time"

	"github.com/theclaw/agents/internal/agentdir/config"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// defaults apply where a claim has no limit.
var defaults = config.Default()

// maxTries is how many failed tries of a model end a turn.
func maxTries(c *registrypb.TurnConfig) int {
	if n := int(c.GetMaxAttempts()); n > 0 {
		return n
	}
	return defaults.Retry.MaxAttempts
}

// maxTime is how long a turn may take (S1-12).
func maxTime(c *registrypb.TurnConfig) time.Duration {
	if d := c.GetTimeout().AsDuration(); d > 0 {
		return d
	}
	return defaults.Run.Timeout
}

// maxAge is how long a message waits for a provider that is down.
func maxAge(c *registrypb.TurnConfig) time.Duration {
	if d := c.GetRetryMaxAge().AsDuration(); d > 0 {
		return d
	}
	return defaults.Retry.MaxAge
}
