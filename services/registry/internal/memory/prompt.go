package memory

import (
	"context"
	"path/filepath"

	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/sessionkey"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Names are the parts of the prompt that are files, in their order. The names
// come from the tuple and the thread alone, so that no other peer's memory can be among
// them. In the conversation of a group they are without that of the author: it knows what was
// written in private, and the group reads the answer.
func Names(t route.Tuple, threadID string) []string {
	names := append(make([]string, 0, 4), "IDENTITY.md", filepath.Join("memory", route.MemoryAgentFile))
	if !sessionkey.OfGroup(threadID) {
		names = append(names, filepath.Join("memory", route.MemoryUserFile(t)))
	}
	return append(names, filepath.Join("memory", route.MemoryThreadFile(threadID)))
}

// Read reads them, unless all are in hand.
func (f *Files) Read(ctx context.Context, id string, names []string, have map[string][]byte) []*registryv1.ContextFile {
	var out []*registryv1.ContextFile
	add := func(name string, data []byte, err error) {
		if err != nil {
			f.Log.Warn("file left out of the prompt", "agent_id", id, "file", name, "error", err)
		} else if len(data) > 0 {
			out = append(out, &registryv1.ContextFile{Name: name, Content: string(data)})
		}
	}
	if have == nil {
		f.Agents.Each(ctx, id, names, add)
		return out
	}
	for _, n := range names {
		add(n, have[n], nil)
	}
	return out
}
