// Package step defines the rows that a turn writes to the journal: their keys, and
// the JSON of their results.
//
//	transcribe:1  the text of a voice message, which is an event
//	model:1    an answer, with its tool calls      [Answer]
//	tool:1:1   the first tool call of that answer  JSON of package toolset
//	tool:1:2   ...
//	steer:2    messages merged before it           [Steered]
//	block:2:1  what was sent of the next answer while it was written
//	model:2    ...
//
// A program that runs tools itself adds, for each of its calls:
//
//	pai:1      the call: begun, then its answer    [Answer]
//	pai:1:1    its first tool                      JSON of the program
//
// It promises: what [Decode] reads is all that [NewAnswer] wrote, so that an answer
// is never asked for twice; no row is larger than the journal takes, and no reply
// larger than an event. It makes no call and keeps no state.
package step

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/boundary"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/run"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// Sizes in bytes, as JSON.
const (
	// maxReply leaves room in an event of 1 MiB for the reply_context.
	maxReply = 900 << 10
	// maxResult is the most the journal takes for one step.
	maxResult = 1 << 20
	// maxErrorText bounds the text of an error.
	maxErrorText = 4096
	// leastText is what is kept of a text before calls that fill a row.
	leastText = 16 << 10
)

const replyNote = "\n[the answer was cut: it is larger than a message can be]"

// ModelKey is the key of a round's answer, from 1.
func ModelKey(round int) string { return fmt.Sprintf("model:%d", round) }

// ToolKey is the key of the nth call of a round, both from 1.
func ToolKey(round, n int) string { return fmt.Sprintf("tool:%d:%d", round, n) }

// Answer is the journaled result of a model step: all that is needed to go on
// without asking again.
type Answer struct {
	Text         string             `json:"text"`
	Reasoning    string             `json:"reasoning,omitempty"`
	Replay       json.RawMessage    `json:"replay,omitempty"`
	ToolCalls    []Call             `json:"tool_calls,omitempty"`
	FinishReason model.FinishReason `json:"finish_reason"`
	Model        string             `json:"model,omitempty"`
	ProviderID   string             `json:"provider_id,omitempty"`
	// Stream is its place in the stream of its run.
	Stream *run.Span `json:"stream,omitempty"`
	// Break is what becomes of a text before tool calls; empty: it is for the stream.
	Break string `json:"break,omitempty"`
	// InBlocks is how much of Text is in blocks that were sent before, in bytes from its beginning.
	InBlocks int `json:"in_blocks,omitempty"`
	// Notes say how the answer differs from what the provider sent.
	Notes []string `json:"notes,omitempty"`
	// Error is set for a call of a program that gave no answer.
	Error string `json:"error,omitempty"`
}

// Call is a tool call in an Answer.
type Call struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	// Problem is why it cannot be made, and Note how its arguments were changed.
	Problem string `json:"problem,omitempty"`
	Note    string `json:"note,omitempty"`
}

// Decode reads the result of a model step.
func Decode(result []byte) (Answer, error) {
	var a Answer
	if err := json.Unmarshal(result, &a); err != nil {
		return a, fmt.Errorf("decode model step: %w", err)
	}
	return a, nil
}

// NewAnswer is a response as it will be journaled, with its text cut to what a
// reply can hold, or to what its calls leave of a row; at is its place in the stream. The
// calls are sealed, which bounds them; others may be too large to be journaled.
func NewAnswer(r model.Response, at *run.Span) (Answer, []byte, *model.Error) {
	return newAnswer(r, at, "", 0)
}

func newAnswer(r model.Response, at *run.Span, mode string, inBlocks int) (Answer, []byte, *model.Error) {
	a := Answer{Stream: at, Break: mode, InBlocks: inBlocks, Text: capText(r.Text), Reasoning: r.Reasoning, Replay: r.Replay, FinishReason: r.FinishReason, Model: r.Model, ProviderID: r.ProviderID, Notes: r.Notes}
	for _, c := range r.ToolCalls {
		if len(c.Arguments) > toolset.MaxArguments || len(c.Name) > 128 || len(c.ID) > 256 {
			return a, nil, model.Errorf(model.TooLarge, "the arguments of a tool call are larger than %d KiB", toolset.MaxArguments>>10)
		}
		a.ToolCalls = append(a.ToolCalls, Call{ID: c.ID, Name: c.Name, Arguments: c.Arguments, Problem: c.Problem, Note: c.Note})
	}
	b, err := encode(a)
	if err == nil && len(b) > maxResult {
		a.Reasoning, a.Replay = "", nil
		b, err = encode(a)
	}
	if err == nil && len(b) > maxResult {
		a.Text = shorten(a.Text, leastText)
		b, err = encode(a)
	}
	if err != nil || len(b) > maxResult {
		return a, nil, model.Errorf(model.TooLarge, "the answer is larger than %d KiB", maxResult>>10)
	}
	return a, b, nil
}

