package tracing

import (
	"context"
	"crypto/sha256"
	"math/rand/v2"
	"regexp"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Tracer makes the spans of one service; nil makes none.
type Tracer struct{ t trace.Tracer }

// New makes a tracer. Its provider must take ids from [IDs].
func New(p trace.TracerProvider) *Tracer {
	return &Tracer{p.Tracer("github.com/theclaw/agents")}
}

// Of returns the ids of a message's trace and of its push.
func Of(runID string) (trace.TraceID, trace.SpanID) {
	id, push, _ := idsOf(runID)
	return id, push
}

// idsOf returns the ids of a message's trace, of its push, and of the span above that of a message that came
// over an account.
func idsOf(runID string) (id trace.TraceID, push, receive trace.SpanID) {
	sum := sha256.Sum256([]byte(runID))
	return trace.TraceID(sum[:16]), trace.SpanID(sum[16:24]), trace.SpanID(sum[24:])
}

// named are the ids that the next span gets.
type named struct {
	trace trace.TraceID
	span  trace.SpanID
}

type namedKey struct{}

// IDs gives the first spans of a message their own ids, and random ones to all others.
type IDs struct{}

// NewIDs returns the ids of a span without a parent.
func (i IDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if n, ok := ctx.Value(namedKey{}).(named); ok {
		return n.trace, n.span
	}
	var id trace.TraceID
	for !id.IsValid() {
		put(id[:8])
		put(id[8:])
	}
	return id, i.NewSpanID(ctx, id)
}

// NewSpanID returns the id of a span in a trace.
func (IDs) NewSpanID(ctx context.Context, of trace.TraceID) (id trace.SpanID) {
	if n, ok := ctx.Value(namedKey{}).(named); ok && n.trace == of {
		return n.span
	}
	for !id.IsValid() {
		put(id[:])
	}
	return id
}

// put fills eight bytes; an id is a name, not a secret.
func put(b []byte) {
	n := rand.Uint64()
	for i := range b {
		b[i] = byte(n >> (8 * i))
	}
}

// Where names what a span is about. Empty fields are left out.
type Where struct {
	AgentID, ThreadID string
	EventID           int64
}

func (w Where) set(s trace.Span) {
	if w.AgentID != "" {
		s.SetAttributes(attribute.String(keyAgent, w.AgentID))
	}
	if w.ThreadID != "" {
		s.SetAttributes(attribute.String(keyThread, w.ThreadID), attribute.String(genConversation, w.AgentID+"/"+w.ThreadID))
	}
	if w.EventID != 0 {
		s.SetAttributes(attribute.Int64(keyEvent, w.EventID))
	}
}

// Received makes the span of the way of a message through a gateway, from its receipt until it was accepted. It is the
// parent of the push.
func (t *Tracer) Received(ctx context.Context, runID string, at Where, account string, begun time.Time) {
	if t == nil {
		return
	}
	id, _, receive := idsOf(runID)
	_, s := t.t.Start(context.WithValue(ctx, namedKey{}, named{id, receive}), spanReceive, trace.WithNewRoot(), trace.WithTimestamp(begun), trace.WithSpanKind(trace.SpanKindConsumer))
	s.SetAttributes(attribute.String(keyRun, runID), attribute.String(keyAccount, account))
	at.set(s)
	s.End()
}

// Pushed makes the span of the push of a message that is on disk: the first one, unless the message was received over
// an account. It is linked with the caller's span, if ctx has one, in both directions.
func (t *Tracer) Pushed(ctx context.Context, runID string, at Where, received bool, begun time.Time) {
	if t == nil {
		return
	}
	caller := trace.SpanFromContext(ctx)
	id, push, receive := idsOf(runID)
	within := context.WithValue(ctx, namedKey{}, named{id, push})
	o := []trace.SpanStartOption{trace.WithTimestamp(begun), trace.WithSpanKind(trace.SpanKindProducer)}
	if received {
		within = above(within, id, receive)
	} else {
		o = append(o, trace.WithNewRoot())
	}
	if caller.SpanContext().IsValid() {
		o = append(o, trace.WithLinks(trace.Link{SpanContext: caller.SpanContext()}))
	}
	_, s := t.t.Start(within, spanPush, o...)
	s.SetAttributes(attribute.String(keyRun, runID))
	at.set(s)
	s.End()
	caller.AddLink(trace.Link{SpanContext: s.SpanContext()})
}

// Turn begins the span of the work on a message.
func (t *Tracer) Turn(ctx context.Context, runID string, at Where) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx, s := t.message(ctx, runID, spanTurn, trace.SpanKindConsumer)
	at.set(s.s)
	return ctx, s
}

