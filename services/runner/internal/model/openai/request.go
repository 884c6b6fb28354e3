package openai

import (
	"bytes"
	"encoding/base64"
	"encoding/json"

	"github.com/theclaw/agents/services/runner/internal/model"
)

// chatRequest is the body of POST /chat/completions. Fields that are left out say nothing
// to the provider; the names are those of OpenAI's API reference.
type chatRequest struct {
	Model               string        `json:"model"`
	Messages            []chatMessage `json:"messages"`
	Tools               []chatTool    `json:"tools,omitempty"`
	MaxCompletionTokens int           `json:"max_completion_tokens,omitempty"`
	Temperature         *float64      `json:"temperature,omitempty"`
	// Store false: the provider keeps no copy for its own pages.
	Store         bool          `json:"store"`
	Stream        bool          `json:"stream"`
	StreamOptions streamOptions `json:"stream_options"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// chatMessage is a message of any role. Content is left out by an assistant that only calls
// tools; every other role has one, which may be empty.
type chatMessage struct {
	Role             string         `json:"role"`
	Content          any            `json:"content,omitempty"` // *string or []chatPart
	ReasoningContent string         `json:"reasoning_content,omitempty"`
	ToolCalls        []chatToolCall `json:"tool_calls,omitempty"`
	ToolCallID       string         `json:"tool_call_id,omitempty"`
}

// chatPart is a text or an image of a message of the user.
type chatPart struct {
	Type     string     `json:"type"`
	Text     string     `json:"text,omitempty"`
	ImageURL *chatImage `json:"image_url,omitempty"`
}

// chatImage is an image as a data URL: the provider fetches nothing.
type chatImage struct {
	URL string `json:"url"`
}

// imagesNote begins the message with the images of results.
const imagesNote = "[the images of the tool results above, in their order]"

// images is a message with the images of the results of an answer. A message with a result itself can hold none, and the
// results of an answer must follow each other.
func images(list []model.Image) chatMessage {
	return withImages(imagesNote, list)
}

// withImages is a message of the user with images.
func withImages(text string, list []model.Image) chatMessage {
	var parts []chatPart
	if text != "" {
		parts = append(parts, chatPart{Type: "text", Text: text})
	}
	for _, i := range list {
		parts = append(parts, chatPart{Type: "image_url", ImageURL: &chatImage{"data:" + i.MIME + ";base64," + base64.StdEncoding.EncodeToString(i.Data)}})
	}
	return chatMessage{Role: "user", Content: parts}
}

type chatToolCall struct {
	ID       string          `json:"id"`
	Type     string          `json:"type"`
	Function chatCalled      `json:"function"`
	Extra    json.RawMessage `json:"extra_content,omitempty"`
}

// chatCalled is a called function. Arguments is JSON inside a string.
type chatCalled struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type chatTool struct {
	Type     string       `json:"type"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
}

// encode is the body of a request.
func (d *Driver) encode(req model.Request) ([]byte, error) {
	out, err := d.request(req)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.Grow(size(&req))
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // it is not read as HTML, and is shorter so
	if err := e.Encode(out); err != nil {
		return nil, &model.Error{Class: model.Config, Message: "the request cannot be encoded", Err: err}
	}
	return b.Bytes(), nil
}

// size is about how many bytes a request has.
func size(req *model.Request) int {
	n := 512 + len(req.System)
	for i := range req.Messages {
		n += 64 + len(req.Messages[i].Text)
		for _, image := range req.Messages[i].Images {
			n += 64 + base64.StdEncoding.EncodedLen(len(image.Data))
		}
	}
	for _, t := range req.Tools {
		n += 128 + len(t.Description) + len(t.Schema)
	}
	return n + n/16 // what is escaped
}

func (d *Driver) request(req model.Request) (*chatRequest, error) {
	if req.Model == "" {
		return nil, model.Errorf(model.Config, "provider %s: no model named", d.cfg.Name)
	}
	out := &chatRequest{
		Model: req.Model, Messages: make([]chatMessage, 0, len(req.Messages)+1),
		MaxCompletionTokens: max(req.MaxOutputTokens, 0), Temperature: req.Temperature,
		Stream: true, StreamOptions: streamOptions{IncludeUsage: true},
	}
	if req.System != "" {
		out.Messages = append(out.Messages, chatMessage{Role: "system", Content: &req.System})
	}
	var shown []model.Image // of the results before the message
	for i := range req.Messages {
		m := &req.Messages[i]
		if m.Role != model.RoleTool && len(shown) > 0 {
			out.Messages, shown = append(out.Messages, images(shown)), nil
		}
		switch m.Role {
		case model.RoleSystem, model.RoleUser:
			if len(m.Images) > 0 {
				out.Messages = append(out.Messages, withImages(m.Text, m.Images))
				continue
			}
			out.Messages = append(out.Messages, chatMessage{Role: string(m.Role), Content: &m.Text})
		case model.RoleTool:
			out.Messages = append(out.Messages, chatMessage{Role: "tool", Content: &m.Text, ToolCallID: m.ToolCallID})
			shown = append(shown, m.Images...)
		case model.RoleAssistant:
			// Endpoints refuse an assistant message that holds nothing.
			if m.Text != "" || len(m.ToolCalls) > 0 {
				out.Messages = append(out.Messages, d.assistant(m))
			}
		default:
			return nil, model.Errorf(model.Config, "message %d has the unknown role %q", i+1, m.Role)
		}
	}
	if len(shown) > 0 {
		out.Messages = append(out.Messages, images(shown))
	}
	for _, t := range req.Tools {
		f := chatFunction{Name: t.Name, Description: t.Description}
		if len(t.Schema) > 0 {
			if !json.Valid(t.Schema) || !isObject(t.Schema) {
				return nil, &model.Error{Class: model.Config, Message: "the schema of tool " + t.Name + " is not a JSON object"}
			}
			f.Parameters = t.Schema
		}
		out.Tools = append(out.Tools, chatTool{Type: "function", Function: f})
	}
	return out, nil
}

// isObject reports whether the text, if it is JSON, is an object.
func isObject(text []byte) bool { return bytes.HasPrefix(bytes.TrimLeft(text, white), []byte("{")) }

func (d *Driver) assistant(m *model.Message) chatMessage {
	out := chatMessage{Role: "assistant"}
	if m.Text != "" {
		out.Content = &m.Text
	}
	if d.cfg.ReplayReasoning {
		out.ReasoningContent = m.Reasoning
	}
	extra := extras(*m)
	for i, c := range m.ToolCalls {
		arguments := string(c.Arguments)
		if arguments == "" {
			arguments = "{}"
		}
		call := chatToolCall{ID: c.ID, Type: "function", Function: chatCalled{Name: c.Name, Arguments: arguments}}
		if string(extra[i]) != "null" {
			call.Extra = extra[i]
		}
		out.ToolCalls = append(out.ToolCalls, call)
	}
	return out
}
