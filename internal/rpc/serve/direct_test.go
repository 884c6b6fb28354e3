package serve_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/direct"
	"github.com/theclaw/agents/internal/rpc/serve"
)

// beside serves svc with a desk, and answers a connection of a runner over the socket
// and one of its process.
func beside(t testing.TB, svc *service, change func(*serve.Options)) (*running, *grpc.ClientConn, *direct.Conn) {
	t.Helper()
	desk, as := direct.NewServer(), rpc.Identity{Kind: rpc.Service, Name: "runner-2"}
	r := start(t, svc, func(o *serve.Options) {
		o.Direct = desk
		o.Policy[unaryCall] = serve.Allow(rpc.Owner).To("runner")
		if change != nil {
			change(o)
		}
	})
	far := r.dial(t, func(o *rpc.DialOptions) { o.As = as })
	return r, far, &direct.Conn{Server: desk, As: as, Far: far}
}

// A call of the same process ends as one over the socket does: who it is of, what it
// carries, how long it may take, and every way to fail.
func TestADirectCallIsLikeOneOverTheSocket(t *testing.T) {
	type key struct{}
	svc := &service{unary: func(ctx context.Context, req *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		switch req.GetPayload().GetBody()[0] {
		case 'f':
			return nil, fault.New(codes.Aborted, fault.LeaseLost, "the lease is lost", "stop")
		case 'h':
			return nil, errors.New("nobody shall read this")
		case 'p':
			panic("boom")
		case 'n':
			return &pb.SimpleResponse{Username: "\xff"}, nil
		case 'l':
			return &pb.SimpleResponse{Payload: &pb.Payload{Body: make([]byte, rpc.MaxMessage)}}, nil
		}
		id, _ := rpc.IdentityFrom(ctx)
		resource, token, holder, ok := rpc.FenceFrom(ctx)
		deadline, has := ctx.Deadline()
		md, _ := metadata.FromIncomingContext(ctx)
		return &pb.SimpleResponse{Username: fmt.Sprintln(id, resource, token, holder, ok, has, time.Until(deadline).Round(10*time.Second),
			rpc.RequestID(ctx), md.Get("x-more"), ctx.Value(key{}), req.GetResponseSize())}, nil
	}}
	_, far, near := beside(t, svc, nil)
	plain := rpc.WithCall(context.WithValue(t.Context(), key{}, "seen"), &rpc.Call{RequestID: "asked-1"})
	plain = metadata.AppendToOutgoingContext(rpc.WithFence(plain, "agent/a", 7, "h"), "X-More", "1", "x-more", "2")
	hour, cancel := context.WithTimeout(plain, time.Hour)
	defer cancel()
	over, cancel := context.WithDeadline(plain, time.Now().Add(-time.Second))
	defer cancel()
	ended, cancel := context.WithCancel(plain)
	cancel()
	for name, c := range map[string]struct {
		ctx    context.Context
		method string
		req    *pb.SimpleRequest
	}{
		"an answer":          {plain, unaryCall, &pb.SimpleRequest{ResponseSize: 3, Payload: &pb.Payload{Body: []byte("a")}}},
		"an hour":            {hour, unaryCall, &pb.SimpleRequest{Payload: &pb.Payload{Body: []byte("a")}}},
		"too late":           {over, unaryCall, &pb.SimpleRequest{Payload: &pb.Payload{Body: []byte("a")}}},
		"given up":           {ended, unaryCall, &pb.SimpleRequest{Payload: &pb.Payload{Body: []byte("a")}}},
		"a fault":            {plain, unaryCall, &pb.SimpleRequest{Payload: &pb.Payload{Body: []byte("f")}}},
		"a hidden error":     {plain, unaryCall, &pb.SimpleRequest{Payload: &pb.Payload{Body: []byte("h")}}},
		"a panic":            {plain, unaryCall, &pb.SimpleRequest{Payload: &pb.Payload{Body: []byte("p")}}},
		"an answer no text":  {plain, unaryCall, &pb.SimpleRequest{Payload: &pb.Payload{Body: []byte("n")}}},
		"too large":          {plain, unaryCall, &pb.SimpleRequest{Payload: &pb.Payload{Body: make([]byte, rpc.MaxMessage)}}},
		"too large answer":   {plain, unaryCall, &pb.SimpleRequest{Payload: &pb.Payload{Body: []byte("l")}}},
		"no such method":     {plain, "/grpc.testing.TestService/None", &pb.SimpleRequest{}},
		"no such service":    {plain, "/grpc.testing.None/UnaryCall", &pb.SimpleRequest{}},
		"health, over there": {plain, "/grpc.health.v1.Health/Check", &pb.SimpleRequest{}}, // registered by the server itself
	} {
		t.Run(name, func(t *testing.T) {
			var want, got pb.SimpleResponse
			errFar := far.Invoke(c.ctx, c.method, c.req, &want)
			errNear := near.Invoke(c.ctx, c.method, c.req, &got)
			if !proto.Equal(&want, &got) {
				t.Errorf("answer %v, over the socket %v", &got, &want)
			}
			a, b := status.Convert(errFar), status.Convert(errNear)
			// What the transport says of itself is its own.
			own := strings.HasPrefix(a.Message(), "grpc: ") || strings.HasPrefix(a.Message(), "trying to send") || c.ctx.Err() != nil
			if a.Code() != b.Code() || (!own && a.Message() != b.Message()) || len(a.Details()) != len(b.Details()) && !own {
				t.Errorf("error %v %v, over the socket %v %v", b, b.Details(), a, a.Details())
			}
			if name == "an answer" && (errNear != nil || !strings.Contains(got.GetUsername(), "agent/a 7 h true true 10s asked-1 [1 2] <nil> 3")) {
				t.Errorf("%v, %v", &got, errNear)
			}
		})
	}
}