// Deliver begins the span of one send of a reply. Of a reply whose run is not known
// it is the first span of a trace of its own.
func (t *Tracer) Deliver(ctx context.Context, runID string, at Where, channel string, attempt int) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx, s := t.message(ctx, runID, spanDeliver, trace.SpanKindProducer)
	at.set(s.s)
	s.s.SetAttributes(attribute.String(keyChannel, channel), attribute.Int(keyAttempt, attempt))
	return ctx, s
}

// message begins a span under the first one of a message.
func (t *Tracer) message(ctx context.Context, runID, name string, kind trace.SpanKind) (context.Context, Span) {
	if runID != "" {
		id, push := Of(runID)
		ctx = above(ctx, id, push)
	}
	ctx, s := t.t.Start(ctx, name, trace.WithSpanKind(kind))
	if runID != "" {
		s.SetAttributes(attribute.String(keyRun, runID))
	}
	return ctx, Span{s}
}

// above returns ctx with the ids of the span that the next one is below.
func above(ctx context.Context, id trace.TraceID, span trace.SpanID) context.Context {
	return trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: id, SpanID: span, TraceFlags: trace.FlagsSampled, Remote: true,
	}))
}

// Child begins a span inside of the one that ctx has, for code that has no tracer; none if ctx has none.
func Child(ctx context.Context, name string) (context.Context, Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, Span{}
	}
	return New(parent.TracerProvider()).Start(ctx, name)
}

// Start begins a span inside of another one.
func (t *Tracer) Start(ctx context.Context, name string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx, s := t.t.Start(ctx, name)
	return ctx, Span{s}
}

// Model begins the span of one model call.
func (t *Tracer) Model(ctx context.Context, provider, model string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx, s := t.t.Start(ctx, opChat+" "+model, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String(genOperation, opChat), attribute.String(genProvider, provider), attribute.String(genSystem, provider), attribute.String(genModel, model),
	))
	return ctx, Span{s}
}

var toolName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`) })

// Tool begins the span of one tool; key is the idempotency key it is given. The name
// is what a model has called it, so that no more than a name of it is taken.
func (t *Tracer) Tool(ctx context.Context, name, key string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	if !toolName().MatchString(name) {
		name = "unknown"
	}
	ctx, s := t.t.Start(ctx, opTool+" "+name, trace.WithAttributes(
		attribute.String(genOperation, opTool), attribute.String(genTool, name), attribute.String(genToolCall, key),
	))
	return ctx, Span{s}
}

// Span is a part of a message's trace; the zero value is none.
type Span struct{ s trace.Span }

// Usage adds what a model call has cost and why it ended.
func (s Span) Usage(input, output, cached int64, finish string) {
	if s.s == nil {
		return
	}
	s.s.SetAttributes(attribute.Int64(genInput, input), attribute.Int64(genOutput, output), attribute.Int64(keyCached, cached))
	if finish != "" {
		s.s.SetAttributes(attribute.StringSlice(genFinish, []string{finish}))
	}
}

// Outcome records the outcome: a word, never a text.
func (s Span) Outcome(word string) {
	if s.s != nil {
		s.s.SetAttributes(attribute.String(keyOutcome, word))
	}
}

// Fail marks the span as failed; class is a word, never a text.
func (s Span) Fail(class string) {
	if s.s != nil {
		s.s.SetAttributes(attribute.String(errorType, class))
		s.s.SetStatus(codes.Error, "")
	}
}

// Within returns ctx with the span in it, for calls that belong to it.
func (s Span) Within(ctx context.Context) context.Context {
	if s.s == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, s.s)
}

// End ends the span.
func (s Span) End() {
	if s.s != nil {
		s.s.End()
	}
}
