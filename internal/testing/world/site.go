package world

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/theclaw/agents/internal/rpc"
)

// Site is a home whose services are processes, which a test starts, stops and
// kills one by one. Its Client waits for a service that is being restarted.
type Site struct {
	Client
	Home string

	program Program
}

// NewSite makes a home without any process in it.
func NewSite(t testing.TB, p Program) *Site {
	t.Helper()
	s := &Site{Home: filepath.Join(t.TempDir(), "home"), program: p}
	s.Client = NewClient(s.Dial(t, "registry", rpc.Identity{}), s.Dial(t, "runner", rpc.Identity{}))
	return s
}

// Socket is where a service listens.
func (s *Site) Socket(name string) string { return filepath.Join(s.Home, "run", name+".sock") }

// Dial connects to a service of this home, now or when it is there. The token
// is read again after each restart.
func (s *Site) Dial(t testing.TB, name string, as rpc.Identity) *grpc.ClientConn {
	t.Helper()
	conn, err := rpc.Dial("unix://"+s.Socket(name), rpc.DialOptions{
		TokenPath: filepath.Join(s.Home, "run", "token"), As: as, WaitForReady: true, Dialer: dial, DefaultTimeout: patience,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// dial waits for a listener. gRPC's own waits grow to seconds, which is right
// for a service and wrong for a test that restarts one a hundred times; nothing
// tells when a socket is bound, so it is tried at growing distances.
func dial(ctx context.Context, target string) (net.Conn, error) {
	path := "/" + strings.TrimLeft(strings.TrimPrefix(target, "unix:"), "/")
	for wait := time.Millisecond; ; wait = min(2*wait, 16*time.Millisecond) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		if err == nil || !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ENOENT) {
			return conn, err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, err
		}
	}
}

// Start starts `agentd args...` on this home and waits for nothing.
func (s *Site) Start(t testing.TB, args ...string) *Process {
	t.Helper()
	return s.StartWith(t, nil, args...)
}

// StartWith is Start with more environment.
func (s *Site) StartWith(t testing.TB, env []string, args ...string) *Process {
	t.Helper()
	p := s.program
	p.Env = append(append([]string{"THECLAW_HOME=" + s.Home}, p.Env...), env...)
	return p.Start(t, args...)
}

// Serving waits until the named services say that they serve, or the process
// ends.
func (s *Site) Serving(t testing.TB, p *Process, names ...string) {
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
	for _, name := range names {
		conn := s.Dial(t, name, rpc.Identity{})
		for {
			r, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
			if err == nil && r.GetStatus() == healthpb.HealthCheckResponse_SERVING {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("%s does not serve (%v); its log:\n%s", name, err, p.Log())
			}
		}
		_ = conn.Close()
	}
}

// Again repeats a call for as long as its error says that the service was not
// there, that it was asked with the token of an earlier start, or that it was
// interrupted. Calls are made so that this is safe: pushes carry a key.
func Again[R any](ctx context.Context, call func(context.Context) (R, error)) (R, error) {
	for {
		r, err := call(ctx)
		switch status.Code(err) {
		case codes.Unavailable, codes.Unauthenticated, codes.Canceled:
			if ctx.Err() == nil {
				continue
			}
		default:
		}
		return r, err
	}
}
