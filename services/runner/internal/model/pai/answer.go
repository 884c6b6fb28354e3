package pai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/services/runner/internal/model"
)

const (
	// maxLine bounds an event, in bytes: a tool's output may be 8 MB, escaped.
	maxLine = 56 << 20
	// maxText bounds the text of an answer, in bytes.
	maxText = 8 << 20
)

// answer is what one run of pai has said.
type answer struct {
	onDelta  func(model.Delta)
	start    time.Time
	messages int

	text  strings.Builder
	full  bool            // text is truncated
	valid boundary.Stream // of stdout
	line  []byte          // of stderr
	first time.Duration

	rounds, complete int
	finish           string
	calls            int
	open             *model.ToolUse // called, no result yet
	failed           bool
	failure          string
	last             string // the last line that is no event

	barred  func() // ends a program that must not have tools; nil: it may
	offered bool   // it had them all the same
}

// event is a line of stderr.
type event struct {
	Type    string          `json:"type"`
	Data    json.RawMessage `json:"data"`
	Message string          `json:"message"`
}

func (a *answer) take(p piece) {
	if !p.err {
		a.say(p.b)
		return
	}
	a.line = append(a.line, p.b...)
	for {
		i := bytes.IndexByte(a.line, '\n')
		if i < 0 {
			if len(a.line) > maxLine {
				a.line = nil
			}
			return
		}
		a.event(a.line[:i])
		a.line = a.line[i+1:]
	}
}

// flush takes what came without an end.
func (a *answer) flush() {
	if len(a.line) > 0 {
		a.event(a.line)
		a.line = nil
	}
	a.emit(a.valid.End())
}

// say passes text on in complete characters.
func (a *answer) say(b []byte) { a.emit(a.valid.Add(string(b))) }

func (a *answer) emit(s string) {
	if s == "" || a.full {
		return
	}
	if a.text.Len()+len(s) > maxText { // it is still followed to its end: its tools have effects
		a.full = true
		return
	}
	if a.first == 0 {
		a.first = time.Since(a.start)
	}
	a.text.WriteString(s)
	if a.onDelta != nil {
		a.onDelta(model.Delta{Text: s})
	}
}

func (a *answer) event(line []byte) {
	var e event
	if len(line) == 0 || line[0] != '{' || json.Unmarshal(line, &e) != nil || e.Type == "" {
		if text := strings.TrimSpace(string(line)); text != "" && !strings.HasPrefix(text, "[Info]") && !strings.HasPrefix(text, "[Warning]") && a.last == "" {
			a.last = text // the first one: usage follows a complaint about an option
		}
		return
	}
	switch e.Type {
	case "start":
		var d struct{ Tools *int }
		if a.barred != nil && (json.Unmarshal(e.Data, &d) != nil || d.Tools == nil || *d.Tools != 0) {
			a.bar() // before it has asked the model: nothing can have run
		}
		a.rounds++
	case "complete":
		var d struct{ FinishReason string }
		_ = json.Unmarshal(e.Data, &d) // without one it is not an end
		a.finish = d.FinishReason
		a.complete++
	case "tool_call":
		if a.barred != nil {
			a.bar()
			return
		}
		var d struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		}
		if json.Unmarshal(e.Data, &d) != nil || d.Name == "" {
			return
		}
		if len(d.Arguments) == 0 {
			d.Arguments = json.RawMessage("{}")
		}
		a.calls++
		// pai names no ids; order links a call with its result.
		a.open = &model.ToolUse{Call: model.ToolCall{ID: fmt.Sprintf("pai_%d_%d", a.messages, a.calls), Name: d.Name, Arguments: d.Arguments}}
		a.tell(*a.open)
	case "tool_result":
		if a.open == nil {
			return
		}
		done := *a.open
		done.Result = e.Data
		if len(done.Result) == 0 {
			done.Result = json.RawMessage("{}")
		}
		a.open = nil
		a.tell(done)
	case "error":
		a.failed, a.failure = true, e.Message
	}
}

func (a *answer) bar() {
	a.offered = true
	a.barred()
}

func (a *answer) tell(u model.ToolUse) {
	if a.onDelta != nil {
		a.onDelta(model.Delta{Tool: &u})
	}
}
