package turn

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/store"
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
		var r struct {
			Error string `json:"error"`
		}
		_ = json.Unmarshal(s.GetResult(), &r) // of what prune removed, nothing
		l.say(at, Careful, "%s: in doubt%s. It may have run, and was not run again (window A)", name, because(r.Error))
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
	for _, line := range l.began.lines(s.GetKey()) {
		l.say(time.Time{}, Plain, "%s", line)
	}
	if l.again[s.GetKey()] {
		l.say(time.Time{}, Careful, "it had begun when the runner died, and was run again: a call of class %s may be repeated", command.Word(s.GetClass(), "TOOL_CLASS_", "unknown"))
	}
	if with := l.together[s.GetKey()]; with != nil {
		l.say(time.Time{}, Plain, "it ran together with %s", strings.Join(with, ", "))
	}
	if file, rest := completeOutput(s.GetResult()); file != "" {
		l.say(time.Time{}, Plain, "its complete output is in %s of the working directory", excerpt(file))
		if rest != "" {
			l.say(time.Time{}, Plain, "what it printed above the cap of the sandbox is in %s", excerpt(rest))
		}
	}
	if s.GetExternal() {
		l.say(time.Time{}, Plain, "its result is text from outside")
	}
}

// What becomes of a call without a result when the runner dies.
const (
	runAgain  = "run_again"
	asksAgain = "asks_again" // and is in doubt once there is an answer
	inDoubt   = "in_doubt"
)

// recovery is what became of a call whose runner died, or would become of it now; again: the call was run again. Empty: it
// has its result of the first time, or is of an earlier build.
func recovery(s *registry.Step, again bool) string {
	switch {
	case again:
		return runAgain
	case s.GetState() == registry.StepState_STEP_STATE_IN_DOUBT:
		return inDoubt
	case s.GetKind() != registry.StepKind_STEP_KIND_TOOL || s.GetState() != registry.StepState_STEP_STATE_INTENT || s.GetSummary() == "":
		return ""
	case s.GetClass() != registry.ToolClass_TOOL_CLASS_EFFECT:
		return runAgain
	case s.GetAsks():
		return asksAgain
	}
	return inDoubt
}

// afterCrash says what becomes of a call without a result when the runner dies.
func afterCrash(s *registry.Step) string {
	switch recovery(s, false) {
	case runAgain:
		return ". If the runner dies now, it is run again: that changes nothing"
	case asksAgain:
		return ". If the runner dies before there is an answer, the same question waits; after it, the call is in doubt and is not run again"
	case inDoubt:
		return ". If the runner dies now, it is in doubt and is not run again (window A)"
	}
	return ""
}

// ranAgain are the calls that had begun when a runner died, and were run again by the next one: all before them in the
// journal was recorded at the time, and their result was not. Calls of one group begin together.
func ranAgain(t *registry.Turn, together map[string][]string) map[string]bool {
	out := map[string]bool{}
	for _, a := range t.GetAttempts() {
		if a.GetClass() != store.ClassCrash {
			continue
		}
		var first *registry.Step // without a result at the time
		for _, s := range t.GetSteps() {
			if !when(s.GetRecordedAt()).After(when(a.GetAt())) {
				continue
			}
			if first == nil {
				first = s
			}
			if s != first && !slices.Contains(together[first.GetKey()], s.GetKey()) {
				break
			}
			// An answer has the intents of its calls: one that came later had no calls yet.
			if s.GetKind() == registry.StepKind_STEP_KIND_TOOL && s.GetState() == registry.StepState_STEP_STATE_DONE && s.GetSummary() != "" && s.GetClass() != registry.ToolClass_TOOL_CLASS_EFFECT {
				out[s.GetKey()] = true
			}
		}
	}
	return out
}

// together are, for each call that ran at the same time as others, the keys of those: calls of class read that follow each
// other in one answer.
func together(steps []*registry.Step) map[string][]string {
	out := map[string][]string{}
	for from := 0; from < len(steps); from++ {
		var keys []string
		for _, s := range steps[from:] {
			if s.GetKind() != registry.StepKind_STEP_KIND_TOOL || s.GetClass() != registry.ToolClass_TOOL_CLASS_READ || s.GetSummary() == "" {
				break
			}
			keys = append(keys, s.GetKey())
		}
		for n, key := range keys {
			if len(keys) > 1 {
				out[key] = append(keys[:n:n], keys[n+1:]...)
			}
		}
		from += len(keys)
	}
	return out
}

// mentioned is how a shortened result of an earlier build names the file with all of it.
var mentioned = regexp.MustCompile(`\[… [0-9,]+ characters left out; complete output: (\S+) \(read with offset\)`)

// completeOutput is the file with the complete output of a call; empty: its result is complete. rest is the file with what
// of it was above the cap of the sandbox, where that is another one.
func completeOutput(result []byte) (file, rest string) {
	var r struct {
		CompleteOutput string `json:"complete_output"`
		Spill, Text    string
	}
	if json.Unmarshal(result, &r) != nil {
		return "", ""
	}
	if r.CompleteOutput != "" {
		if filepath.Base(r.Spill) != filepath.Base(r.CompleteOutput) {
			rest = r.Spill
		}
		return r.CompleteOutput, rest
	}
	if r.Spill != "" {
		return r.Spill, ""
	}
	if m := mentioned.FindStringSubmatch(r.Text); m != nil {
		return m[1], ""
	}
	return "", ""
}

