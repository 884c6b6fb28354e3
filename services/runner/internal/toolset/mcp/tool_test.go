package mcp_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/obs"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
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
