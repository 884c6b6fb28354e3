package anthropic_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/thinking"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/anthropic"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

// sent is a request as the Messages API reads it.
type sent struct {
	MaxTokens   int `json:"max_tokens"`
	Temperature *float64
	Thinking    map[string]any
	System      []map[string]any
	Tools       []map[string]any
	Messages    []struct {
		Role    string
		Content []map[string]any
	}
}

// ask makes a call with the messages and answers what was sent.
func ask(t *testing.T, cfg anthropic.Config, req model.Request, steps ...modeltest.Step) (sent, model.Response) {
	t.Helper()
	if steps == nil {
		steps = []modeltest.Step{modeltest.Say("fine")}
	}
	server := modeltest.New(t, steps...)
	cfg.BaseURL = server.URL()
	req.Model = "m1"
	got, err := newDriver(t, cfg).Generate(t.Context(), req, nil)
	if err != nil {
		t.Fatal(err)
	}
	var out sent
	if err := json.Unmarshal(server.Requests()[0].Body, &out); err != nil {
		t.Fatal(err)
	}
	return out, got
}

var (
	question = model.Message{Role: model.RoleUser, Text: "time?"}
	bash     = []model.Tool{{Name: "bash_exec", Schema: json.RawMessage(`{"type":"object","required":["command"]}`)}}
	usesTool = modeltest.Step{
		Reasoning: []string{"look ", "it up"}, Text: []string{"Let me see."},
		ToolCalls: []modeltest.ToolCall{{ID: "c1", Name: "bash_exec", Arguments: []string{`{"command":"date"}`}}},
	}
)

// round is the question, an answer of the model and the result of its tool.
func round(r model.Response) []model.Message {
	return []model.Message{
		question,
		{Role: model.RoleAssistant, Text: r.Text, Reasoning: r.Reasoning, Replay: r.Replay, ToolCalls: r.ToolCalls},
		{Role: model.RoleTool, ToolCallID: r.ToolCalls[0].ID, Text: "noon"},
	}
}

// Thinking goes back with its signature, in its place; to a request that does
// not think it does not go.
func TestThinkingIsPassedBack(t *testing.T) {
	cfg := anthropic.Config{Thinking: thinking.Option{Tokens: 2000}}
	temperature := 0.5
	request, first := ask(t, cfg, model.Request{Messages: []model.Message{question}, MaxOutputTokens: 100, Temperature: &temperature}, usesTool)
	if request.Thinking["type"] != "enabled" || request.Thinking["budget_tokens"] != 2000.0 || request.MaxTokens != 2100 || request.Temperature != nil {
		t.Errorf("request %+v", request)
	}
	request, _ = ask(t, cfg, model.Request{Messages: round(first)})
	content := request.Messages[1].Content
	if len(content) != 3 || content[0]["thinking"] != "look it up" || content[0]["signature"] != modeltest.Signature ||
		content[1]["text"] != "Let me see." || content[2]["id"] != "c1" || request.Thinking == nil {
		t.Errorf("passed back %v", content)
	}
	cut := round(first)
	cut[1].Text = "Let"
	request, _ = ask(t, cfg, model.Request{Messages: cut})
	if c := request.Messages[1].Content; len(c) != 3 || c[0]["signature"] != modeltest.Signature || c[1]["text"] != "Let" {
		t.Errorf("with a text that was cut: %v", c)
	}
	request, _ = ask(t, anthropic.Config{}, model.Request{Messages: round(first)})
	if c := request.Messages[1].Content; len(c) != 2 || c[0]["text"] != "Let me see." || request.Thinking != nil {
		t.Errorf("without thinking: %v", c)
	}
	foreign := round(first)
	foreign[1].Replay, foreign[1].ToolCalls[0].ID, foreign[2].ToolCallID = nil, "functions.a:0", "functions.a:0"
	request, _ = ask(t, anthropic.Config{Thinking: thinking.Option{Adaptive: true}}, model.Request{Messages: foreign})
	id, _ := request.Messages[1].Content[1]["id"].(string)
	if request.Thinking != nil || !strings.HasPrefix(id, "functions_a_0_") || request.Messages[2].Content[0]["tool_use_id"] != id {
		t.Errorf("a round of another provider: %+v", request)
	}
	request, _ = ask(t, anthropic.Config{Thinking: thinking.Option{Adaptive: true}}, model.Request{Messages: append(foreign, question)})
	if request.Thinking["type"] != "adaptive" {
		t.Errorf("a new question may be thought about: %v", request.Thinking)
	}
}

