package step

import (
	"google.golang.org/protobuf/proto"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// CutShort is what the journal says about a call of a program that was interrupted.
const CutShort = "interrupted in the middle: what it was doing then may have happened or not"

// Book is what the journal holds of one turn, as far as it is known here. The
// zero value with Tools is an empty one.
type Book struct {
	// Tools answer what the calls of the turn have sent to the peer.
	Tools *toolset.Tools

	answers, tools map[string]*registrypb.Step
	steers         map[string]*registrypb.Step
	order          []string // keys of tools in the order of the journal
	seq            int32
	calls          int
}

// Learn keeps a step that is in the journal.
func (b *Book) Learn(s *registrypb.Step) {
	if b.answers == nil {
		b.answers, b.tools, b.steers = map[string]*registrypb.Step{}, map[string]*registrypb.Step{}, map[string]*registrypb.Step{}
	}
	b.seq = max(b.seq, s.GetSeq())
	switch s.GetKind() {
	case registrypb.StepKind_STEP_KIND_MODEL:
		if b.answers[s.GetKey()] == nil && OfProgram(s) {
			b.calls++
		}
		b.answers[s.GetKey()] = s
	case registrypb.StepKind_STEP_KIND_TOOL:
		if b.tools[s.GetKey()] == nil {
			b.order = append(b.order, s.GetKey())
		}
		b.tools[s.GetKey()] = s
	case registrypb.StepKind_STEP_KIND_STEER:
		b.steers[s.GetKey()] = s
	default:
	}
}

// NextSeq is the number of the next step.
func (b *Book) NextSeq() int32 {
	b.seq++
	return b.seq
}

// Answer is a model step, or nil.
func (b *Book) Answer(key string) *registrypb.Step { return b.answers[key] }

// Tool is a tool step, or nil.
func (b *Book) Tool(key string) *registrypb.Step { return b.tools[key] }

// Steer is a steer step, or nil.
func (b *Book) Steer(key string) *registrypb.Step { return b.steers[key] }

// Calls counts the calls of a program.
func (b *Book) Calls() int { return b.calls }

// Open are the tool steps that began and have no end, in their order.
func (b *Book) Open() (open []*registrypb.Step) {
	for _, key := range b.order {
		if s := b.tools[key]; s.GetState() == registrypb.StepState_STEP_STATE_INTENT {
			open = append(open, s)
		}
	}
	return open
}

// Doubtful are the open tools as they are to be journalled when nobody will end
// them: in doubt.
func (b *Book) Doubtful() (rows []*registrypb.Step) {
	for _, s := range b.Open() {
		rows = append(rows, Settled(s, registrypb.StepState_STEP_STATE_IN_DOUBT, toolset.Problem(toolset.Unknown)))
	}
	return rows
}

// CutOff is the same for a program: its calls without an end, and their tools.
func (b *Book) CutOff() (rows []*registrypb.Step) {
	for n := 1; n <= b.calls; n++ {
		if s := b.answers[CallKey(n)]; s.GetState() == registrypb.StepState_STEP_STATE_INTENT {
			rows = append(rows, Settled(s, registrypb.StepState_STEP_STATE_IN_DOUBT, NoAnswer(CutShort)))
		}
	}
	for _, s := range b.Doubtful() {
		if OfProgram(s) {
			rows = append(rows, s)
		}
	}
	return rows
}

// Ran are the tools that have ended, as a model reads them; of a program only, or
// all.
func (b *Book) Ran(programOnly bool) (said []model.Message) {
	for _, key := range b.order {
		s := b.tools[key]
		if programOnly && !OfProgram(s) || s.GetState() == registrypb.StepState_STEP_STATE_INTENT {
			continue
		}
		said = append(said,
			model.Message{Role: model.RoleAssistant, ToolCalls: []model.ToolCall{{ID: s.GetCallId(), Name: s.GetName(), Arguments: []byte(s.GetArguments())}}},
			model.Message{Role: model.RoleTool, ToolCallID: s.GetCallId(), Name: s.GetName(), Text: string(s.GetResult())})
	}
	return said
}

// Settled is a step with its end.
func Settled(s *registrypb.Step, state registrypb.StepState, result []byte) *registrypb.Step {
	s = proto.CloneOf(s)
	s.State, s.Result = state, result
	return s
}
