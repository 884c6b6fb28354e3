package serve_test

import (
	"context"
	"net"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/serve"
	"github.com/theclaw/agents/internal/testing/need"
)

// S3: a registered method without a rule stops the start and is named.
func TestNewRefusesAMethodWithoutARule(t *testing.T) {
	p := policy()
	delete(p, unaryCall)
	_, err := serve.New(serve.Options{
		Addr: "unix:///nonexistent/s", Policy: p, Token: func() string { return "t" },
		Services: []serve.Registrar{func(g grpc.ServiceRegistrar) { pb.RegisterTestServiceServer(g, &service{}) }},
	})
	if err == nil || !strings.Contains(err.Error(), unaryCall) {
		t.Errorf("err = %v", err)
	}
	if _, err := serve.New(serve.Options{Addr: "unix:///x/s"}); err == nil {
		t.Error("a server without a token was made")
	}
}

// S2, S3: every registered method x {no token, wrong token, wrong kind, the rule's
// kind}: nobody gets in but the last.
func TestEveryMethodRefusesEveryWrongCaller(t *testing.T) {
	svc := &service{}
	r := start(t, svc, nil)
	token, err := rpc.ReadToken(r.tokenPath)
	if err != nil {
		t.Fatal(err)
	}
	callers := []struct {
		name, auth string
		want       codes.Code
	}{
		{"no token", "", codes.Unauthenticated},
		{"wrong token", "Bearer " + strings.Repeat("0", 64), codes.Unauthenticated},
		{"wrong scheme", "Basic " + token, codes.Unauthenticated},
		{"bare token", token, codes.Unauthenticated},
		{"an agent", "Bearer " + rpc.Bearer(token, rpc.Identity{Kind: rpc.Agent, Name: "a1"}), codes.PermissionDenied},
		{"a service", "Bearer " + rpc.Bearer(token, rpc.Identity{Kind: rpc.Service, Name: "runner"}), codes.PermissionDenied},
	}
	cc := r.dial(t, func(o *rpc.DialOptions) { o.TokenPath = "" })
	walked := 0
	for name, info := range pb2info(t, r) {
		for _, m := range info {
			full := "/" + name + "/" + m
			if name == "grpc.health.v1.Health" {
				continue // public, see below
			}
			walked++
			for _, c := range callers {
				ctx := t.Context()
				if c.auth != "" {
					ctx = metadata.AppendToOutgoingContext(ctx, "authorization", c.auth)
				}
				if got := status.Code(anyCall(ctx, cc, full)); got != c.want {
					t.Errorf("%s as %s: %v, want %v", full, c.name, got, c.want)
				}
			}
		}
	}
	if walked < 8 || svc.calls.Load() != 0 {
		t.Errorf("walked %d methods, %d calls reached the service", walked, svc.calls.Load())
	}
	if _, err := pb.NewTestServiceClient(r.dial(t, nil)).UnaryCall(t.Context(), &pb.SimpleRequest{}); err != nil {
		t.Errorf("the owner: %v", err)
	}
	if _, err := healthpb.NewHealthClient(cc).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("health without a token: %v", err)
	}
}

// pb2info asks the running server, by reflection, what it serves.
func pb2info(t *testing.T, r *running) map[string][]string {
	t.Helper()
	s, err := reflectionpb.NewServerReflectionClient(r.dial(t, nil)).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.CloseSend() }()
	if err := s.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	resp, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	known := map[string]grpc.ServiceDesc{}
	for _, d := range []grpc.ServiceDesc{pb.TestService_ServiceDesc, healthpb.Health_ServiceDesc, reflectionpb.ServerReflection_ServiceDesc} {
		known[d.ServiceName] = d
	}
	for _, svc := range resp.GetListServicesResponse().GetService() {
		if strings.Contains(svc.GetName(), "v1alpha") {
			all[svc.GetName()] = []string{"ServerReflectionInfo"}
			continue
		}
		d, ok := known[svc.GetName()]
		if !ok {
			t.Fatalf("unknown service %s", svc.GetName())
		}
		for _, m := range d.Methods {
			all[svc.GetName()] = append(all[svc.GetName()], m.MethodName)
		}
		for _, m := range d.Streams {
			all[svc.GetName()] = append(all[svc.GetName()], m.StreamName)
		}
	}
	return all
}

