package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/theclaw/agents/internal/boundary"
)

// Limits of the tool calls of one answer, in bytes. An answer with its calls, and a call
// with its result, become one row of the journal each.
const (
	// MaxArguments bounds the arguments of one call.
	MaxArguments = 192 << 10
	// maxAllArguments bounds those of all calls of an answer.
	maxAllArguments = 512 << 10
	// maxRaw is how much is kept of arguments that are not a JSON object.
	maxRaw    = 4 << 10
	maxCallID = 256
	maxName   = 64
)

// namePattern is what every provider takes as the name of a tool.
var namePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`) })

// SealToolCalls makes the calls of an answer such that they can be journaled and sent back
// to any provider, and gives each an id that no other call of the conversation has. A
// provider's id is kept when it is good; a missing, repeated or endless one becomes
// call_<messages>_<index>, which depends on the request and the position only, so a
// repeated answer has the same ids. A call without a usable name, or with arguments that
// are not one JSON object, keeps its place and has a Problem: the model reads it as the
// result of the call, and the other calls are made.
func SealToolCalls(req Request, calls []ToolCall) []ToolCall {
	taken := make(map[string]bool)
	for _, m := range req.Messages {
		for _, c := range m.ToolCalls {
			taken[c.ID] = true
		}
	}
	sealed := make([]ToolCall, 0, len(calls))
	left := maxAllArguments
	for i, c := range calls {
		if c.ID, _ = boundary.Text(c.ID, 0); c.ID == "" || len(c.ID) > maxCallID || taken[c.ID] {
			c.ID = fmt.Sprintf("call_%d_%d", len(req.Messages), i)
			for n := 1; taken[c.ID]; n++ {
				c.ID = fmt.Sprintf("call_%d_%d_%d", len(req.Messages), i, n)
			}
		}
		taken[c.ID] = true
		c = sealArguments(c)
		if c = sealName(req, c); len(c.Arguments) > left {
			c.Arguments = json.RawMessage("{}")
			c.Problem = fmt.Sprintf("the arguments of all calls of one answer are larger than %d KiB: this call was not made, make fewer calls at once", maxAllArguments>>10)
		}
		left -= len(c.Arguments)
		sealed = append(sealed, c)
	}
	return sealed
}

// offset is the place of the byte at which text turned out to be no JSON: the last one where the end is missing. err is of
// [json.Unmarshal].
func offset(err error) int64 {
	syntax, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return 0
	}
	return max(syntax.Offset-1, 0) // Offset is how many bytes were read
}

// Malformed reports whether the arguments were none: what the call has is the beginning of what the model wrote.
func (c ToolCall) Malformed() bool {
	return c.Problem != "" && bytes.HasPrefix(c.Arguments, []byte(`{"_raw":`))
}

// sealName replaces a name that a provider would refuse in the next request.
func sealName(req Request, c ToolCall) ToolCall {
	if namePattern().MatchString(c.Name) || slices.ContainsFunc(req.Tools, func(t Tool) bool { return t.Name == c.Name }) {
		return c
	}
	c.Problem = fmt.Sprintf("there is no tool %s: nothing was run; use the name of an offered tool", boundary.Name(c.Name))
	if c.Name == "" {
		c.Problem = "the call names no tool: nothing was run; call one of the offered tools by its name"
	}
	name := strings.Map(func(r rune) rune {
		if r < 0x80 && namePattern().MatchString(string(r)) {
			return r
		}
		return '_'
	}, c.Name[:min(len(c.Name), maxName)])
	if c.Name = name; name == "" {
		c.Name = "unnamed"
	}
	return c
}

// sealArguments makes the arguments of a call a JSON object of valid UTF-8.
func sealArguments(c ToolCall) ToolCall {
	raw := bytes.TrimSpace(c.Arguments)
	if len(raw) == 0 || string(raw) == "null" {
		c.Arguments = json.RawMessage("{}")
		return c
	}
	text, change := boundary.Text(string(raw[:min(len(raw), MaxArguments+1)]), 0)
	if change != (boundary.Change{}) {
		c.Note = "arguments: " + change.Note()
	}
	var object map[string]json.RawMessage
	err := json.Unmarshal([]byte(text), &object)
	switch {
	case len(raw) > MaxArguments || len(text) > MaxArguments:
		c.Problem = fmt.Sprintf("the arguments are larger than %d KiB: nothing was run; write long text to a file in several calls", MaxArguments>>10)
	case err != nil && text[0] != '{':
		c.Problem = "the arguments are not a JSON object (offset 0): nothing was run; make the call again with one object that holds every argument by its name"
	case err != nil:
		c.Problem = fmt.Sprintf("the arguments are not valid JSON (offset %d: %s): nothing was run; make the call again with one complete JSON object", offset(err), CleanWords(err.Error()))
	default:
		c.Arguments = json.RawMessage(text)
		return c
	}
	text, _ = boundary.Text(text, maxRaw)
	c.Arguments, err = json.Marshal(map[string]string{"_raw": text})
	if err != nil { // a map of strings always encodes
		c.Arguments = json.RawMessage("{}")
	}
	return c
}