// encode is JSON without escapes that browsers want: they would cost size.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), err
}

// Message is the answer as the model's own earlier word.
func (a Answer) Message() model.Message {
	m := model.Message{Role: model.RoleAssistant, Text: a.Text, Reasoning: a.Reasoning, Replay: a.Replay}
	for _, c := range a.ToolCalls {
		m.ToolCalls = append(m.ToolCalls, model.ToolCall{ID: c.ID, Name: c.Name, Arguments: c.Arguments, Problem: c.Problem, Note: c.Note})
	}
	return m
}

// Shown is the thinking that clients were shown: all of it, or none where the stream has none.
func (a Answer) Shown() string {
	if a.Stream != nil && !a.Stream.Thought() {
		return ""
	}
	return a.Reasoning
}

// hashed are the writers of hash.
var hashed = sync.Pool{New: func() any { return bufio.NewWriter(nil) }}

// hash identifies a request to the model by all that is sent. Each text is preceded by its
// length, so that no two requests write the same bytes. A hash takes every write.
func hash(req model.Request) []byte {
	h, w := sha256.New(), hashed.Get().(*bufio.Writer)
	w.Reset(h)
	defer func() { w.Reset(nil); hashed.Put(w) }()
	number := func(n int) { _, _ = w.Write(binary.AppendVarint(w.AvailableBuffer(), int64(n))) }
	text := func(s string) {
		number(len(s))
		_, _ = w.WriteString(s)
	}
	text(req.Model)
	text(req.System)
	text(req.Thinking)
	number(req.MaxOutputTokens)
	if req.Temperature != nil {
		text(strconv.FormatFloat(*req.Temperature, 'g', -1, 64))
	}
	number(len(req.Messages))
	for i := range req.Messages {
		m := &req.Messages[i]
		for _, s := range []string{string(m.Role), m.Text, m.Reasoning, string(m.Replay), m.ToolCallID, m.Name} {
			text(s)
		}
		if len(m.Images) > 0 {
			number(-len(m.Images)) // no number of calls; without images the hash is as in earlier builds
		}
		for _, image := range m.Images {
			text(image.SHA256)
		}
		number(len(m.ToolCalls))
		for _, c := range m.ToolCalls {
			text(c.ID)
			text(c.Name)
			text(string(c.Arguments))
		}
	}
	number(len(req.Tools))
	for _, t := range req.Tools {
		text(t.Name)
		text(t.Description)
		text(string(t.Schema))
	}
	_ = w.Flush()
	return h.Sum(nil)
}

// Model is the journal row of an answer; result is its JSON.
func Model(seq int32, round int, provider string, req model.Request, resp model.Response, result []byte) *registrypb.Step {
	return &registrypb.Step{
		Seq: seq, Kind: registrypb.StepKind_STEP_KIND_MODEL, Key: ModelKey(round), RequestSha256: hash(req),
		State: registrypb.StepState_STEP_STATE_DONE, Name: Clip(provider+"/"+req.Model, 256), Result: result,
		Usage: &registrypb.Usage{
			Input: resp.Usage.Input, Output: resp.Usage.Output,
			CachedInput: resp.Usage.CachedInput, Reasoning: resp.Usage.Reasoning, CacheWrite: resp.Usage.CacheWrite,
		},
		Duration: durationpb.New(resp.Duration),
	}
}

// capText bounds a reply by its size as JSON.
func capText(s string) string {
	s = shorten(s, maxReply)
	for {
		b, err := encode(s)
		if err != nil || len(b) <= maxReply {
			return s
		}
		s = shorten(s, len(s)/2)
	}
}

func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return Clip(s, max(n-len(replyNote), 0)) + replyNote
}

// Clip is the beginning of s in at most n bytes of complete characters.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// ErrorText is an error fit for the journal: the beginning of it, as text.
func ErrorText(s string) string {
	text, _ := boundary.Text(s, maxErrorText)
	return text
}
