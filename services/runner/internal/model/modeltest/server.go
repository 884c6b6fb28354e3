package modeltest

import (
	"bytes"
	"encoding/base64"
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
	Role    string `json:"role"`
	Content string `json:"content"`
	// Images are those of the message, as type and data; a tool result of the Messages API may have some, and of chat
	// completions a message of the user alone.
	Images     []Image `json:"-"`
	ToolCallID string  `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

// Image is an image of a request.
type Image struct {
	MIME string
	Data []byte
}

// imageOf checks an image as providers do.
func imageOf(mime, encoded string) (Image, error) {
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err == nil && (len(data) == 0 || http.DetectContentType(data) != mime || !slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}, mime)) {
		err = fmt.Errorf("modeltest: %d bytes are no image of type %q", len(data), mime)
	}
	return Image{mime, data}, err
}

// UnmarshalJSON implements [json.Unmarshaler]: the content is a text or, of a user, parts.
func (m *ChatMessage) UnmarshalJSON(b []byte) error {
	type plain ChatMessage
	in := struct {
		*plain
		Content json.RawMessage `json:"content"`
	}{plain: (*plain)(m)}
	if err := json.Unmarshal(b, &in); err != nil || !bytes.HasPrefix(in.Content, []byte("[")) {
		if err == nil && len(in.Content) > 0 {
			err = json.Unmarshal(in.Content, &m.Content)
		}
		return err
	}
	var parts []struct {
		Type, Text string
		ImageURL   struct{ URL string } `json:"image_url"`
	}
	if err := json.Unmarshal(in.Content, &parts); err != nil {
		return err
	}
	for _, p := range parts {
		mime, encoded, inline := strings.Cut(strings.TrimPrefix(p.ImageURL.URL, "data:"), ";base64,")
		switch {
		case p.Type == "text" && p.Text != "":
			m.Content += p.Text
		case p.Type == "image_url" && m.Role == "user" && inline:
			i, err := imageOf(mime, encoded)
			if err != nil {
				return err
			}
			m.Images = append(m.Images, i)
		default:
			return fmt.Errorf("modeltest: a message of role %s cannot have a part of type %q", m.Role, p.Type)
		}
	}
	return nil
}

// ordered refuses the result of a tool that stands behind neither its call nor another result.
func ordered(list []ChatMessage) error {
	for i, m := range list {
		if m.Role == "tool" && (i == 0 || list[i-1].Role != "tool" && list[i-1].Role != "assistant") {
			return fmt.Errorf("modeltest: message %d is the result of a tool and follows no call", i)
		}
	}
	return nil
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

// imageSource is where the Messages API has an image.
type imageSource struct {
	Type, Data string
	MediaType  string `json:"media_type"`
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
				Source     imageSource
				ToolUseID  string `json:"tool_use_id"`
				Content    []struct {
					Type, Text string
					Source     imageSource
				}
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
			if c.Type == "image" && m.Role == "user" {
				i, err := imageOf(c.Source.MediaType, c.Source.Data)
				if err != nil {
					return Chat{}, err
				}
				said.Images = []Image{i}
			}
			if c.Type == "tool_result" {
				said = ChatMessage{Role: "tool", ToolCallID: c.ToolUseID}
				for _, part := range c.Content {
					switch {
					case part.Type == "text":
						said.Content += part.Text
					case part.Type == "image" && part.Source.Type == "base64":
						i, err := imageOf(part.Source.MediaType, part.Source.Data)
						if err != nil {
							return Chat{}, err
						}
						said.Images = append(said.Images, i)
					default:
						return Chat{}, fmt.Errorf("modeltest: a tool result cannot have a part of type %q", part.Type)
					}
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
		if api, err = newChat, json.Unmarshal(body, &recorded.Chat); err == nil {
			err = ordered(recorded.Chat.Messages)
		}
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
