package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/balance"
	"github.com/theclaw/agents/internal/rpc/mtls"
	"github.com/theclaw/agents/internal/testing/world"
)

// site is processes over one database that reach each other by TCP with mTLS alone, as
// on machines of their own.
type site struct {
	r       *run
	agentd  string
	root    string
	dsn     string
	env     []string // beside that of this process
	ca      *mtls.Authority
	at      []string // addresses of the registries
	classes map[string][]*world.Process
}

func newSite(r *run, agentd, dsn string) *site {
	s := &site{r: r, agentd: agentd, root: r.TempDir(), dsn: dsn, classes: map[string][]*world.Process{}}
	var err error
	s.ca, err = mtls.Init(filepath.Join(s.root, "tls"), "bench.test", 24*time.Hour)
	r.check(err)
	for _, name := range []string{"owner", "registry"} {
		_, err := s.ca.Issue(name, 24*time.Hour)
		r.check(err)
	}
	return s
}

// start starts processes of a kind and waits until they serve; it answers how long the
// last one took.
func (s *site) start(kind string, n int) (took time.Duration) {
	for range n {
		i := len(s.classes[kind])
		name := kind
		if kind != "registry" {
			name = fmt.Sprintf("%s-%d", kind, i)
			_, err := s.ca.Issue(name, 24*time.Hour)
			s.r.check(err)
		}
		home, address := filepath.Join(s.root, fmt.Sprint(kind, i)), freeAddress(s.r)
		s.r.check(os.MkdirAll(home, 0o700))
		args := []string{kind, "--listen", address, "--tls", filepath.Join(s.root, "tls"), "--log-level", "error"}
		if kind == "registry" {
			args = append(args, "--dsn", s.dsn)
		} else {
			args = append(args, "--name", name, "--registry", s.registries())
		}
		begun := time.Now()
		p := world.Program{Path: s.agentd, Env: append(append(os.Environ(), "THECLAW_HOME="+home), s.env...)}.Start(s.r, args...)
		s.classes[kind] = append(s.classes[kind], p)
		s.serving(p, address, kind)
		took = time.Since(begun)
		if kind == "registry" {
			s.at = append(s.at, address)
		}
	}
	return took
}

// serving waits tightly: a connection's own backoff would be in the figure.
func (s *site) serving(p *world.Process, address, kind string) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		c := s.dial("dns:///"+address, kind)
		r, err := healthpb.NewHealthClient(c).Check(s.r.ctx, &healthpb.HealthCheckRequest{})
		_ = c.Close()
		if err == nil && r.GetStatus() == healthpb.HealthCheckResponse_SERVING {
			return
		}
		select {
		case <-p.Done():
			s.r.Fatalf("%s ended: %s", kind, p.Log())
		default:
		}
		if time.Now().After(end) {
			s.r.Fatalf("%s does not serve: %v\n%s", kind, err, p.Log())
		}
	}
}

func (s *site) dial(target, service string) *grpc.ClientConn {
	owner, err := mtls.Open(filepath.Join(s.root, "tls"), "owner", nil)
	s.r.check(err)
	c, err := balance.Dial(target, rpc.DialOptions{Creds: mtls.Client(owner, service), DefaultTimeout: time.Minute})
	s.r.check(err)
	return c
}

// registry dials one of them, all in turn with -1.
func (s *site) registry(i int) *grpc.ClientConn {
	target := s.registries()
	if i >= 0 {
		target = "dns:///" + s.at[i]
	}
	c := s.dial(target, "registry")
	s.r.Cleanup(func() { _ = c.Close() })
	return c
}

func (s *site) registries() string {
	all := make([]string, len(s.at))
	for i, a := range s.at {
		all[i] = "dns:///" + a
	}
	return strings.Join(all, ",")
}

// stop ends the processes of a kind.
func (s *site) stop(kind string) {
	for _, p := range s.classes[kind] {
		p.Kill()
	}
	s.classes[kind] = nil
	if kind == "registry" {
		s.at = nil
	}
}

// cpu is the processor time of the processes of a kind so far.
func (s *site) cpu(kind string) (sum time.Duration) {
	for _, p := range s.classes[kind] {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))
		s.r.check(err)
		f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		user, _ := strconv.ParseInt(f[11], 10, 64)
		system, _ := strconv.ParseInt(f[12], 10, 64)
		sum += time.Duration(user+system) * 10 * time.Millisecond
	}
	return sum
}

func freeAddress(r *run) string {
	l, err := (&net.ListenConfig{}).Listen(r.ctx, "tcp", "127.0.0.1:0")
	r.check(err)
	defer l.Close()
	return l.Addr().String()
}
