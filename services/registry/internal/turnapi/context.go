package turnapi

import (
	"context"
	"encoding/json"
	"path/filepath"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/route"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

func tupleText(t route.Tuple) string {
	b, err := json.Marshal(t)
	if err != nil {
		return ""
	}
	return string(b)
}

// delivery tells whether replies in a thread have a way out, and whether that
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

// contextNames are the parts of the prompt that are files, in their order. The names
// come from the tuple and the thread alone, so that no other peer's memory can be among
// them.
func contextNames(t route.Tuple, threadID string) []string {
	return []string{
		"IDENTITY.md", filepath.Join("memory", route.MemoryAgentFile),
		filepath.Join("memory", route.MemoryUserFile(t)), filepath.Join("memory", route.MemoryThreadFile(threadID)),
	}
}

// contextFiles reads them, unless all are in hand.
func (s *Service) contextFiles(ctx context.Context, id string, names []string, have map[string][]byte) []*registryv1.ContextFile {
	var out []*registryv1.ContextFile
	add := func(name string, data []byte, err error) {
		if err != nil {
			s.Log.Warn("file left out of the prompt", "agent_id", id, "file", name, "error", err)
		} else if len(data) > 0 {
			out = append(out, &registryv1.ContextFile{Name: name, Content: string(data)})
		}
	}
	if have == nil {
		s.Agents.Each(ctx, id, names, add)
		return out
	}
	for _, n := range names {
		add(n, have[n], nil)
	}
	return out
}
