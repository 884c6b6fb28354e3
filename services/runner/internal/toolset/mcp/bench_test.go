package mcp_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/sandbox"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/toolset/mcp"
	"github.com/theclaw/agents/services/runner/internal/toolset/mcp/mcptest"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	mcptest.Main(mcptest.Process{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Exit: os.Exit})
	os.Exit(m.Run())
}

// BenchmarkCall is a call of a server in the sandbox, and one with the SDK alone to the same program.
func BenchmarkCall(b *testing.B) {
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	b.Run("sdk", func(b *testing.B) {
		c := exec.Command(self)
		c.Env = append(os.Environ(), mcptest.Variable+"="+mcptest.Good)
		x, err := sdk.NewClient(&sdk.Implementation{Name: "bench", Version: "1"}, nil).Connect(b.Context(), &sdk.CommandTransport{Command: c}, nil)
		if err != nil {
			b.Fatal(err)
		}
		defer x.Close()
		for b.Loop() {
			r, err := x.CallTool(context.Background(), &sdk.CallToolParams{Name: "echo", Arguments: json.RawMessage(`{"text":"hi"}`)})
			if err != nil || r.IsError {
				b.Fatal(r, err)
			}
		}
	})
	b.Run("ours", func(b *testing.B) {
		_, tool := goodServer(b, "good__echo")
		for b.Loop() {
			if r := tool.Run(b.Context(), toolset.Call{Name: "good__echo", Args: json.RawMessage(`{"text":"hi"}`)}); r.IsError {
				b.Fatal(r.Text)
			}
		}
	})
}

// BenchmarkEnded is a call whose server ends in it, until the call has failed.
func BenchmarkEnded(b *testing.B) {
	restart, tool := goodServer(b, "good__break")
	for b.Loop() {
		b.StopTimer()
		restart()
		b.StartTimer()
		if r := tool.Run(b.Context(), toolset.Call{Name: "good__break", Args: json.RawMessage(`{"text":"x","file":"log"}`)}); !r.InDoubt {
			b.Fatal(r.Text)
		}
	}
}

// goodServer starts the good server in the sandbox. It returns how to start it again, and one of its tools.
func goodServer(b *testing.B, name string) (restart func(), found toolset.Tool) {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	box, err := sandbox.New(b.Context(), sandbox.Options{Mode: sandbox.Required, ScratchDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(box.Close)
	servers := mcp.New(mcp.Options{
		Sandbox: func(string) (mcp.Sandbox, error) { return box, nil }, Pins: &approved{}, Root: b.TempDir(),
		Logger: slog.New(slog.DiscardHandler), Meter: obs.NewRunnerMetrics(nil),
	})
	b.Cleanup(servers.Close)
	c := &registrypb.TurnConfig{Mcp: []*registrypb.McpServer{{Name: "good", Command: []string{self}, Env: map[string]string{mcptest.Variable: mcptest.Good}, Pins: "1"}}}
	restart = func() {
		if s, err := servers.Start(b.Context(), "a1", c, "good", true); err != nil || s.GetWhat() != "" {
			b.Fatal(s, err)
		}
	}
	restart()
	tools, err := servers.Tools(b.Context(), "a1", c)
	if err != nil {
		b.Fatal(err)
	}
	for _, tool := range tools {
		if tool.Spec().Name == name {
			return restart, tool
		}
	}
	b.Fatalf("no tool %s", name)
	return nil, nil
}
