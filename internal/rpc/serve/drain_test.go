package serve_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/serve"
)

// RELIABILITY "Drain", in order: NOT_SERVING and the drain signal, no new call,
// the running one ends well, then the server is gone and so is its socket.
func TestDrainOrder(t *testing.T) {
	entered, finish := make(chan struct{}), make(chan struct{})
	var r *running
	atDrain := make(chan healthpb.HealthCheckResponse_ServingStatus, 1)
	present := func() healthpb.HealthCheckResponse_ServingStatus {
		resp, err := serve.Health(r.server).Check(context.Background(), &healthpb.HealthCheckRequest{Service: "grpc.testing.TestService"})
		if err != nil {
			t.Error(err)
		}
		return resp.GetStatus()
	}
	svc := &service{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		close(entered)
		<-rpc.Draining(ctx)
		atDrain <- present()
		<-finish
		return &pb.SimpleResponse{Username: "done"}, ctx.Err()
	}}
	r = start(t, svc, func(o *serve.Options) {
		o.Policy[outCall] = serve.Rule{Kinds: []rpc.Kind{rpc.Owner}, EndOnDrain: true}
	})
	cc := r.dial(t, nil)
	c := pb.NewTestServiceClient(cc)
	watch, err := healthpb.NewHealthClient(cc).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := watch.Recv(); err != nil || m.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("before: %v %v", m, err)
	}
	type answer struct {
		resp *pb.SimpleResponse
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		resp, err := c.UnaryCall(t.Context(), &pb.SimpleRequest{})
		answered <- answer{resp, err}
	}()
	<-entered
	stopped := make(chan error, 1)
	go func() { stopped <- r.stop() }()
	if s := <-atDrain; s != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("at the drain signal health was %v", s)
	}
	for { // the watch hears of it and ends, and does not hold the drain up
		m, err := watch.Recv()
		if err == nil && m.GetStatus() == healthpb.HealthCheckResponse_NOT_SERVING {
			continue
		}
		if !fault.Is(err, fault.ServiceUnavailable) {
			t.Errorf("watch: %v %v", m, err)
		}
		break
	}
	select {
	case err := <-stopped:
		t.Fatalf("stopped under a running call: %v", err)
	default:
	}
	fresh := pb.NewTestServiceClient(r.dial(t, nil))
	if _, err := fresh.EmptyCall(t.Context(), &pb.Empty{}); status.Code(err) != codes.Unavailable {
		t.Errorf("a new call while draining: %v", err)
	}
	close(finish)
	if a := <-answered; a.err != nil || a.resp.GetUsername() != "done" {
		t.Errorf("the running call: %v", a.err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("stop: %v", err)
	}
	if _, err := os.Lstat(strings.TrimPrefix(r.addr, "unix://")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("socket after the drain: %v", err)
	}
}

// A call that does not end is ended when the grace is over, or at once on Abort.
func TestDrainIsBounded(t *testing.T) {
	for name, abort := range map[string]bool{"grace": false, "abort": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				entered := make(chan struct{})
				hurry := make(chan struct{})
				r, c := inMemory(t, &service{output: func(_ *pb.StreamingOutputCallRequest, s grpc.ServerStreamingServer[pb.StreamingOutputCallResponse]) error {
					close(entered)
					<-s.Context().Done()
					return s.Context().Err()
				}}, func(o *serve.Options) { o.Abort = hurry })
				s, err := c.StreamingOutputCall(t.Context(), &pb.StreamingOutputCallRequest{})
				if err != nil {
					t.Fatal(err)
				}
				<-entered
				if abort {
					close(hurry)
				}
				began := time.Now()
				if err := r.stop(); err != nil {
					t.Error(err)
				}
				want := 30 * time.Second
				if abort {
					want = 0
				}
				if d := time.Since(began); d != want { // fake clock: exact
					t.Errorf("drain took %v, want %v", d, want)
				}
				if _, err := s.Recv(); err == nil {
					t.Error("the call went on")
				}
			})
		})
	}
}

// A handler that ignores its context does not hold the exit up for ever.
func TestAStuckHandlerIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entered, release, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		svc := &service{unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			close(entered)
			<-release
			return &pb.SimpleResponse{}, nil
		}}
		l := bufconn.Listen(1 << 10)
		s, err := serve.New(serve.Options{
			Listener: l, Insecure: true, Policy: policy(), Grace: -1,
			Services: []serve.Registrar{func(g grpc.ServiceRegistrar) { pb.RegisterTestServiceServer(g, svc) }},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { ended <- s.Run(ctx) }()
		cc, err := rpc.Dial("passthrough:///memory", rpc.DialOptions{
			Insecure: true,
			Dialer:   func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer cc.Close()
		answered := make(chan error, 1)
		go func() {
			_, err := pb.NewTestServiceClient(cc).UnaryCall(t.Context(), &pb.SimpleRequest{})
			answered <- err
		}()
		<-entered
		cancel()
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "does not end") {
			t.Errorf("Run = %v", err)
		}
		if err := <-answered; err == nil {
			t.Error("the cut call succeeded")
		}
		close(release)
	})
}
