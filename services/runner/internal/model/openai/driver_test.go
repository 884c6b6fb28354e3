package openai_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/drivertest"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
	"github.com/theclaw/agents/services/runner/internal/model/openai"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client is an HTTP client whose idle connections end with the test.
func client(t *testing.T) *http.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func newDriver(t *testing.T, cfg openai.Config) *openai.Driver {
	t.Helper()
	if cfg.Client == nil {
		cfg.Client = client(t)
	}
	cfg.Name = "test"
	d, err := openai.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// S0-86, S0-87: every failure of a provider has its class; broken streams are
// never answers.
func TestConformance(t *testing.T) {
	// Nothing of the environment reaches the driver.
	t.Setenv("OPENAI_API_KEY", "sk-from-the-environment")
	t.Setenv("OPENAI_BASE_URL", "http://192.0.2.1/v1")
	c := client(t)
	drivertest.Run(t, func(baseURL string, silence time.Duration) model.Driver {
		return newDriver(t, openai.Config{BaseURL: baseURL, APIKey: modeltest.Key, Client: c, IdleTimeout: silence})
	})
}

// S1-48: thinking between tags is reasoning, in the stream and in the answer.
func TestInlineThinking(t *testing.T) {
	server := modeltest.New(t, modeltest.Say("<thi", "nk>hm", "m</th", "ink>\n\n4", "2"))
	var text, thinking string
	got, err := newDriver(t, openai.Config{BaseURL: server.URL()}).Generate(t.Context(), model.Request{Model: "m"}, func(d model.Delta) {
		text, thinking = text+d.Text, thinking+d.Reasoning
	})
	if err != nil || got.Text != "42" || got.Reasoning != "hmm" || text != got.Text || thinking != got.Reasoning {
		t.Errorf("%+v, streamed %q and %q, %v", got, text, thinking, err)
	}
}

// The cache of DeepSeek and Moonshot is reported in fields of their own.
func TestForeignUsage(t *testing.T) {
	for _, field := range []string{"prompt_cache_hit_tokens", "cached_tokens"} {
		server := modeltest.New(t, modeltest.Step{Text: []string{"ok"}, Raw: []string{`data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1,"` + field + `":7}}`, ""}})
		got, err := newDriver(t, openai.Config{BaseURL: server.URL()}).Generate(t.Context(), model.Request{Model: "m"}, nil)
		if err != nil || got.Usage != (model.Usage{Input: 9, Output: 1, CachedInput: 7}) {
			t.Errorf("%s: %+v, %v", field, got.Usage, err)
		}
	}
}

// Gemini signs its tool calls in a field of its own, which goes back unchanged
// with the call it came with.
func TestSignedCallsArePassedBack(t *testing.T) {
	const signed = `{"google":{"thought_signature":"c2lnbmVk"}}`
	server := modeltest.New(t, modeltest.Step{Raw: []string{
		`data: {"id":"1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"a","arguments":"{}"},"extra_content":` + signed + `}]}}]}`, "",
		`data: {"id":"1","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"c2","function":{"name":"b","arguments":"{}"}}]}}]}`, "",
	}, Finish: "tool_calls"}, modeltest.Say("done"))
	d := newDriver(t, openai.Config{BaseURL: server.URL()})
	first, err := d.Generate(t.Context(), model.Request{Model: "m"}, nil)
	if err != nil || len(first.ToolCalls) != 2 {
		t.Fatalf("%+v, %v", first, err)
	}
	_, err = d.Generate(t.Context(), model.Request{Model: "m", Messages: []model.Message{
		{Role: model.RoleAssistant, ToolCalls: first.ToolCalls, Replay: first.Replay},
		{Role: model.RoleTool, ToolCallID: "c1", Text: "x"},
		{Role: model.RoleTool, ToolCallID: "c2", Text: "y"},
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	body := string(server.Requests()[1].Body)
	if strings.Count(body, "extra_content") != 1 || !strings.Contains(body, signed) || !strings.Contains(body, `"name":"b"`) {
		t.Errorf("sent %s", body)
	}
}

// Values of another type than OpenAI's: arguments may be the object itself; null says nothing.
func TestValuesOfOtherTypes(t *testing.T) {
	server := modeltest.New(t, modeltest.Step{Raw: []string{
		`data: {"id":null,"choices":[{"index":0,"delta":{"content":null,"reasoning":{"a":1},"tool_calls":[{"index":0,"id":7,"function":{"name":"a","arguments":{"command":"ls"}}}]}}],"error":null}`, "",
	}, Finish: "tool_calls"})
	got, err := newDriver(t, openai.Config{BaseURL: server.URL()}).Generate(t.Context(), model.Request{Model: "m"}, nil)
	if err != nil || len(got.ToolCalls) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	if c := got.ToolCalls[0]; c.ID != "7" || c.Name != "a" || string(c.Arguments) != `{"command":"ls"}` || got.Text != "" || got.Reasoning != "" {
		t.Errorf("%+v", got)
	}
}
