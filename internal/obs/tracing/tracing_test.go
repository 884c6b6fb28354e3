package tracing_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/obs/tracing"
	"github.com/theclaw/agents/internal/obs/tracing/export"
)

// Traces that are off cost nothing on the way of a message.
func TestOffIsFree(t *testing.T) {
	var off *tracing.Tracer
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		off.Received(ctx, "run", tracing.Where{AgentID: "a", ThreadID: "t"}, "tg", time.Time{})
		off.Pushed(ctx, "run", tracing.Where{AgentID: "a"}, true, time.Time{})
		ctx, turn := off.Turn(ctx, "run", tracing.Where{AgentID: "a", ThreadID: "t", EventID: 1})
		ctx, claim := off.Start(ctx, "claim")
		claim.End()
		ctx, chat := off.Model(ctx, "p", "m")
		chat.Usage(1, 2, 3, "stop")
		chat.Fail("x")
		chat.End()
		ctx, tool := off.Tool(ctx, "bash_exec", "key")
		ctx, wait := tracing.Child(ctx, tracing.SpanWait)
		wait.End()
		tool.End()
		ctx, deliver := off.Deliver(ctx, "run", tracing.Where{}, "hook", 1)
		_ = deliver.Within(ctx)
		deliver.End()
		turn.Outcome("replied")
		turn.End()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	x, err := export.Open(ctx, export.Options{Getenv: func(string) string { return "" }})
	if err != nil || x != nil {
		t.Errorf("%v %v", x, err)
	}
	s, err := x.Service(ctx, "runner")
	if err != nil || s.Tracer != nil || s.Server != nil || s.Client != nil || x.Close(ctx) != nil {
		t.Errorf("%+v %v", s, err)
	}
}

// The ids are of the message and of nothing else: they are written down here, since
// services of different versions work on one message.
func TestIDsOfAMessage(t *testing.T) {
	id, first := tracing.Of("0b6e:17:00ff")
	if id.String() != "fa457efba3ca334d6334f2e61b5c9fa1" || first.String() != "ce466d2ffcc7c05c" {
		t.Errorf("%s %s", id, first)
	}
	if again, _ := tracing.Of("0b6e:17:00ff"); again != id {
		t.Error("not the same twice")
	}
	if other, _ := tracing.Of("0b6e:18:00ff"); other == id {
		t.Error("two messages in one trace")
	}
	seen := map[trace.TraceID]bool{}
	for range 100 {
		id, span := tracing.IDs{}.NewIDs(context.Background())
		if seen[id] || !span.IsValid() {
			t.Fatal("ids repeat")
		}
		seen[id] = true
	}
}

// A collector of the test.
type received struct {
	collector.UnimplementedTraceServiceServer
	spans chan string
}

func (r received) Export(_ context.Context, in *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	for _, rs := range in.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				r.spans <- s.GetName() + " " + trace.TraceID(s.GetTraceId()).String()
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// The usual variables lead to a collector; a sampler takes a message whole or leaves
// it, whichever service asks.
func TestOTLP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv, got := grpc.NewServer(), received{spans: make(chan string, 10)}
	collector.RegisterTraceServiceServer(srv, got)
	go func() { _ = srv.Serve(l) }()
	defer srv.Stop()
	endpoint := "http://" + l.Addr().String()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint) // the exporter's own reading
	env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5"}
	x, err := export.Open(t.Context(), export.Options{Getenv: func(n string) string { return env[n] }, Failed: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	for _, run := range []string{"a:1:0", "a:2:0", "a:3:0", "a:4:0", "a:5:0", "a:6:0"} {
		n := 0
		for _, name := range []string{"registry", "runner", "deliverer"} {
			s, err := x.Service(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			ctx, span := s.Tracer.Turn(t.Context(), run, tracing.Where{})
			if trace.SpanContextFromContext(ctx).IsSampled() {
				n++
			}
			span.End()
		}
		if n != 0 && n != 3 {
			t.Errorf("%s: %d of 3 services trace it", run, n)
		}
		want += n
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := x.Close(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(got.spans)
	n := 0
	for s := range got.spans {
		if n++; !strings.HasPrefix(s, "turn ") {
			t.Error(s)
		}
	}
	if n != want || n == 0 || n == 18 {
		t.Errorf("%d spans came, %d were sampled", n, want)
	}
}