// A level is a number of tokens, except where the provider is set to adaptive: its models take no number.
func TestThinkingLevels(t *testing.T) {
	for _, c := range []struct {
		set  thinking.Option
		asks string
		want any
	}{
		{thinking.Option{}, "high", 20480.0},
		{thinking.Option{Tokens: 2000}, "low", 4096.0},
		{thinking.Option{Adaptive: true}, "high", nil},
		{thinking.Option{Adaptive: true}, "2048", 2048.0},
	} {
		request, _ := ask(t, anthropic.Config{Thinking: c.set}, model.Request{Messages: []model.Message{question}, Thinking: c.asks})
		if got := request.Thinking["budget_tokens"]; request.Thinking == nil || got != c.want {
			t.Errorf("%+v asked for %s: %v", c.set, c.asks, request.Thinking)
		}
	}
}

// A redacted thought is the provider's secret, and goes back as it came.
func TestRedactedThinking(t *testing.T) {
	step := modeltest.Step{Raw: []string{
		`event: content_block_start`, `data: {"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking","data":"c2VjcmV0"}}`, "",
		`event: content_block_stop`, `data: {"type":"content_block_stop","index":0}`, "",
		`event: content_block_start`, `data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"c1","name":"a","input":{}}}`, "",
	}, Finish: "tool_calls"}
	cfg := anthropic.Config{Thinking: thinking.Option{Adaptive: true}}
	_, first := ask(t, cfg, model.Request{Messages: []model.Message{question}}, step)
	if first.Reasoning != "" || first.Text != "" {
		t.Errorf("the secret is shown: %+v", first)
	}
	request, _ := ask(t, cfg, model.Request{Messages: round(first)})
	if c := request.Messages[1].Content; len(c) != 2 || c[0]["type"] != "redacted_thinking" || c[0]["data"] != "c2VjcmV0" {
		t.Errorf("passed back %v", c)
	}
}

// The stable beginning is cached: tools and system by one mark, the
// conversation by another; never more marks than the API takes.
func TestPromptCaching(t *testing.T) {
	marks := func(r sent) (where string) {
		for name, list := range map[string][]map[string]any{"tools": r.Tools, "system": r.System} {
			for _, b := range list {
				if b["cache_control"] != nil {
					where += name + " "
				}
			}
		}
		for i, m := range r.Messages {
			for j, b := range m.Content {
				if b["cache_control"] != nil {
					where += fmt.Sprintf("message %d.%d", i, j)
				}
			}
		}
		return where
	}
	for _, tt := range []struct {
		req  model.Request
		want string
	}{
		{model.Request{System: "s", Tools: bash, Messages: []model.Message{question, question}}, "system message 0.1"},
		{model.Request{Tools: bash, Messages: []model.Message{question}}, "tools message 0.0"},
		{model.Request{System: "s", Messages: []model.Message{question}}, "system "},
		{model.Request{Messages: []model.Message{question}}, ""},
	} {
		if r, _ := ask(t, anthropic.Config{}, tt.req); marks(r) != tt.want {
			t.Errorf("marks at %q, want %q", marks(r), tt.want)
		}
	}
	r, _ := ask(t, anthropic.Config{}, model.Request{Tools: bash, Messages: []model.Message{question}})
	if schema, ok := r.Tools[0]["input_schema"].(map[string]any); !ok || schema["type"] != "object" || schema["required"] == nil {
		t.Errorf("schema %v", r.Tools[0])
	}
}

