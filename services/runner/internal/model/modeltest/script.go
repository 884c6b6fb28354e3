package modeltest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
)

// FinishNone as Step.Finish leaves the finish reason out.
const FinishNone = "none"

// Step is what the provider does with one request. The zero Step streams an
// empty answer that finishes with stop.
type Step struct {
	// Match makes the step answer only requests whose last user message holds
	// this text; requests look for the first such step before they take the
	// next one without Match.
	Match string `json:"match,omitempty"`
	// Repeat keeps the step: it answers any number of requests.
	Repeat bool `json:"repeat,omitempty"`

	// Status other than 0 and 200 answers with Error or Body instead of a
	// stream.
	Status int `json:"status,omitempty"`
	// RetryAfter is the header's value as it is.
	RetryAfter string            `json:"retry_after,omitempty"`
	Header     map[string]string `json:"header,omitempty"`
	// Error is the JSON error of the body; in a stream an error event after
	// the pieces.
	Error *APIError `json:"error,omitempty"`
	// Body is sent instead of Error or of a stream, as it is.
	Body string `json:"body,omitempty"`
	// HangUp closes the connection before any answer.
	HangUp bool `json:"hang_up,omitempty"`

	// Reasoning, Text and ToolCalls are streamed in this order, one chunk a
	// piece; the pieces of several tool calls alternate.
	Reasoning []string   `json:"reasoning,omitempty"`
	Text      []string   `json:"text,omitempty"`
	ToolCalls []ToolCall `json:"tool_calls,omitempty"`
	// Replace are pairs of a text and what is written instead of it in the stream: bytes
	// that JSON cannot hold.
	Replace []string `json:"replace,omitempty"`
	// Prefix is written in front of the stream as it is.
	Prefix string `json:"prefix,omitempty"`
	// Raw lines are written after the pieces as they are.
	Raw []string `json:"raw,omitempty"`
	// Finish is the finish reason; empty means stop or tool_calls, whichever
	// fits, FinishNone none at all.
	Finish string `json:"finish,omitempty"`
	// NoChoices leaves the choices of all chunks empty.
	NoChoices bool   `json:"no_choices,omitempty"`
	Usage     *Usage `json:"usage,omitempty"`
	// NoDone leaves out the closing [DONE]; the body still ends cleanly.
	NoDone bool `json:"no_done,omitempty"`
	// Cut breaks the connection after the pieces, before the finish reason.
	Cut bool `json:"cut,omitempty"`
	// CutAfter breaks the connection after this many events, wherever that is.
	CutAfter int `json:"cut_after,omitempty"`
	// EndAfter ends the body cleanly after this many events.
	EndAfter int `json:"end_after,omitempty"`
	// Garbage is sent after the pieces as the data of an event.
	Garbage string `json:"garbage,omitempty"`
	// Drip sends comments after the pieces, and nothing else any more.
	Drip bool `json:"drip,omitempty"`

	// PauseMS is a real pause after each piece, in milliseconds, for drills
	// with slow providers. Tests use Gate.
	PauseMS int `json:"pause_ms,omitempty"`
	// Answer, when set, makes the step from the request, for models that answer
	// from nothing but the request.
	Answer func(Chat) Step `json:"-"`
	// Gate, when set, is waited for after the first chunk (before the answer,
	// if there is no piece).
	Gate <-chan struct{} `json:"-"`
	// Left, when set, is closed when the client is gone before the Gate opens.
	Left chan<- struct{} `json:"-"`
}

// ToolCall is a call whose arguments arrive in pieces.
type ToolCall struct {
	// Index is the position; nil counts up.
	Index *int `json:"index,omitempty"`
	// ID may be empty: such servers exist.
	ID   string `json:"id,omitempty"`
	Name string `json:"name,omitempty"`
	// Arguments are the pieces of the JSON text.
	Arguments []string `json:"arguments,omitempty"`
}

// APIError is the error object of both APIs; Code, which may be a string or a
// number, is OpenAI's, and Type says the same at Anthropic.
type APIError struct {
	Message string `json:"message"`
	Type    string `json:"type,omitempty"`
	Code    any    `json:"code,omitempty"`
}

// Usage is what the last chunk reports, in tokens.
type Usage struct {
	Input  int64 `json:"input"`
	Output int64 `json:"output"`
	Cached int64 `json:"cached,omitempty"`
	// CacheWrite is reported where the API has it.
	CacheWrite int64 `json:"cache_write,omitempty"`
	Reasoning  int64 `json:"reasoning,omitempty"`
}

// Signature stands under each thinking block of the Messages API.
const Signature = "c2lnbmVkIGJ5IG1vZGVsdGVzdA=="

// Say is a step that streams the pieces as text.
func Say(pieces ...string) Step { return Step{Text: pieces} }

// Fail is a step that answers with a status and an error message.
func Fail(status int, message string) Step {
	return Step{Status: status, Error: &APIError{Message: message}}
}

// LoadScript reads the steps of a JSON file; unknown keys are errors.
func LoadScript(path string) ([]Step, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read script: %w", err)
	}
	var script struct {
		Steps []Step `json:"steps"`
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&script); err != nil {
		return nil, fmt.Errorf("decode script %s: %w", path, err)
	}
	return script.Steps, nil
}
