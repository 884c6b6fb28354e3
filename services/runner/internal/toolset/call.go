package toolset

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/obs/tracing"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
)

// Unknown is what the journal and the model read about a call whose end is not known.
const Unknown = "outcome unknown, verify before repeating: the program that ran this command was interrupted"

// MaxCalls is the most calls of one answer that are made.
const MaxCalls = 32

// maxWrite bounds the steps of one write, in bytes: a message to the journal has at most
// 4 MiB.
const maxWrite = 3 << 20

// Journal holds the steps of one turn. All its methods are called from the goroutine that
// calls [Calls.Use].
type Journal interface {
	// Tool is the step of a call; nil: there is none.
	Tool(key string) *registrypb.Step
	// External reports whether the result of a call before a step is external; seq is the number of the step.
	External(seq int32) bool
	// NextSeq is the number of the next step.
	NextSeq() int32
	// Write writes steps and what they send to the peer, in one transaction.
	Write(ctx context.Context, says []*registrypb.Saying, rows ...*registrypb.Step) error
	// WriteLater leaves a step for the next write: of a call that ended with the turn's work.
	WriteLater(row *registrypb.Step)
}

// Watcher is notified of calls. It sees them as the journal holds them: each ends before the
// next one starts. Calls that run together are no exception, so that a reader who goes on in
// the journal has missed nothing: the first one starts when they do, and the others when the
// results of all are journaled.
type Watcher interface {
	ToolStart(s Shown)
	// Progress is what a call may print to, from any goroutine.
	Progress(s Shown) func(text string)
	// Prompt reports that a call begins to wait for a person, from any goroutine, and the function
	// that it returns that the wait has ended.
	Prompt(s Shown, p Prompt) (closed func())
	ToolEnd(s Shown)
}

// Shown is a call as a [Watcher] sees it.
type Shown struct {
	N    int              // its place in its answer, from 1
	Step *registrypb.Step // as the journal has it
	// Parallel is the place of the first call of the group in which it runs; 0: it runs alone ([Groups]).
	Parallel int
}

// Groups returns for each of the steps of one answer, which are in the order of its calls, the place from 1 of the first
// call of the group in which it runs; 0: it runs alone. It depends on nothing but the steps.
func Groups(steps []*registrypb.Step) []int {
	out := make([]int, len(steps))
	for from := 0; from < len(steps); {
		to := from + together(len(steps)-from, func(n int) *registrypb.Step { return steps[from+n] })
		for n := from; n < to && to > from+1; n++ {
			out[n] = from + 1
		}
		from = to
	}
	return out
}

// together is how many steps, from the first of n on, run at the same time.
func together(n int, step func(int) *registrypb.Step) int {
	for i := range n {
		if step(i).GetClass() != registrypb.ToolClass_TOOL_CLASS_READ {
			return max(i, 1)
		}
	}
	return n
}

// Meter counts. The label of a tool is its name for policies; all tools of a server have one, and names that are
// none have one.
type Meter interface {
	ObserveStep(kind string, d time.Duration)
	// AddCall counts a call with its outcome: ok, error, denied, invalid, in_doubt.
	AddCall(tool, class, outcome string, d time.Duration)
	// CallBegins and CallEnds are about calls that run.
	CallBegins()
	CallEnds()
	// AddDenied counts a call that a layer of the policy does not allow.
	AddDenied(layer string)
	// AddTruncated counts a result that was shortened.
	AddTruncated(tool string)
	// WaitBegins and WaitEnds are about calls that wait for a person; the kinds are those of [Prompt].
	WaitBegins(kind string)
	WaitEnds(kind, end string, d time.Duration)
}

// Calls makes the calls of one turn. All fields but Media and Trace are required.
type Calls struct {
	Set     Set
	Place   Place
	Key     string // of the turn
	Journal Journal
	Watcher Watcher
	Meter   Meter
	Media   Media           // nil: no images are stored, and results say so
	Trace   *tracing.Tracer // nil: no traces
	// Logf writes a line of the agent's log.
	Logf func(level, format string, args ...any)
	// Panicked logs the value of a panic that was recovered, with the stack and the attributes args, and returns what may
	// be shown of it.
	Panicked func(value any, args ...any) string
}

