// Package topology starts the services in the shapes in which they run end to end, so that
// one suite can be run in each of them:
//
//	embedded  `agentd all`: one process, its sockets
//	split     registry, runner and deliverer: three processes of three Unix users, each
//	          with a home of its own, over TCP with mTLS (needs root)
//	cluster   two registries over one PostgreSQL, four runners and two deliverers: eight
//	          processes with a home each, over TCP with mTLS
//
// It promises that every process is the real program, that nothing but TCP with TLS 1.3
// connects what is not in one process, and that the operator of split is a fourth user,
// who has a client certificate and can open no file of the services. Each site has its own
// network below 127.0.0.0/8, so that sites can run at the same time.
//
// It knows no test and injects no faults: a part is a process that a test may stop, kill
// and start again.
package topology

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/theclaw/agents/internal/rpc/mtls"
	"github.com/theclaw/agents/internal/testing/need"
	"github.com/theclaw/agents/internal/testing/world"
)

// Kind is one of the shapes.
type Kind string

// The shapes there are.
const (
	Embedded Kind = "embedded"
	Split    Kind = "split"
	Cluster  Kind = "cluster"
)

// Chosen is the shape that the variable TOPOLOGY names, embedded without it. The test is
// skipped where that shape cannot be had.
func Chosen(t testing.TB) Kind {
	t.Helper()
	k := Kind(cmp.Or(os.Getenv("TOPOLOGY"), string(Embedded)))
	k.Check(t)
	return k
}

// Check skips the test where this shape cannot be had.
func (k Kind) Check(t testing.TB) {
	t.Helper()
	switch {
	case !slices.Contains([]Kind{Embedded, Split, Cluster}, k):
		t.Fatalf("there is no topology %q: use embedded, split or cluster", k)
	case k == Split:
		need.Root(t) // its services run as users of their own
	case k == Cluster:
		need.Postgres(t)
	}
}

// The users of split; cluster and embedded run as the test does.
const (
	registryUser  = 65531
	runnerUser    = 65532
	delivererUser = 65533
	operatorUser  = 65534
)

// Options are what a site is made of.
type Options struct {
	Kind     Kind
	Programs string   // directory of agentd, agent and agentctl; split: others can read it
	Root     string   // directory for what is not a registry's home; split: others can pass it
	Env      []string // more environment of every process
	Flags    []string // more flags of every process
	Database string   // of cluster
}

// Part is one process of a site.
type Part struct {
	Service string // all, registry, runner, or deliverer
	Name    string // of its certificate and in leases
	Home    string
	Address string // dns:///host:port; all has none
	TLS     string // directory of its certificate
	// Programs is the directory of its agentd where that is another than the site's: a
	// test sets it before the part starts.
	Programs string
	*world.Process

	user uint32 // 0: the test's own
}

// Site is the processes of one shape. Parts are in the order of starting.
type Site struct {
	Parts []*Part

	o         Options
	authority *mtls.Authority
	operator  *Part // no process: a person
}

// New makes a site whose first registry has the given home. Nothing is started.
func New(t testing.TB, home string, o Options) *Site {
	t.Helper()
	o.Kind.Check(t)
	s := &Site{o: o}
	add := func(service, name, home string, user uint32) {
		p := &Part{Service: service, Name: name, Home: home, TLS: filepath.Join(o.Root, name+".tls"), user: user}
		if home == "" {
			p.Home = filepath.Join(o.Root, name)
		}
		s.Parts = append(s.Parts, p)
	}
	switch o.Kind {
	case Embedded:
		add("all", "all", home, 0)
		return s
	case Split:
		add("registry", "registry", home, registryUser)
		add("runner", "runner", "", runnerUser)
		add("deliverer", "deliverer", "", delivererUser)
		s.operator = &Part{Service: "owner", Name: "owner", Home: filepath.Join(o.Root, "operator"), TLS: filepath.Join(o.Root, "operator", "tls"), user: operatorUser}
	case Cluster:
		add("registry", "registry", home, 0)
		add("registry", "registry", filepath.Join(o.Root, "registry-2"), 0)
		for _, name := range []string{"runner-1", "runner-2", "runner-3", "runner-4", "deliverer-1", "deliverer-2"} {
			service, _, _ := strings.Cut(name, "-")
			add(service, name, "", 0)
		}
		s.operator = &Part{Service: "owner", Name: "owner", Home: filepath.Join(o.Root, "operator"), TLS: filepath.Join(o.Root, "operator", "tls")}
	}
	check(t, os.MkdirAll(o.Root, 0o755))
	s.addresses(t)
	s.certificates(t)
	return s
}

