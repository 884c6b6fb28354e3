// Package outcome owns what a finished turn is to the caller of its run: the parts
// of its reply, and which kind of end it had. It promises the same answer for the
// same journal, and asks nobody.
package outcome

import (
	"strings"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/hush"
	"github.com/theclaw/agents/services/runner/internal/step"
	"github.com/theclaw/agents/services/runner/internal/tool"
)

// Payloads are what a turn has brought forth: what it thought last, which tools
// ran, and its last answer (S1-53).
func Payloads(t *registrypb.Turn) (out []*runnerpb.Payload) {
	var last step.Answer
	for _, st := range t.GetSteps() {
		switch st.GetKind() {
		case registrypb.StepKind_STEP_KIND_MODEL:
			if a, err := step.Decode(st.GetResult()); err == nil {
				last = a
			}
		case registrypb.StepKind_STEP_KIND_TOOL:
			line := st.GetName()
			if why := tool.Failure(st.GetResult()); why != "" {
				line += ": " + why
			}
			out = append(out, &runnerpb.Payload{Kind: runnerpb.PayloadKind_PAYLOAD_KIND_TOOL, Text: line})
		default:
		}
	}
	if last.Reasoning != "" {
		out = append(out, &runnerpb.Payload{Kind: runnerpb.PayloadKind_PAYLOAD_KIND_REASONING, Text: last.Reasoning})
	}
	return append(out, &runnerpb.Payload{Kind: runnerpb.PayloadKind_PAYLOAD_KIND_TEXT, Text: hush.Text(last.Text)})
}

var codes = []struct {
	class string
	code  runnerpb.RunError
}{
	{"timeout: ", runnerpb.RunError_RUN_ERROR_TIMEOUT},
	{"tool loop: ", runnerpb.RunError_RUN_ERROR_TOOL_LOOP},
	{"in doubt: ", runnerpb.RunError_RUN_ERROR_IN_DOUBT},
	{"panic: ", runnerpb.RunError_RUN_ERROR_PANIC},
	{"the process died", runnerpb.RunError_RUN_ERROR_CRASHED},
	{"journal: ", runnerpb.RunError_RUN_ERROR_OTHER},
}

// Code tells ends apart by the class that their error begins with (S1-61).
func Code(t *registrypb.Turn) runnerpb.RunError {
	if t.GetFate() == registrypb.Fate_FATE_ABORTED {
		return runnerpb.RunError_RUN_ERROR_ABORTED
	}
	for _, c := range codes {
		if strings.HasPrefix(t.GetError(), c.class) {
			return c.code
		}
	}
	if t.GetThreadId() == "" {
		return runnerpb.RunError_RUN_ERROR_OTHER // it had no route
	}
	return runnerpb.RunError_RUN_ERROR_MODEL
}
