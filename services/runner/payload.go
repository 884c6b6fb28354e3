package runner

import (
	"strings"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/step"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// payloads are the parts of a finished turn's reply, from its journal: what it thought last,
// where clients are shown it, which tools ran, and what it has said, on the way and at the end (S1-53).
func payloads(tools *toolset.Tools, t *registrypb.Turn) (out []*runnerpb.Payload) {
	add := func(kind runnerpb.PayloadKind, text string) {
		if text != "" {
			out = append(out, &runnerpb.Payload{Kind: kind, Text: text})
		}
	}
	var last step.Answer
	book := step.Log{Tools: tools}
	for _, st := range t.GetSteps() {
		book.Add(st)
		switch st.GetKind() {
		case registrypb.StepKind_STEP_KIND_MODEL:
			if a, err := step.Decode(st.GetResult()); err == nil {
				last = a
				add(runnerpb.PayloadKind_PAYLOAD_KIND_TEXT, a.Output())
			}
		case registrypb.StepKind_STEP_KIND_TOOL:
			if sent := tools.Sent(st); len(sent) > 0 {
				for _, m := range sent {
					add(runnerpb.PayloadKind_PAYLOAD_KIND_TEXT, m.Text)
				}
				continue
			}
			line := st.GetName()
			if why := toolset.Failure(st.GetResult()); why != "" {
				line += ": " + why
			}
			add(runnerpb.PayloadKind_PAYLOAD_KIND_TOOL, line)
		default:
		}
	}
	add(runnerpb.PayloadKind_PAYLOAD_KIND_REASONING, last.Shown())
	add(runnerpb.PayloadKind_PAYLOAD_KIND_TEXT, book.LastText(last))
	return out
}

// lastText is the last thing that was said; empty when nothing was.
func lastText(list []*runnerpb.Payload) (text string) {
	for _, p := range list {
		if p.GetKind() == runnerpb.PayloadKind_PAYLOAD_KIND_TEXT {
			text = p.GetText()
		}
	}
	return text
}

var endCodes = []struct {
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

// endCode distinguishes ends by the class that their error begins with (S1-61).
func endCode(t *registrypb.Turn) runnerpb.RunError {
	if t.GetFate() == registrypb.Fate_FATE_ABORTED {
		return runnerpb.RunError_RUN_ERROR_ABORTED
	}
	for _, c := range endCodes {
		if strings.HasPrefix(t.GetError(), c.class) {
			return c.code
		}
	}
	if t.GetThreadId() == "" {
		return runnerpb.RunError_RUN_ERROR_OTHER // it had no route
	}
	return runnerpb.RunError_RUN_ERROR_MODEL
}
