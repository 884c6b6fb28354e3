package turn

import (
	"time"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// maxTries is how many failed tries of a model end a turn; default 3.
func maxTries(c *registrypb.TurnConfig) int {
	if n := int(c.GetMaxAttempts()); n > 0 {
		return n
	}
	return 3
}

// maxTime is how long a turn may take; default 10 min (S1-12).
func maxTime(c *registrypb.TurnConfig) time.Duration {
	if d := c.GetTimeout().AsDuration(); d > 0 {
		return d
	}
	return 10 * time.Minute
}

// maxAge is how long a message waits for a provider that is down; default 24 h.
func maxAge(c *registrypb.TurnConfig) time.Duration {
	if d := c.GetRetryMaxAge().AsDuration(); d > 0 {
		return d
	}
	return 24 * time.Hour
}
