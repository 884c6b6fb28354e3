package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/sandbox"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/secret"
	"github.com/theclaw/agents/services/runner/internal/toolset/mcp/mcptest"
)

// meter counts what was refused.
type meter struct {
	Meter
	refused atomic.Int32
}

// AddEgressRefused implements [Meter].
func (m *meter) AddEgressRefused() { m.refused.Add(1) }

// connected starts a server and connects to it. dir is where a program has its files.
func connected(t testing.TB, m *registrypb.McpServer) (x *session, dir string, count *meter) {
	t.Helper()
	box, err := sandbox.New(t.Context(), sandbox.Options{Mode: sandbox.Required, ScratchDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(box.Close)
	root, count := t.TempDir(), &meter{Meter: obs.NewRunnerMetrics(nil)}
	s := newServer(&Options{
		Sandbox: func(string) (Sandbox, error) { return box, nil }, Root: root, Logger: slog.New(slog.DiscardHandler), Meter: count,
	}, nil, "a1", m.GetName())
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	if x, err = s.connect(ctx, launch{server: m, sandboxMode: string(sandbox.Required), sent: secret.Sent{}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.close)
	return x, filepath.Join(root, "a1", m.GetName()), count
}

// program is the good server as a program, with variables.
func program(t testing.TB, env map[string]string) *registrypb.McpServer {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	env[mcptest.Variable] = mcptest.Good
	return &registrypb.McpServer{Name: "good", Command: []string{self}, Env: env}
}

// S3-59: with every version of the protocol, over stdio and over HTTP, the tools of a server are listed and called, a
// call reports its progress, and a server is pinged, and answers that, where the protocol has pings.
func TestVersions(t *testing.T) {
	versions := []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"}
	if got := sdk.SupportedProtocolVersions(); len(got) != len(versions) || got[0] != versions[len(versions)-1] {
		t.Errorf("the client knows %v", got)
	}
	for _, version := range versions {
		for way, m := range map[string]*registrypb.McpServer{
			"stdio": program(t, map[string]string{mcptest.Protocol: version}),
			"http":  {Name: "web", Url: mcptest.ServeProtocol(t, "", version)},
		} {
			t.Run(version+" "+way, func(t *testing.T) {
				x, dir, _ := connected(t, m)
				if x.protocol != version {
					t.Fatalf("they agree on %s", x.protocol)
				}
				tools, left, err := read(t.Context(), x)
				if err != nil || len(tools) != 10 || left.text() != "" {
					t.Errorf("%d tools are listed, %s, %v", len(tools), left.text(), err)
				}
				r, err := x.call(t.Context(), "echo", json.RawMessage(`{"text":"hi"}`), time.Minute, nil)
				if err != nil || r.IsError || len(r.Content) != 1 || content(r.Content[0]) != "hi" {
					t.Errorf("echo: %v, %v", r, err)
				}
				file, seen := "go", filepath.Join(dir, "go")
				if way == "http" {
					file = filepath.Join(t.TempDir(), "go")
					seen = file
				}
				args, err := json.Marshal(map[string]string{"text": "", "file": file})
				if err != nil {
					t.Fatal(err)
				}
				steps := 0 // the server goes on until one was reported
				r, err = x.call(t.Context(), "slow", args, time.Minute, func(string) {
					if steps++; steps == 1 {
						if err := os.WriteFile(seen, nil, 0o666); err != nil {
							t.Error(err)
						}
					}
				})
				if err != nil || r.IsError || content(r.Content[0]) != "done" || steps == 0 {
					t.Errorf("slow: %v, %v, %d steps", r, err, steps)
				}
				if missed := x.ping(t.Context(), maxMissed-1); missed != 0 {
					t.Errorf("%d pings are missed", missed)
				}
				over, cancel := context.WithCancel(t.Context())
				cancel()
				if missed := x.ping(over, 0); (missed == 1) != (version < noPings) {
					t.Errorf("%d pings are missed that have no time", missed)
				}
			})
		}
	}
}

// S3-61: the end of a process is what ends its open calls, not their time: all fail with why it has ended.
func TestOpenCallsEnd(t *testing.T) {
	x, _, _ := connected(t, program(t, map[string]string{}))
	const open = 10
	var calls, begun sync.WaitGroup
	var mu sync.Mutex
	ended := map[string]int{}
	call := func(tool string, progress func(string)) {
		_, err := x.call(t.Context(), tool, json.RawMessage(`{"text":"","file":"never"}`), maxCall, progress)
		why := "another failure"
		if e, ok := errors.AsType[*endedError](err); ok {
			why = e.why
		}
		mu.Lock()
		defer mu.Unlock()
		ended[why]++
	}
	for range open {
		begun.Add(1)
		first := sync.OnceFunc(begun.Done)
		calls.Go(func() { call("slow", func(string) { first() }) })
	}
	begun.Wait()
	call("break", nil)
	calls.Wait()
	if len(ended) != 1 || ended["exit 3: broken on purpose"] != open+1 {
		t.Errorf("ended: %v", ended)
	}
}

// S4-93: a server reads which setting keeps it from a host, and each connection that is refused is counted.
func TestServerHosts(t *testing.T) {
	m := program(t, map[string]string{})
	m.NetworkHosts = []string{"git.example.org"}
	x, _, count := connected(t, m)
	for n, url := range []string{"http://example.com/", "https://example.com/"} {
		args, err := json.Marshal(map[string]string{"text": "curl -sS " + url})
		if err != nil {
			t.Fatal(err)
		}
		r, err := x.call(t.Context(), "run", args, time.Minute, nil)
		if err != nil || len(r.Content) != 1 {
			t.Fatal(r, err)
		}
		if text := content(r.Content[0]); n == 0 && !strings.Contains(text, "host not allowed: example.com (mcp.servers.good.network)") || n == 1 && !strings.Contains(text, "403") {
			t.Errorf("%s: %s", url, text)
		}
		if got := count.refused.Load(); got != int32(n+1) {
			t.Errorf("%s: %d are counted", url, got)
		}
	}
}
