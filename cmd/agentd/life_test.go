//go:build proof

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// say is the environment in which agentd tells that it is at a label.
func say(label string) []string { return []string{failpoint + "=" + label + ":1:say"} }

// bob sends one message to agent a1 and answers what follows it to its end. Its turn
// may kill the process before the push is answered; then the push is repeated by wait.
func bob(t *testing.T, site *world.Site, text string) (wait func() *registryv1.Turn) {
	t.Helper()
	key := rand.Text()
	push := func(ctx context.Context) (int64, error) { return site.Push(ctx, "a1", world.Peer("bob"), text, key) }
	id, err := push(t.Context())
	if err != nil && status.Code(err) != codes.Unavailable {
		t.Fatal(err)
	}
	return func() *registryv1.Turn {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if id == 0 {
			if id, err = world.Again(ctx, push); err != nil {
				t.Fatal(err)
			}
		}
		turn, err := (&load{site: site}).follow(ctx, &message{agent: "a1", id: id})
		if err != nil {
			t.Fatalf("%q comes to no end: %v %v", text, err, turn)
		}
		return turn
	}
}

// SIGTERM lets a running turn finish, gives the leases back and leaves no socket.
func TestDrain(t *testing.T) {
	site, sink := world.NewSite(t, program(t)), world.NewSink(t)
	p := site.StartWith(t, say("T3.before"), append([]string{"all"}, flags...)...)
	site.Serving(t, p, everything...)
	site.Create(t, "a1", sink.Config())
	wait := bob(t, site, "slow: 0.3")
	p.Says("failpoint T3.before")
	p.Signal(syscall.SIGTERM)
	if code := p.Exit(); code != 0 {
		t.Fatalf("exit %d; its log:\n%s", code, p.Log())
	}
	if !strings.Contains(p.Log(), "lease given back") {
		t.Errorf("no lease was given back:\n%s", p.Log())
	}
	for _, pattern := range []string{"*.sock", "holders/*"} {
		if left, err := filepath.Glob(filepath.Join(site.Home, "run", pattern)); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v %v", left, err)
		}
	}
	site.Start(t, append([]string{"all"}, flags...)...)
	turn := wait()
	replied(t, site, turn, "waited 0.3 s")
	if n := turn.GetCrashAttempts(); n > 1 {
		t.Errorf("the turn was begun %d times: the drain did not let it finish", n)
	}
}

// A second SIGTERM does not wait for anything.
func TestSecondSignalForces(t *testing.T) {
	site := world.NewSite(t, program(t))
	p := site.StartWith(t, say("T3.before"), append([]string{"all", "--grace", "10m"}, flags...)...)
	site.Serving(t, p, everything...)
	site.Create(t, "a1", "")
	bob(t, site, "slow: 600")
	p.Says("failpoint T3.before")
	p.Signal(syscall.SIGTERM)
	p.Says("draining")
	p.Signal(syscall.SIGTERM)
	if code := p.Exit(); code != 0 {
		t.Errorf("exit %d; its log:\n%s", code, p.Log())
	}
}

// A runner that is killed alone costs no ttl, and nothing is lost: the registry sees
// its lock go (S0-18).
func TestKilledRunnerFreesItsLeases(t *testing.T) {
	site := world.NewSite(t, program(t))
	long := []string{"--lease-ttl", "10m"}
	registry := site.Start(t, append([]string{"registry"}, long...)...)
	runner := site.StartWith(t, say("T3.before"), append([]string{"runner"}, long...)...)
	site.Serving(t, registry, "registry")
	site.Create(t, "a1", "outbound: []")
	wait := bob(t, site, "slow: 0.2")
	runner.Says("failpoint T3.before")
	runner.Kill()
	site.Start(t, append([]string{"runner"}, long...)...)
	replied(t, site, wait(), "waited 0.2 s")
	select {
	case <-registry.Done():
		t.Errorf("the registry ended with the runner:\n%s", registry.Log())
	default:
	}
}

