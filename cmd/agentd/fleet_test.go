//go:build proof

package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/mtls"
	"github.com/theclaw/agents/internal/testing/world"
)

// fleet is the three services as on three machines: each a process with a home of
// its own, of another user where we may, that reach each other by TCP alone.
type fleet struct {
	*world.Site // the registry's home
	program     world.Program
	authority   *mtls.Authority
	address     map[string]string // of a service
	homes       map[string]string
	owner       *mtls.Store
}

// users are who runs what; the registry is the test's own user.
// fleetServices are the services of a fleet: nothing is posted to it.
var fleetServices = []string{"registry", "runner", "deliverer"}

var users = map[string]uint32{"runner": 65532, "deliverer": 65533}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{program: program(t), address: map[string]string{}, homes: map[string]string{}}
	if os.Geteuid() == 0 {
		f.program.Path = reachable(t, f.program.Path)
	}
	f.Site = world.NewSite(t, f.program)
	f.homes["registry"] = f.Home
	var err error
	if f.authority, err = mtls.Init(filepath.Join(f.Home, "tls"), "fleet.test", time.Hour); err != nil {
		t.Fatal(err)
	}
	f.issue(t, "owner", "registry")
	for _, name := range []string{"runner", "deliverer"} {
		f.homes[name] = f.newHome(t, name)
		f.issue(t, name)
	}
	if f.owner, err = mtls.Open(f.authority.Dir(), "owner", nil); err != nil {
		t.Fatal(err)
	}
	return f
}

// reachable copies the program to where other users can start it.
func reachable(t *testing.T, path string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "theclaw-fleet")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(filepath.Join(dir, "agentd"), os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = io.Copy(out, in); errors.Join(err, out.Close(), os.Chmod(dir, 0o755)) != nil {
		t.Fatal(err)
	}
	return out.Name()
}

func (f *fleet) newHome(t *testing.T, name string) string {
	t.Helper()
	home, err := os.MkdirTemp("", "theclaw-"+name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	f.give(t, name, home)
	return home
}

// give makes a file that of the user of a service.
func (f *fleet) give(t *testing.T, name, path string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	if err := os.Chown(path, int(users[name]), int(users[name])); err != nil {
		t.Fatal(err)
	}
}

// issue makes certificates and copies those of other homes there, as a person
// would: beside it, and renamed.
func (f *fleet) issue(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := f.authority.Issue(name, time.Hour); err != nil {
			t.Fatal(err)
		}
		home := f.homes[name]
		if home == "" || home == f.Home {
			continue
		}
		dir := filepath.Join(home, "tls")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		f.give(t, name, dir)
		for _, file := range []string{"ca.pem", name + ".pem"} {
			b, err := os.ReadFile(filepath.Join(f.authority.Dir(), file))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "new"), b, 0o600); err != nil {
				t.Fatal(err)
			}
			f.give(t, name, filepath.Join(dir, "new"))
			if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, file)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

var addressRule = regexp.MustCompile(`msg="serving with TLS".* address=([0-9.:]+)`)

// start starts a service and learns its TCP address; the registry keeps the one it
// had.
func (f *fleet) start(t *testing.T, name string) *world.Process {
	t.Helper()
	listen := strings.TrimPrefix(f.address[name], "dns:///")
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	p := f.program
	p.Env = append(slices.Clone(p.Env), "THECLAW_HOME="+f.homes[name], "HOME="+f.homes[name])
	args := append([]string{name, "--listen", listen}, flags...)
	if name != "registry" {
		args = append(args, "--registry", f.address["registry"])
		if os.Geteuid() == 0 {
			p.User = &syscall.Credential{Uid: users[name], Gid: users[name], NoSetGroups: false}
		}
	}
	r := p.Start(t, args...)
	r.Says("serving with TLS")
	m := addressRule.FindStringSubmatch(r.Log())
	if m == nil {
		t.Fatalf("no address in the log:\n%s", r.Log())
	}
	f.address[name] = "dns:///" + m[1]
	return r
}

// dial connects to a service with a certificate of ours.
func (f *fleet) dial(t testing.TB, service string) *grpc.ClientConn {
	t.Helper()
	cc, err := rpc.Dial(f.address[service], rpc.DialOptions{Creds: mtls.Client(f.owner, service), WaitForReady: true, DefaultTimeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}
