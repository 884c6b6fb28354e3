package serve_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/mtls"
	"github.com/theclaw/agents/internal/rpc/serve"
)

// authority makes one with a certificate for each name.
func authority(t testing.TB, domain string, life time.Duration, names ...string) (dir string, a *mtls.Authority) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "tls")
	a, err := mtls.Init(dir, domain, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if _, err := a.Issue(name, life); err != nil {
			t.Fatal(err)
		}
	}
	return dir, a
}

func certificate(t testing.TB, dir, name string) *mtls.Store {
	t.Helper()
	s, err := mtls.Open(dir, name, func(err error) { t.Logf("%s: %v", name, err) })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// onTCP serves svc as the registry of dir; refused gets what was refused.
func onTCP(t testing.TB, svc *service, dir string, refused func(net.Addr, error)) *running {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &running{addr: "dns:///" + l.Addr().String(), log: new(logBuffer)}
	p := policy()
	p[unaryCall] = serve.Allow(rpc.Owner).To("runner")
	r.serve(t, svc, func(o *serve.Options) {
		o.Addr, o.Listener, o.Policy = "", l, p
		o.Creds = mtls.Server(certificate(t, dir, "registry"), refused)
	})
	return r
}

func call(t testing.TB, addr string, creds credentials.TransportCredentials) error {
	t.Helper()
	cc, err := rpc.Dial(addr, rpc.DialOptions{Creds: creds})
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	_, err = pb.NewTestServiceClient(cc).UnaryCall(t.Context(), &pb.SimpleRequest{})
	return err
}

// join makes the authorities of dirs one bundle in the first of them.
func join(t testing.TB, dirs ...string) {
	t.Helper()
	var all []byte
	for _, d := range dirs {
		b, err := os.ReadFile(filepath.Join(d, "ca.pem"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	if err := os.WriteFile(filepath.Join(dirs[0], "ca.pem"), all, 0o600); err != nil {
		t.Fatal(err)
	}
}

// S1, S3: on TCP nobody gets in but who shows a certificate of our authority, of
// our domain, in its time, with the name of a caller that the rule has; and each
// refusal says why.
func TestTCPRefusesEveryWrongCertificate(t *testing.T) {
	life := time.Hour
	ours, a := authority(t, "one.test", life, "registry", "runner", "runner-2", "deliverer", "owner")
	elsewhere, _ := authority(t, "two.test", life, "registry", "runner")
	join(t, ours, elsewhere)                             // trusted, and yet of another domain
	join(t, elsewhere, ours)                             // so that its client trusts our server
	alone, _ := authority(t, "one.test", life, "runner") // does not know our authority
	svc := &service{}
	var mu sync.Mutex
	var told []string
	r := onTCP(t, svc, ours, func(_ net.Addr, err error) { mu.Lock(); told = append(told, err.Error()); mu.Unlock() })
	store := func(dir, name string) credentials.TransportCredentials {
		return mtls.Client(certificate(t, dir, name), "registry")
	}

	for name, creds := range map[string]credentials.TransportCredentials{
		"runner": store(ours, "runner"), "runner-2": store(ours, "runner-2"), "owner": store(ours, "owner"),
	} {
		if err := call(t, r.addr, creds); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	let := svc.calls.Load()

	// One that ends while the client does not look at it: the server has to.
	if _, err := a.Issue("deliverer-9", -time.Minute); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		creds credentials.TransportCredentials
		code  codes.Code
		want  string
	}{
		{"another service", store(ours, "deliverer"), codes.PermissionDenied, "this service may not"},
		{"the registry itself", store(ours, "registry"), codes.PermissionDenied, "this service may not"},
		{"wrong domain", store(elsewhere, "runner"), codes.Unavailable, "not the registry of two.test"},
		{"ended, and we know", store(ours, "deliverer-9"), codes.Unavailable, "our certificate spiffe://one.test/deliverer-9 ended"},
		{"unknown server", store(alone, "runner"), codes.Unavailable, "the server's certificate"},
		{"not who we meant", mtls.Client(certificate(t, ours, "runner"), "deliverer"), codes.Unavailable, "the server is spiffe://one.test/registry"},
		{"plaintext", insecure.NewCredentials(), codes.Unavailable, ""},
	} {
		err := call(t, r.addr, c.creds)
		if status.Code(err) != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %v with %q", c.name, err, c.code, c.want)
		}
	}
	if n := svc.calls.Load(); n != let {
		t.Errorf("%d calls of wrong callers reached the service", n-let)
	}
	// Public methods are not for strangers on TCP either.
	cc, err := rpc.Dial(r.addr, rpc.DialOptions{Creds: insecure.NewCredentials()})
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	if _, err := healthpb.NewHealthClient(cc).Check(t.Context(), &healthpb.HealthCheckRequest{}); err == nil {
		t.Error("health in plaintext")
	}
	mu.Lock()
	defer mu.Unlock()
	if !strings.Contains(strings.Join(told, "\n"), "first record does not look like a TLS handshake") {
		t.Errorf("the server was told of %q", told)
	}
}

// S1: what the server itself refuses: a caller that skips all checks of its own.
func TestTCPServerChecksForItself(t *testing.T) {
	ours, a := authority(t, "one.test", time.Hour, "registry", "runner")
	if _, err := a.Issue("runner-9", -time.Minute); err != nil {
		t.Fatal(err)
	}
	strange, _ := authority(t, "one.test", time.Hour, "runner")
	elsewhere, _ := authority(t, "two.test", time.Hour, "runner")
	join(t, ours, elsewhere)
	svc := &service{}
	r := onTCP(t, svc, ours, nil)
	for _, c := range []struct {
		name, dir, cert string
		code            codes.Code
		want            string
	}{
		{"expired", ours, "runner-9", codes.Unavailable, "expired certificate"},
		{"of another authority", strange, "runner", codes.Unavailable, "unknown certificate authority"},
		{"of another domain", elsewhere, "runner", codes.Unauthenticated, "is not of the trust domain one.test"},
		{"none", "", "", codes.Unavailable, "certificate required"},
	} {
		// A client of TLS 1.3 may be writing already when it is refused; then it sees
		// the connection break before it reads why.
		err := call(t, r.addr, careless(t, c.dir, c.cert))
		for tries := 0; tries < 50 && status.Code(err) == codes.Unavailable && !strings.Contains(err.Error(), c.want); tries++ {
			err = call(t, r.addr, careless(t, c.dir, c.cert))
		}
		if status.Code(err) != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %v with %q", c.name, err, c.code, c.want)
		}
		if explained := mtls.Explain(err); c.code == codes.Unavailable && (explained == nil || !strings.Contains(fault.Line(explained), " - ")) {
			t.Errorf("%s: explained as %v", c.name, explained)
		}
	}
	if err := call(t, r.addr, careless(t, ours, "runner")); err != nil || svc.calls.Load() != 1 {
		t.Errorf("a right one: %v, %d calls", err, svc.calls.Load())
	}
}

// Certificates, and then the whole authority, are replaced again and again while
// calls are made on connections that are kept and on new ones: none fails.
func TestCertificatesRotateUnderLoad(t *testing.T) {
	dir, a := authority(t, "one.test", time.Hour, "registry", "runner")
	svc := &service{}
	r := onTCP(t, svc, dir, func(from net.Addr, err error) { t.Errorf("refused %v: %v", from, err) })
	client := certificate(t, dir, "runner")
	ctx, stop := context.WithCancel(t.Context())
	var g sync.WaitGroup
	var calls, fresh atomic.Int64
	connected := make(chan struct{})
	defer func() { stop(); g.Wait() }()
	dial := func() (*grpc.ClientConn, pb.TestServiceClient) {
		cc, err := rpc.Dial(r.addr, rpc.DialOptions{Creds: mtls.Client(client, "registry")})
		if err != nil {
			t.Error(err)
		}
		return cc, pb.NewTestServiceClient(cc)
	}
	for range 4 {
		g.Go(func() {
			cc, kept := dial()
			defer cc.Close()
			for ctx.Err() == nil {
				if _, err := kept.UnaryCall(t.Context(), &pb.SimpleRequest{}); err != nil {
					t.Errorf("call on a kept connection: %v", err)
					return
				}
				calls.Add(1)
			}
		})
	}
	for range 2 {
		g.Go(func() {
			for ctx.Err() == nil {
				cc, c := dial()
				_, err := c.UnaryCall(t.Context(), &pb.SimpleRequest{})
				_ = cc.Close()
				if err != nil {
					t.Errorf("call on a new connection: %v", err)
					return
				}
				fresh.Add(1)
				select {
				case connected <- struct{}{}:
				case <-ctx.Done():
				}
			}
		})
	}
	before := client.Certificate().SerialNumber
	for i := range 20 {
		if i%5 == 4 {
			if err := a.Renew(time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"registry", "runner"} {
			if _, err := a.Issue(name, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		for range 4 { // some of them begun after the rotation
			select {
			case <-connected:
			case <-time.After(30 * time.Second):
				t.Fatal("no new connection comes about")
			}
		}
	}
	stop()
	g.Wait()
	if client.Certificate().SerialNumber.Cmp(before) == 0 {
		t.Error("the client still shows its first certificate")
	}
	t.Logf("%d calls on kept connections, %d on new ones, 20 rotations, 4 of them of the authority", calls.Load(), fresh.Load())
}