// The access table judges direct calls too.
func TestADirectCallerHasItsOwnRights(t *testing.T) {
	r, _, near := beside(t, &service{}, nil)
	for _, as := range []rpc.Identity{{Kind: rpc.Service, Name: "deliverer"}, {Kind: rpc.Agent, Name: "runner"}, {}} {
		near.As = as
		far := r.dial(t, func(o *rpc.DialOptions) { o.As = as; o.TokenPath += "-none" })
		for _, conn := range []grpc.ClientConnInterface{near, far} {
			if _, err := pb.NewTestServiceClient(conn).UnaryCall(t.Context(), &pb.SimpleRequest{}); status.Code(err) != codes.PermissionDenied && conn == near || err == nil {
				t.Errorf("%v over a %T: %v", as, conn, err)
			}
		}
	}
	near.As = rpc.Identity{Kind: rpc.Owner}
	if _, err := pb.NewTestServiceClient(near).EmptyCall(t.Context(), &pb.Empty{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("the owner: %v", err)
	}
}

// What one side does to its message afterwards, the other does not see.
func TestADirectCallCopiesItsMessages(t *testing.T) {
	var kept *pb.SimpleRequest
	answer := &pb.SimpleResponse{Payload: &pb.Payload{Body: []byte("answer")}}
	_, _, near := beside(t, &service{unary: func(_ context.Context, req *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		kept = req
		return answer, nil
	}}, nil)
	req := &pb.SimpleRequest{Payload: &pb.Payload{Body: []byte("request")}}
	got, err := pb.NewTestServiceClient(near).UnaryCall(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	copy(req.GetPayload().GetBody(), "REQUEST")
	copy(got.GetPayload().GetBody(), "ANSWER")
	if string(kept.GetPayload().GetBody()) != "request" || string(answer.GetPayload().GetBody()) != "answer" {
		t.Errorf("kept %q, answered %q", kept.GetPayload().GetBody(), answer.GetPayload().GetBody())
	}
	if _, err := pb.NewTestServiceClient(near).UnaryCall(t.Context(), &pb.SimpleRequest{Payload: &pb.Payload{}, ResponseStatus: &pb.EchoStatus{Message: "\xff"}}); status.Code(err) != codes.Internal {
		t.Errorf("a text that is none: %v", err)
	}
}

// RELIABILITY "Drain": a direct call under way may finish, none begins after it, and
// one that does not end is ended when the grace is over. Streams go over the socket.
func TestADrainWaitsForDirectCalls(t *testing.T) {
	for _, patient := range []bool{true, false} {
		entered, finish := make(chan struct{}), make(chan struct{})
		svc := &service{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			close(entered)
			<-rpc.Draining(ctx)
			if !patient {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			<-finish
			return &pb.SimpleResponse{Username: "done"}, nil
		}}
		r, _, near := beside(t, svc, func(o *serve.Options) {
			o.Policy[outCall] = serve.Allow(rpc.Owner).To("runner")
			if !patient {
				o.Grace = -1
			}
		})
		c := pb.NewTestServiceClient(near)
		out, err := c.StreamingOutputCall(t.Context(), &pb.StreamingOutputCallRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.Recv(); err != nil {
			t.Errorf("a stream: %v", err)
		}
		answered := make(chan error, 1)
		go func() {
			_, err := c.UnaryCall(t.Context(), &pb.SimpleRequest{})
			answered <- err
		}()
		<-entered
		stopped := make(chan error, 1)
		go func() { stopped <- r.stop() }()
		if patient {
			for err := error(nil); status.Code(err) != codes.Unavailable; {
				_, err = c.EmptyCall(t.Context(), &pb.Empty{}) // refused by the table until the drain begins
			}
			select {
			case err := <-stopped:
				t.Fatalf("stopped with a call under way: %v", err)
			default:
			}
			close(finish)
		}
		if err := <-answered; patient != (err == nil) || !patient && status.Code(err) != codes.Canceled {
			t.Errorf("patient %v: %v", patient, err)
		}
		if err := <-stopped; err != nil {
			t.Errorf("patient %v: stop: %v", patient, err)
		}
	}
}
