//go:build proof

package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/balance"
	"github.com/theclaw/agents/internal/rpc/mtls"
	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/program"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

func TestMain(m *testing.M) { program.Main(m) }

// part is a process, with what it is started again with.
type part struct {
	name, kind, home, address string
	space                     string // its network namespace, if it has one
	*world.Process
}

// plan is what a site is made of.
type plan struct {
	dsn                             string
	registries, runners, deliverers int
	providers                       string // providers.yaml of the runners
	// place says where a process runs, if not on loopback: what it is started with, on
	// which address of its own, and what it is told that differs there.
	place func(p *part) (with []string, host string, flags []string)
}

// site is all of them.
type site struct {
	plan
	program world.Program
	root    string
	parts   []*part
}

// newSite starts the processes of the usual site over a database.
func newSite(t *testing.T, dsn string) *site {
	t.Helper()
	return build(t, plan{dsn: dsn, registries: 2, runners: 4, deliverers: 2})
}

// build starts the processes of a site.
func build(t *testing.T, p plan) *site {
	t.Helper()
	s := &site{plan: p, program: program.Agentd(t), root: t.TempDir()}
	authority, err := mtls.Init(filepath.Join(s.root, "tls"), "cluster.test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	issue := func(name string) {
		if _, err := authority.Issue(name, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	issue("owner")
	issue("registry")
	add := func(kind string, n int) {
		for range n {
			p := &part{kind: kind, name: kind, home: filepath.Join(s.root, fmt.Sprintf("%s%d", kind, len(s.parts)))}
			if kind != "registry" {
				p.name = fmt.Sprintf("%s-%d", kind, len(s.parts))
				issue(p.name)
			}
			s.parts = append(s.parts, p)
			s.start(t, p)
		}
	}
	add("registry", p.registries)
	add("runner", p.runners)
	add("deliverer", p.deliverers)
	return s
}

// of are the processes of a kind.
func (s *site) of(kind string) (out []*part) {
	for _, p := range s.parts {
		if p.kind == kind {
			out = append(out, p)
		}
	}
	return out
}

var addressRule = regexp.MustCompile(`msg="serving with TLS".* address=([0-9.:]+)`)

// start starts a process; one that was there before has the address it had.
func (s *site) start(t *testing.T, p *part) {
	t.Helper()
	if err := os.MkdirAll(p.home, 0o700); err != nil {
		t.Fatal(err)
	}
	if p.kind == "runner" && s.providers != "" {
		if err := os.WriteFile(filepath.Join(p.home, "providers.yaml"), []byte(s.providers), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run, host := s.program, "127.0.0.1"
	var with, more []string
	if s.place != nil {
		with, host, more = s.place(p)
	}
	listen := p.address
	if listen == "" {
		listen = host + ":0"
	}
	args := []string{p.kind, "--listen", listen, "--tls", filepath.Join(s.root, "tls"), "--lease-ttl", "2s"}
	if p.kind == "registry" {
		args = append(args, "--dsn", s.dsn)
	} else {
		args = append(args, "--name", p.name, "--registry", s.registries())
	}
	args = append(args, more...)
	if len(with) > 0 {
		args = append(append(with[1:len(with):len(with)], run.Path), args...)
		run.Path = with[0]
	}
	run.Env = append(append([]string{}, run.Env...), "THECLAW_HOME="+p.home)
	p.Process = run.Start(t, args...)
	if p.address == "" {
		p.Says("serving with TLS")
		p.address = addressRule.FindStringSubmatch(p.Log())[1]
	}
}

// registries is the target of all of them.
func (s *site) registries() string {
	var all []string
	for _, p := range s.parts {
		if p.kind == "registry" && p.address != "" {
			all = append(all, "dns:///"+p.address)
		}
	}
	return strings.Join(all, ",")
}

// client is what a user calls: whichever registry there is.
func (s *site) client(t *testing.T) world.Client {
	t.Helper()
	runner := "127.0.0.1:1" // nobody
	if all := s.of("runner"); len(all) > 0 {
		runner = all[0].address
	}
	return world.NewClient(s.dial(t, s.registries(), "registry"), s.dial(t, "dns:///"+runner, "runner"))
}

// dial connects the owner to a service.
func (s *site) dial(t *testing.T, target, service string) *grpc.ClientConn {
	t.Helper()
	return dialWith(t, target, s.options(t, service))
}

func dialWith(t *testing.T, target string, o rpc.DialOptions) *grpc.ClientConn {
	t.Helper()
	cc, err := balance.Dial(target, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// options are how the owner dials a service.
func (s *site) options(t *testing.T, service string) rpc.DialOptions {
	t.Helper()
	owner, err := mtls.Open(filepath.Join(s.root, "tls"), "owner", nil)
	if err != nil {
		t.Fatal(err)
	}
	return rpc.DialOptions{Creds: mtls.Client(owner, service), DefaultTimeout: 30 * time.Second, Safe: []string{
		registryv1.ThreadService_PushEvents_FullMethodName, registryv1.TurnService_GetTurn_FullMethodName,
		registryv1.ThreadService_PeekEvents_FullMethodName, registryv1.LeaseService_ListLeases_FullMethodName,
		registryv1.LeaseService_FindRunner_FullMethodName, registryv1.AgentService_GetAgent_FullMethodName,
	}}
}