// Intents are the journal rows of the calls of an answer before they are made (T4). key
// returns the key of the nth call, from 1.
func (c *Calls) Intents(key func(n int) string, calls []model.ToolCall) []*registrypb.Step {
	rows := make([]*registrypb.Step, len(calls))
	var first int32
	for n, made := range calls {
		rows[n] = c.intent(key(n+1), n+1, made, first)
		first = rows[0].GetSeq()
	}
	return rows
}

// intent is the row of a call; first is the number of the first step of its answer, 0: its own.
func (c *Calls) intent(key string, n int, made model.ToolCall, first int32) *registrypb.Step {
	sum := sha256.Sum256(made.Arguments)
	call := c.call(key, n, made)
	if note := c.Set.check(&call); note != "" {
		note, _ = boundary.Text(note, 300)
		c.Logf("WARN", "tool: the arguments for %s are not completely checked: its schema: %s", call.Name, note)
	}
	seq := c.Journal.NextSeq()
	call.Outside = c.outside(cmp.Or(first, seq))
	return &registrypb.Step{
		Seq: seq, Kind: registrypb.StepKind_STEP_KIND_TOOL, Key: key, RequestSha256: sum[:],
		Class: classes[c.Set.Class(call)], State: registrypb.StepState_STEP_STATE_INTENT,
		Name: made.Name, CallId: made.ID, Arguments: string(made.Arguments), Asks: c.Set.asks(call),
		Summary: c.Set.summary(call),
	}
}

var classes = map[Class]registrypb.ToolClass{
	Read:       registrypb.ToolClass_TOOL_CLASS_READ,
	Idempotent: registrypb.ToolClass_TOOL_CLASS_IDEMPOTENT,
	Effect:     registrypb.ToolClass_TOOL_CLASS_EFFECT,
}

// outside reports whether text from outside is part of the turn in the prompt of an answer, of which first is the number
// of the first step: what calls of the answer itself return is shown with the next prompt.
func (c *Calls) outside(first int32) bool {
	return c.Place.Config.GetExternalGuard().GetOutsider() || c.Journal.External(first)
}

func (c *Calls) call(key string, n int, made model.ToolCall) Call {
	call := Call{Key: c.Key + ":" + key, Name: made.Name, Args: made.Arguments, Problem: made.Problem, Malformed: made.Malformed(), Place: c.Place}
	if n > MaxCalls {
		call.Malformed = false
		call.Problem = fmt.Sprintf("only %d calls of one answer are made: nothing was run; make this call again in the next answer", MaxCalls)
	}
	return call
}

// use is one call of an answer.
type use struct {
	n    int // its place in the answer, from 1
	made model.ToolCall
	call Call
	row  *registrypb.Step // as the journal has it
	// group is the place of the first call of those that run together; 0: it runs alone.
	group int
	// done is the row with the result, and says are the messages to the peer that are committed with it; nil until
	// the call was made.
	done  *registrypb.Step
	says  []*registrypb.Saying
	shown bool // to the watcher: it has seen the start
	begun bool // it may have been made already
}

func (u *use) reads() bool { return u.row.GetClass() == registrypb.ToolClass_TOOL_CLASS_READ }

func (u *use) watched() Shown { return Shown{N: u.n, Step: u.row, Parallel: u.group} }

// size is how much of a message to the journal the result takes, in bytes.
func (u *use) size() int {
	n := proto.Size(u.done)
	for _, said := range u.says {
		n += proto.Size(said)
	}
	return n
}

// Use returns the results of the calls of an answer, in their order: from the journal, or by
// making a call (T5) and journaling what came out (T6). Adjacent calls of class read run
// together; a call of another class begins when the results of all calls before it are
// journaled, and runs alone. begun is the key of the call that may have begun already: the
// first without a result.
func (c *Calls) Use(ctx context.Context, key func(n int) string, calls []model.ToolCall, begun string) ([]string, error) {
	uses, err := c.uses(ctx, key, calls)
	if err != nil {
		return nil, err
	}
	for rest := uses; len(rest) > 0; {
		n := together(len(rest), func(n int) *registrypb.Step { return rest[n].row })
		for _, u := range rest[:n] {
			if n > 1 {
				u.group = rest[0].n
			}
		}
		if err := c.group(ctx, rest[:n], begun); err != nil {
			return nil, err
		}
		rest = rest[n:]
	}
	results := make([]string, len(uses))
	for n, u := range uses {
		results[n] = string(u.row.GetResult())
	}
	return results, nil
}

