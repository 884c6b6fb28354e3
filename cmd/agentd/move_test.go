//go:build proof

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/invariant/repair"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/testing/world"
	delivererv1 "github.com/theclaw/agents/proto/gen/theclaw/deliverer/v1"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// journey is an agent that goes from one home to another.
type journey struct {
	t        *testing.T
	from, to *world.Site
	sink     *world.Sink
	p        *world.Process    // agentd of from
	settled  map[string]bool   // texts that were answered and delivered before
	head     int64             // of the inbox then
	tokens   map[string]uint64 // of leases then
}

// set out lets a1 answer three peers, twice, over several lives of its services, so
// that its tokens are high, and deliver all of it.
func setOut(t *testing.T) *journey {
	j := &journey{t: t, from: world.NewSite(t, program(t)), to: world.NewSite(t, program(t)), sink: world.NewSink(t), settled: map[string]bool{}, tokens: map[string]uint64{}}
	for life := range 3 {
		j.p = j.serve(j.from)
		if life == 0 {
			j.from.Create(t, "a1", j.sink.Config())
		}
		for _, peer := range []string{"p0", "p1", "p2"} {
			text := fmt.Sprintf("life %d of %s", life, peer)
			turn := j.from.Say(t, "a1", world.Peer(peer), "say: "+text)
			replied(t, j.from, turn, text)
			j.drain(j.from, turn.GetThreadId())
			j.settled[text], j.head = true, turn.GetInboxId()
		}
		if life < 2 {
			j.p.Kill()
		}
	}
	r, err := j.from.Leases.ListLeases(t.Context(), &registryv1.ListLeasesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range r.GetLeases() {
		j.tokens[l.GetResource()] = l.GetToken()
	}
	if j.tokens["agent/a1"] < 3 || len(j.sink.Arrivals("a1")) != len(j.settled) {
		t.Fatalf("tokens %v, %d of %d delivered", j.tokens, len(j.sink.Arrivals("a1")), len(j.settled))
	}
	return j
}

func (j *journey) serve(s *world.Site) *world.Process {
	j.t.Helper()
	p := s.Start(j.t, append([]string{"all"}, flags...)...)
	s.Serving(j.t, p, everything...)
	return p
}

// drain returns when everything in a thread is delivered.
func (j *journey) drain(s *world.Site, thread string) {
	j.t.Helper()
	conn := s.Dial(j.t, "deliverer", rpc.Identity{})
	var err error
	for range 20 { // where the processor is elsewhere for a second, the lease is lost in between
		_, err = world.Again(j.t.Context(), func(ctx context.Context) (*delivererv1.DeliverBatchResponse, error) {
			return delivererv1.NewDelivererServiceClient(conn).DeliverBatch(ctx, &delivererv1.DeliverBatchRequest{AgentId: "a1", ThreadId: thread})
		})
		if status.Code(err) != codes.Aborted {
			break
		}
	}
	if err != nil {
		j.t.Fatal(err)
	}
}

// tar copies the agent's directory as it lies there.
func (j *journey) tar() {
	j.t.Helper()
	if err := os.MkdirAll(filepath.Join(j.to.Home, "agents"), 0o700); err != nil {
		j.t.Fatal(err)
	}
	c := exec.Command("/bin/sh", "-c", `tar -C "$1" -cf - a1 2>/dev/null | tar -C "$2" -xpf -`, "sh", filepath.Join(j.from.Home, "agents"), filepath.Join(j.to.Home, "agents"))
	if out, err := c.CombinedOutput(); err != nil {
		j.t.Fatalf("%v: %s", err, out)
	}
}

func (j *journey) move() {
	j.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Join(j.to.Home, "agents"), 0o700), os.Rename(filepath.Join(j.from.Home, "agents", "a1"), filepath.Join(j.to.Home, "agents", "a1"))); err != nil {
		j.t.Fatal(err)
	}
}

