//go:build proof

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/balance"
	"github.com/theclaw/agents/internal/rpc/mtls"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// onPostgres tells whether a drill runs over PostgreSQL: STORE in the environment.
func onPostgres(t testing.TB) bool {
	t.Helper()
	switch s := os.Getenv("STORE"); s {
	case "", "sqlite":
		return false
	case "postgres":
		return true
	default:
		t.Fatalf("STORE=%s: it is sqlite or postgres", s)
		return false
	}
}

// server is one PostgreSQL for all clusters of a drill: each has a database of its own.
// It is not what is killed here, so it need not wait for a disk.
func server(t *testing.T) *pgtest.Cluster {
	t.Helper()
	return pgtest.Start(t, "fsync = off", "max_connections = 400")
}

// part is a process of a cluster, with what it is started again with.
type part struct {
	name, kind, home, address string
	*world.Process
}

// cluster is two registries over one database, four runners and two deliverers: each a
// process with a home of its own, that reach each other by TCP with mTLS alone.
type cluster struct {
	*world.Site // the home of the first registry, and a client of whichever is there
	program     world.Program
	root, dsn   string
	parts       []*part
	fallen      chan *world.Process // that have ended
}

func newCluster(t *testing.T, dsn string) *cluster {
	t.Helper()
	root := t.TempDir()
	c := &cluster{program: program(t), root: root, dsn: dsn, fallen: make(chan *world.Process, 1024)}
	c.Site = world.NewSite(t, c.program)
	authority, err := mtls.Init(filepath.Join(root, "tls"), "cluster.test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"owner", "registry"}
	for i, kind := range []string{"registry", "registry", "runner", "runner", "runner", "runner", "deliverer", "deliverer"} {
		p := &part{kind: kind, name: kind, home: filepath.Join(root, fmt.Sprint(kind, i))}
		if i == 0 {
			p.home = c.Home
		}
		if kind != "registry" {
			p.name = fmt.Sprintf("%s-%d", kind, i)
			names = append(names, p.name)
		}
		c.parts = append(c.parts, p)
	}
	for _, name := range names {
		if _, err := authority.Issue(name, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	c.start(t, c.parts[0])
	c.start(t, c.parts[1])
	var g sync.WaitGroup
	for _, p := range c.parts[2:] {
		g.Go(func() { c.start(t, p) })
	}
	g.Wait()
	c.Client = world.NewClient(c.dialAs(t, "owner", c.registries()), nil)
	return c
}

// start starts a process, again where it was.
func (c *cluster) start(t *testing.T, p *part) {
	t.Helper()
	if err := os.MkdirAll(p.home, 0o700); err != nil {
		t.Fatal(err)
	}
	listen := "127.0.0.1:0"
	if p.address != "" && p.kind == "registry" {
		listen = p.address
	}
	args := append([]string{p.kind, "--listen", listen, "--tls", filepath.Join(c.root, "tls")}, flags...)
	if p.kind == "registry" {
		args = append(args, "--dsn", c.dsn)
	} else {
		args = append(args, "--name", p.name, "--registry", c.registries())
	}
	run := c.program
	run.Env = append(slices.Clone(run.Env), "THECLAW_HOME="+p.home, traps+"="+c.trapsDir())
	q := run.Start(t, args...)
	p.Process = q
	go func() {
		<-q.Done()
		c.fallen <- q
	}()
	if p.kind == "registry" {
		q.Says("serving with TLS")
		m := addressRule.FindStringSubmatch(q.Log())
		if m == nil {
			t.Fatalf("no address in the log:\n%s", q.Log())
		}
		p.address = m[1]
	}
}

func (c *cluster) registries() string {
	return "dns:///" + c.parts[0].address + ",dns:///" + c.parts[1].address
}

// dialAs connects with somebody's certificate to one registry or to whichever is there.
func (c *cluster) dialAs(t *testing.T, name, target string) *grpc.ClientConn {
	t.Helper()
	own, err := mtls.Open(filepath.Join(c.root, "tls"), name, nil)
	if err != nil {
		t.Fatal(err)
	}
	cc, err := balance.Dial(target, rpc.DialOptions{
		Creds: mtls.Client(own, "registry"), WaitForReady: true, DefaultTimeout: 2 * time.Minute, // a registry that is stopped is found out after half a minute
		Safe: append([]string{registryv1.ThreadService_PushEvents_FullMethodName}, safe...),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// of are the processes of a kind.
func (c *cluster) of(kind string) (out []*part) {
	for _, p := range c.parts {
		if p.kind == kind {
			out = append(out, p)
		}
	}
	return out
}

// load is messages to this cluster.
func (c *cluster) load(mode string) *load {
	l := &load{site: c.Site, mode: mode, dsn: c.dsn}
	for _, p := range c.of("runner") {
		l.homes = append(l.homes, p.home)
	}
	return l
}

func (c *cluster) trapsDir() string { return filepath.Join(c.root, "traps") }

// trap makes the hit-th process that passes a label from now on kill itself, or stop.
func (c *cluster) trap(t *testing.T, label string, hit int, what string) {
	t.Helper()
	c.clear(t, label)
	made := filepath.Join(c.root, "trap")
	names := []string{what}
	for i := 1; i < hit; i++ {
		names = append(names, fmt.Sprint(i))
	}
	for _, dir := range []string{made, c.trapsDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(made, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(made, filepath.Join(c.trapsDir(), label)); err != nil {
		t.Fatal(err)
	}
}

// clear takes a trap away and tells whether it has caught somebody.
func (c *cluster) clear(t *testing.T, label string) (caught bool) {
	t.Helper()
	at := filepath.Join(c.trapsDir(), label)
	names, err := os.ReadDir(at)
	if err != nil {
		return false
	}
	caught = true
	for _, n := range names {
		if err := os.Remove(filepath.Join(at, n.Name())); err == nil && (n.Name() == "kill" || n.Name() == "stop") {
			caught = false
		}
	}
	if err := os.RemoveAll(at); err != nil {
		t.Fatal(err)
	}
	return caught
}

// caught is who stands in a trap; nil: nobody does yet.
func (c *cluster) caught(label string) *part {
	pid, err := os.ReadFile(filepath.Join(c.trapsDir(), label+".pid"))
	i := slices.IndexFunc(c.parts, func(p *part) bool { return err == nil && strconv.Itoa(p.Pid()) == string(pid) })
	if i < 0 {
		return nil
	}
	return c.parts[i]
}

// whose is the part that a process is, or was until it was started again.
func (c *cluster) whose(q *world.Process) *part {
	i := slices.IndexFunc(c.parts, func(p *part) bool { return p.Process == q })
	if i < 0 {
		return nil
	}
	return c.parts[i]
}

// holder is the process that a lease names.
func (c *cluster) holder(id string) *part {
	i := slices.IndexFunc(c.parts, func(p *part) bool { return id == p.name || strings.HasPrefix(id, p.name+"-") })
	return c.parts[i]
}

// logs are the last words of all.
func (c *cluster) logs() string {
	var b strings.Builder
	for _, p := range c.parts {
		log := p.Log()
		fmt.Fprintf(&b, "\n%s:\n%s", p.name, log[max(0, len(log)-4000):])
	}
	return b.String()
}

// kill ends all of it.
func (c *cluster) kill() {
	for i := len(c.parts) - 1; i >= 0; i-- {
		c.parts[i].Kill()
	}
}
