package serve_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/serve"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// What, fix, reason, meta, fields and retry arrive; the cause does not.
func TestErrorDetailsArrive(t *testing.T) {
	want := &fault.Error{
		Code: codes.FailedPrecondition, Reason: fault.LeaseHeld, What: "somebody works on it", Fix: "wait",
		Meta: map[string]string{"holder": "r2"}, RetryAfter: 3 * time.Second, Err: errors.New("secret cause"),
	}
	r := start(t, &service{unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) { return nil, want }}, nil)
	_, err := pb.NewTestServiceClient(r.dial(t, nil)).UnaryCall(t.Context(), &pb.SimpleRequest{})
	got := fault.From(err)
	if got.Code != want.Code || got.Reason != want.Reason || got.What != want.What || got.Fix != want.Fix ||
		got.Meta["holder"] != "r2" || got.RetryAfter != want.RetryAfter {
		t.Errorf("got %+v", got)
	}
	if strings.Contains(err.Error(), "cause") {
		t.Errorf("the cause left: %v", err)
	}
	if log := r.log.String(); log != "" {
		t.Errorf("an expected error was logged: %s", log)
	}
}

// A text nobody wrote for a reader stays here, once, under the request id.
func TestUnforeseenErrorsAndPanicsAreHiddenAndLoggedOnce(t *testing.T) {
	for name, svc := range map[string]*service{
		"error": {unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			return nil, errors.New("open /home/x: hush")
		}},
		"panic": {unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) { panic("hush") }},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, svc, nil)
			c := pb.NewTestServiceClient(r.dial(t, nil))
			var trailer metadata.MD
			ctx := rpc.WithCall(t.Context(), &rpc.Call{RequestID: "req-42"})
			_, err := c.UnaryCall(ctx, &pb.SimpleRequest{}, grpc.Trailer(&trailer))
			if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "hush") || fault.From(err).Reason != fault.Internal {
				t.Errorf("err = %v", err)
			}
			if id := trailer.Get(rpc.MetaRequestID); len(id) != 1 || id[0] != "req-42" {
				t.Errorf("trailer %v", trailer)
			}
			log := r.log.String()
			if strings.Count(log, "\n") != 1 || !strings.Contains(log, "hush") || !strings.Contains(log, "request_id=req-42") {
				t.Errorf("log: %s", log)
			}
			svc.unary = nil
			if _, err := c.UnaryCall(t.Context(), &pb.SimpleRequest{}); err != nil {
				t.Errorf("the call after: %v", err)
			}
		})
	}
}

func TestStreamPanicAndErrorAreHidden(t *testing.T) {
	r := start(t, &service{output: func(*pb.StreamingOutputCallRequest, grpc.ServerStreamingServer[pb.StreamingOutputCallResponse]) error {
		panic("hush")
	}}, nil)
	s, err := pb.NewTestServiceClient(r.dial(t, nil)).StreamingOutputCall(t.Context(), &pb.StreamingOutputCallRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = s.Recv(); status.Code(err) != codes.Internal || strings.Contains(err.Error(), "hush") {
		t.Errorf("err = %v", err)
	}
	if log := r.log.String(); strings.Count(log, "\n") != 1 {
		t.Errorf("log: %s", log)
	}
}

// SECURITY "log injection": a request id is ours or a harmless word.
func TestRequestIDs(t *testing.T) {
	var got string
	r := start(t, &service{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		got = rpc.RequestID(ctx)
		return &pb.SimpleResponse{}, nil
	}}, nil)
	c := pb.NewTestServiceClient(r.dial(t, nil))
	for sent, kept := range map[string]bool{"abc-1.2_3:4": true, "": false, "two words": false, "x=1\"": false, strings.Repeat("a", 65): false} {
		ctx := t.Context()
		if sent != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, rpc.MetaRequestID, sent)
		}
		if _, err := c.UnaryCall(ctx, &pb.SimpleRequest{}); err != nil || got == "" || (got == sent) != kept {
			t.Errorf("sent %q, handler saw %q, %v", sent, got, err)
		}
	}
}

