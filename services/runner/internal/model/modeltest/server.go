package modeltest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Recorded is one request as it came in.
type Recorded struct {
	Method, Path string
	Header       http.Header
	Body         json.RawMessage
	// Chat is the part of the body that tests ask for most.
	Chat Chat
}

// Chat is a decoded chat completions request.
type Chat struct {
	Model    string `json:"model"`
	Messages []struct {
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
	} `json:"messages"`
	Tools []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`
	Stream        bool `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	MaxCompletionTokens int      `json:"max_completion_tokens"`
	Temperature         *float64 `json:"temperature"`
	Store               *bool    `json:"store"`
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

// Provider is the scripted provider as an http.Handler, for programs that
// bring their own listener. The zero value has an empty script.
type Provider struct {
	mu       sync.Mutex
	steps    []Step
	requests []Recorded
}

// Push adds steps to the end of the script.
func (p *Provider) Push(steps ...Step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps = append(p.steps, steps...)
}

// Requests returns a copy of what came in so far.
func (p *Provider) Requests() []Recorded {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

func (p *Provider) take(r Recorded) (Step, int, bool) {
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
	return step, number, true
}

// ServeHTTP answers one request with the step it finds. An empty script
// answers 400, which no driver repeats.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client went away
	}
	recorded := Recorded{Method: r.Method, Path: r.URL.Path, Header: r.Header.Clone(), Body: body}
	if err := json.Unmarshal(body, &recorded.Chat); err != nil || !strings.HasSuffix(r.URL.Path, "/chat/completions") {
		http.Error(w, `{"error":{"message":"modeltest: not a chat completions request"}}`, http.StatusNotFound)
		return
	}
	step, number, ok := p.take(recorded)
	if !ok {
		http.Error(w, `{"error":{"message":"modeltest: the script has no step for this request"}}`, http.StatusBadRequest)
		return
	}
	play(w, r, step, recorded.Chat.Model, fmt.Sprintf("chatcmpl-%d", number))
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
