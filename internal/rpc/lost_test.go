package rpc_test

import (
	"context"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/theclaw/agents/internal/rpc"
)

// lostServer ends the connection of its first call when the caller has the head of the answer and no more.
type lostServer struct {
	healthpb.UnimplementedHealthServer
	net.Listener
	last  net.Conn
	begun chan struct{} // closed when the caller has the head
	calls atomic.Int32
}

func (s *lostServer) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	s.last = c
	return c, err
}

func (s *lostServer) Check(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if s.calls.Add(1) == 1 {
		if err := grpc.SendHeader(ctx, nil); err != nil {
			return nil, err
		}
		<-s.begun
		s.last.Close()
		<-ctx.Done()
	}
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
}

func (s *lostServer) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (s *lostServer) HandleRPC(_ context.Context, e stats.RPCStats) {
	if _, head := e.(*stats.InHeader); head && s.calls.Load() == 1 {
		close(s.begun)
	}
}

func (s *lostServer) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (s *lostServer) HandleConn(context.Context, stats.ConnStats) {}

// A server may be killed between the head of its answer and the rest. gRPC repeats no such call; one that may be
// repeated is, and any other one is not.
func TestAnswerCutAfterItsHead(t *testing.T) {
	for _, safe := range [][]string{{healthpb.Health_Check_FullMethodName}, nil} {
		socket := filepath.Join(t.TempDir(), "s")
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		s := &lostServer{Listener: l, begun: make(chan struct{})}
		served := grpc.NewServer()
		healthpb.RegisterHealthServer(served, s)
		go func() { _ = served.Serve(s) }()
		cc, err := rpc.Dial("unix://"+socket, rpc.DialOptions{Safe: safe, Stats: s})
		if err != nil {
			t.Fatal(err)
		}
		r, err := healthpb.NewHealthClient(cc).Check(t.Context(), &healthpb.HealthCheckRequest{})
		if safe != nil {
			if err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING || s.calls.Load() != 2 {
				t.Errorf("after %d calls: %v, %v", s.calls.Load(), r, err)
			}
		} else if status.Code(err) != codes.Unavailable || s.calls.Load() != 1 {
			t.Errorf("a call that may not be repeated: %d calls, %v", s.calls.Load(), err)
		}
		cc.Close()
		served.Stop()
	}
}
