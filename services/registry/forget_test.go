package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/theclaw/agents/internal/agentdir/layer"
)

// The tools of MCP servers are forgotten by settings that two scans have seen, once, and again after an error.
func TestForgetTools(t *testing.T) {
	var calls []string
	var fails error
	l := &listed{log: slog.New(slog.DiscardHandler), prune: func(_ context.Context, servers []layer.Server) error {
		calls = append(calls, fmt.Sprint(len(servers)))
		return fails
	}}
	scan := func(version string, servers int, want string) {
		t.Helper()
		l.forget(t.Context(), layer.HomeSettings{Version: version, Servers: make([]layer.Server, servers)})
		if got := fmt.Sprint(calls); got != want {
			t.Errorf("after version %q: %s, want %s", version, got, want)
		}
	}
	scan("1", 2, "[]")
	scan("1", 2, "[2]")
	scan("1", 2, "[2]")
	scan("", 0, "[2]") // the file is away for a moment
	scan("1", 2, "[2]")
	scan("1", 2, "[2]")
	scan("2", 1, "[2]")
	fails = errors.New("disk")
	scan("2", 1, "[2 1]")
	fails = nil
	scan("2", 1, "[2 1 1]")
	scan("", 0, "[2 1 1]")
	scan("", 0, "[2 1 1 0]")
	scan("", 0, "[2 1 1 0]")
}
