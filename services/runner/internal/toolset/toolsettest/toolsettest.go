// Package toolsettest is the suite that every tool passes (package toolset), and a journal
// in memory for tests of what calls tools.
package toolsettest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/step"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// Cases are calls of one tool, by their arguments.
type Cases struct {
	// Good do something; Bad must do nothing and say why.
	Good, Bad []string
	// Config holds the settings under which the tool is offered; nil: the zero value.
	Config *registrypb.TurnConfig
}

// Run runs the suite on a tool.
func Run(t *testing.T, tool toolset.Tool, c Cases) {
	if len(c.Good) == 0 || len(c.Bad) == 0 {
		t.Fatal("a suite needs good and bad calls")
	}
	if c.Config == nil {
		c.Config = &registrypb.TurnConfig{}
	}
	s := &suite{tool: tool, name: tool.Spec().Name, Cases: c}
	t.Run("spec", s.spec)
	t.Run("good", s.good)
	t.Run("bad", s.bad)
	t.Run("unfinished", s.unfinished)
	t.Run("ended", s.ended)
	t.Run("at once", s.atOnce)
}

type suite struct {
	Cases
	tool  toolset.Tool
	name  string
	turns atomic.Int32
}

// counted counts the calls that reach a tool, and those that it was informed of afterwards.
type counted struct {
	toolset.Tool
	runs, finished atomic.Int32
}

func (c *counted) Run(ctx context.Context, call toolset.Call) toolset.Result {
	c.runs.Add(1)
	return c.Tool.Run(ctx, call)
}

// Sent implements [toolset.Sender], as the tool below does or not.
func (c *counted) Sent(arguments json.RawMessage) []toolset.Message {
	if s, ok := c.Tool.(toolset.Sender); ok {
		return s.Sent(arguments)
	}
	return nil
}

// Finished implements [toolset.Finisher], as the tool below does or not.
func (c *counted) Finished(call toolset.Call) {
	c.finished.Add(1)
	if f, ok := c.Tool.(toolset.Finisher); ok {
		f.Finished(call)
	}
}

// Use makes one call and returns its result; begun: it may have been made already.
func Use(ctx context.Context, calls *toolset.Calls, key string, made model.ToolCall, begun bool) (string, error) {
	first := ""
	if begun {
		first = key
	}
	results, err := calls.Use(ctx, func(int) string { return key }, []model.ToolCall{made}, first)
	if err != nil {
		return "", err
	}
	return results[0], nil
}

// Calls are those of a turn with these tools, over a new journal.
func Calls(t *testing.T, config *registrypb.TurnConfig, tools ...toolset.Tool) (*toolset.Calls, *Journal) {
	t.Helper()
	list, err := toolset.New(tools...)
	if err != nil {
		t.Fatal(err)
	}
	if len(config.GetToolLayers()) == 0 { // the suite is about the tools, whatever their profile
		config = proto.CloneOf(config)
		config.ToolLayers = []*registrypb.ToolLayer{{Name: "suite"}}
	}
	j := &Journal{Log: step.Log{Tools: list}}
	return &toolset.Calls{
		Set: list.Set(config), Key: "turn", Journal: j, Watcher: j, Meter: j, Media: taken{},
		Place: toolset.Place{
			AgentID: "a1", ThreadID: "threads/main", Fence: "agent/a1=3", Config: config,
			Trusted: func(ctx context.Context) error { return context.Cause(ctx) },
			Waits:   alone{},

			CheckSaying: func(context.Context, *registrypb.Saying) error { return nil },
		},
		Logf: func(level, format string, args ...any) { t.Logf(level+" "+format, args...) },
	}, j
}

// taken takes all media.
type taken struct{}

// Write implements [toolset.Media].
func (taken) Write(context.Context, toolset.Place, model.Image, []byte) error { return nil }

var name = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

