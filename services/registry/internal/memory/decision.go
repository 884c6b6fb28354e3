package memory

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

const (
	// maxOthers is the most agents that are introduced to a system agent.
	maxOthers = 32
	// maxUsage is how much of a USAGE.md introduces its agent, in bytes and lines.
	maxUsage, maxUsageLines = 400, 4
)

// Decision is what a record/decision event tells of a digest (S0-80). It does
// not repeat the digest: that may hold what was said elsewhere (I14).
func Decision(req *registryv1.RecordCompactionRequest, name string, n int64) string {
	layer := strings.ToLower(strings.TrimPrefix(req.GetLayer().String(), "MEMORY_LAYER_"))
	d := struct {
		Decision string `json:"decision"`
		Layer    string `json:"layer"`
		File     string `json:"file"`
		Digested int64  `json:"digested_id,omitempty"`
		N        int64  `json:"compaction"`
		Strategy string `json:"strategy"`
		Messages int32  `json:"messages"`
		Version  string `json:"version,omitempty"`
	}{"compaction", layer, name, req.GetDigestedId(), n, req.GetStrategy(), req.GetMessages(), ""}
	if req.GetText() != "" {
		d.Version = agentdir.Version([]byte(req.GetText()))
	}
	b, err := json.Marshal(d)
	if err != nil { // strings and numbers always encode
		return "{}"
	}
	return string(b)
}

// Step is the row of the turn's journal, so that its tokens are counted.
func Step(req *registryv1.RecordCompactionRequest, n int64, content string) store.Step {
	u := req.GetUsage()
	layer := strings.ToLower(strings.TrimPrefix(req.GetLayer().String(), "MEMORY_LAYER_"))
	return store.Step{
		Seq: int(req.GetSeq()), Kind: store.StepCompaction, Key: fmt.Sprintf("compact:%s:%d", layer, n), State: store.StepDone,
		Name: req.GetModel(), Result: []byte(content), Duration: req.GetDuration().AsDuration(),
		Usage: store.Usage{Input: u.GetInput(), Output: u.GetOutput(), CachedInput: u.GetCachedInput(), CacheWrite: u.GetCacheWrite(), Reasoning: u.GetReasoning()},
	}
}

// OtherAgents introduces the other agents to a system agent by the beginning of
// their USAGE.md, which is written for callers (S0-24). An agent without one, or
// one that cannot be read, is left out.
func (s *Files) OtherAgents(ctx context.Context, set *agentdir.Agent) []*registryv1.AgentSummary {
	if set.Config.Kind != "system" {
		return nil
	}
	others, err := s.Agents.Usages(ctx, set.Dir.ID, maxOthers)
	if err != nil {
		s.Log.Warn("other agents left out of the prompt", "agent_id", set.Dir.ID, "error", err)
	}
	var out []*registryv1.AgentSummary
	for _, o := range others {
		if text := firstLines(o.Text); text != "" {
			out = append(out, &registryv1.AgentSummary{AgentId: o.Agent, Usage: text})
		}
	}
	return out
}

// firstLines is the beginning of a text, without headings and blank lines.
func firstLines(text string) string {
	var lines []string
	size := 0
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if size += len(line) + 1; size > maxUsage || len(lines) == maxUsageLines {
			break
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