// maxPages bounds the pages of approvals and questions that are read.
const maxPages = 10

// wait is an approval or a question that a call waited for, for programs.
type wait struct {
	Step        string  `json:"step"`
	Kind        string  `json:"kind"` // approval or question
	ID          string  `json:"id"`
	Reason      string  `json:"reason,omitempty"` // of an approval
	State       string  `json:"state"`
	Decision    string  `json:"decision,omitempty"` // of an approval
	By          string  `json:"by,omitempty"`
	RequestedAt *string `json:"requested_at"`
	EndedAt     *string `json:"ended_at"`
	WaitedMS    int64   `json:"waited_ms"` // until its end; 0 while it waits

	waited string
}

// process is one in the background that a call started, for programs.
type process struct {
	Step      string  `json:"step"`
	ID        string  `json:"id"`
	State     string  `json:"state"`
	Exit      *int32  `json:"exit_code,omitempty"` // of one that exited
	StartedAt *string `json:"started_at"`
	EndedAt   *string `json:"ended_at"`

	end string
}

// Begun is what the calls of a turn have begun besides their results. The registry keeps it for some days; what it does not
// have any more is left out.
type Begun struct {
	waits     []wait
	processes []process
}

// lines are what a call has begun, in words.
func (b Begun) lines(step string) (out []string) {
	for _, w := range b.waits {
		if w.Step == step {
			out = append(out, w.line())
		}
	}
	for _, p := range b.processes {
		if p.Step == step {
			out = append(out, fmt.Sprintf("process %s: %s", p.ID, p.end))
		}
	}
	return out
}

func (w wait) line() string {
	state := w.State
	if w.Decision != "" && state == "used" {
		state = "approved, " + w.Decision
	}
	if w.By != "" {
		state += " by " + w.By
	}
	if w.Kind == "approval" {
		return fmt.Sprintf("approval %s (%s): %s%s", w.ID, excerpt(w.Reason), state, w.waited)
	}
	return fmt.Sprintf("question %s: %s%s", w.ID, state, w.waited)
}

// begun reads what the calls of a turn have begun: approvals, questions, and processes in the background.
func begun(ctx context.Context, e *command.Env, t *registry.Turn) (b Begun, err error) {
	if !hasTools(t) {
		return b, nil
	}
	step := func(key string) (string, bool) {
		step, ok := strings.CutPrefix(key, t.GetKey()+":")
		step, _, _ = strings.Cut(step, ":create:") // a new agent that a command has asked for
		return step, ok
	}
	token := ""
	for range maxPages {
		r, err := e.Approvals().ListApprovals(ctx, &registry.ListApprovalsRequest{AgentId: t.GetAgentId(), PageSize: 1000, PageToken: token})
		if err != nil {
			return b, err
		}
		for _, a := range r.GetApprovals() {
			if key, ok := step(a.GetKey()); ok {
				b.waits = append(b.waits, waitOf(wait{
					Step: key, Kind: "approval", ID: a.GetApprovalId(), Reason: a.GetReason(), State: command.Word(a.GetState(), "APPROVAL_STATE_", "unknown"),
					Decision: command.Word(a.GetDecision(), "APPROVAL_DECISION_", ""), By: a.GetBy(),
				}, a.GetRequestedAt(), a.GetEndedAt()))
			}
		}
		if token = r.GetNextPageToken(); token == "" {
			break
		}
	}
	token = ""
	for range maxPages {
		r, err := e.Questions().ListQuestions(ctx, &registry.ListQuestionsRequest{AgentId: t.GetAgentId(), PageSize: 1000, PageToken: token})
		if err != nil {
			return b, err
		}
		for _, q := range r.GetQuestions() {
			if key, ok := step(q.GetKey()); ok {
				b.waits = append(b.waits, waitOf(wait{
					Step: key, Kind: "question", ID: q.GetQuestionId(), State: command.Word(q.GetState(), "QUESTION_STATE_", "unknown"), By: q.GetBy(),
				}, q.GetRequestedAt(), q.GetEndedAt()))
			}
		}
		if token = r.GetNextPageToken(); token == "" {
			break
		}
	}
	r, err := e.Turns().ListProcesses(ctx, &registry.ListProcessesRequest{AgentId: t.GetAgentId(), ThreadId: t.GetThreadId()})
	if err != nil {
		return b, err
	}
	for _, p := range slices.Backward(r.GetProcesses()) { // newest first
		if key, ok := step(p.GetStepKey()); ok {
			b.processes = append(b.processes, processOf(key, p))
		}
	}
	return b, nil
}

// waitOf completes a wait with its times; to is nil while it goes on.
func waitOf(w wait, from, to *timestamppb.Timestamp) wait {
	w.RequestedAt, w.EndedAt = command.Stamp(from), command.Stamp(to)
	if to != nil {
		w.WaitedMS, w.waited = to.AsTime().Sub(when(from)).Milliseconds(), ", it waited "+gap(when(from), when(to))
	}
	return w
}

func processOf(step string, p *registry.Process) process {
	out := process{Step: step, ID: p.GetId(), State: command.Word(p.GetState(), "PROCESS_STATE_", "unknown"), StartedAt: command.Stamp(p.GetStartedAt()), EndedAt: command.Stamp(p.GetEndedAt()), end: processEnd(p)}
	if p.GetState() == registry.ProcessState_PROCESS_STATE_EXITED {
		exit := p.GetExit()
		out.Exit = &exit
	}
	return out
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