// spec: what a model gets is fixed and well formed.
func (s *suite) spec(t *testing.T) {
	a, b := s.tool.Spec(), s.tool.Spec()
	if a.Name != b.Name || a.Description != b.Description || !bytes.Equal(a.Schema, b.Schema) || a.Needs != b.Needs {
		t.Error("the spec changes")
	}
	if !name.MatchString(a.Name) || strings.TrimSpace(a.Description) != a.Description || a.Description == "" {
		t.Errorf("name %q, description %q", a.Name, a.Description)
	}
	var schema struct {
		Type       string                     `json:"type"`
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if err := json.Unmarshal(a.Schema, &schema); err != nil || schema.Type != "object" {
		t.Fatalf("the schema is no object's: %v", err)
	}
	for _, key := range schema.Required {
		if schema.Properties[key] == nil {
			t.Errorf("the schema requires %s and does not describe it", key)
		}
	}
}

func (s *suite) call(arguments string) model.ToolCall {
	return model.ToolCall{ID: "c1", Name: s.name, Arguments: json.RawMessage(arguments)}
}

// use makes a call from its intent on and returns its row.
func (s *suite) use(ctx context.Context, t *testing.T, tool toolset.Tool, arguments string, begun bool) (*registrypb.Step, *Journal, error) {
	t.Helper()
	const key = "tool:1:1"
	calls, j := Calls(t, s.Config, tool)
	calls.Key = fmt.Sprintf("turn %d", s.turns.Add(1))
	if err := j.Write(ctx, nil, calls.Intents(func(int) string { return key }, []model.ToolCall{s.call(arguments)})...); err != nil {
		return nil, j, err
	}
	text, err := Use(ctx, calls, key, s.call(arguments), begun)
	row := j.Tool(key)
	if err == nil && text != string(row.GetResult()) {
		t.Errorf("answered %q, journaled %q", text, row.GetResult())
	}
	return row, j, err
}

// good: a call is journaled with its result, and with what it says; it is not made again.
func (s *suite) good(t *testing.T) {
	for _, arguments := range s.Good {
		tool := &counted{Tool: s.tool}
		row, j, err := s.use(t.Context(), t, tool, arguments, false)
		if err != nil {
			t.Fatal(err)
		}
		if row.GetState() != registrypb.StepState_STEP_STATE_DONE || tool.runs.Load() != 1 {
			t.Errorf("%s: %v after %d runs", arguments, row.GetState(), tool.runs.Load())
		}
		if result := row.GetResult(); len(result) > toolset.MaxResult || !json.Valid(result) || !utf8.Valid(result) || toolset.Failure(result) != "" {
			t.Errorf("%s: result of %d bytes, %.300s", arguments, len(result), result)
		}
		var sent []string
		for _, m := range j.Tools.Sent(row) {
			sent = append(sent, m.Text)
		}
		if !slices.Equal(sent, j.Said) {
			t.Errorf("%s: said %q, and its row says %q", arguments, j.Said, sent)
		}
		calls, _ := Calls(t, s.Config, tool)
		calls.Journal = j
		if _, err := Use(t.Context(), calls, row.GetKey(), s.call(arguments), true); err != nil || tool.runs.Load() != 1 {
			t.Errorf("%s: a finished call was made again (%v)", arguments, err)
		}
		if n := tool.finished.Load(); n != 2 {
			t.Errorf("%s: the tool was informed %d times of a result that was journaled and met again", arguments, n)
		}
	}
}

// bad: a call that is not understood does nothing, and its result says why.
func (s *suite) bad(t *testing.T) {
	for _, arguments := range append(s.Bad, `{"x":"`+strings.Repeat("x", toolset.MaxArguments)+`"}`) {
		row, j, err := s.use(t.Context(), t, s.tool, arguments, false)
		if err != nil {
			t.Fatal(err)
		}
		if toolset.Failure(row.GetResult()) == "" || row.GetState() != registrypb.StepState_STEP_STATE_DONE || len(j.Said) > 0 {
			t.Errorf("%.80s: %v, %.300s, said %q", arguments, row.GetState(), row.GetResult(), j.Said)
		}
	}
}

// unfinished: a call that may have begun is made again, or is in doubt, by its class.
func (s *suite) unfinished(t *testing.T) {
	for _, arguments := range s.Good {
		tool := &counted{Tool: s.tool}
		row, _, err := s.use(t.Context(), t, tool, arguments, true)
		if err != nil {
			t.Fatal(err)
		}
		want, runs := registrypb.StepState_STEP_STATE_DONE, int32(1)
		switch row.GetClass() {
		case registrypb.ToolClass_TOOL_CLASS_READ, registrypb.ToolClass_TOOL_CLASS_IDEMPOTENT:
		case registrypb.ToolClass_TOOL_CLASS_EFFECT:
			want, runs = registrypb.StepState_STEP_STATE_IN_DOUBT, 0
		default:
			t.Errorf("%s: class %v", arguments, row.GetClass())
		}
		if row.GetState() != want || tool.runs.Load() != runs {
			t.Errorf("%s of class %v: %v after %d runs", arguments, row.GetClass(), row.GetState(), tool.runs.Load())
		}
	}
}

// ended: when the turn's work ends in a call, it returns, and says nothing.
func (s *suite) ended(t *testing.T) {
	cause := errors.New("the work has ended")
	for _, arguments := range s.Good {
		ctx, cancel := context.WithCancelCause(t.Context())
		tool := &ends{Tool: s.tool, end: func() { cancel(cause) }}
		row, j, err := s.use(ctx, t, tool, arguments, false)
		if !errors.Is(err, cause) || row.GetState() != registrypb.StepState_STEP_STATE_INTENT || len(j.Said) > 0 {
			t.Errorf("%s: %v, %v, said %q", arguments, err, row.GetState(), j.Said)
		}
	}
}

// ends is a tool that is called as the work ends.
type ends struct {
	toolset.Tool
	end func()
}

func (e *ends) Run(ctx context.Context, c toolset.Call) toolset.Result {
	e.end()
	return e.Tool.Run(ctx, c)
}

// atOnce: one tool serves all turns of a runner.
func (s *suite) atOnce(t *testing.T) {
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if row, _, err := s.use(t.Context(), t, s.tool, s.Good[0], false); err != nil || toolset.Failure(row.GetResult()) != "" {
				t.Errorf("%v, %s", err, row.GetResult())
			}
		})
	}
	wg.Wait()
}