// arrive lets the agent go on in the other home: what was answered stays answered,
// new messages get new ids and are answered and delivered once, tokens rise.
func (j *journey) arrive() {
	t := j.t
	t.Helper()
	if _, err := j.to.Agents.StartAgent(t.Context(), &registryv1.StartAgentRequest{AgentId: "a1"}); err != nil {
		t.Logf("started already: %v", err)
	}
	for _, e := range j.to.Events(t, "a1", "inbox", "") {
		if turn := j.to.Await(t, "a1", e.GetId()); turn.GetFate() != registryv1.Fate_FATE_REPLIED {
			t.Errorf("event %d: %v", e.GetId(), turn)
		}
		j.head = max(j.head, e.GetId())
	}
	fresh := map[string]bool{}
	for _, peer := range []string{"p0", "somebody new"} {
		text := "arrived, " + peer
		turn := j.to.Say(t, "a1", world.Peer(peer), "say: "+text)
		replied(t, j.to, turn, text)
		if turn.GetInboxId() <= j.head {
			t.Errorf("id %d was handed out again (last %d)", turn.GetInboxId(), j.head)
		}
		fresh[text] = true
	}
	for resource, was := range j.tokens {
		if now := leaseToken(t, j.to, resource); now != 0 && now <= was {
			t.Errorf("%s: token %d, it was %d before", resource, now, was)
		}
	}
	threads, err := j.to.Threads.ListThreads(t.Context(), &registryv1.ListThreadsRequest{AgentId: "a1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range threads.GetThreadIds() {
		j.drain(j.to, id)
		answers := map[string]int{}
		for _, e := range j.to.Events(t, "a1", id, "source = 'self' AND type = 'message'") {
			if answers[world.Text(e)]++; answers[world.Text(e)] > 1 {
				t.Errorf("%s: %q is answered again", id, world.Text(e))
			}
		}
	}
	times := map[string]int{}
	for _, a := range j.sink.Arrivals("a1") {
		times[a.Text]++
	}
	for text := range j.settled {
		if times[text] != 1 {
			t.Errorf("%q arrived %d times", text, times[text])
		}
	}
	for text := range fresh {
		if times[text] != 1 {
			t.Errorf("%q arrived %d times", text, times[text])
		}
	}
}

// sound stops the services and checks the files.
func (j *journey) sound(p *world.Process) {
	j.t.Helper()
	p.Signal(syscall.SIGTERM)
	p.Exit()
	found, _, err := invariant.Check(j.t.Context(), layout.At(j.to.Home), invariant.Options{})
	if err != nil {
		j.t.Fatal(err)
	}
	for _, f := range found {
		j.t.Error(f)
	}
}

// soon is more than the first reply in a new home takes, and less than the idle lease that
// the old home may still have.
const soon = 5 * time.Second

// A1, I6, RELIABILITY 3: an agent's directory depends on nothing outside of it. Copied
// or moved to another home it works there at once.
func TestMoved(t *testing.T) {
	for name, go1 := range map[string]func(j *journey){
		"copied, services stopped": func(j *journey) { j.p.Signal(syscall.SIGTERM); j.p.Exit(); j.tar() },
		"copied, agent stopped": func(j *journey) {
			if _, err := j.from.Agents.StopAgent(j.t.Context(), &registryv1.StopAgentRequest{AgentId: "a1"}); err != nil {
				j.t.Fatal(err)
			}
			j.tar()
		},
		"moved": func(j *journey) { j.p.Signal(syscall.SIGTERM); j.p.Exit(); j.move() },
		"moved at once, agent stopped, services alive": func(j *journey) {
			if _, err := j.from.Agents.StopAgent(j.t.Context(), &registryv1.StopAgentRequest{AgentId: "a1"}); err != nil {
				j.t.Fatal(err)
			}
			lock := filepath.Join(j.from.Home, "agents", "a1", "run.lock")
			if _, err := os.Lstat(lock); !errors.Is(err, os.ErrNotExist) {
				j.t.Errorf("the agent is stopped, and %s is there: %v", lock, err)
			}
			j.move()
		},
		"moved at once, services alive": func(j *journey) { j.move() },
		"moved after a kill -9":         func(j *journey) { j.p.Kill(); j.move() },
	} {
		t.Run(name, func(t *testing.T) {
			j := setOut(t)
			go1(j)
			p := j.serve(j.to)
			begun := time.Now()
			if _, err := j.to.Agents.StartAgent(t.Context(), &registryv1.StartAgentRequest{AgentId: "a1"}); err != nil {
				t.Fatal(err)
			}
			j.to.Say(t, "a1", world.Peer("p0"), "say: at once")
			if took := time.Since(begun); took > soon {
				t.Errorf("the first reply in the new home took %v", took)
			} else {
				t.Logf("the first reply in the new home took %v", took)
			}
			j.arrive()
			j.sound(p)
		})
	}
}

// load pushes until it is ended; the texts are no longer settled ones.
func (j *journey) load() (end func()) {
	ctx, stop := context.WithCancel(j.t.Context())
	begun := make(chan struct{}, 100_000)
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if _, err := j.from.Push(ctx, "a1", world.Peer(fmt.Sprintf("p%d", i)), fmt.Sprintf("say: load %d of %d", n, i), ""); err == nil {
					begun <- struct{}{}
				}
			}
		})
	}
	for range 30 {
		<-begun
	}
	return func() { stop(); all.Wait() }
}

// A copy of files that are being written may be torn. It is found and repaired, or
// it is whole; then the agent works, and says nothing twice that it had said before.
func TestCopiedAtWork(t *testing.T) {
	j := setOut(t)
	end := j.load()
	j.tar()
	end()
	j.p.Kill() // this home is gone
	found, _, err := invariant.Check(t.Context(), layout.At(j.to.Home), invariant.Options{})
	if err != nil {
		t.Fatal(err)
	}
	actions, err := repair.Home(t.Context(), layout.At(j.to.Home), repair.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d findings, %d repairs: %v %v", len(found), len(actions), found, actions)
	j.serve(j.to)
	j.arrive()
}

// P1: a backup under load, restored after the home was lost with kill -9.
func TestRestoredElsewhere(t *testing.T) {
	j := setOut(t)
	end := j.load()
	in, err := j.from.Agents.BackupAgents(t.Context(), &registryv1.BackupAgentsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var saved bytes.Buffer
	for {
		m, err := in.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		saved.Write(m.GetChunk())
	}
	end()
	j.p.Kill()

	p := j.serve(j.to)
	out, err := j.to.Agents.RestoreAgents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for b := saved.Bytes(); len(b) > 0; {
		n := min(len(b), 99_999)
		if err := out.Send(&registryv1.RestoreAgentsRequest{Chunk: b[:n]}); err != nil {
			break // the answer says why
		}
		b = b[n:]
	}
	r, err := out.CloseAndRecv()
	if err != nil || len(r.GetAgents()) != 1 {
		t.Fatalf("%v, %v", r, err)
	}
	j.head = r.GetAgents()[0].GetLastInboxId()
	j.arrive()
	for _, a := range j.sink.Arrivals("a1") {
		for _, b := range j.sink.Arrivals("a1") {
			if a.Text == b.Text && a.Key != b.Key && a.ThreadID == b.ThreadID && a.EventID == b.EventID && !strings.HasPrefix(a.Text, "load") {
				t.Errorf("%q arrived under two keys", a.Text)
			}
		}
	}
	j.sound(p)
}
