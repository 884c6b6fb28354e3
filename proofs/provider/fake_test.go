//go:build proof

package provider_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// fake is a provider on loopback: strict with requests, and with an answer for each row of
// the table, by the path of its base_url. Once it is healed it answers everybody well.
type fake struct {
	rows   []row
	healed atomic.Bool

	mu      sync.Mutex
	calls   map[int]int      // paid calls of a row, until it is healed
	told    map[int][]string // results of tools that a row's model was sent
	refused []string         // requests that no provider would take
	strays  int              // requests to places that redirects name
}

// exchange is one request of a row and its answer.
type exchange struct {
	http.ResponseWriter
	r       *http.Request
	n       int // of the row's requests, from 1
	results []string
}

// ServeHTTP implements http.Handler. The path is /<row>/v1/chat/completions, or
// /<row>/v1/messages; row -1 is the healthy provider.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	number, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	i, err := strconv.Atoi(number)
	messages := err == nil && i >= 0 && f.rows[i].messages
	if err != nil || rest != map[bool]string{false: "v1/chat/completions", true: "v1/messages"}[messages] || r.Method != http.MethodPost {
		f.mu.Lock()
		f.strays++
		f.mu.Unlock()
		http.Error(w, "nothing is here", http.StatusNotFound)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller went away
	}
	var results []string
	switch {
	case !utf8.Valid(body):
		err = errors.New("the request is not UTF-8")
	case messages:
		results, err = checkMessages(body)
	default:
		results, err = check(body)
	}
	f.mu.Lock()
	if err != nil {
		f.refused = append(f.refused, fmt.Sprintf("row %d: %v", i, err))
	}
	healthy := i < 0 || f.healed.Load()
	if !healthy {
		f.calls[i]++
		f.told[i] = append(f.told[i], results...)
	}
	x := &exchange{ResponseWriter: w, r: r, n: f.calls[i], results: results}
	f.mu.Unlock()
	switch {
	case err != nil:
		http.Error(w, `{"error":{"message":"the request is not valid","type":"invalid_request_error"}}`, http.StatusBadRequest)
	case healthy && messages:
		x.stream(f.rows[i].healthy)
	case healthy:
		x.stream(say("fine"))
	case len(results) > 0 && !f.rows[i].stubborn:
		x.stream(say("done"))
	default:
		f.rows[i].serve(x)
	}
}

var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// check refuses what a provider refuses, and returns the newest results of tools.
func check(body []byte) (results []string, err error) {
	var in struct {
		Model    string
		Stream   bool
		Messages []struct {
			Role       string
			Content    *string
			ToolCallID string `json:"tool_call_id"`
			ToolCalls  []struct {
				ID, Type string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	open, seen := map[string]bool{}, map[string]bool{}
	for n, m := range in.Messages {
		if m.Role != "tool" && len(open) > 0 {
			return nil, fmt.Errorf("message %d: %d calls have no result", n, len(open))
		}
		if m.Role != "tool" {
			results = nil
		}
		switch m.Role {
		case "system", "user":
			if m.Content == nil {
				return nil, fmt.Errorf("message %d has no content", n)
			}
		case "tool":
			if !open[m.ToolCallID] || m.Content == nil {
				return nil, fmt.Errorf("message %d: result of a call %.80q that is not open", n, m.ToolCallID)
			}
			delete(open, m.ToolCallID)
			results = append(results, *m.Content)
		case "assistant":
			if m.Content == nil && len(m.ToolCalls) == 0 {
				return nil, fmt.Errorf("message %d is empty", n)
			}
			for _, c := range m.ToolCalls {
				var object map[string]any
				if json.Unmarshal([]byte(c.Function.Arguments), &object) != nil || object == nil {
					return nil, fmt.Errorf("message %d: arguments %.80q are no object", n, c.Function.Arguments)
				}
				if c.ID == "" || len(c.ID) > 256 || seen[c.ID] || !toolName.MatchString(c.Function.Name) {
					return nil, fmt.Errorf("message %d: call %.80q of %.80q", n, c.ID, c.Function.Name)
				}
				seen[c.ID], open[c.ID] = true, true
			}
		default:
			return nil, fmt.Errorf("message %d has the role %q", n, m.Role)
		}
	}
	if in.Model == "" || !in.Stream || len(in.Messages) == 0 || len(open) > 0 {
		return nil, errors.New("no model, no messages, no stream or an open call")
	}
	return results, nil
}

// stream answers with an event stream of these bytes.
func (x *exchange) stream(pieces ...string) {
	x.Header().Set("Content-Type", "text/event-stream")
	for _, p := range pieces {
		if !x.send(p) {
			return
		}
	}
}

// send writes bytes at once; false when the caller has gone.
func (x *exchange) send(p string) bool {
	if _, err := io.WriteString(x, p); err != nil {
		return false
	}
	return http.NewResponseController(x.ResponseWriter).Flush() == nil
}

// many sends a piece so often, or until the caller has gone.
func (x *exchange) many(n int, piece string) {
	for range n {
		if !x.send(piece) {
			return
		}
	}
}

// status answers with an error.
func (x *exchange) status(code int, contentType, body string) {
	x.Header().Set("Content-Type", contentType)
	x.WriteHeader(code)
	_, _ = io.WriteString(x, body)
}

// gone waits until the caller has left.
func (x *exchange) gone() { <-x.r.Context().Done() }

// cut breaks the connection.
func (x *exchange) cut() { panic(http.ErrAbortHandler) }

// event is one event of a stream.
func event(data string) string { return "data: " + data + "\n\n" }

// delta is a chunk of the first choice.
func delta(fields string) string {
	return event(`{"id":"x1","model":"m1","choices":[{"index":0,"delta":{` + fields + `},"finish_reason":null}]}`)
}

// end finishes an answer.
func end(reason string) string {
	return event(`{"id":"x1","model":"m1","choices":[{"index":0,"delta":{},"finish_reason":"`+reason+`"}]}`) + event(`{"id":"x1","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3}}`) + event("[DONE]")
}

// say is a complete answer of text, which stands in JSON as it is.
func say(text string) string { return delta(`"content":"`+text+`"`) + end("stop") }

// calls is a complete answer of tool calls; each is the JSON of its members.
func calls(list ...string) string {
	var b strings.Builder
	for i, c := range list {
		b.WriteString(delta(fmt.Sprintf(`"tool_calls":[{"index":%d,%s}]`, i, c)))
	}
	return b.String() + end("tool_calls")
}

// call is a call of bash_exec; arguments are the text that the model wrote.
func call(id, arguments string) string { return callOf(id, "bash_exec", arguments) }

func callOf(id, name, arguments string) string {
	return `"id":` + quote(id) + `,"type":"function","function":{"name":` + quote(name) + `,"arguments":` + quote(arguments) + `}`
}

// quote is a JSON string that keeps bytes that are not UTF-8.
func quote(s string) string {
	var b bytes.Buffer
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ':
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
