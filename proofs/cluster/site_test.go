// Package cluster_test owns the proof of the promises among several machines: two
// registries over one PostgreSQL, four runners and two deliverers, each a process with a
// home of its own, that reach each other by TCP with mTLS alone. While messages are on
// their way processes are killed, then the database is, then it fails over to a standby
// that acknowledges with it; each message must have its one account, and each reply
// arrive.
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
	"github.com/theclaw/agents/internal/rpc/mtls"
	"github.com/theclaw/agents/internal/rpc/several"
	"github.com/theclaw/agents/internal/world"
	"github.com/theclaw/agents/proofs/program"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

func TestMain(m *testing.M) { program.Main(m) }

// part is a process, with what it is started again with.
type part struct {
	name, kind, home, address string
	*world.Process
}

// site is all of them.
type site struct {
	program world.Program
	root    string
	dsn     string
	parts   []*part
}

// newSite starts the processes over a database.
func newSite(t *testing.T, dsn string) *site {
	t.Helper()
	s := &site{program: program.Agentd(t), root: t.TempDir(), dsn: dsn}
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
	for i, kind := range []string{"registry", "registry", "runner", "runner", "runner", "runner", "deliverer", "deliverer"} {
		p := &part{kind: kind, name: kind, home: filepath.Join(s.root, fmt.Sprintf("%s%d", kind, i))}
		if kind != "registry" {
			p.name = fmt.Sprintf("%s-%d", kind, i)
			issue(p.name)
		}
		s.parts = append(s.parts, p)
		s.start(t, p)
	}
	return s
}

var addressRule = regexp.MustCompile(`msg="serving with TLS".* address=([0-9.:]+)`)

// start starts a process; one that was there before has the address it had.
func (s *site) start(t *testing.T, p *part) {
	t.Helper()
	if err := os.MkdirAll(p.home, 0o700); err != nil {
		t.Fatal(err)
	}
	listen := p.address
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	args := []string{p.kind, "--listen", listen, "--tls", filepath.Join(s.root, "tls"), "--lease-ttl", "2s"}
	if p.kind == "registry" {
		args = append(args, "--dsn", s.dsn)
	} else {
		args = append(args, "--name", p.name, "--registry", s.registries())
	}
	run := s.program
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
	owner, err := mtls.Open(filepath.Join(s.root, "tls"), "owner", nil)
	if err != nil {
		t.Fatal(err)
	}
	dial := func(target, service string) *grpc.ClientConn {
		cc, err := several.Dial(target, rpc.DialOptions{Creds: mtls.Client(owner, service), DefaultTimeout: 30 * time.Second, Safe: []string{
			registryv1.ThreadService_PushEvents_FullMethodName, registryv1.TurnService_GetTurn_FullMethodName,
			registryv1.ThreadService_PeekEvents_FullMethodName, registryv1.LeaseService_ListLeases_FullMethodName,
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cc.Close() })
		return cc
	}
	return world.NewClient(dial(s.registries(), "registry"), dial("dns:///"+s.parts[2].address, "runner"))
}
