package feed

import (
	"fmt"
	"strings"
	"time"

	"github.com/theclaw/agents/cmd/agentctl/internal/chat/transcript"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Measured are the durations of a turn's tools.
func Measured(t *registry.Turn) map[string]time.Duration {
	took := map[string]time.Duration{}
	for _, s := range t.GetSteps() {
		if s.GetKind() == registry.StepKind_STEP_KIND_TOOL {
			took[s.GetCallId()] = s.GetDuration().AsDuration()
		}
	}
	return took
}

// Account is one line about what a reply took.
func Account(t *registry.Turn) string {
	models, tools := []string{}, 0
	for _, s := range t.GetSteps() {
		switch s.GetKind() {
		case registry.StepKind_STEP_KIND_TOOL:
			tools++
		case registry.StepKind_STEP_KIND_MODEL:
			if n := len(models); n == 0 || models[n-1] != s.GetName() {
				models = append(models, s.GetName())
			}
		default:
		}
	}
	parts := []string{strings.Join(models, ", ")}
	if u := t.GetUsage(); u.GetInput()+u.GetOutput() > 0 {
		in := fmt.Sprintf("%d tokens in", u.GetInput())
		if u.GetCachedInput() > 0 {
			in += fmt.Sprintf(" (%d cached)", u.GetCachedInput())
		}
		parts = append(parts, fmt.Sprintf("%s, %d out", in, u.GetOutput()))
	}
	if t.GetFinishedAt() != nil && t.GetQueuedAt() != nil {
		parts = append(parts, transcript.Span(t.GetFinishedAt().AsTime().Sub(t.GetQueuedAt().AsTime())))
	}
	switch tools {
	case 0:
	case 1:
		parts = append(parts, "1 tool")
	default:
		parts = append(parts, fmt.Sprintf("%d tools", tools))
	}
	return strings.Join(parts, " · ")
}
