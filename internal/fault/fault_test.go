package fault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// overWire does what grpc-go does with a status: marshal, unmarshal, Err.
func overWire(t *testing.T, s *status.Status) error {
	t.Helper()
	b, err := proto.Marshal(s.Proto())
	if err != nil {
		t.Fatalf("marshal status: %v", err)
	}
	p := status.New(codes.OK, "").Proto()
	if err := proto.Unmarshal(b, p); err != nil {
		t.Fatalf("unmarshal status: %v", err)
	}
	return status.FromProto(p).Err()
}

func TestErrorSurvivesTheWire(t *testing.T) {
	for _, want := range []*Error{
		New(codes.NotFound, AgentNotFound, "Agent 'x' not found", "run 'agent init x' first"),
		New(codes.Aborted, LeaseLost, "lease lost", ""),
		{
			Code: codes.ResourceExhausted, Reason: InboxFull, What: "inbox full", Fix: "wait",
			Meta: map[string]string{"agent_id": "a", "limit": "10"}, RetryAfter: 1500 * time.Millisecond,
			Fields: []Field{{"events[0].source", "is empty"}, {"limit", "is negative"}},
		},
	} {
		cause := Wrap(want, errors.New("secret cause"))
		s := Status(fmt.Errorf("push events: %w", cause))
		got := From(fmt.Errorf("send: %w", overWire(t, s)))
		if !Is(got, want.Reason) || strings.Contains(s.String(), "secret") {
			t.Errorf("status %v does not carry %s, or tells its cause", s, want.Reason)
		}
		got.Err = nil
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("round trip of %s (-want +got):\n%s", want.Reason, d)
		}
	}
}

func TestWrapCopiesAndUnwraps(t *testing.T) {
	base := New(codes.Internal, DiskFull, "disk full", "free space")
	err := fmt.Errorf("outer: %w", fmt.Errorf("inner: %w", Wrap(base, io.ErrShortWrite)))
	e, ok := errors.AsType[*Error](err)
	if !ok || e == base || base.Err != nil || !errors.Is(err, io.ErrShortWrite) {
		t.Fatalf("Wrap: found=%v shared=%v base.Err=%v", ok, e == base, base.Err)
	}
	if got := From(err); got != e {
		t.Errorf("From = %v, want the wrapped Error itself", got)
	}
	if got := Chain(err); got != "outer: inner: disk full: short write" {
		t.Errorf("Chain = %q", got)
	}
	if err.Error() != "outer: inner: disk full" || Chain(nil) != "" || Wrap(nil, io.EOF) != nil {
		t.Errorf("Error tells more than What: %q", err)
	}
}

func TestStatusOfForeignErrors(t *testing.T) {
	invalid := status.New(codes.InvalidArgument, "limit must be > 0")
	for _, c := range []struct {
		name string
		err  error
		want codes.Code
		text string
		why  string
	}{
		{"plain error", errors.New("open /home/x/secret: denied"), codes.Internal, hidden, Internal},
		{"canceled", fmt.Errorf("load: %w", context.Canceled), codes.Canceled, "the call was canceled", Canceled},
		{"deadline", fmt.Errorf("load: %w", context.DeadlineExceeded), codes.DeadlineExceeded, "the call did not finish in time", Deadline},
		{"validation", fmt.Errorf("call: %w", invalid.Err()), codes.InvalidArgument, "limit must be > 0", InvalidArgument},
		{"unknown call", status.Error(codes.Unimplemented, "unknown method"), codes.Unimplemented, "unknown method", Unimplemented},
		{"transport", status.Error(codes.Unavailable, "dial unix /home/x/run/registry.sock"), codes.Unavailable, "the service does not answer", ServiceUnavailable},
		{"error with code OK", &Error{What: "by hand"}, codes.Internal, "by hand", Internal},
		{"error over a context error", Wrap(New(codes.Unavailable, RegistryUnavailable, "r", "f"), context.Canceled), codes.Unavailable, "r", RegistryUnavailable},
	} {
		s := Status(c.err)
		if s.Code() != c.want || s.Message() != c.text {
			t.Errorf("%s: %v %q, want %v %q", c.name, s.Code(), s.Message(), c.want, c.text)
		}
		info := infoOf(s)
		if info.GetReason() != c.why || info.GetDomain() != "theclaw" {
			t.Errorf("%s: info %v, want reason %s", c.name, info, c.why)
		}
	}
	if Status(nil) != nil || Status(nil).Err() != nil {
		t.Error("Status(nil) is not OK")
	}
}

