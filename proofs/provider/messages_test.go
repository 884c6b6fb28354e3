//go:build proof

package provider_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// The rows of the Messages API, which differs from chat completions in its stream and in
// what it takes back.
func messageRows() []row {
	block := func(start string, deltas ...string) string {
		out := named(`{"type":"content_block_start","index":0,"content_block":{` + start + `}}`)
		for _, d := range deltas {
			out += named(`{"type":"content_block_delta","index":0,"delta":{` + d + `}}`)
		}
		return out + named(`{"type":"content_block_stop","index":0}`)
	}
	const begin = `{"type":"message_start","message":{"id":"m1","type":"message","role":"assistant","model":"m1","content":[],"usage":{"input_tokens":5,"output_tokens":1}}}`
	answer := func(reason string, blocks ...string) string {
		return named(begin) + strings.Join(blocks, "") +
			named(`{"type":"message_delta","delta":{"stop_reason":"`+reason+`"},"usage":{"output_tokens":3}}`) + named(`{"type":"message_stop"}`)
	}
	text := func(pieces ...string) string {
		var deltas []string
		for _, p := range pieces {
			deltas = append(deltas, `"type":"text_delta","text":"`+p+`"`)
		}
		return block(`"type":"text","text":""`, deltas...)
	}
	use := func(id, name, arguments string) string {
		return block(`"type":"tool_use","id":`+quote(id)+`,"name":`+quote(name)+`,"input":{}`, `"type":"input_json_delta","partial_json":`+quote(arguments))
	}
	says := func(name, reply, stream string) row {
		return row{name: "messages: " + name, want: replied, cause: reply, calls: 1, messages: true, serve: func(x *exchange) { x.stream(stream) }}
	}
	tool := func(name, told string, blocks ...string) row {
		return row{name: "messages: " + name, want: replied, cause: "done", told: told, calls: 2, messages: true, serve: func(x *exchange) {
			if len(x.results) > 0 {
				x.stream(answer("end_turn", text("done")))
				return
			}
			x.stream(answer("tool_use", blocks...))
		}, stubborn: true}
	}
	rows := []row{
		says("invalid byte in text", "a\uFFFDb", answer("end_turn", text("a\xffb"))),
		says("character in two chunks", "5 \u20ac", answer("end_turn", text("5 \xe2", "\x82\xac"))),
		says("output limit", "incomplete: the model reached its output limit", answer("max_tokens", text("half an ans"))),
		says("byte order mark", "whole", "\uFEFF"+answer("end_turn", text("whole"))),
		tool("arguments end too early", "not valid JSON", use("c1", "bash_exec", `{"comm`)),
		tool("arguments are an array", "not a JSON object", use("c1", "bash_exec", `["ls"]`)),
		tool("invalid byte in an id", "ran", use("c\xff", "bash_exec", `{"command":"echo ran"}`)),
		tool("call without a name", "names no tool", use("c1", "", `{}`)),
		tool("ids that differ in a sign", "second", use("a.b", "bash_exec", `{"command":"echo first"}`), use("a:b", "bash_exec", `{"command":"echo second"}`)),
		{name: "messages: 100 MB of text", want: replied, cause: "larger than a message can be", calls: 1, messages: true, serve: func(x *exchange) {
			x.stream(named(begin) + named(`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`))
			x.many(100, named(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"`+strings.Repeat("x", mega)+`"}}`))
		}},
		{name: "messages: pings without end", want: dead, cause: "larger than any answer", calls: 1, messages: true, serve: func(x *exchange) {
			x.stream(named(begin))
			x.many(1<<20, strings.Repeat(named(`{"type":"ping"}`), 1000))
		}},
		{name: "messages: redirect 308", want: dead, cause: "put its final address into base_url", calls: 1, messages: true, serve: func(x *exchange) {
			x.Header().Set("Location", "http://"+x.r.Host+"/elsewhere")
			x.status(308, "text/plain", "elsewhere")
		}},
	}
	for i := range rows {
		rows[i].healthy = answer("end_turn", text("fine"))
	}
	return rows
}

// named is an event with the name of its type, which this API has.
func named(data string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(data, `{"type":"`), `"`)
	return "event: " + name + "\n" + event(data)
}

var useID = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// checkMessages refuses what the Messages API refuses, and returns the newest results of
// tools.
func checkMessages(body []byte) (results []string, err error) {
	var in struct {
		Model     string
		MaxTokens int `json:"max_tokens"`
		Stream    bool
		Messages  []struct {
			Role    string
			Content []struct {
				Type, Text, ID, Name string
				Input                json.RawMessage
				ToolUseID            string `json:"tool_use_id"`
				Content              []struct{ Text string }
			}
		}
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	open, seen, last := map[string]bool{}, map[string]bool{}, ""
	for n, m := range in.Messages {
		if m.Role == last || len(m.Content) == 0 {
			return nil, fmt.Errorf("message %d of the %s", n, m.Role)
		}
		last, results = m.Role, nil
		for _, c := range m.Content {
			var object map[string]any
			switch {
			case c.Type == "tool_result" && open[c.ToolUseID]:
				delete(open, c.ToolUseID)
				for _, text := range c.Content {
					results = append(results, text.Text)
				}
			case c.Type == "text" && c.Text != "" && (m.Role == "assistant" || len(open) == 0):
			case c.Type == "tool_use" && json.Unmarshal(c.Input, &object) == nil && object != nil && useID.MatchString(c.ID) && !seen[c.ID] && toolName.MatchString(c.Name):
				open[c.ID], seen[c.ID] = true, true
			default:
				return nil, fmt.Errorf("message %d: block %.200q", n, fmt.Sprint(c))
			}
		}
	}
	if in.Model == "" || !in.Stream || in.MaxTokens <= 0 || last != "user" || len(open) > 0 {
		return nil, errors.New("no model, no stream, no max_tokens, or an open call")
	}
	return results, nil
}
