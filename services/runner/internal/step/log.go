package step

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// InterruptedText is what the journal says about a call of a program that was interrupted.
const InterruptedText = "interrupted in the middle: what it was doing then may have happened or not"

// notBegunText is what the journal says about a call that waited for a person and is given up.
const notBegunText = "nothing was run: the model of the agent was changed while a person was asked"

// Log is what the journal holds of one turn, as far as it is known here. The
// zero value with Tools is an empty one.
type Log struct {
	// Tools answer what the calls of the turn have sent to the peer.
	Tools *toolset.Tools

	answers, tools map[string]*registrypb.Step
	steers, blocks map[string]*registrypb.Step
	transcripts    map[string]*registrypb.Step // nil: there are none
	order          []string                    // keys of tools in the order of the journal
	seq            int32
	calls          int
}

// Add keeps a step that is in the journal.
func (l *Log) Add(s *registrypb.Step) {
	if l.answers == nil {
		l.answers, l.tools = map[string]*registrypb.Step{}, map[string]*registrypb.Step{}
		l.steers, l.blocks = map[string]*registrypb.Step{}, map[string]*registrypb.Step{}
	}
	l.seq = max(l.seq, s.GetSeq())
	switch s.GetKind() {
	case registrypb.StepKind_STEP_KIND_MODEL:
		if l.answers[s.GetKey()] == nil && OfProgram(s) {
			l.calls++
		}
		l.answers[s.GetKey()] = s
	case registrypb.StepKind_STEP_KIND_TOOL:
		if l.tools[s.GetKey()] == nil {
			l.order = append(l.order, s.GetKey())
		}
		l.tools[s.GetKey()] = s
	case registrypb.StepKind_STEP_KIND_STEER:
		l.steers[s.GetKey()] = s
	case registrypb.StepKind_STEP_KIND_BLOCK:
		l.blocks[s.GetKey()] = s
	case registrypb.StepKind_STEP_KIND_TRANSCRIPT:
		if l.transcripts == nil {
			l.transcripts = map[string]*registrypb.Step{}
		}
		l.transcripts[s.GetKey()] = s
	default:
	}
}

// NextSeq is the number of the next step.
func (l *Log) NextSeq() int32 {
	l.seq++
	return l.seq
}

// Answer is a model step, or nil.
func (l *Log) Answer(key string) *registrypb.Step { return l.answers[key] }

// External reports whether a tool before the step with this number has an external result.
func (l *Log) External(seq int32) bool {
	for _, s := range l.tools {
		if s.GetExternal() && s.GetSeq() < seq && s.GetState() != registrypb.StepState_STEP_STATE_INTENT {
			return true
		}
	}
	return false
}

// Answers returns the answers of the model in the journal, in no order.
func (l *Log) Answers() []*registrypb.Step { return slices.Collect(maps.Values(l.answers)) }

// Tool is a tool step, or nil.
func (l *Log) Tool(key string) *registrypb.Step { return l.tools[key] }

// Steer is a steer step, or nil.
func (l *Log) Steer(key string) *registrypb.Step { return l.steers[key] }

// Calls counts the calls of a program.
func (l *Log) Calls() int { return l.calls }

// Open are the tool steps that began and have no end, in their order.
func (l *Log) Open() (open []*registrypb.Step) {
	for _, key := range l.order {
		if s := l.tools[key]; s.GetState() == registrypb.StepState_STEP_STATE_INTENT {
			open = append(open, s)
		}
	}
	return open
}

// InDoubt are the open tools as they are to be journaled when no one will end
// them: in doubt, unless they still waited for a person.
func (l *Log) InDoubt() (rows []*registrypb.Step) {
	for _, s := range l.Open() {
		if s.GetNotBegun() {
			rows = append(rows, WithResult(s, registrypb.StepState_STEP_STATE_DONE, toolset.Problem(notBegunText)))
			continue
		}
		rows = append(rows, WithResult(s, registrypb.StepState_STEP_STATE_IN_DOUBT, toolset.Problem(toolset.Unknown)))
	}
	return rows
}

// Interrupted is the same for a program: its calls without an end, and their tools.
func (l *Log) Interrupted() (rows []*registrypb.Step) {
	for n := 1; n <= l.calls; n++ {
		if s := l.answers[CallKey(n)]; s.GetState() == registrypb.StepState_STEP_STATE_INTENT {
			rows = append(rows, WithResult(s, registrypb.StepState_STEP_STATE_IN_DOUBT, NoAnswer(InterruptedText)))
		}
	}
	for _, s := range l.InDoubt() {
		if OfProgram(s) {
			rows = append(rows, s)
		}
	}
	return rows
}

// Messages are the tools that have ended, as a model reads them; of a program only, or
// all.
func (l *Log) Messages(programOnly bool) (said []model.Message) {
	for _, key := range l.order {
		s := l.tools[key]
		if programOnly && !OfProgram(s) || s.GetState() == registrypb.StepState_STEP_STATE_INTENT {
			continue
		}
		said = append(said,
			model.Message{Role: model.RoleAssistant, ToolCalls: []model.ToolCall{{ID: s.GetCallId(), Name: s.GetName(), Arguments: []byte(s.GetArguments())}}},
			model.Message{Role: model.RoleTool, ToolCallID: s.GetCallId(), Name: s.GetName(), Text: string(s.GetResult())})
	}
	return said
}

// WithResult is a step with its end.
func WithResult(s *registrypb.Step, state registrypb.StepState, result []byte) *registrypb.Step {
	s = proto.CloneOf(s)
	s.State, s.Result = state, result
	return s
}
