package topology

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/mtls"
	"github.com/theclaw/agents/internal/testing/need"
)

const (
	port     = "7443"
	patience = time.Minute // for a process to serve
	life     = time.Hour   // of a certificate
)

// addresses gives each part an address in a network that nobody else has: its last one
// is held for as long as the test runs.
func (s *Site) addresses(t testing.TB) {
	t.Helper()
	for range 100 {
		network := fmt.Sprintf("127.%d.%d.", 1+rand.IntN(254), rand.IntN(255))
		held, err := net.Listen("tcp", network+"254:"+port)
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = held.Close() })
		for i, p := range s.Parts {
			p.Address = "dns:///" + network + fmt.Sprint(i+1) + ":" + port
		}
		return
	}
	need.Missing(t, "a free network below 127.0.0.0/8", "run it on Linux, which has them without setting up")
}

// certificates makes the authority, which stays with the test, and a directory with a
// certificate for each part.
func (s *Site) certificates(t testing.TB) {
	t.Helper()
	var err error
	if s.authority, err = mtls.Init(filepath.Join(s.o.Root, "authority"), "e2e.test", life); err != nil {
		t.Fatal(err)
	}
	check(t, os.MkdirAll(s.operator.Home, 0o700))
	for _, p := range append(slices.Clone(s.Parts), s.operator) {
		check(t, os.MkdirAll(p.TLS, 0o700))
		p.own(t, p.TLS)
		s.Issue(t, p)
	}
	s.operator.own(t, s.operator.Home)
	// The operator's other account, on the machine of the registry.
	s.Issue(t, &Part{Name: s.operator.Name, TLS: s.Parts[0].TLS, user: s.Parts[0].user})
}

// Issue gives a part a new certificate, and what to trust.
func (s *Site) Issue(t testing.TB, p *Part) {
	t.Helper()
	_, err := s.authority.Issue(p.Name, life)
	check(t, err)
	s.copy(t, p, "ca.pem")
	s.copy(t, p, p.Name+".pem")
}

// Rotate gives every part and the operator a new certificate.
func (s *Site) Rotate(t testing.TB) {
	t.Helper()
	for _, p := range append(slices.Clone(s.Parts), s.operator) {
		s.Issue(t, p)
	}
}

// RotateAuthority replaces the authority and everything it has issued: first all trust the
// new one, then all show what it has issued, then all forget the one before.
func (s *Site) RotateAuthority(t testing.TB) {
	t.Helper()
	check(t, s.authority.Renew(life))
	s.trust(t)
	s.Rotate(t)
	check(t, s.authority.Retire())
	s.trust(t)
}

func (s *Site) trust(t testing.TB) {
	t.Helper()
	for _, p := range append(slices.Clone(s.Parts), s.operator) {
		s.copy(t, p, "ca.pem")
	}
}

// copy puts a file of the authority into the directory of a part, as a person would:
// beside the old one, and renamed.
func (s *Site) copy(t testing.TB, p *Part, file string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.authority.Dir(), file))
	check(t, err)
	beside := filepath.Join(p.TLS, "new")
	check(t, os.WriteFile(beside, b, 0o600))
	p.own(t, beside)
	check(t, os.Rename(beside, filepath.Join(p.TLS, file)))
}

// own makes a file or a tree that of the part's user.
func (p *Part) own(t testing.TB, root string) {
	t.Helper()
	if p.user == 0 {
		return
	}
	check(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(p.user), int(p.user))
	}))
}

// shared are the files that every home has of its own and that are kept the same.
var shared = []string{"providers.yaml"}

// configure prepares the homes for a start: what a test has put into the home of the first
// registry is its user's, and the files that all homes share are copied.
func (s *Site) configure(t testing.TB) {
	t.Helper()
	for i, p := range s.Parts {
		if s.o.Kind != Embedded {
			check(t, os.MkdirAll(p.Home, 0o700))
			check(t, os.Chmod(p.Home, 0o700))
		}
		if p.Service == "registry" && s.o.Kind == Cluster {
			check(t, os.WriteFile(filepath.Join(p.Home, "theclaw.yaml"), fmt.Appendf(nil, "storage:\n  engine: postgres\n  dsns: [%q]\n", s.o.Database), 0o600))
		}
		for _, name := range shared {
			b, err := os.ReadFile(filepath.Join(s.Parts[0].Home, name))
			if i > 0 && err == nil {
				check(t, os.WriteFile(filepath.Join(p.Home, name), b, 0o600))
			} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}
		p.own(t, p.Home)
	}
}

// Dial connects to a part as the operator, or to a service of `agentd all` as its owner.
// Calls wait for a connection.
func (s *Site) Dial(t testing.TB, p *Part, service string) *grpc.ClientConn {
	t.Helper()
	cc, err := s.dial(p, service, true)
	check(t, err)
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

func (s *Site) dial(p *Part, service string, wait bool) (*grpc.ClientConn, error) {
	o := rpc.DialOptions{WaitForReady: wait, DefaultTimeout: patience}
	if p.Address == "" {
		o.TokenPath = filepath.Join(p.Home, "run", "token")
		return rpc.Dial("unix://"+filepath.Join(p.Home, "run", service+".sock"), o)
	}
	owner, err := mtls.Open(s.operator.TLS, s.operator.Name, nil)
	if err != nil {
		return nil, err
	}
	o.Creds = mtls.Client(owner, service)
	return rpc.Dial(p.Address, o)
}

// Ask makes a connection of its own to a part and asks it whether it serves. Nothing is
// tried twice.
func (s *Site) Ask(ctx context.Context, p *Part) error {
	cc, err := s.dial(p, p.Service, false)
	if err != nil {
		return err
	}
	r, err := healthpb.NewHealthClient(cc).Check(ctx, &healthpb.HealthCheckRequest{})
	if err == nil && r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		err = fmt.Errorf("%s is %v", p.Name, r.GetStatus())
	}
	return errors.Join(err, cc.Close())
}

// Serving returns when a part says that it serves.
func (s *Site) Serving(t testing.TB, p *Part) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() {
		select {
		case <-p.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	services := []string{p.Service}
	if p.Service == "all" {
		services = []string{"registry", "runner", "deliverer"}
	}
	for _, service := range services {
		if err := serves(ctx, s.Dial(t, p, service)); err != nil {
			t.Fatalf("%s does not serve (%v); its log:\n%s", p.Name, err, p.Log())
		}
	}
}

func serves(ctx context.Context, cc *grpc.ClientConn) error {
	defer func() { _ = cc.Close() }()
	watch, err := healthpb.NewHealthClient(cc).Watch(ctx, &healthpb.HealthCheckRequest{})
	for err == nil {
		var r *healthpb.HealthCheckResponse
		if r, err = watch.Recv(); err == nil && r.GetStatus() == healthpb.HealthCheckResponse_SERVING {
			return nil
		}
	}
	return err
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
