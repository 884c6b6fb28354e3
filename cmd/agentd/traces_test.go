//go:build proof

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/obs/tracing"
	"github.com/theclaw/agents/internal/obs/tracing/tracetest"
	"github.com/theclaw/agents/internal/testing/world"
)

// P1: the process is killed between the tool and its result; the next one goes on in
// the same trace, to which it was told nothing but the message.
func TestTraceOverAKill(t *testing.T) {
	site, sink := world.NewSite(t, program(t)), world.NewSink(t)
	file := filepath.Join(t.TempDir(), "traces")
	all := append([]string{"all"}, flags...)
	env := []string{"OTEL_TRACES_EXPORTER=file", "THECLAW_TRACE_FILE=" + file, "OTEL_RESOURCE_ATTRIBUTES=theclaw.test=yes"}
	p := site.StartWith(t, append(env, failpoint+"=T6.before:1"), all...)
	site.Serving(t, p, everything...)
	site.Create(t, "a1", sink.Config())
	wait := bob(t, site, "run: echo canary-4711")
	if !p.Killed() {
		t.Fatalf("it was not killed:\n%s", p.Log())
	}
	p = site.StartWith(t, env, all...)
	turn := wait()
	trace, first := tracing.Of(turn.GetKey())
	p.Signal(15)
	if code := p.Exit(); code != 0 {
		t.Fatalf("exit %d:\n%s", code, p.Log())
	}
	all2, err := tracetest.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	spans := tracetest.In(trace.String(), all2)
	// The first process left its claim, its model call and its tool; the turn it was
	// in never ended.
	for name, n := range map[string]int{"push": 1, "turn": 1, "claim": 2, "chat offline": 2, "execute_tool bash_exec": 1, "reply": 1, "deliver": 1} {
		if got := tracetest.Named(name, spans); len(got) != n {
			t.Errorf("%q: %d spans, want %d", name, len(got), n)
		}
	}
	for _, s := range tracetest.Named("deliver", spans) {
		if s.Parent != first.String() || s.Service != "theclaw-deliverer" {
			t.Errorf("the delivery: %+v", s)
		}
	}
	if strings.Contains(p.Log(), "traces") {
		t.Errorf("the log:\n%s", p.Log())
	}
}

// A variable that asks for traces in a way that is not there ends the start.
func TestTracesThatCannotBe(t *testing.T) {
	for env, want := range map[string]string{
		"OTEL_TRACES_EXPORTER=zipkin":                                           "set OTEL_TRACES_EXPORTER to otlp, console, file or none",
		"OTEL_TRACES_EXPORTER=file":                                             "set THECLAW_TRACE_FILE",
		"OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf":   "usually port 4317",
		"OTEL_TRACES_EXPORTER=console OTEL_TRACES_SAMPLER=jaeger_remote":        "always_on, always_off or traceidratio",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1 OTEL_TRACES_SAMPLER=no": "always_on, always_off or traceidratio",
	} {
		site := world.NewSite(t, program(t))
		p := site.StartWith(t, strings.Fields(env), "all")
		if code := p.Exit(); code == 0 || !strings.Contains(p.Log(), want) {
			t.Errorf("%s: exit %d:\n%s", env, code, p.Log())
		}
	}
}
