package memory

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

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

// decision is the content of a record/decision event about a digest.
type decision struct {
	Decision string `json:"decision"`
	Layer    string `json:"layer"`
	File     string `json:"file"`
	Digested int64  `json:"digested_id,omitempty"`
	N        int64  `json:"compaction"`
	Strategy string `json:"strategy"`
	Messages int32  `json:"messages"`
	Version  string `json:"version,omitempty"`
	Model    string `json:"model,omitempty"`
	Usage    *usage `json:"usage,omitempty"`
	MS       int64  `json:"duration_ms,omitempty"`
}

type usage struct {
	Input      int64 `json:"input"`
	Output     int64 `json:"output"`
	Cached     int64 `json:"cached_input,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
	Reasoning  int64 `json:"reasoning,omitempty"`
}

// Decision returns the content of the record/decision event of a digest (S0-80), with its
// cost. It does not repeat the digest, which may hold text of other conversations (I14).
func Decision(req *registryv1.RecordCompactionRequest, name string, n int64) string {
	layer := strings.ToLower(strings.TrimPrefix(req.GetLayer().String(), "MEMORY_LAYER_"))
	d := decision{
		Decision: "compaction", Layer: layer, File: name, Digested: req.GetDigestedId(), N: n, Strategy: req.GetStrategy(), Messages: req.GetMessages(),
		Model: req.GetModel(), MS: req.GetDuration().AsDuration().Milliseconds(),
	}
	if req.GetText() != "" {
		d.Version = agentdir.Version([]byte(req.GetText()))
	}
	if u := req.GetUsage(); req.GetModel() != "" {
		d.Usage = &usage{u.GetInput(), u.GetOutput(), u.GetCachedInput(), u.GetCacheWrite(), u.GetReasoning()}
	}
	b, err := json.Marshal(d)
	if err != nil { // strings and numbers always encode
		return "{}"
	}
	return string(b)
}

// Step is the journal's row of a decision, so that its tokens are counted: that of
// the turn it was made in, or its own.
func Step(content string) store.Step {
	var d decision
	if json.Unmarshal([]byte(content), &d) != nil { // it is ours
		return store.Step{}
	}
	s := store.Step{
		Kind: store.StepCompaction, Key: fmt.Sprintf("compact:%s:%d", d.Layer, d.N), State: store.StepDone,
		Name: d.Model, Result: []byte(content), Duration: time.Duration(d.MS) * time.Millisecond,
	}
	if u := d.Usage; u != nil {
		s.Usage = store.Usage{Input: u.Input, Output: u.Output, CachedInput: u.Cached, CacheWrite: u.CacheWrite, Reasoning: u.Reasoning}
	}
	return s
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