// alone is the turn of a peer that sends no message. What a call says while it waits is not kept.
type alone struct{}

// Wait implements [toolset.Waits].
func (alone) Wait(ctx context.Context, f func(context.Context) error) error { return f(ctx) }

// Say implements [toolset.Waits].
func (alone) Say(ctx context.Context, _ toolset.Call, _, _, _ string) error {
	return context.Cause(ctx)
}

// Replies implements [toolset.Waits].
func (alone) Replies(int64) ([]toolset.Reply, <-chan struct{}) { return nil, nil }

// Hold implements [toolset.Waits].
func (alone) Hold(toolset.Reply) bool { return false }

// Release implements [toolset.Waits].
func (alone) Release(toolset.Reply) {}

// Join implements [toolset.Waits].
func (alone) Join(context.Context, toolset.Call, string) error { return nil }

// Journal is a journal in memory. It is also a watcher and a meter that keep nothing.
type Journal struct {
	step.Log
	// Said are the messages to the peer, Writes the writes, and Unwritten the steps that
	// were kept for the next.
	Said   []string
	Writes int
	// Addressed are the messages that are not simply for the peer.
	Addressed []*registrypb.Saying
	Unwritten []*registrypb.Step
	// Counted are the calls in the order in which they have ended: tool, class and outcome, and before that by which
	// layer it is denied.
	Counted []string
}

// Write implements [toolset.Journal].
func (j *Journal) Write(ctx context.Context, says []*registrypb.Saying, rows ...*registrypb.Step) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	j.Writes++
	for _, s := range says {
		if s.GetAction() != "" || s.GetChannel() != "" || s.GetTo() != "" {
			j.Addressed = append(j.Addressed, s)
		} else {
			j.Said = append(j.Said, s.GetText())
		}
	}
	for _, row := range rows {
		j.Add(row)
	}
	return nil
}

// WriteLater implements [toolset.Journal].
func (j *Journal) WriteLater(row *registrypb.Step) { j.Unwritten = append(j.Unwritten, row) }

// ToolStart implements [toolset.Watcher].
func (*Journal) ToolStart(toolset.Shown) {}

// Progress implements [toolset.Watcher].
func (*Journal) Progress(toolset.Shown) func(string) { return func(string) {} }

// Prompt implements [toolset.Watcher].
func (*Journal) Prompt(toolset.Shown, toolset.Prompt) func() { return func() {} }

// ToolEnd implements [toolset.Watcher].
func (*Journal) ToolEnd(toolset.Shown) {}

// ObserveStep implements [toolset.Meter].
func (*Journal) ObserveStep(string, time.Duration) {}

// AddCall implements [toolset.Meter].
func (j *Journal) AddCall(tool, class, outcome string, _ time.Duration) {
	j.Counted = append(j.Counted, tool+" "+class+" "+outcome)
}

// CallBegins implements [toolset.Meter].
func (j *Journal) CallBegins() {}

// CallEnds implements [toolset.Meter].
func (j *Journal) CallEnds() {}

// AddDenied implements [toolset.Meter].
func (j *Journal) AddDenied(layer string) { j.Counted = append(j.Counted, "denied by "+layer) }

// AddTruncated implements [toolset.Meter].
func (*Journal) AddTruncated(string) {}

// WaitBegins implements [toolset.Meter].
func (*Journal) WaitBegins(string) {}

// WaitEnds implements [toolset.Meter].
func (*Journal) WaitEnds(string, string, time.Duration) {}
