package serve_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/test/bufconn"

	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/serve"
)

// The goal is that chain takes at most 1.4 times as long as bare.
func BenchmarkUnary(b *testing.B) {
	b.Run("bare", func(b *testing.B) {
		l, err := net.Listen("unix", filepath.Join(b.TempDir(), "s"))
		if err != nil {
			b.Fatal(err)
		}
		s := grpc.NewServer(grpc.NumStreamWorkers(2))
		pb.RegisterTestServiceServer(s, &service{})
		go func() { _ = s.Serve(l) }()
		defer s.Stop()
		cc, err := grpc.NewClient("unix://"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			b.Fatal(err)
		}
		defer cc.Close()
		ping(b, cc)
	})
	b.Run("bare-bufconn", func(b *testing.B) {
		l := bufconn.Listen(1 << 20)
		s := grpc.NewServer(grpc.NumStreamWorkers(2))
		pb.RegisterTestServiceServer(s, &service{})
		go func() { _ = s.Serve(l) }()
		defer s.Stop()
		cc, err := grpc.NewClient("passthrough:x", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
		if err != nil {
			b.Fatal(err)
		}
		defer cc.Close()
		ping(b, cc)
	})
	b.Run("chain", func(b *testing.B) {
		r := start(b, &service{}, func(o *serve.Options) { o.Metrics = prometheus.NewRegistry() })
		ping(b, r.dial(b, nil))
	})
	b.Run("chain-service", func(b *testing.B) {
		r := start(b, &service{}, func(o *serve.Options) {
			o.Metrics = prometheus.NewRegistry()
			o.Policy[unaryCall] = serve.Allow().To("runner")
		})
		ping(b, r.dial(b, func(o *rpc.DialOptions) { o.As = rpc.Identity{Kind: rpc.Service, Name: "runner"} }))
	})
	b.Run("chain-direct", func(b *testing.B) { // compare with chain-service: docs/decisions/024
		_, _, near := beside(b, &service{}, func(o *serve.Options) { o.Metrics = prometheus.NewRegistry() })
		ping(b, near)
	})
}

func ping(b *testing.B, cc grpc.ClientConnInterface) {
	c := pb.NewTestServiceClient(cc)
	b.ReportAllocs()
	for b.Loop() {
		// Both sides with a deadline: no call of ours is without one.
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		if _, err := c.UnaryCall(ctx, &pb.SimpleRequest{}); err != nil {
			b.Fatal(err)
		}
		cancel()
	}
}

// BenchmarkStart is New until the first answer, on a fresh server.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		r := start(b, &service{}, nil)
		if _, err := pb.NewTestServiceClient(r.dial(b, nil)).UnaryCall(b.Context(), &pb.SimpleRequest{}); err != nil {
			b.Fatal(err)
		}
		if err := r.stop(); err != nil {
			b.Fatal(err)
		}
	}
}
