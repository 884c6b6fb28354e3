// Package export sends spans to a collector by OTLP, to a file, or to a stream, as the
// usual OTEL_ variables say. Only agentd and tests link it.
//
// It promises:
//   - Without a variable that asks for traces there is no exporter, no goroutine and
//     no span: [Open] returns nil, and a nil [*Export] gives services nil tracers.
//   - A message is traced completely or not at all: the sampler decides by the trace's id,
//     which every service derives from the message.
//   - A call between services is a span only inside of a trace; long polls and health
//     checks make none.
//   - Spans that cannot be sent are dropped and reported; nothing waits for them. A
//     file gets each span as it ends, so that a kill loses only the spans under way.
//
// It does not decide what is in a span (package tracing).
package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/obs/tracing"
)

// Options select where traces go.
type Options struct {
	Getenv  func(string) string
	Console io.Writer   // of OTEL_TRACES_EXPORTER=console
	Failed  func(error) // is called for spans that could not be sent
	Version string
}

// Export sends the spans of the services of one process.
type Export struct {
	processor sdk.SpanProcessor
	sampler   sdk.Sampler
	version   string
	file      *os.File
}

// Service is what one service needs to be traced; the zero value traces nothing.
type Service struct {
	Tracer         *tracing.Tracer
	Server, Client stats.Handler
}

// Open reads the environment and returns nil when traces are off. An OTLP exporter
// connects when the first spans are sent.
func Open(ctx context.Context, o Options) (*Export, error) {
	kind := exporter(o.Getenv)
	if kind == "" {
		return nil, nil
	}
	sampler, err := sampler(o.Getenv("OTEL_TRACES_SAMPLER"), o.Getenv("OTEL_TRACES_SAMPLER_ARG"))
	if err != nil {
		return nil, err
	}
	e := &Export{sampler: sampler, version: o.Version}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(o.Failed))
	switch kind {
	case "otlp":
		if p := first(o.Getenv, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); p != "" && p != "grpc" {
			return nil, bad("OTLP is spoken over grpc here, not over "+p, "set OTEL_EXPORTER_OTLP_PROTOCOL=grpc and the endpoint to that of gRPC, usually port 4317")
		}
		x, err := otlptracegrpc.New(ctx)
		if err != nil {
			return nil, fault.Wrap(bad("the exporter of traces cannot be made", "see OTEL_EXPORTER_OTLP_ENDPOINT and the variables next to it"), err)
		}
		e.processor = sdk.NewBatchSpanProcessor(x)
	case "console":
		if e.processor, err = lines(o.Console); err != nil {
			return nil, err
		}
	case "file":
		if err := e.open(o.Getenv("THECLAW_TRACE_FILE")); err != nil {
			return nil, err
		}
	default:
		return nil, bad("there is no exporter of traces "+kind, "set OTEL_TRACES_EXPORTER to otlp, console, file or none")
	}
	return e, nil
}

// exporter returns which one is asked for; "" for none.
func exporter(getenv func(string) string) string {
	kind := strings.TrimSpace(getenv("OTEL_TRACES_EXPORTER"))
	switch {
	case strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true"), kind == "none":
		return ""
	case kind == "" && first(getenv, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT") != "":
		return "otlp"
	}
	return kind
}

func first(getenv func(string) string, names ...string) string {
	for _, n := range names {
		if v := getenv(n); v != "" {
			return v
		}
	}
	return ""
}

// sampler reads the usual variables. Each decides by the id of the trace alone: the
// holder of a message after the first one has no other way to know.
func sampler(name, arg string) (sdk.Sampler, error) {
	switch strings.TrimPrefix(name, "parentbased_") {
	case "", "always_on":
		return sdk.AlwaysSample(), nil
	case "always_off":
		return sdk.NeverSample(), nil
	case "traceidratio":
		part := 1.0
		if arg != "" {
			var err error
			if part, err = strconv.ParseFloat(arg, 64); err != nil || part < 0 || part > 1 {
				return nil, bad("OTEL_TRACES_SAMPLER_ARG is "+strconv.Quote(arg), "set it to a number from 0 to 1")
			}
		}
		return sdk.TraceIDRatioBased(part), nil
	}
	return nil, bad("there is no sampler "+name, "set OTEL_TRACES_SAMPLER to always_on, always_off or traceidratio")
}

// open appends to a file; several processes may have the same one.
func (e *Export) open(path string) error {
	if path == "" {
		return bad("no file is named for the traces", "set THECLAW_TRACE_FILE to its path")
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fault.Wrap(bad("the file of the traces cannot be written: "+err.Error(), "set THECLAW_TRACE_FILE to a path that can"), err)
	}
	if e.processor, err = lines(f); err != nil {
		return errors.Join(err, f.Close())
	}
	e.file = f
	return nil
}

// lines writes each span as a line of JSON when it ends.
func lines(w io.Writer) (sdk.SpanProcessor, error) {
	x, err := stdouttrace.New(stdouttrace.WithWriter(w))
	if err != nil {
		return nil, fmt.Errorf("make exporter: %w", err)
	}
	return sdk.NewSimpleSpanProcessor(x), nil
}

// Service makes what a service named runner or runner-2 needs.
func (e *Export) Service(ctx context.Context, name string) (Service, error) {
	if e == nil {
		return Service{}, nil
	}
	// The environment comes last: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win.
	r, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "theclaw-"+name), attribute.String("service.namespace", "theclaw"), attribute.String("service.version", e.version),
	), resource.WithFromEnv())
	if err != nil {
		return Service{}, fault.Wrap(bad("the attributes of the traces cannot be read", "see OTEL_RESOURCE_ATTRIBUTES"), err)
	}
	provider := func(s sdk.Sampler) *sdk.TracerProvider {
		return sdk.NewTracerProvider(sdk.WithSpanProcessor(e.processor), sdk.WithSampler(s), sdk.WithResource(r), sdk.WithIDGenerator(tracing.IDs{}))
	}
	calls := []otelgrpc.Option{
		otelgrpc.WithTracerProvider(provider(sdk.ParentBased(sdk.NeverSample()))),
		otelgrpc.WithPropagators(propagation.TraceContext{}), otelgrpc.WithMeterProvider(metricnoop.NewMeterProvider()),
	}
	return Service{
		Tracer: tracing.New(provider(e.sampler)),
		Server: otelgrpc.NewServerHandler(calls...), Client: otelgrpc.NewClientHandler(calls...),
	}, nil
}

// Close sends what has not been sent, until ctx ends.
func (e *Export) Close(ctx context.Context) error {
	if e == nil {
		return nil
	}
	err := e.processor.Shutdown(ctx)
	if e.file != nil {
		err = errors.Join(err, e.file.Close())
	}
	return err
}

func bad(what, fix string) *fault.Error {
	return fault.New(codes.InvalidArgument, fault.InvalidArgument, what, fix)
}