// uses are the calls of an answer with their rows.
func (c *Calls) uses(ctx context.Context, key func(n int) string, calls []model.ToolCall) ([]*use, error) {
	uses := make([]*use, len(calls))
	var missing []*registrypb.Step
	var first int32
	outside := false
	for i, made := range calls {
		n := i + 1
		u := &use{n: n, made: made, call: c.call(key(n), n, made), row: c.Journal.Tool(key(n))}
		if u.row == nil { // an answer and its intents are one transaction; this is for journals of others
			u.row = c.intent(key(n), n, made, first)
			missing = append(missing, u.row)
		}
		if i == 0 {
			first = u.row.GetSeq()
			outside = c.outside(first)
		}
		c.Set.check(&u.call)
		u.call.Asks, u.call.Outside = u.row.GetAsks(), outside
		u.call.truncated = func() { c.Meter.AddTruncated(c.Set.label(u.call.Name)) }
		u.call.Prompt = func(p Prompt) func(string) { return c.prompt(u, p) }
		uses[i] = u
	}
	if missing == nil {
		return uses, nil
	}
	return uses, c.Journal.Write(ctx, nil, missing...)
}

// group gives the calls of a group their results: adjacent reads, or one call of any class.
func (c *Calls) group(ctx context.Context, group []*use, begun string) error {
	var open []*use
	for _, u := range group {
		if u.row.GetState() == registrypb.StepState_STEP_STATE_INTENT {
			open = append(open, u)
		} else {
			c.finished(u)
		}
	}
	if len(open) == 0 {
		return nil
	}
	first := open[0]
	first.begun = first.row.GetKey() == begun && !first.row.GetNotBegun()
	c.Watcher.ToolStart(first.watched())
	first.shown = true
	var err error
	if first.begun && first.row.GetClass() == registrypb.ToolClass_TOOL_CLASS_EFFECT {
		first.done = proto.CloneOf(first.row)
		first.done.State, first.done.Result = registrypb.StepState_STEP_STATE_IN_DOUBT, Problem(Unknown)
		c.Logf("WARN", "tool: %s (%s) is in doubt, it was interrupted", first.made.Name, begun)
		c.count(first, 0)
	} else {
		first.call.Progress = c.Watcher.Progress(first.watched())
		err = c.make(ctx, open)
	}
	switch {
	case ctx.Err() != nil:
		// The calls were ended in the middle. What is known of them goes with the fate, as
		// far as one message takes it; what they would have said does not.
		size := 0
		for _, u := range open {
			if size += u.size(); u.done != nil && u.says == nil && size <= maxWrite {
				c.Journal.WriteLater(u.done)
			}
		}
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	return c.commit(ctx, open)
}

// errBroken ends the other calls of a group when one of them has ended without a result.
var errBroken = errors.New("a call of the same group has ended without a result")

// make makes calls: one on this goroutine, several together. It returns when all that it
// started have ended. They start in their order, each while the lease is trusted.
func (c *Calls) make(ctx context.Context, open []*use) (err error) {
	if len(open) == 1 {
		if err := c.Place.Trusted(ctx); err != nil {
			return err
		}
		c.run(ctx, open[0])
	} else {
		err = c.atOnce(ctx, open)
	}
	for _, u := range open {
		if u.done != nil {
			took := u.done.GetDuration().AsDuration()
			c.Meter.ObserveStep("tool", took)
			c.count(u, took)
			c.Logf("INFO", "tool: %s (%s) %d ms", u.made.Name, u.row.GetKey(), took.Milliseconds())
		}
	}
	return err
}

// atOnce runs calls at the same time.
func (c *Calls) atOnce(ctx context.Context, open []*use) (err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var running sync.WaitGroup
	slots := make(chan struct{}, parallel(c.Place.Config))
	started := 0
	for _, u := range open {
		slots <- struct{}{}
		if err = c.Place.Trusted(ctx); err != nil {
			stop(err)
			break
		}
		started++
		running.Go(func() {
			defer func() { <-slots }()
			defer func() {
				if u.done == nil {
					stop(errBroken)
				}
			}()
			c.run(ctx, u)
		})
	}
	running.Wait()
	if slices.ContainsFunc(open[:started], func(u *use) bool { return u.done == nil }) {
		runtime.Goexit() // as the call did: alone, it would have ended this goroutine
	}
	return err
}

// run makes one call. A tool that panics has failed: the model reads so, and the turn goes on.
func (c *Calls) run(ctx context.Context, u *use) {
	start := time.Now()
	defer func() {
		if p := recover(); p != nil {
			result := Failed("the tool broke off with a defect of the runtime: " + c.Panicked(p, "tool", u.call.Name, "call_key", u.call.Key) + ". It may have done a part of what was asked")
			result.InDoubt = u.row.GetClass() == registrypb.ToolClass_TOOL_CLASS_EFFECT
			u.says = nil
			c.end(u, result, nil, time.Since(start))
		}
	}()
	c.Meter.CallBegins()
	defer c.Meter.CallEnds()
	fault.Point("T5.before")
	result := c.outcome(ctx, u).valid()
	fault.Point("T5.after")
	for _, m := range result.Messages {
		said := m.saying(u.row.GetKey())
		if m.File != nil {
			var err error
			if said.File, err = c.attach(ctx, m.File); err != nil {
				result, u.says = Failed("the file could not be stored, nothing was sent: "+err.Error()), nil
				break
			}
		}
		u.says = append(u.says, said)
	}
	images := c.store(ctx, &result)
	c.end(u, result, images, time.Since(start))
}

// end makes the row of a call from its result.
func (c *Calls) end(u *use, result Result, images []shownImage, took time.Duration) {
	done := proto.CloneOf(u.row)
	done.State, done.Result = registrypb.StepState_STEP_STATE_DONE, annotate(withImages(result.encode(u.call), images), u.made.Note)
	if result.InDoubt {
		done.State = registrypb.StepState_STEP_STATE_IN_DOUBT
		c.Logf("WARN", "tool: %s (%s) is in doubt: %s", u.made.Name, u.row.GetKey(), result.Text)
	}
	done.IsError, done.External = result.IsError, c.Set.external(u.call)
	done.Duration, done.ExecUse = durationpb.New(took), result.ExecUse
	u.done = done
}

// outcome makes a call, unless it is refused or was refused when its intent was journaled: the
// settings may have changed since, and its class is not that of a call that runs. A call that may
// have begun, of a tool that finishes what an earlier run has left, is made whatever they say now.
func (c *Calls) outcome(ctx context.Context, u *use) Result {
	ctx, span := c.Trace.Tool(ctx, u.call.Name, u.call.Key)
	defer span.End()
	tool, refusal := c.Set.decide(u.call)
	_, finishes := tool.(Finisher)
	switch {
	case refusal == "" && u.reads() && tool.Class(u.call) != Read:
		return Failed("nothing was run: the call was refused when it was made, and the settings have changed since; make it again")
	case finishes && u.begun && u.row.GetClass() == registrypb.ToolClass_TOOL_CLASS_IDEMPOTENT:
		return c.Set.run(ctx, tool, u.call)
	}
	return c.Set.Run(ctx, u.call)
}

// commit journals the results of a group in their order: in one write, unless they are
// larger than a message to the journal.
func (c *Calls) commit(ctx context.Context, made []*use) error {
	for len(made) > 0 {
		var says []*registrypb.Saying
		var rows []*registrypb.Step
		size := 0
		for _, u := range made {
			if size += u.size(); size > maxWrite && len(rows) > 0 {
				break
			}
			says, rows = append(says, u.says...), append(rows, u.done)
		}
		if err := c.Journal.Write(ctx, says, rows...); err != nil {
			return err
		}
		for _, u := range made[:len(rows)] {
			if !u.shown {
				c.Watcher.ToolStart(u.watched())
			}
			u.row = u.done
			c.Watcher.ToolEnd(u.watched())
			c.finished(u)
		}
		made = made[len(rows):]
	}
	return nil
}

// finished informs the tool of a call whose result is in the journal.
func (c *Calls) finished(u *use) {
	if u.row.GetState() != registrypb.StepState_STEP_STATE_DONE {
		return
	}
	tool, _ := c.Set.decide(u.call)
	if f, ok := tool.(Finisher); ok {
		f.Finished(u.call)
	}
}
