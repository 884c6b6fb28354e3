package serve_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/serve"
	"github.com/theclaw/agents/internal/rpc/socket"
)

func TestServeRefusesASocketInUse(t *testing.T) {
	r := start(t, &service{}, nil)
	_, err := serve.New(serve.Options{Addr: r.addr, Token: func() string { return "t" }})
	if !errors.Is(err, socket.ErrInUse) {
		t.Errorf("err = %v", err)
	}
	if _, err := pb.NewTestServiceClient(r.dial(t, nil)).UnaryCall(t.Context(), &pb.SimpleRequest{}); err != nil {
		t.Errorf("the first server: %v", err)
	}
}

func TestCloseWithoutRunGivesTheSocketBack(t *testing.T) {
	o := serve.Options{Addr: "unix://" + t.TempDir() + "/run/s", Token: func() string { return "t" }}
	for range 2 {
		s, err := serve.New(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// UNAUTHENTICATED after a rotation means re-read the token. The
// server restarts with a new token under a client that stays connected.
func TestClientFollowsARotatedToken(t *testing.T) {
	svc := &service{}
	r := start(t, svc, nil)
	cc := r.dial(t, func(o *rpc.DialOptions) { o.WaitForReady = true })
	as := r.dial(t, func(o *rpc.DialOptions) {
		o.WaitForReady, o.As = true, rpc.Identity{Kind: rpc.Service, Name: "runner"}
	})
	c := pb.NewTestServiceClient(cc)
	if _, err := c.UnaryCall(t.Context(), &pb.SimpleRequest{}); err != nil {
		t.Fatal(err)
	}
	restart := func() {
		t.Helper()
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		token, err := rpc.NewToken(r.tokenPath)
		if err != nil {
			t.Fatal(err)
		}
		r.serve(t, svc, func(o *serve.Options) {
			o.Token = func() string { return token }
			o.Policy[outCall] = serve.Allow(rpc.Owner).To("runner")
		})
	}
	before := svc.calls.Load()
	restart()
	if _, err := c.UnaryCall(t.Context(), &pb.SimpleRequest{}); err != nil {
		t.Errorf("unary after the rotation: %v", err)
	}
	restart()
	for name, client := range map[string]pb.TestServiceClient{"owner": c, "service": pb.NewTestServiceClient(as)} {
		s, err := client.StreamingOutputCall(t.Context(), &pb.StreamingOutputCallRequest{ResponseParameters: make([]*pb.ResponseParameters, 3)})
		if err != nil {
			t.Fatal(err)
		}
		if m, err := s.Recv(); err != nil || m.GetPayload().GetBody()[0] != 3 {
			t.Errorf("%s: stream after the rotation: %v %v", name, m, err)
		}
		if _, err := s.Recv(); err != io.EOF {
			t.Errorf("%s: end of stream: %v", name, err)
		}
	}
	if n := svc.calls.Load() - before; n != 3 {
		t.Errorf("%d calls reached the service, want 3", n)
	}
}

// A token that is simply wrong is tried once, not for ever.
func TestAWrongTokenIsNotRepeated(t *testing.T) {
	r := start(t, &service{}, nil)
	if _, err := rpc.NewToken(r.tokenPath); err != nil { // the server knows another one
		t.Fatal(err)
	}
	c := pb.NewTestServiceClient(r.dial(t, nil))
	if _, err := c.UnaryCall(t.Context(), &pb.SimpleRequest{}); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("unary: %v", err)
	}
	s, err := c.StreamingOutputCall(t.Context(), &pb.StreamingOutputCallRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("stream: %v", err)
	}
	if err := os.Chmod(r.tokenPath, 0o644); err != nil {
		t.Fatal(err)
	}
	c = pb.NewTestServiceClient(r.dial(t, nil))
	if _, err := c.UnaryCall(t.Context(), &pb.SimpleRequest{}); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "0600") {
		t.Errorf("a readable token file: %v", err)
	}
}

// Only what the caller names as safe is repeated on UNAVAILABLE.
func TestRetryOnlySafeMethods(t *testing.T) {
	svc := &service{}
	svc.unary = func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		if svc.calls.Load()%3 != 0 {
			return nil, fault.New(codes.Unavailable, fault.ServiceUnavailable, "not now", "")
		}
		return &pb.SimpleResponse{}, nil
	}
	r := start(t, svc, nil)
	safe := pb.NewTestServiceClient(r.dial(t, func(o *rpc.DialOptions) { o.Safe = []string{unaryCall} }))
	if _, err := safe.UnaryCall(t.Context(), &pb.SimpleRequest{}); err != nil || svc.calls.Load() != 3 {
		t.Errorf("safe: %v after %d calls", err, svc.calls.Load())
	}
	if _, err := pb.NewTestServiceClient(r.dial(t, nil)).UnaryCall(t.Context(), &pb.SimpleRequest{}); !fault.Is(err, fault.ServiceUnavailable) || svc.calls.Load() != 4 {
		t.Errorf("not safe: %v after %d calls", err, svc.calls.Load())
	}
}

func TestFenceAndRequestIDReachTheHandler(t *testing.T) {
	r := start(t, &service{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		resource, token, holder, ok := rpc.FenceFrom(ctx)
		if !ok || resource != "agent/a1" || token != 7 || holder != "runner-1" || rpc.RequestID(ctx) != "r-9" {
			return nil, fault.New(codes.FailedPrecondition, fault.LeaseLost, "wrong fence", "")
		}
		return &pb.SimpleResponse{}, nil
	}}, nil)
	ctx := rpc.WithFence(rpc.WithCall(t.Context(), &rpc.Call{RequestID: "r-9"}), "agent/a1", 7, "runner-1")
	if _, err := pb.NewTestServiceClient(r.dial(t, nil)).UnaryCall(ctx, &pb.SimpleRequest{}); err != nil {
		t.Error(err)
	}
}

// An in-memory or TCP listener is for tests: there is no peer to ask.
func TestOtherListenersNeedInsecure(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := serve.New(serve.Options{Listener: l, Token: func() string { return "t" }}); err == nil {
		t.Error("TCP without TLS was served")
	}
	_, c := inMemory(t, &service{}, nil)
	if _, err := c.UnaryCall(t.Context(), &pb.SimpleRequest{}); err != nil {
		t.Errorf("bufconn: %v", err)
	}
}
