package step

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// programs is how keys of calls of a program begin.
const programs = "pai:"

// CallKey is the key of a program's call, from 1.
func CallKey(n int) string { return fmt.Sprintf("%s%d", programs, n) }

// UseKey is the key of the jth tool of a call, both from 1.
func UseKey(n, j int) string { return fmt.Sprintf("%s%d:%d", programs, n, j) }

// OfProgram reports whether a step is a program's.
func OfProgram(s *registrypb.Step) bool { return strings.HasPrefix(s.GetKey(), programs) }

// ProgramCall is the journal row of a call that is about to begin.
func ProgramCall(seq int32, n int, provider string, req model.Request) *registrypb.Step {
	return &registrypb.Step{
		Seq: seq, Kind: registrypb.StepKind_STEP_KIND_MODEL, Key: CallKey(n), RequestSha256: hash(req),
		Class: registrypb.ToolClass_TOOL_CLASS_EFFECT, State: registrypb.StepState_STEP_STATE_INTENT, Name: Clip(provider+"/"+req.Model, 256),
	}
}

// NoAnswer is the result of a call without one.
func NoAnswer(why string) []byte {
	b, err := encode(Answer{Error: ErrorText(why)})
	if err != nil { // strings always encode
		return []byte("{}")
	}
	return b
}

// ProgramTool is the journal row of a tool that a program begins.
func ProgramTool(seq int32, n, j int, c model.ToolCall) *registrypb.Step {
	args := c.Arguments
	if len(args) > toolset.MaxArguments {
		args, _ = json.Marshal(map[string]string{"cut": Clip(string(args), toolset.MaxArguments/8)})
	}
	sum := sha256.Sum256(c.Arguments)
	return &registrypb.Step{
		Seq: seq, Kind: registrypb.StepKind_STEP_KIND_TOOL, Key: UseKey(n, j), RequestSha256: sum[:],
		Class: registrypb.ToolClass_TOOL_CLASS_EFFECT, State: registrypb.StepState_STEP_STATE_INTENT,
		Name: Clip(c.Name, 256), CallId: c.ID, Arguments: string(args), Summary: toolset.Line(c.Name + " " + Clip(string(args), 4*toolset.MaxSummary)),
	}
}
