package turns

import (
	"encoding/json"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/route"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// withIdentity adds the identity that the settings give the agent to its IDENTITY.md, which
// is the first of the files.
func withIdentity(set *agentdir.Agent, files []*registryv1.ContextFile) []*registryv1.ContextFile {
	i := set.Entry.Identity
	return config.AddIdentity(files, i.Name, i.Theme, i.Emoji)
}

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
