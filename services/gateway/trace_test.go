package gateway_test

import (
	"context"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/stats"

	"github.com/theclaw/agents/internal/channel/telegram/telegramtest"
	"github.com/theclaw/agents/internal/obs/tracing"
	"github.com/theclaw/agents/internal/obs/tracing/export"
	"github.com/theclaw/agents/internal/obs/tracing/tracetest"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// The trace of a message that came over an account begins with its receipt, above the push. A call of a tool has the wait
// for the owner and the program inside.
func TestTraceOfAChannelMessage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "traces")
	x, err := export.Open(t.Context(), export.Options{Failed: func(err error) { t.Error(err) }, Getenv: func(name string) string {
		return map[string]string{"OTEL_TRACES_EXPORTER": "file", "THECLAW_TRACE_FILE": file}[name]
	}})
	if err != nil {
		t.Fatal(err)
	}
	api := botAPI(t)
	h := telegram(t, api, world.Options{Traces: func(name string) (*tracing.Tracer, stats.Handler, stats.Handler) {
		s, err := x.Service(context.Background(), name)
		if err != nil {
			t.Error(err)
		}
		return s.Tracer, s.Server, s.Client
	}}, "dm: open")
	if _, err := h.Homes.SetHomeValue(t.Context(), &registryv1.SetHomeValueRequest{Path: []string{"owners"}, Value: `["telegram:1207"]`}); err != nil {
		t.Fatal(err)
	}
	h.configure(t, "sandbox: {mode: \"off\"}\napprovals: ask")
	api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: "run: touch ran"})
	asked := awaitText(t, api, bob.ID, 0, "admin wants to run")
	if _, err := api.Press(bob.ID, asked.ID, bob, asked.Buttons[0].Data); err != nil {
		t.Fatal(err)
	}
	h.Await(t, "admin", 1)
	turns, err := h.Turns.ListTurns(t.Context(), &registryv1.ListTurnsRequest{AgentId: "admin", PageSize: 10})
	if err != nil || len(turns.GetTurns()) != 1 {
		t.Fatal(turns, err)
	}
	key := turns.GetTurns()[0].GetKey()
	h.Stop()
	if err := x.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	all, err := tracetest.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	trace, push := tracing.Of(key)
	spans := tracetest.In(trace.String(), all)
	one := func(name, service string) tracetest.Span {
		t.Helper()
		got := tracetest.Named(name, spans)
		if len(got) != 1 || got[0].Service != service {
			t.Fatalf("%q: %+v", name, got)
		}
		return got[0]
	}
	receive, pushed, tool := one("channel receive", "theclaw-gateway"), one("push", "theclaw-registry"), one("execute_tool bash_exec", "theclaw-runner0")
	if receive.Parent != "" || pushed.Parent != receive.SpanID || pushed.SpanID != push.String() {
		t.Errorf("received %+v, pushed %+v", receive, pushed)
	}
	if a := receive.Attributes; a["theclaw.account"] != "tg" || a["theclaw.run_id"] != key || a["theclaw.agent_id"] != "admin" {
		t.Errorf("the receipt: %v", a)
	}
	for _, name := range []string{"wait", "sandbox run"} {
		if s := one(name, "theclaw-runner0"); s.Parent != tool.SpanID {
			t.Errorf("%s is not inside of the tool: %+v", name, s)
		}
	}
}