// anyCall calls a method of any shape with an empty request; an empty message is
// readable as any other.
func anyCall(ctx context.Context, cc *grpc.ClientConn, method string) error {
	s, err := cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	_ = s.SendMsg(&emptypb.Empty{})
	_ = s.CloseSend()
	return s.RecvMsg(&emptypb.Empty{})
}

// SECURITY: a rule decides by kind, and the handler learns who calls.
func TestIdentityReachesTheHandler(t *testing.T) {
	var got rpc.Identity
	r := start(t, &service{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		got, _ = rpc.IdentityFrom(ctx)
		return &pb.SimpleResponse{}, nil
	}}, func(o *serve.Options) { o.Policy[unaryCall] = serve.Allow(rpc.Agent).To("runner") })
	for _, id := range []rpc.Identity{{Kind: rpc.Service, Name: "runner"}, {Kind: rpc.Agent, Name: "a1"}} {
		c := pb.NewTestServiceClient(r.dial(t, func(o *rpc.DialOptions) { o.As = id }))
		if _, err := c.UnaryCall(t.Context(), &pb.SimpleRequest{}); err != nil || got != id {
			t.Errorf("%v: handler saw %v, %v", id, got, err)
		}
	}
	_, err := pb.NewTestServiceClient(r.dial(t, nil)).UnaryCall(t.Context(), &pb.SimpleRequest{})
	if !fault.Is(err, fault.PermissionDenied) {
		t.Errorf("owner on a method of services: %v", err)
	}
}

// S2, S3: the right token in the hands of another user is worth nothing. The
// socket stands open here (abstract, no file mode) so that only the check is left.
func TestAnotherUserIsRefused(t *testing.T) {
	need.Root(t) // to become somebody else
	name := "@theclaw-test-" + strings.ReplaceAll(t.TempDir(), "/", "-")
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	svc := &service{}
	r := start(t, svc, func(o *serve.Options) { o.Listener = l })
	token, err := rpc.ReadToken(r.tokenPath)
	if err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[int]codes.Code{0: codes.OK, 65534: codes.PermissionDenied} {
		cc, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return dialAs(uid, name) }))
		if err != nil {
			t.Fatal(err)
		}
		defer cc.Close()
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
		if _, err := pb.NewTestServiceClient(cc).UnaryCall(ctx, &pb.SimpleRequest{}); status.Code(err) != want {
			t.Errorf("uid %d: %v, want %v", uid, err, want)
		}
		if _, err := healthpb.NewHealthClient(cc).Check(ctx, &healthpb.HealthCheckRequest{}); status.Code(err) != want {
			t.Errorf("uid %d, public method: %v, want %v", uid, err, want)
		}
	}
	if svc.calls.Load() != 1 {
		t.Errorf("%d calls reached the service", svc.calls.Load())
	}
}

// dialAs connects from a thread with another effective user id; the thread is
// not given back when it cannot return to its own.
func dialAs(uid int, name string) (net.Conn, error) {
	runtime.LockOSThread()
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); e != 0 {
		return nil, e
	}
	c, err := net.Dial("unix", name)
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), 0, ^uintptr(0)); e == 0 {
		runtime.UnlockOSThread()
	}
	return c, err
}

// The client does not show its token to a service of another user.
func TestClientRefusesAForeignServer(t *testing.T) {
	need.Root(t) // to become somebody else
	name := "@theclaw-foreign-" + strings.ReplaceAll(t.TempDir(), "/", "-")
	runtime.LockOSThread()
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), 65534, ^uintptr(0)); e != 0 {
		t.Fatal(e)
	}
	l, err := net.Listen("unix", name)
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), 0, ^uintptr(0)); e == 0 {
		runtime.UnlockOSThread()
	}
	if err != nil {
		t.Fatal(err)
	}
	svc := &service{}
	r := start(t, svc, func(o *serve.Options) { o.Listener = l })
	cc, err := rpc.Dial("unix-abstract:"+name[1:], rpc.DialOptions{TokenPath: r.tokenPath, Creds: rpc.PeerCredentials()})
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	_, err = pb.NewTestServiceClient(cc).UnaryCall(t.Context(), &pb.SimpleRequest{})
	if status.Code(err) != codes.Unavailable || svc.calls.Load() != 0 {
		t.Errorf("err = %v, %d calls", err, svc.calls.Load())
	}
}
