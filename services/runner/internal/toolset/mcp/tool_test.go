package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/obs"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/secret"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/toolset/mcp"
	"github.com/theclaw/agents/services/runner/internal/toolset/mcp/mcptest"
	"github.com/theclaw/agents/services/runner/internal/toolset/toolsettest"
)

// approved is a registry in which everything that is reported is approved.
type approved struct {
	mu       sync.Mutex
	reported []*registrypb.ReportedTool
}

func (a *approved) ReportTools(_ context.Context, in *registrypb.ReportToolsRequest, _ ...grpc.CallOption) (*registrypb.ReportToolsResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reported = in.GetTools()
	return &registrypb.ReportToolsResponse{}, nil
}

func (a *approved) ListPins(context.Context, *registrypb.ListPinsRequest, ...grpc.CallOption) (*registrypb.ListPinsResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := &registrypb.ListPinsResponse{}
	for _, r := range a.reported {
		out.Pins = append(out.Pins, &registrypb.Pin{Server: "web", Tool: r.GetName(), State: registrypb.PinState_PIN_STATE_APPROVED, Approved: r.GetDescription()})
	}
	return out, nil
}

// A tool of a server is one as others are. What happens with servers is tested over the real registry and in the real
// sandbox, in services/runner.
func TestTool(t *testing.T) {
	web := mcptest.Serve(t, "")
	servers := mcp.New(mcp.Options{Pins: &approved{}, Root: t.TempDir(), Logger: slog.New(slog.DiscardHandler), Meter: obs.NewRunnerMetrics(nil)})
	t.Cleanup(servers.Close)
	c := &registrypb.TurnConfig{Mcp: []*registrypb.McpServer{{Name: "web", Url: web, Pins: "1"}}, ToolLayers: []*registrypb.ToolLayer{{Name: "all"}}}
	if s, err := servers.Start(t.Context(), "a1", c, "web", false); err != nil || s.GetWhat() != "" {
		t.Fatal(s, err)
	}
	tools, err := servers.Tools(t.Context(), "a1", c)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools {
		if tool.Spec().Name == "web__echo" {
			toolsettest.Run(t, tool, toolsettest.Cases{Good: []string{`{"text":"hi"}`, `{"text":"ü"}`}, Bad: []string{`{}`, `{"text":1}`, `[]`}, Config: c})
			if tool.Spec().Needs&toolset.Network == 0 {
				t.Error("it sends nothing over the network")
			}
			return
		}
	}
	t.Errorf("echo is not among %d tools", len(tools))
}

// A value that a server was given is in no error of it, also where the server splits it by characters that are not seen,
// or where its text is cut.
func TestErrorWithSecret(t *testing.T) {
	const value, split = "v4lue-of-the-key", "v4lue-of\u200b-the-key"
	head := func(status string) string {
		return "HTTP/1.1 " + status + "\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
	}
	failed := func(message string) string {
		return head("400 Bad Request") + `{"jsonrpc":"2.0","id":%s,"error":{"code":-1,"message":"` + message + `"}}`
	}
	for name, answer := range map[string]string{
		"result":          head("200 OK") + `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"structuredContent":{"` + split + `":1e999}}}`,
		"error":           failed(split),
		"cut in the text": failed(strings.Repeat("x", 3<<10-len(value)/2) + value),
	} {
		t.Run(name, func(t *testing.T) {
			good, err := url.Parse(mcptest.Serve(t, value))
			if err != nil {
				t.Fatal(err)
			}
			proxy := httputil.NewSingleHostReverseProxy(good)
			front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body) // an error leaves no message
				r.Body = io.NopCloser(bytes.NewReader(body))
				var m struct {
					Method string
					ID     json.RawMessage
				}
				if _ = json.Unmarshal(body, &m); m.Method != "tools/call" {
					proxy.ServeHTTP(w, r)
					return
				}
				conn, _, err := w.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				if _, err := io.WriteString(conn, strings.Replace(answer, "%s", string(m.ID), 1)); err != nil {
					t.Error(err)
				}
			}))
			t.Cleanup(front.Close)
			servers := mcp.New(mcp.Options{
				Pins: &approved{}, Root: t.TempDir(), Logger: slog.New(slog.DiscardHandler), Meter: obs.NewRunnerMetrics(nil),
				Values: secret.Source{Getenv: func(string) string { return value }}, Wait: new(waits).wait,
			})
			t.Cleanup(servers.Close)
			c := &registrypb.TurnConfig{Mcp: []*registrypb.McpServer{{Name: "web", Url: front.URL, Pins: "1", Headers: map[string]string{"Authorization": "env:KEY"}}}}
			if s, err := servers.Start(t.Context(), "a1", c, "web", false); err != nil || s.GetWhat() != "" {
				t.Fatal(s, err)
			}
			tools, err := servers.Tools(t.Context(), "a1", c)
			if err != nil {
				t.Fatal(err)
			}
			calls, journal := toolsettest.Calls(t, &registrypb.TurnConfig{}, tools...)
			text, err := toolsettest.Use(t.Context(), calls, "tool:1:1", model.ToolCall{ID: "c1", Name: "web__echo", Arguments: json.RawMessage(`{"text":"x"}`)}, false)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range []string{text, string(journal.Tool("tool:1:1").GetResult())} {
				if !strings.Contains(text, "error") || strings.Contains(text, value[:4]) {
					t.Errorf("%s", text)
				}
			}
		})
	}
}