// Move gives the first registry another home, and cluster another database. It is for
// when nothing runs.
func (s *Site) Move(home, database string) {
	s.Parts[0].Home, s.o.Database = home, database
}

// Own gives what a test has made in the home of the first registry to its user.
func (s *Site) Own(t testing.TB, path string) {
	t.Helper()
	s.Parts[0].own(t, path)
}

// Up starts every part, the registries first, and returns when all of them serve.
func (s *Site) Up(t testing.TB) {
	t.Helper()
	s.configure(t)
	workers := slices.IndexFunc(s.Parts, func(p *Part) bool { return p.Service == "runner" || p.Service == "deliverer" })
	if workers < 0 {
		workers = len(s.Parts)
	}
	for _, group := range [][]*Part{s.Parts[:workers], s.Parts[workers:]} {
		for _, p := range group {
			s.Start(t, p)
		}
		for _, p := range group {
			s.Serving(t, p)
		}
	}
}

// Down ends every part that runs, the last first, and waits for its end. It answers the
// logs of those that did not end well.
func (s *Site) Down() (bad string) {
	for _, p := range slices.Backward(s.Parts) {
		if p.Process == nil {
			continue
		}
		p.Signal(syscall.SIGTERM)
		if code := p.Exit(); code != 0 {
			bad += fmt.Sprintf("%s ended with %d:\n%s", p.Name, code, p.Log())
		}
		p.Process = nil
	}
	return bad
}

// Start starts a part, again as well, and waits for nothing.
func (s *Site) Start(t testing.TB, p *Part) {
	t.Helper()
	args := append([]string{p.Service}, s.o.Flags...)
	if p.Address != "" {
		args = append(args, "--listen", strings.TrimPrefix(p.Address, "dns:///"), "--tls", p.TLS)
	}
	if p.Service == "runner" || p.Service == "deliverer" {
		args = append(args, "--registry", s.Target("registry"))
		if p.Name != p.Service {
			args = append(args, "--name", p.Name)
		}
	}
	dir := cmp.Or(p.Programs, s.o.Programs)
	program := world.Program{
		Path: filepath.Join(dir, "agentd"),
		Env:  append([]string{"THECLAW_HOME=" + p.Home, "HOME=" + p.Home, "PATH=" + dir + ":" + os.Getenv("PATH")}, s.o.Env...),
	}
	if p.user != 0 {
		program.User = &syscall.Credential{Uid: p.user, Gid: p.user}
	}
	p.Process = program.Start(t, args...)
}

// Target is where a service is: of registries all of them, of workers the first. It is
// empty when that is a socket in the home.
func (s *Site) Target(service string) string {
	var all []string
	for _, p := range s.Parts {
		if p.Service == service && (service == "registry" || len(all) == 0) {
			all = append(all, p.Address)
		}
	}
	return strings.Join(all, ",")
}

// Flags are what the operator gives to agentctl.
func (s *Site) Flags() []string {
	if s.operator == nil {
		return nil
	}
	return []string{
		"--registry", s.Target("registry"), "--deliverer", s.Target("deliverer"), "--tls", s.operator.TLS,
	}
}