func TestStatusKeepsForeignDetails(t *testing.T) {
	s, err := status.New(codes.InvalidArgument, "bad").WithDetails(&errdetails.DebugInfo{Detail: "kept"})
	if err != nil {
		t.Fatal(err)
	}
	if got := Status(s.Err()); len(got.Details()) != 2 {
		t.Errorf("details = %v, want DebugInfo and ErrorInfo", got.Details())
	}
	once := Status(New(codes.NotFound, RunNotFound, "w", "f"))
	if twice := Status(overWire(t, once)); !proto.Equal(once.Proto(), twice.Proto()) {
		t.Errorf("a status that has a reason changed on its way: %v", twice)
	}
}

func TestFromTransport(t *testing.T) {
	e := From(status.Error(codes.Unavailable, "connection refused"))
	if e.Reason != ServiceUnavailable || !strings.Contains(e.Fix, "agentd all") {
		t.Errorf("From(UNAVAILABLE) = %+v", e)
	}
	if e := From(context.DeadlineExceeded); e.Reason != Deadline || !errors.Is(e, context.DeadlineExceeded) {
		t.Errorf("From(deadline) = %+v", e)
	}
	if e := From(io.EOF); e.Reason != Internal || e.What != "EOF" {
		t.Errorf("From(EOF) = %+v", e)
	}
	if From(nil) != nil || Is(nil, Internal) {
		t.Error("nil became an error")
	}
	for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
		if e := From(status.Error(c, "x")); e.Reason == "" || e.Code != c || e.What == "" {
			t.Errorf("From(%v) = %+v", c, e)
		}
	}
}

func TestHostileTextStaysSendable(t *testing.T) {
	e := New(codes.InvalidArgument, InvalidArgument, "\xff"+strings.Repeat("é", 5000), "\xfe fix")
	e.Meta = map[string]string{"\xff": "\xff"}
	e.Fields = make([]Field, 1000)
	got := From(overWire(t, Status(e)))
	if got.Reason != InvalidArgument || len(got.What) > maxText+40 || len(got.Fields) != 32 {
		t.Errorf("got reason %s, %d bytes, %d fields", got.Reason, len(got.What), len(got.Fields))
	}
}

func TestExitCode(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{Usage("no such flag", "see help"), 2},
		{fmt.Errorf("parse: %w", Usage("w", "f")), 2},
		{New(codes.InvalidArgument, InvalidArgument, "w", "f"), 1},
		{New(codes.InvalidArgument, FilterInvalid, "w", "f"), 1},
		{status.Error(codes.InvalidArgument, "x"), 1},
		{io.EOF, 1},
	} {
		if got := ExitCode(c.err); got != c.want {
			t.Errorf("ExitCode(%v) = %d, want %d", c.err, got, c.want)
		}
	}
}

func TestLineAndJSON(t *testing.T) {
	// The words of the recorded `agent status nope`.
	nope := New(codes.NotFound, AgentNotFound, "Agent 'nope' not found", "run 'agent init nope' first")
	for _, c := range []struct {
		err        error
		line, json string
	}{
		{nope, "Error: Agent 'nope' not found - run 'agent init nope' first", `{"error":"Agent 'nope' not found","suggestion":"run 'agent init nope' first"}`},
		{New(codes.Aborted, LeaseLost, "lease lost", ""), "Error: lease lost", `{"error":"lease lost","suggestion":""}`},
		{New(codes.Aborted, LeaseLost, "", "f"), "Error: LEASE_LOST - f", `{"error":"LEASE_LOST","suggestion":"f"}`},
		{Usage("a\x1b[2Jb\nc", "<&>"), `Error: a\x1b[2Jb\x0ac - <&>`, `{"error":"a\u001b[2Jb\nc","suggestion":"<&>"}`},
		{Usage("é\u2028\xff\x7f", `"\`), `Error: é \xff\x7f - "\`, "{\"error\":\"é\u2028\uFFFD\x7f\",\"suggestion\":\"\\\"\\\\\"}"},
	} {
		if got := Line(c.err); got != c.line {
			t.Errorf("Line = %q, want %q", got, c.line)
		}
		got := JSON(c.err)
		if string(got) != c.json || !json.Valid(got) {
			t.Errorf("JSON = %q, want %q", got, c.json)
		}
	}
	if Line(nil) != "" || JSON(nil) != nil {
		t.Error("nil is printed")
	}
}

func TestPoint(t *testing.T) {
	var hit []string
	SetPoint(func(label string) { hit = append(hit, label) })
	t.Cleanup(func() { SetPoint(nil) })
	for _, l := range Labels() {
		Point(l)
	}
	SetPoint(nil)
	Point("T0.before")
	if d := cmp.Diff(Labels(), hit); d != "" || len(hit) != 36 || hit[0] != "T0.before" || hit[27] != "D4.after" || hit[28] != "steer.before" {
		t.Errorf("hit %v (-want +got):\n%s", hit, d)
	}
	if n := testing.AllocsPerRun(100, func() { Point("T7.before") }); n != 0 {
		t.Errorf("an unset point allocates %v times", n)
	}
}
