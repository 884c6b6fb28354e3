package turn

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/cmd/internal/command"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// tool describes a call of a tool, and below it what is known about how it was made.
func (l *teller) tool(s *registry.Step, at time.Time, ms string) {
	name := fmt.Sprintf("%s: tool %s %s", s.GetKey(), s.GetName(), excerpt(s.GetArguments()))
	if s.GetSummary() != "" { // earlier builds wrote none
		name = fmt.Sprintf("%s: %s (%s)", s.GetKey(), excerpt(s.GetSummary()), command.Word(s.GetClass(), "TOOL_CLASS_", "unknown"))
	}
	switch s.GetState() {
	case registry.StepState_STEP_STATE_IN_DOUBT:
		l.say(at, Careful, "%s: in doubt. It may have run; its result was lost in a crash, and it was not run again (window A)", name)
	case registry.StepState_STEP_STATE_INTENT:
		l.say(at, Careful, "%s: begun, no result recorded yet%s", name, afterCrash(s))
	default:
		if len(s.GetResult()) == 0 { // a tool always answers something
			l.say(at, Plain, "%s: done in %s; 'agentctl prune' removed the result from the journal, a record in the conversation has it", name, ms)
			break
		}
		outcome, mood := toolOutcome(s.GetResult())
		l.say(at, mood, "%s: %s in %s", name, outcome, ms)
	}
	for _, line := range l.began[s.GetKey()] {
		l.say(time.Time{}, Plain, "%s", line)
	}
	if with := l.together[s.GetKey()]; with != "" {
		l.say(time.Time{}, Plain, "it ran together with %s", with)
	}
	if file := completeOutput(s.GetResult()); file != "" {
		l.say(time.Time{}, Plain, "its complete output is in %s of the working directory", excerpt(file))
	}
	if s.GetExternal() {
		l.say(time.Time{}, Plain, "its result is text from outside")
	}
}

// afterCrash is what becomes of a call without a result when the runner dies.
func afterCrash(s *registry.Step) string {
	switch {
	case s.GetSummary() == "":
		return ""
	case s.GetClass() != registry.ToolClass_TOOL_CLASS_EFFECT:
		return ". If the runner dies now, it is run again: that changes nothing"
	case s.GetAsks():
		return ". If the runner dies before there is an answer, the same question waits; after it, the call is in doubt and is not run again"
	}
	return ". If the runner dies now, it is in doubt and is not run again (window A)"
}

// together says of each call that ran at the same time as others which those are: calls of class read that follow each
// other in one answer.
func together(steps []*registry.Step) map[string]string {
	out := map[string]string{}
	for from := 0; from < len(steps); from++ {
		var keys []string
		for _, s := range steps[from:] {
			if s.GetKind() != registry.StepKind_STEP_KIND_TOOL || s.GetClass() != registry.ToolClass_TOOL_CLASS_READ || s.GetSummary() == "" {
				break
			}
			keys = append(keys, s.GetKey())
		}
		for n, key := range keys {
			out[key] = strings.Join(append(keys[:n:n], keys[n+1:]...), ", ")
		}
		from += len(keys)
	}
	return out
}

// mentioned is how a shortened result names the file with all of it.
var mentioned = regexp.MustCompile(`complete output: (\S+)`)

// completeOutput is the file with the complete output of a call; empty: its result is complete.
func completeOutput(result []byte) string {
	var r struct{ Spill, Text string }
	if json.Unmarshal(result, &r) != nil {
		return ""
	}
	if r.Spill != "" {
		return r.Spill
	}
	if m := mentioned.FindStringSubmatch(r.Text); m != nil {
		return m[1]
	}
	return ""
}

// maxPages bounds the pages of approvals and questions that are read.
const maxPages = 10

// began are lines about what the calls of a turn have begun, by the key of the step: approvals, questions, and processes in
// the background. The registry keeps them for some days; what it does not have any more is left out.
func began(ctx context.Context, e *command.Env, t *registry.Turn) (map[string][]string, error) {
	out := map[string][]string{}
	add := func(key, format string, args ...any) {
		if step, ok := strings.CutPrefix(key, t.GetKey()+":"); ok {
			step, _, _ = strings.Cut(step, ":create:") // a new agent that a command has asked for
			out[step] = append(out[step], fmt.Sprintf(format, args...))
		}
	}
	token := ""
	for range maxPages {
		r, err := e.Approvals().ListApprovals(ctx, &registry.ListApprovalsRequest{AgentId: t.GetAgentId(), PageSize: 1000, PageToken: token})
		if err != nil {
			return nil, err
		}
		for _, a := range r.GetApprovals() {
			by := ""
			if a.GetBy() != "" {
				by = " by " + a.GetBy()
			}
			state := command.Word(a.GetState(), "APPROVAL_STATE_", "unknown")
			if d := command.Word(a.GetDecision(), "APPROVAL_DECISION_", ""); d != "" && state == "used" {
				state = "approved, " + d
			}
			add(a.GetKey(), "approval %s (%s): %s%s%s", a.GetApprovalId(), excerpt(a.GetReason()), state, by, waited(a.GetRequestedAt(), a.GetEndedAt()))
		}
		if token = r.GetNextPageToken(); token == "" {
			break
		}
	}
	token = ""
	for range maxPages {
		r, err := e.Questions().ListQuestions(ctx, &registry.ListQuestionsRequest{AgentId: t.GetAgentId(), PageSize: 1000, PageToken: token})
		if err != nil {
			return nil, err
		}
		for _, q := range r.GetQuestions() {
			by := ""
			if q.GetBy() != "" {
				by = " by " + q.GetBy()
			}
			add(q.GetKey(), "question %s: %s%s%s", q.GetQuestionId(), command.Word(q.GetState(), "QUESTION_STATE_", "unknown"), by, waited(q.GetRequestedAt(), q.GetEndedAt()))
		}
		if token = r.GetNextPageToken(); token == "" {
			break
		}
	}
	r, err := e.Turns().ListProcesses(ctx, &registry.ListProcessesRequest{AgentId: t.GetAgentId(), ThreadId: t.GetThreadId()})
	if err != nil {
		return nil, err
	}
	for _, p := range r.GetProcesses() {
		add(p.GetStepKey(), "process %s: %s", p.GetId(), processEnd(p))
	}
	return out, nil
}

// waited is how long a person was waited for; empty: the wait goes on, or it is not known.
func waited(from, to *timestamppb.Timestamp) string {
	if to == nil {
		return ""
	}
	return ", it waited " + gap(when(from), when(to))
}

// processEnd is how a process in the background has ended.
func processEnd(p *registry.Process) string {
	if p.GetEndedAt() == nil {
		return "it runs since " + when(p.GetStartedAt()).UTC().Format(time.DateTime)
	}
	after := " after " + gap(when(p.GetStartedAt()), when(p.GetEndedAt()))
	switch p.GetState() {
	case registry.ProcessState_PROCESS_STATE_EXITED:
		return fmt.Sprintf("ended with exit code %d%s", p.GetExit(), after)
	case registry.ProcessState_PROCESS_STATE_KILLED:
		return "was ended by a call, by a person or for its age" + after
	case registry.ProcessState_PROCESS_STATE_LOST:
		return "was ended by a restart" + after
	default:
		return "its state is not known to this program"
	}
}

// hasTools reports whether a turn has called a tool.
func hasTools(t *registry.Turn) bool {
	for _, s := range t.GetSteps() {
		if s.GetKind() == registry.StepKind_STEP_KIND_TOOL {
			return true
		}
	}
	return false
}
