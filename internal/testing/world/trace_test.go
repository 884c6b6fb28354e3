package world_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"

	"github.com/theclaw/agents/internal/obs/tracing"
	"github.com/theclaw/agents/internal/obs/tracing/export"
	"github.com/theclaw/agents/internal/obs/tracing/tracetest"
	"github.com/theclaw/agents/internal/testing/world"
)

// A message has one trace, in which every service has put its steps, from the push
// to the delivery. The caller's own trace is linked. What was said is in none.
func TestOneTrace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "traces")
	x, err := export.Open(t.Context(), export.Options{Failed: func(err error) { t.Error(err) }, Getenv: func(name string) string {
		return map[string]string{"OTEL_TRACES_EXPORTER": "file", "THECLAW_TRACE_FILE": file}[name]
	}})
	if err != nil {
		t.Fatal(err)
	}
	sink := world.NewSink(t)
	w := world.Start(t, world.Options{Traces: func(name string) (*tracing.Tracer, stats.Handler, stats.Handler) {
		s, err := x.Service(context.Background(), name)
		if err != nil {
			t.Error(err)
		}
		return s.Tracer, s.Server, s.Client
	}})
	w.Create(t, "a1", sink.Config())
	const callers = "0af7651916cd43dd8448eb211c80319c"
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+callers+"-b7ad6b7169203331-01")
	id, err := w.Push(ctx, "a1", world.Peer("bob"), "run: echo canary-4711", "once")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := w.Push(ctx, "a1", world.Peer("bob"), "run: echo canary-4711", "once"); err != nil || again != id {
		t.Fatal(again, err)
	}
	turn := w.Await(t, "a1", id)
	drain(t, w, "a1", turn.GetThreadId())
	if got := sink.Arrivals("a1"); len(got) != 1 || !strings.Contains(got[0].Text, "canary-4711") {
		t.Fatalf("%+v", got)
	}
	w.Stop()
	if err := x.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	all, err := tracetest.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	trace, first := tracing.Of(turn.GetKey())
	spans := tracetest.In(trace.String(), all)
	known := map[string]bool{first.String(): true}
	for _, s := range spans {
		known[s.SpanID] = true
	}
	for _, s := range spans {
		if s.Parent == "" != (s.Name == "push") || s.Parent != "" && !known[s.Parent] {
			t.Errorf("%s of %s hangs under %q", s.Name, s.Service, s.Parent)
		}
	}
	for name, want := range map[string]struct {
		service string
		n       int
	}{
		"push": {"theclaw-registry", 1}, "turn": {"theclaw-runner0", 1}, "claim": {"theclaw-runner0", 1}, "chat offline": {"theclaw-runner0", 2},
		"execute_tool bash_exec": {"theclaw-runner0", 1}, "sandbox run": {"theclaw-runner0", 1}, "reply": {"theclaw-runner0", 1}, "deliver": {"theclaw-deliverer", 1},
	} {
		got := tracetest.Named(name, spans)
		if len(got) != want.n || got[0].Service != want.service {
			t.Errorf("%q: %d spans, want %d of %s: %+v", name, len(got), want.n, want.service, got)
		}
	}
	for call, n := range map[string]int{"Turn/BeginTurn": 2, "Turn/FinishTurn": 2, "Delivery/FinishDelivery": 2} { // both ends
		service, method, _ := strings.Cut(call, "/")
		if got := tracetest.Named("theclaw.registry.v1."+service+"Service/"+method, spans); len(got) != n {
			t.Errorf("%s: %d spans", call, len(got))
		}
	}
	push, chat, tool := tracetest.Named("push", spans), tracetest.Named("chat offline", spans), tracetest.Named("execute_tool bash_exec", spans)
	if len(push)*len(chat)*len(tool) == 0 {
		names := []string{}
		for _, s := range all {
			names = append(names, s.TraceID[:4]+" "+s.Service+" "+s.Name)
		}
		t.Fatalf("spans are missing:\n%s", strings.Join(names, "\n"))
	}
	if l := push[0].Links; len(l) != 1 || l[0] != callers || push[0].SpanID != first.String() {
		t.Errorf("the push: %+v", push[0])
	}
	// Two calls, of which the first has pushed; a span ends after the answer, so in any order.
	var pushed []string
	got := tracetest.In(callers, all)
	for _, s := range got {
		pushed = append(pushed, s.Links...)
	}
	if len(got) != 2 || len(pushed) != 1 || pushed[0] != trace.String() {
		t.Errorf("the caller's trace: %+v", got)
	}
	for key, want := range map[string]any{
		"gen_ai.operation.name": "chat", "gen_ai.provider.name": "offline", "gen_ai.system": "offline", "gen_ai.request.model": "offline",
	} {
		if got := chat[0].Attributes[key]; got != want {
			t.Errorf("%s = %v", key, got)
		}
	}
	for _, key := range []string{"gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"} {
		if n, ok := chat[0].Attributes[key].(float64); !ok || n <= 0 {
			t.Errorf("%s = %v", key, chat[0].Attributes[key])
		}
	}
	if got := tool[0].Attributes; got["gen_ai.tool.name"] != "bash_exec" || got["gen_ai.tool.call.id"] != turn.GetKey()+":tool:1:1" {
		t.Errorf("the tool: %v", got)
	}
	if d := tracetest.Named("deliver", spans); len(d) == 1 && (d[0].Attributes["theclaw.channel"] != "sink" || d[0].Attributes["theclaw.run_id"] != turn.GetKey()) {
		t.Errorf("the delivery: %v", d[0].Attributes)
	}
	for _, s := range all { // no long poll, no health check, nothing without a message
		if s.TraceID != trace.String() && s.TraceID != callers {
			t.Errorf("%s of %s is in a trace of its own", s.Name, s.Service)
		}
	}
	if b, err := os.ReadFile(file); err != nil || strings.Contains(string(b), "canary-4711") {
		t.Errorf("what was said is in the trace (%v)", err)
	}
}
