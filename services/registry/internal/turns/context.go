package turns

import (
	"encoding/json"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/route"
)

func tupleText(t route.Tuple) string {
	b, err := json.Marshal(t)
	if err != nil {
		return ""
	}
	return string(b)
}

// delivery reports whether replies in a thread have a way out, and whether that
// way is a client that watches.
func delivery(set *agentdir.Agent, t route.Tuple, threadID string) (deliver, console bool) {
	switch {
	case t.Internal:
		return true, false
	case t.ChannelType == "console":
		return true, true
	}
	_, ok := set.Config.Via(threadID)
	return ok, false
}
