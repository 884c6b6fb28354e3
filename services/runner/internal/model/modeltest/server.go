package modeltest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Key is the API key a driver under test uses; the tests watch that it reaches
// the provider and no error. It looks like no known key, so that only a driver
// that knows its own key can keep it out.
const Key = "conformance.0123456789"

// RecordedRequest is one request as it came in.
type RecordedRequest struct {
	Method, Path string
	Header       http.Header
	Body         json.RawMessage
	// Chat is the part of the body that tests ask for most.
	Chat Chat
}

// Chat is a decoded chat completions request. Of a request to the Messages API
// it holds the model, the tools' names and what was said by whom.
type Chat struct {
	Model         string        `json:"model"`
	Messages      []ChatMessage `json:"messages"`
	Tools         []OfferedTool `json:"tools"`
	Stream        bool          `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	MaxCompletionTokens int      `json:"max_completion_tokens"`
	Temperature         *float64 `json:"temperature"`
	Store               *bool    `json:"store"`
}

// ChatMessage is a message of a request.
type ChatMessage struct {
	Role       string `json:"role"`
	Content    string `json:"content"`
	ToolCallID string `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

// OfferedTool is a tool of a request.
type OfferedTool struct {
	Function struct {
		Name string `json:"name"`
	} `json:"function"`
}

// LastUser is the text of the last user message.
func (c Chat) LastUser() string {
	for _, m := range slices.Backward(c.Messages) {
		if m.Role == "user" {
			return m.Content
		}
	}
	return ""
}

// flat reads a request to the Messages API: each text and each tool result is
// a message of its own.
func flat(body []byte) (Chat, error) {
	var in struct {
		Model    string
		Stream   bool
		Messages []struct {
			Role    string
			Content []struct {
				Type, Text string
				ToolUseID  string `json:"tool_use_id"`
				Content    []struct{ Text string }
			}
		}
		Tools []struct{ Name string }
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return Chat{}, err
	}
	out := Chat{Model: in.Model, Stream: in.Stream}
	for _, m := range in.Messages {
		for _, c := range m.Content {
			said := ChatMessage{Role: m.Role, Content: c.Text}
			if c.Type == "tool_result" {
				said = ChatMessage{Role: "tool", ToolCallID: c.ToolUseID}
				for _, text := range c.Content {
					said.Content += text.Text
				}
			}
			out.Messages = append(out.Messages, said)
		}
	}
	out.Tools = make([]OfferedTool, len(in.Tools))
	for i, t := range in.Tools {
		out.Tools[i].Function.Name = t.Name
	}
	return out, nil
}

// Provider is the scripted provider as an http.Handler, for programs that
// bring their own listener. The zero value has an empty script.
type Provider struct {
	mu       sync.Mutex
	steps    []Step
	requests []RecordedRequest
	usages   []Usage
}

// Usages is what the answers cost that were sent completely, in the order in which
// they ended: the provider's own count.
func (p *Provider) Usages() []Usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.usages)
}

// Push adds steps to the end of the script.
func (p *Provider) Push(steps ...Step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps = append(p.steps, steps...)
}

// Requests returns a copy of what came in so far.
func (p *Provider) Requests() []RecordedRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

func (p *Provider) take(r RecordedRequest) (Step, int, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = append(p.requests, r)
	number := len(p.requests)
	at := slices.IndexFunc(p.steps, func(s Step) bool { return s.Match != "" && strings.Contains(r.Chat.LastUser(), s.Match) })
	if at < 0 {
		at = slices.IndexFunc(p.steps, func(s Step) bool { return s.Match == "" })
	}
	if at < 0 {
		return Step{}, number, false
	}
	step := p.steps[at]
	if !step.Repeat {
		p.steps = slices.Delete(p.steps, at, at+1)
	}
	if step.Answer != nil {
		step = step.Answer(r.Chat)
	}
	return step, number, true
}

// ServeHTTP answers one request with the step it finds. An empty script
// answers 400, which no driver repeats.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client went away
	}
	recorded := RecordedRequest{Method: r.Method, Path: r.URL.Path, Header: r.Header.Clone(), Body: body}
	var api format
	switch {
	case strings.HasSuffix(r.URL.Path, "/chat/completions"):
		api, err = newChat, json.Unmarshal(body, &recorded.Chat)
	case strings.HasSuffix(r.URL.Path, "/messages"):
		api = newMessages
		recorded.Chat, err = flat(body)
	}
	if api == nil || err != nil {
		http.Error(w, `{"error":{"message":"modeltest: neither a chat completions nor a messages request"}}`, http.StatusNotFound)
		return
	}
	step, number, ok := p.take(recorded)
	if !ok {
		http.Error(w, `{"error":{"message":"modeltest: the script has no step for this request"}}`, http.StatusBadRequest)
		return
	}
	play(w, r, step, api, recorded.Chat.Model, number) // returns only when all was sent
	if step.Usage != nil && step.Status == 0 && step.EndAfter == 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.usages = append(p.usages, *step.Usage)
	}
}

// Server is a Provider that listens on loopback.
type Server struct {
	Provider
	http *httptest.Server
}

// New starts a server with a script; it is stopped, and its open streams
// dropped, when the test ends.
func New(tb testing.TB, steps ...Step) *Server {
	tb.Helper()
	s := &Server{}
	s.Push(steps...)
	s.http = httptest.NewServer(&s.Provider)
	tb.Cleanup(s.Close)
	return s
}

// URL is the base URL for a driver.
func (s *Server) URL() string { return s.http.URL + "/v1" }

// Close drops all connections and stops the server; later calls are refused.
func (s *Server) Close() {
	s.http.CloseClientConnections()
	s.http.Close()
}
