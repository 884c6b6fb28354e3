package openai_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
	"github.com/theclaw/agents/services/runner/internal/model/openai"
)

func TestNewRefusesBadEndpoints(t *testing.T) {
	for _, base := range []string{"", "api.example.com/v1", "ftp://x/v1", "http://", "https://me:secretword@x/v1", "https://x/v1?key=secretword", "http://%zzsecretword"} {
		_, err := openai.New(openai.Config{Name: "p", BaseURL: base, Client: http.DefaultClient})
		e := model.AsError(err)
		if e == nil || e.Class != model.Config || strings.Contains(err.Error(), "secretword") {
			t.Errorf("%q: %v", base, err)
		}
	}
	if _, err := openai.New(openai.Config{Name: "p", BaseURL: "http://x"}); model.AsError(err) == nil {
		t.Error("no client was accepted")
	}
}

// I15: however a driver is printed, its key is not seen.
func TestNothingPrintsTheKey(t *testing.T) {
	cfg := openai.Config{Name: "p", BaseURL: "http://x/v1", APIKey: "secretword", Client: http.DefaultClient}
	d := newDriver(t, cfg)
	text := fmt.Sprintf("%v %+v %#v %s %v %+v %#v", d, d, d, d, cfg, cfg, cfg)
	if strings.Contains(text, "secretword") {
		t.Errorf("the key is in %s", text)
	}
}

// I15: keys that are not ours, or half starred out, stay out of errors too.
func TestForeignKeysAreRedacted(t *testing.T) {
	server := modeltest.New(t, modeltest.Fail(401, "Incorrect API key\nprovided: sk-proj-ab*****wxyz. "+strings.Repeat("long ", 200)))
	_, err := newDriver(t, openai.Config{BaseURL: server.URL()}).Generate(t.Context(), model.Request{Model: "m"}, nil)
	if text := err.Error(); strings.Contains(text, "sk-proj") || strings.Contains(text, "\n") || len(text) > 400 || !strings.Contains(text, "Incorrect API key provided: [key].") {
		t.Errorf("got %q", text)
	}
}

// Servers that want no key are sent none.
func TestNoKey(t *testing.T) {
	server := modeltest.New(t, modeltest.Say("hi"))
	d := newDriver(t, openai.Config{BaseURL: server.URL()})
	if _, err := d.Generate(t.Context(), model.Request{Model: "m"}, nil); err != nil {
		t.Fatal(err)
	}
	r := server.Requests()[0]
	if got, sent := r.Header["Authorization"]; sent {
		t.Errorf("authorization header %q", got)
	}
	if r.Path != "/v1/chat/completions" {
		t.Errorf("path %s", r.Path)
	}
}

// Reasoning goes back only where it is asked for; empty assistant messages,
// which endpoints refuse, are left out.
func TestAssistantMessages(t *testing.T) {
	messages := []model.Message{
		{Role: model.RoleUser, Text: "q"},
		{Role: model.RoleAssistant},
		{Role: model.RoleAssistant, Text: "a", Reasoning: "because"},
		{Role: model.RoleSystem, Text: "a note"},
	}
	for _, replay := range []bool{false, true} {
		server := modeltest.New(t, modeltest.Say("hi"))
		d := newDriver(t, openai.Config{BaseURL: server.URL(), ReplayReasoning: replay})
		if _, err := d.Generate(t.Context(), model.Request{Model: "m", Messages: messages}, nil); err != nil {
			t.Fatal(err)
		}
		r := server.Requests()[0]
		if len(r.Chat.Messages) != 3 || r.Chat.Messages[2].Role != "system" {
			t.Errorf("messages: %s", r.Body)
		}
		if got := strings.Contains(string(r.Body), `"reasoning_content":"because"`); got != replay {
			t.Errorf("replay %v: %s", replay, r.Body)
		}
	}
}

// What only chat completions has: where things stand in the request.
func TestRequestFormat(t *testing.T) {
	server := modeltest.New(t, modeltest.Say("fine"))
	d := newDriver(t, openai.Config{BaseURL: server.URL(), APIKey: modeltest.Key})
	_, err := d.Generate(t.Context(), model.Request{
		Model: "m1", System: "Be brief.", MaxOutputTokens: 99,
		Messages: []model.Message{
			{Role: model.RoleUser, Text: "time?"},
			{Role: model.RoleAssistant, ToolCalls: []model.ToolCall{{ID: "c1", Name: "bash_exec", Arguments: json.RawMessage(`{"command":"date"}`)}}},
			{Role: model.RoleTool, ToolCallID: "c1", Name: "bash_exec", Text: "noon"},
		},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := server.Requests()[0]
	c := r.Chat
	if !c.StreamOptions.IncludeUsage || c.MaxCompletionTokens != 99 || c.Store == nil || *c.Store {
		t.Errorf("request options: %s", r.Body)
	}
	var roles []string
	for _, m := range c.Messages {
		roles = append(roles, m.Role)
	}
	if got := strings.Join(roles, " "); got != "system user assistant tool" {
		t.Fatalf("roles %s", got)
	}
	if call := c.Messages[2].ToolCalls; len(call) != 1 || call[0].ID != "c1" || call[0].Function.Arguments != `{"command":"date"}` {
		t.Errorf("tool round: %s", r.Body)
	}
}

func TestBadRequestsAreNotSent(t *testing.T) {
	server := modeltest.New(t)
	d := newDriver(t, openai.Config{BaseURL: server.URL()})
	for name, req := range map[string]model.Request{
		"no model":   {},
		"no role":    {Model: "m", Messages: []model.Message{{Text: "x"}}},
		"bad schema": {Model: "m", Tools: []model.Tool{{Name: "t", Schema: json.RawMessage(`[`)}}},
	} {
		_, err := d.Generate(t.Context(), req, nil)
		if e := model.AsError(err); e == nil || e.Class != model.Config {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(server.Requests()); n != 0 {
		t.Errorf("%d requests sent", n)
	}
}
