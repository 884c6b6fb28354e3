// Package replay rebuilds the stream of a run from its journal: the items that a watcher
// would have seen, under the numbers they had.
//
//	model:1        restart, reasoning, text ...   where its span says
//	tool:1:1       start, result                   counted from the end of model:1
//	compaction     start, end                     right before the next answer
//	model:2        ...
//
// It promises: the same journal gives the same items, and a piece of text has the number
// under which it was published, in whichever process that was. The updates of tools are
// left out; the ends of tools hold their output. It makes no call.
package replay

import (
	"fmt"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/run"
	"github.com/theclaw/agents/services/runner/internal/silence"
	"github.com/theclaw/agents/services/runner/internal/step"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// Sequence is the items of a run, as its journal has them.
type Sequence struct {
	// Items begin with the start of the run; its end is not among them.
	Items []run.Item
	// Tools is where the numbers of the last answer's tools begin.
	Tools uint64
	// Exact is false when the journal does not hold the places of its answers, such
	// as those of a program: then the numbers are only in their order.
	Exact bool
	// digests were made since the last answer; they come right before the next.
	digests uint64
}

// Last is the number of the last item.
func (t Sequence) Last() uint64 { return t.Items[len(t.Items)-1].Seq }

// Of makes the items of the steps of a turn, in their order.
func Of(steps []*registrypb.Step) Sequence {
	t := Sequence{Items: []run.Item{{Seq: 1, Kind: run.Lifecycle, Phase: run.Start}}, Exact: true}
	for len(steps) > 0 {
		s := steps[0]
		steps = steps[1:]
		switch s.GetKind() {
		case registrypb.StepKind_STEP_KIND_MODEL:
			t.answer(s)
		case registrypb.StepKind_STEP_KIND_COMPACTION:
			t.digests++
		case registrypb.StepKind_STEP_KIND_TOOL:
			n := 0 // the tools of an answer follow each other
			for n < len(steps) && steps[n].GetKind() == registrypb.StepKind_STEP_KIND_TOOL {
				n++
			}
			t.tools(append([]*registrypb.Step{s}, steps[:n]...))
			steps = steps[n:]
		default:
		}
	}
	return t
}

// answer adds the items of a model step. One that is not of a round, such as a summary that
// was made on the way, was never shown.
func (t *Sequence) answer(s *registrypb.Step) {
	var round int
	_, err := fmt.Sscanf(s.GetKey(), "model:%d", &round)
	ofRound := err == nil
	if !ofRound && !step.OfProgram(s) {
		return
	}
	a, err := step.Decode(s.GetResult())
	if err != nil {
		return // a call that has only begun
	}
	span := a.Stream
	if span == nil || span.From <= t.Last() || span.To < span.From {
		t.Exact = false
		span = &run.Span{From: t.Last() + 1, Parts: []int{len(a.Reasoning), len(a.Text)}}
		span.To = span.From + uint64(len(a.Reasoning)+len(a.Text))
	}
	for n := min(t.digests, (span.From-t.Last()-1)/2); n > 0; n-- {
		t.Items = append(t.Items,
			run.Item{Seq: span.From - 2*n, Kind: run.Compaction, Phase: run.Start},
			run.Item{Seq: span.From - 2*n + 1, Kind: run.Compaction, Phase: run.End})
	}
	t.digests = 0
	t.Items = append(t.Items, run.Item{Seq: span.From, Kind: run.Lifecycle, Phase: run.Restart, Since: t.Last()})
	at := span.From
	thought, text := a.Reasoning, silence.Text(a.Text)
	for n, size := range span.Parts {
		kind, rest := run.Reasoning, &thought
		if n%2 == 1 {
			kind, rest = run.Assistant, &text
		}
		piece := (*rest)[:min(size, len(*rest))]
		*rest = (*rest)[len(piece):]
		if at += uint64(size); piece != "" {
			t.Items = append(t.Items, run.Item{Seq: at, Kind: kind, Phase: run.Delta, Text: piece})
		}
	}
	t.Tools = span.To
}

// tools adds the items of the tools of one answer.
func (t *Sequence) tools(steps []*registrypb.Step) {
	for n, group := range toolset.Groups(steps) {
		t.tool(toolset.Shown{Step: steps[n], Parallel: group})
	}
}

// tool adds the items of a tool step that has ended.
func (t *Sequence) tool(s toolset.Shown) {
	if s.Step.GetState() == registrypb.StepState_STEP_STATE_INTENT {
		return
	}
	var round int
	s.N = 1
	if _, err := fmt.Sscanf(s.Step.GetKey(), "tool:%d:%d", &round, &s.N); err != nil {
		t.Exact, s.N = false, 1
		t.Tools = t.Last()
	}
	i := ToolStart(s)
	i.Seq = run.ToolSeq(t.Tools, s.N-1) + 1
	end := ToolEnd(s)
	end.Seq = run.ToolSeq(t.Tools, s.N)
	t.Items = append(t.Items, i, end)
}

var classes = map[registrypb.ToolClass]string{
	registrypb.ToolClass_TOOL_CLASS_READ: "read", registrypb.ToolClass_TOOL_CLASS_IDEMPOTENT: "idempotent", registrypb.ToolClass_TOOL_CLASS_EFFECT: "effect",
}

// ToolStart is the item of a call that begins, without its number.
func ToolStart(s toolset.Shown) run.Item {
	return run.Item{
		Kind: run.Tool, Phase: run.Start, Tool: s.Step.GetName(), CallID: s.Step.GetCallId(), Text: s.Step.GetArguments(), N: s.N,
		Call: &run.Call{Summary: s.Step.GetSummary(), Class: classes[s.Step.GetClass()], Parallel: s.Parallel},
	}
}

// ToolEnd is the item of a call with a result, without its number.
func ToolEnd(s toolset.Shown) run.Item {
	i := ToolStart(s)
	i.Phase, i.Text, i.Call.External = run.Done, string(s.Step.GetResult()), s.Step.GetExternal()
	return i
}

// After are the items that a reader has not got. Where the numbers are not exact
// it gets a restart, unless it has nothing.
func (t Sequence) After(seq uint64) (out []run.Item) {
	if !t.Exact && seq > 0 {
		out = append(out, run.Item{Seq: seq + 1, Kind: run.Lifecycle, Phase: run.Restart, Since: seq})
		for _, i := range t.Items[1:] {
			if i.Phase != run.Restart {
				i.Seq += seq + 1
				out = append(out, i)
			}
		}
		return out
	}
	for _, i := range t.Items {
		if i, ok := i.After(seq); ok {
			out = append(out, i)
			seq = i.Seq
		}
	}
	return out
}
