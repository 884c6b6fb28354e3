//go:build proof

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// S1, S3 and P1, P3: registry, runner and deliverer as three processes with homes
// and users of their own, over TCP with mTLS. Each of them is killed while messages
// are on their way, and their certificates and authority are replaced: every
// message has its one account, and each reply arrives.
func TestServicesOverTCP(t *testing.T) {
	f, sink := newFleet(t), world.NewSink(t)
	parts := map[string]*world.Process{}
	for _, name := range fleetServices {
		parts[name] = f.start(t, name)
	}
	f.Client = world.NewClient(f.dial(t, "registry"), f.dial(t, "runner"))
	l := &load{site: f.Site}
	for _, id := range []string{"a1", "a2", "a3"} {
		f.Create(t, id, sink.Config())
	}
	n := 0
	burst := func() {
		for _, id := range []string{"a1", "a2", "a3"} {
			for _, peer := range []string{"bob", "carol"} {
				for range 3 {
					n++
					l.send(t.Context(), &message{agent: id, peer: peer, n: n, kind: "echo"})
				}
			}
		}
	}
	burst()
	for _, name := range fleetServices {
		parts[name].Kill()
		parts[name] = f.start(t, name)
		if name == "runner" { // it has another port
			f.Client.Runner = world.NewClient(f.dial(t, "registry"), f.dial(t, "runner")).Runner
		}
		burst()
		if name == "deliverer" {
			if err := f.authority.Renew(time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		f.issue(t, "owner", "registry", "runner", "deliverer")
	}
	select {
	case <-l.done():
	case <-time.After(2 * time.Minute):
		t.Fatalf("messages do not come to their end; the runner's log:\n%s", parts["runner"].Log())
	}
	a := &audit{TB: t, load: l, sink: sink}
	a.check()
	// A tool runs in the runner's own home, and not in the registry's.
	turn := bob(t, f.Site, "run: pwd; id -u")()
	if text := f.Reply(t, turn); turn.GetFate() != registryv1.Fate_FATE_REPLIED || strings.Contains(text, f.Home) {
		t.Errorf("a tool over TCP: %v, %q", turn.GetFate(), text)
	}
	for name, home := range f.homes {
		if _, err := os.Stat(filepath.Join(home, "agents", "a1", "workdir")); (err == nil) != (name != "deliverer") {
			t.Errorf("the workdir in the home of the %s: %v", name, err)
		}
	}
	for name, p := range parts {
		p.Signal(syscall.SIGTERM)
		if code := p.Exit(); code != 0 {
			t.Errorf("%s ended with %d:\n%s", name, code, p.Log())
		}
	}
	t.Logf("%+v over TCP, three users: %v", a.figures, os.Geteuid() == 0)
}

// A worker without a certificate, with one of another service, or with one that
// has ended does not get to work, and says why.
func TestTCPRefusalsAreClear(t *testing.T) {
	f := newFleet(t)
	registry := f.start(t, "registry")
	refuse := func(name string, change func(), want string) {
		t.Helper()
		f.homes[name] = f.newHome(t, name)
		f.issue(t, name)
		change()
		p := f.program
		p.Env = append(slices.Clone(p.Env), "THECLAW_HOME="+f.homes[name], "HOME="+f.homes[name])
		if os.Geteuid() == 0 {
			p.User = &syscall.Credential{Uid: users[name], Gid: users[name]}
		}
		r := p.Start(t, append([]string{name, "--registry", f.address["registry"]}, flags...)...)
		r.Says(want)
		r.Kill()
	}
	file := func(name string) string { return filepath.Join(f.homes[name], "tls", name+".pem") }
	refuse("runner", func() { _ = os.Remove(file("runner")) }, "there is no certificate file")
	refuse("runner", func() { _ = os.Chmod(file("runner"), 0o644) }, "its mode is -rw-r--r-- - run chmod 600")
	refuse("runner", func() {
		b, err := os.ReadFile(filepath.Join(f.authority.Dir(), "deliverer.pem"))
		if err == nil {
			err = os.WriteFile(file("runner"), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}, "is the certificate of deliverer, not of runner")
	refuse("deliverer", func() {
		if _, err := f.authority.Issue("deliverer", -time.Minute); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(f.authority.Dir(), "deliverer.pem"))
		if err == nil {
			err = os.WriteFile(file("deliverer"), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}, "our certificate spiffe://fleet.test/deliverer ended")
	_ = registry
}

// The token is replaced again and again by command while people call and the
// services work: no call fails, and no lease is lost.
func TestTokenRotatesUnderLoad(t *testing.T) {
	site := world.NewSite(t, program(t))
	long := []string{"--lease-ttl", "6s", "--log-level", "debug"} // renewed twice in the four seconds, and not lost by a stall
	p := site.Start(t, append([]string{"all"}, long...)...)
	site.Serving(t, p, everything...)
	site.Create(t, "a1", "outbound: []")
	wait := bob(t, site, "slow: 3")
	var g sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	var calls atomic.Int64
	called := make(chan struct{})
	for range 3 {
		g.Go(func() {
			for ctx.Err() == nil {
				if _, err := site.Agents.ListAgents(t.Context(), &registryv1.ListAgentsRequest{}); err != nil {
					t.Errorf("call %d: %v", calls.Load(), err)
					return
				}
				calls.Add(1)
				select {
				case called <- struct{}{}:
				case <-ctx.Done():
				}
			}
		})
	}
	rotations := 0
	old, err := rpc.ReadToken(filepath.Join(site.Home, "run", "token"))
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end) && !t.Failed(); rotations++ {
		if _, err := rpc.NewToken(filepath.Join(site.Home, "run", "token")); err != nil {
			t.Fatal(err)
		}
		for range 6 {
			select {
			case <-called:
			case <-time.After(30 * time.Second):
				t.Fatal("no call comes back")
			}
		}
	}
	stop()
	g.Wait()
	replied(t, site, wait(), "waited 3")
	if strings.Contains(p.Log(), "lease lost") {
		t.Errorf("a lease was lost:\n%s", p.Log())
	}
	stale := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(stale, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	cc, err := rpc.Dial("unix://"+site.Socket("registry"), rpc.DialOptions{TokenPath: stale})
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	if _, err := registryv1.NewAgentServiceClient(cc).ListAgents(t.Context(), &registryv1.ListAgentsRequest{}); err == nil || !strings.Contains(err.Error(), "the token is not valid") {
		t.Errorf("with the token from before: %v", err)
	}
	t.Logf("%d calls while the token was rotated %d times", calls.Load(), rotations)
}

// A start listens at the address of the gateway on loopback alone, and with gateway.http off
// nowhere.
func TestDefaultStartListensOnLoopback(t *testing.T) {
	const gateway = "0100007F:4965" // 127.0.0.1:18789, as the kernel writes it
	for _, settings := range []string{"", "gateway: {http: off}\n"} {
		site := world.NewSite(t, program(t))
		if settings != "" {
			if err := os.MkdirAll(site.Home, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(site.Home, "theclaw.yaml"), []byte(settings), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		p := site.Start(t, "all")
		site.Serving(t, p, everything...)
		for _, line := range listening(t, p.Pid()) {
			// Another agentd of this machine may have the address: then there is none.
			if f := strings.Fields(line); settings != "" || f[1] != gateway {
				t.Errorf("%q: %s", settings, line)
			}
		}
	}
}

// listening are the rows of the kernel's tables for the sockets of a process that others can
// reach over the network.
func listening(t *testing.T, pid int) (rows []string) {
	t.Helper()
	ours := map[string]bool{}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(fds) == 0 {
		t.Fatal(fds, err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "socket:[") {
			ours[strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")] = true
		}
	}
	if len(ours) < len(everything) {
		t.Errorf("%d sockets are open, the services have one each", len(ours))
	}
	for _, table := range []string{"tcp", "tcp6", "udp", "udp6"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			continue // without IPv6
		}
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 9 && ours[f[9]] {
				rows = append(rows, line)
			}
		}
	}
	return rows
}