// The rules in the .proto files hold at the door, and each wrong field is named.
func TestInvalidRequestsNeverReachTheHandler(t *testing.T) {
	p := policy()
	for _, m := range registrypb.AgentService_ServiceDesc.Methods {
		p["/theclaw.registry.v1.AgentService/"+m.MethodName] = serve.Allow(rpc.Owner)
	}
	for _, m := range registrypb.AgentService_ServiceDesc.Streams {
		p["/theclaw.registry.v1.AgentService/"+m.StreamName] = serve.Allow(rpc.Owner)
	}
	r := start(t, &service{}, func(o *serve.Options) {
		o.Policy = p
		o.Services = append(o.Services, func(g grpc.ServiceRegistrar) {
			registrypb.RegisterAgentServiceServer(g, registrypb.UnimplementedAgentServiceServer{})
		})
	})
	c := registrypb.NewAgentServiceClient(r.dial(t, nil))
	_, err := c.GetAgent(t.Context(), &registrypb.GetAgentRequest{AgentId: strings.Repeat("a", 65)})
	e := fault.From(err)
	if e.Code != codes.InvalidArgument || e.Reason != fault.InvalidArgument || len(e.Fields) == 0 || e.Fields[0].Name != "agent_id" {
		t.Errorf("got %+v", e)
	}
	if _, err = c.GetAgent(t.Context(), &registrypb.GetAgentRequest{AgentId: "a1"}); !fault.Is(err, fault.Unimplemented) {
		t.Errorf("a good request: %v", err)
	}
}

// The handler has a little less time than the caller, and none is never begun.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for given, want := range map[time.Duration]time.Duration{
			100 * time.Millisecond: 95 * time.Millisecond, time.Second: 950 * time.Millisecond, time.Minute: time.Minute - 50*time.Millisecond,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), given)
			shaved, done, err := serve.Shave(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if d, ok := shaved.Deadline(); !ok || time.Until(d) != want {
				t.Errorf("%v: left %v, want %v", given, time.Until(d), want)
			}
			done()
			cancel()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		<-ctx.Done()
		if _, _, err := serve.Shave(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("expired: %v", err)
		}
		if same, _, err := serve.Shave(t.Context()); err != nil || same != t.Context() {
			t.Errorf("no deadline: %v", err)
		}
	})
}

// A caller without a deadline gets ten seconds, and the handler ends before it.
func TestDefaultTimeoutAndSlowCallLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lasted time.Duration
		svc := &service{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			began := time.Now()
			<-ctx.Done()
			lasted = time.Since(began)
			return nil, ctx.Err()
		}}
		r, c := inMemory(t, svc, nil)
		_, err := c.UnaryCall(t.Context(), &pb.SimpleRequest{})
		if !fault.Is(err, fault.Deadline) || lasted != 9950*time.Millisecond {
			t.Errorf("handler had %v, %v", lasted, err)
		}
		if log := r.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "slow call") || !strings.Contains(log, "request_id=") {
			t.Errorf("log: %s", log)
		}
		svc.unary = nil
		if _, err := c.UnaryCall(t.Context(), &pb.SimpleRequest{}); err != nil || strings.Count(r.log.String(), "\n") != 1 {
			t.Errorf("a good call was logged: %s, %v", r.log.String(), err)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestLongPollsAreNotSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := inMemory(t, &service{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			<-time.After(5 * time.Second)
			return &pb.SimpleResponse{}, nil
		}}, func(o *serve.Options) { o.Policy[unaryCall] = serve.Rule{Kinds: []rpc.Kind{rpc.Owner}, Waits: true} })
		if _, err := c.UnaryCall(t.Context(), &pb.SimpleRequest{}); err != nil || r.log.String() != "" {
			t.Errorf("%v, log: %s", err, r.log.String())
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// Refusals are counted by their code; two servers share one registry.
func TestCallsAreCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	with := func(o *serve.Options) { o.Metrics = reg }
	r := start(t, &service{}, with)
	start(t, &service{}, with)
	_, _ = pb.NewTestServiceClient(r.dial(t, nil)).UnaryCall(t.Context(), &pb.SimpleRequest{})
	_, _ = pb.NewTestServiceClient(r.dial(t, func(o *rpc.DialOptions) { o.TokenPath = "" })).UnaryCall(t.Context(), &pb.SimpleRequest{})
	if err := r.stop(); err != nil { // counted after the answer left
		t.Fatal(err)
	}
	want := `# HELP grpc_server_handled_total Total number of RPCs completed on the server, regardless of success or failure.
# TYPE grpc_server_handled_total counter
grpc_server_handled_total{grpc_code="OK",grpc_method="UnaryCall",grpc_service="grpc.testing.TestService",grpc_type="unary"} 1
grpc_server_handled_total{grpc_code="Unauthenticated",grpc_method="UnaryCall",grpc_service="grpc.testing.TestService",grpc_type="unary"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "grpc_server_handled_total"); err != nil {
		t.Error(err)
	}
}