// Whatever a conversation looks like, the sides alternate and the user begins.
func TestMessages(t *testing.T) {
	r, _ := ask(t, anthropic.Config{}, model.Request{Messages: []model.Message{
		{Role: model.RoleAssistant, Text: "I am back."},
		{Role: model.RoleAssistant},
		question,
		{Role: model.RoleUser},
		{Role: model.RoleSystem, Text: "a note"},
		{Role: model.RoleAssistant, ToolCalls: []model.ToolCall{{ID: "a", Name: "x"}, {ID: "b", Name: "y"}}},
		{Role: model.RoleTool, ToolCallID: "a", Text: "1"},
		{Role: model.RoleTool, ToolCallID: "b", Text: ""},
	}})
	var got []string
	for _, m := range r.Messages {
		got = append(got, fmt.Sprintf("%s %d", m.Role, len(m.Content)))
	}
	if s := strings.Join(got, ", "); s != "user 1, assistant 1, user 2, assistant 2, user 2" || r.MaxTokens != anthropic.DefaultMaxOutput {
		t.Errorf("messages %s, max_tokens %d", s, r.MaxTokens)
	}
}

func TestBadRequestsAreNotSent(t *testing.T) {
	server := modeltest.New(t)
	d := newDriver(t, anthropic.Config{BaseURL: server.URL()})
	for name, req := range map[string]model.Request{
		"no model":   {},
		"no role":    {Model: "m", Messages: []model.Message{{Text: "x"}}},
		"bad schema": {Model: "m", Tools: []model.Tool{{Name: "t", Schema: json.RawMessage(`[`)}}},
	} {
		if e := model.AsError(fail(d.Generate(t.Context(), req, nil))); e == nil || e.Class != model.Config {
			t.Errorf("%s: %v", name, e)
		}
	}
	if n := len(server.Requests()); n != 0 {
		t.Errorf("%d requests sent", n)
	}
	if _, err := anthropic.New(anthropic.Config{Name: "p", BaseURL: "https://me:secretword@x", Client: http.DefaultClient}); model.AsError(err) == nil || strings.Contains(err.Error(), "secretword") {
		t.Errorf("credentials in the address: %v", err)
	}
}

func fail(_ model.Response, err error) error { return err }

// I15: however a driver is printed, its key is not seen.
func TestNothingPrintsTheKey(t *testing.T) {
	cfg := anthropic.Config{BaseURL: "http://x", APIKey: "secretword", Client: http.DefaultClient}
	d := newDriver(t, cfg)
	if text := fmt.Sprintf("%v %+v %#v %s %v %+v %#v", d, d, d, d, cfg, cfg, cfg); strings.Contains(text, "secretword") {
		t.Errorf("the key is in %s", text)
	}
}

// F21: ids that another provider gave stay different, and those that need no change stay
// what they are.
func TestCallIDs(t *testing.T) {
	long := strings.Repeat("x", 300)
	list := []string{"a.b", "a:b", "a_b", "toolu_01A-z", "a b", "\u00e9", "\u00ea", long + "1", long + "2", "."}
	m := model.Message{Role: model.RoleAssistant}
	messages := []model.Message{question}
	for _, id := range list {
		m.ToolCalls = append(m.ToolCalls, model.ToolCall{ID: id, Name: "bash_exec"})
	}
	messages = append(messages, m)
	for _, id := range list {
		messages = append(messages, model.Message{Role: model.RoleTool, ToolCallID: id, Text: "x"})
	}
	r, _ := ask(t, anthropic.Config{}, model.Request{Messages: messages})
	seen := map[string]bool{}
	for i, id := range list {
		sent, _ := r.Messages[1].Content[i]["id"].(string)
		if result := r.Messages[2].Content[i]["tool_use_id"]; sent != result || seen[sent] || !regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`).MatchString(sent) {
			t.Errorf("%.20q: sent as %q, its result as %q", id, sent, result)
		}
		if (id == "a_b" || id == "toolu_01A-z") && sent != id {
			t.Errorf("%q: sent as %q", id, sent)
		}
		seen[sent] = true
	}
	// An id that looks like what another one became.
	made, _ := r.Messages[1].Content[0]["id"].(string)
	messages[1].ToolCalls[1].ID, messages[3].ToolCallID = made, made
	r, _ = ask(t, anthropic.Config{}, model.Request{Messages: messages})
	if a, b := r.Messages[1].Content[0]["id"], r.Messages[1].Content[1]["id"]; a == b || b != made {
		t.Errorf("sent as %q and %q", a, b)
	}
}