// Workers outlive their registry: they keep their leases, read the new token and
// finish what they were at.
func TestRegistryRestart(t *testing.T) {
	site, sink := world.NewSite(t, program(t)), world.NewSink(t)
	args := []string{"--lease-ttl", "15s", "--log-level", "debug"}
	registry := site.Start(t, append([]string{"registry"}, args...)...)
	runner := site.StartWith(t, say("T3.before"), append([]string{"runner"}, args...)...)
	deliverer := site.Start(t, append([]string{"deliverer"}, args...)...)
	site.Serving(t, registry, "registry")
	site.Create(t, "a1", sink.Config())
	wait := bob(t, site, "slow: 0.3")
	runner.Says("failpoint T3.before")
	token := leaseToken(t, site, "agent/a1")
	registry.Kill()
	registry = site.Start(t, append([]string{"registry"}, args...)...)
	site.Serving(t, registry, "registry")
	turn := wait()
	replied(t, site, turn, "waited 0.3 s")
	if now := leaseToken(t, site, "agent/a1"); now != token {
		t.Errorf("the runner has the lease with token %d, it had %d", now, token)
	}
	if n := turn.GetCrashAttempts(); n > 1 {
		t.Errorf("the turn was begun %d times", n)
	}
	replied(t, site, bob(t, site, "say: after")(), "after")
	for _, p := range []*world.Process{runner, deliverer} {
		p.Signal(syscall.SIGTERM)
		if code := p.Exit(); code != 0 {
			t.Errorf("a worker ended with %d:\n%s", code, p.Log())
		}
	}
}

// A registry that is stopped for longer than a lease lasts: its workers let go of
// what they hold, and begin again when it goes on.
func TestStoppedRegistry(t *testing.T) {
	site, sink := world.NewSite(t, program(t)), world.NewSink(t)
	registry := site.Start(t, append([]string{"registry"}, flags...)...)
	runner := site.StartWith(t, say("T3.before"), append([]string{"runner"}, flags...)...)
	site.Start(t, append([]string{"deliverer"}, flags...)...)
	site.Serving(t, registry, "registry")
	site.Create(t, "a1", sink.Config())
	l := &load{site: site}
	l.send(t.Context(), &message{agent: "a1", peer: "bob", n: 1, kind: "run"}, &message{agent: "a1", peer: "carol", n: 2, kind: "echo"})
	runner.Says("failpoint T3.before")
	registry.Signal(syscall.SIGSTOP)
	runner.Says("lease lost")
	registry.Signal(syscall.SIGCONT)
	<-l.done()
	a := &audit{TB: t, load: l, sink: sink}
	a.check()
}

func leaseToken(t *testing.T, site *world.Site, resource string) uint64 {
	t.Helper()
	r, err := world.Again(t.Context(), func(ctx context.Context) (*registryv1.ListLeasesResponse, error) {
		return site.Leases.ListLeases(ctx, &registryv1.ListLeasesRequest{})
	})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(r.GetLeases(), func(l *registryv1.Lease) bool { return l.GetResource() == resource })
	if i < 0 {
		t.Fatalf("nobody holds %s: %v", resource, r.GetLeases())
	}
	return r.GetLeases()[i].GetToken()
}

// One home has one registry; a second start says whose it is.
func TestSecondStartNamesTheFirst(t *testing.T) {
	site := world.NewSite(t, program(t))
	p := site.Start(t, "all")
	site.Serving(t, p, everything...)
	second := site.Start(t, "all")
	if code := second.Exit(); code != 1 || !strings.Contains(second.Log(), fmt.Sprintf("(pid %d)", p.Pid())) {
		t.Errorf("exit %d, %q; want 1 and the pid %d", code, second.Log(), p.Pid())
	}
	site.Create(t, "a1", "outbound: []") // the first one is not disturbed
	replied(t, site, bob(t, site, "say: still here")(), "still here")
}

// Several runners share a home under names of their own.
func TestNames(t *testing.T) {
	for _, args := range [][]string{{"all", "--name", "runner-2"}, {"registry", "--name", "registry-2"}, {"runner", "--name", "deliverer-2"}, {"runner", "--name", "runner-../x"}} {
		site := world.NewSite(t, program(t))
		if code := site.Start(t, args...).Exit(); code == 0 {
			t.Errorf("%v is taken", args)
		}
	}
}

// kill -9 in the middle of a tool leaves no process behind.
func TestNoChildOutlivesAgentd(t *testing.T) {
	site := world.NewSite(t, program(t))
	p := site.StartWith(t, say("T5.before"), append([]string{"all"}, flags...)...)
	site.Serving(t, p, everything...)
	site.Create(t, "a1", "")
	bob(t, site, "run: touch begun; sleep 600 & sleep 601")
	p.Says("failpoint T5.before")
	var children []world.Child
	sleeps := func(c world.Child) bool { return c.Name == "sleep" }
	for end := time.Now().Add(time.Minute); ; { // a program in a sandbox has nobody to tell
		if children = p.Children(); slices.ContainsFunc(children, sleeps) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the tool does not run: %v\n%s", children, p.Log())
		}
		<-time.After(5 * time.Millisecond)
	}
	if _, err := os.Stat(filepath.Join(site.Home, "agents", "a1", "workdir", "begun")); err != nil {
		t.Errorf("the tool works elsewhere: %v", err)
	}
	children = p.Children()
	p.Kill()
	world.Gone(t, children)
	t.Logf("%d processes ended with agentd", len(children))
}
