package serve_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/test/bufconn"

	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/serve"
)

const (
	unaryCall = "/grpc.testing.TestService/UnaryCall"
	outCall   = "/grpc.testing.TestService/StreamingOutputCall"
	dupCall   = "/grpc.testing.TestService/FullDuplexCall"
)

// service answers with what the test puts into its fields.
type service struct {
	pb.UnimplementedTestServiceServer
	unary  func(ctx context.Context, req *pb.SimpleRequest) (*pb.SimpleResponse, error)
	output func(req *pb.StreamingOutputCallRequest, s grpc.ServerStreamingServer[pb.StreamingOutputCallResponse]) error
	calls  atomic.Int64
}

func (s *service) UnaryCall(ctx context.Context, req *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	s.calls.Add(1)
	if s.unary == nil {
		return &pb.SimpleResponse{}, nil
	}
	return s.unary(ctx, req)
}

func (s *service) StreamingOutputCall(req *pb.StreamingOutputCallRequest, out grpc.ServerStreamingServer[pb.StreamingOutputCallResponse]) error {
	s.calls.Add(1)
	if s.output == nil {
		return out.Send(&pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: []byte{byte(len(req.GetResponseParameters()))}}})
	}
	return s.output(req, out)
}

// policy gives every method of the test service to the owner.
func policy() serve.Policy {
	p := serve.Policy{}
	for _, m := range pb.TestService_ServiceDesc.Methods {
		p["/grpc.testing.TestService/"+m.MethodName] = serve.Allow(rpc.Owner)
	}
	for _, m := range pb.TestService_ServiceDesc.Streams {
		p["/grpc.testing.TestService/"+m.StreamName] = serve.Allow(rpc.Owner)
	}
	return p
}

// logBuffer is a log that may be read while it is written.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// running is a served test service.
type running struct {
	server    *serve.Server
	addr      string
	tokenPath string
	log       *logBuffer
	stop      func() error // drains and waits; idempotent
}

// start serves svc on a real Unix socket; change may adapt the options.
func start(t testing.TB, svc *service, change func(*serve.Options)) *running {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	r := &running{addr: "unix://" + filepath.Join(dir, "s.sock"), tokenPath: filepath.Join(filepath.Dir(dir), "token"), log: new(logBuffer)}
	token, err := rpc.NewToken(r.tokenPath)
	if err != nil {
		t.Fatal(err)
	}
	r.serve(t, svc, func(o *serve.Options) {
		o.Token = func() string { return token }
		if change != nil {
			change(o)
		}
	})
	return r
}

func (r *running) serve(t testing.TB, svc *service, change func(*serve.Options)) {
	t.Helper()
	o := serve.Options{
		Addr: r.addr, Policy: policy(), Logger: slog.New(slog.NewTextHandler(r.log, nil)),
		Services: []serve.Registrar{func(g grpc.ServiceRegistrar) { pb.RegisterTestServiceServer(g, svc) }},
	}
	change(&o)
	s, err := serve.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	r.server = s
	r.stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
}

// dial connects as the owner unless change says otherwise.
func (r *running) dial(t testing.TB, change func(*rpc.DialOptions)) *grpc.ClientConn {
	t.Helper()
	o := rpc.DialOptions{TokenPath: r.tokenPath, UserAgent: "test/1"}
	if change != nil {
		change(&o)
	}
	cc, err := rpc.Dial(r.addr, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// inMemory serves svc on a bufconn without a token and dials it; this works in a
// synctest bubble.
func inMemory(t testing.TB, svc *service, change func(*serve.Options)) (*running, pb.TestServiceClient) {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	r := &running{log: new(logBuffer)}
	r.serve(t, svc, func(o *serve.Options) {
		o.Listener, o.Insecure = l, true
		if change != nil {
			change(o)
		}
	})
	cc, err := rpc.Dial("passthrough:///memory", rpc.DialOptions{
		Insecure: true,
		Dialer:   func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return r, pb.NewTestServiceClient(cc)
}
