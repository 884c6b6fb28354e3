// Package outcome owns what a finished turn is to the caller of its run: the parts
// of its reply, and which kind of end it had. It promises the same answer for the
// same journal, and asks nobody.
package outcome

import (
	"strings"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/step"
	"github.com/theclaw/agents/services/runner/internal/tool"
)

// Payloads are what a turn has brought forth: what it thought last, which tools
// ran, and what it has said, on the way and at the end (S1-53).
func Payloads(t *registrypb.Turn) (out []*runnerpb.Payload) {
	add := func(kind runnerpb.PayloadKind, text string) {
		if text != "" {
			out = append(out, &runnerpb.Payload{Kind: kind, Text: text})
		}
	}
	var last step.Answer
	var book step.Book
	for _, st := range t.GetSteps() {
		book.Learn(st)
		switch st.GetKind() {
		case registrypb.StepKind_STEP_KIND_MODEL:
			if a, err := step.Decode(st.GetResult()); err == nil {
				last = a
				for _, said := range a.Says(st.GetKey()) {
					add(runnerpb.PayloadKind_PAYLOAD_KIND_TEXT, said.GetText())
				}
			}
		case registrypb.StepKind_STEP_KIND_TOOL:
			why := tool.Failure(st.GetResult())
			if _, says := step.Send(st.GetKey(), []byte(st.GetArguments())); st.GetName() == tool.Send && why == "" && len(says) > 0 {
				add(runnerpb.PayloadKind_PAYLOAD_KIND_TEXT, says[0].GetText())
				continue
			}
			line := st.GetName()
			if why != "" {
				line += ": " + why
			}
			add(runnerpb.PayloadKind_PAYLOAD_KIND_TOOL, line)
		default:
		}
	}
	add(runnerpb.PayloadKind_PAYLOAD_KIND_REASONING, last.Reasoning)
	add(runnerpb.PayloadKind_PAYLOAD_KIND_TEXT, book.Reply(last))
	return out
}

// Text is the last thing that was said; empty when nothing was.
func Text(list []*runnerpb.Payload) (text string) {
	for _, p := range list {
		if p.GetKind() == runnerpb.PayloadKind_PAYLOAD_KIND_TEXT {
			text = p.GetText()
		}
	}
	return text
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
