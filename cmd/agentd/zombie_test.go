//go:build proof

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// zombies are the instants at which a holder is stopped, past its lease.
var zombies = []string{"T3.before", "T3.after", "T5.before", "T5.after", "D2.before", "D2.after"}

// zombieDrill is what all rounds count together.
type zombieDrill struct {
	mu              sync.Mutex
	rounds          int
	fenced, written int
	repeated        int // rounds that could not be judged
	figures
}

// verdict is the answer to a late write.
type verdict int

const (
	refused verdict = iota
	wrote
	// unjudged: there was nothing left to write. The holder woke up before another one had
	// taken over, under load, and finished its own work under its own lease.
	unjudged
	failed
)

// maxRepeats is how often a round that cannot be judged is repeated.
const maxRepeats = 5

// TestZombies stops a holder in the middle of its work (SIGSTOP), lets another
// one take over after the lease has run out, and wakes the first one up again
// (P1, I4, I5). N in the environment is how often.
func TestZombies(t *testing.T) {
	n := int(setting(t, "N", 6))
	z := &zombieDrill{}
	store, labels, round := "", zombies, z.round
	if onPostgres(t) {
		store, labels, round = "store=postgres ", append(slices.Clone(zombies), stoppedRegistries...), z.cluster(server(t))
	}
	work := make(chan int, n)
	for i := range n {
		work <- i
	}
	close(work)
	var g sync.WaitGroup
	for range min(n, 6) { // they mostly wait for leases to run out
		g.Go(func() {
			for i := range work {
				for try := 0; !round(t, labels[i%len(labels)]); try++ {
					if try == maxRepeats {
						t.Errorf("%s: %d rounds could not be judged", labels[i%len(labels)], try+1)
						break
					}
				}
			}
		})
	}
	g.Wait()
	if z.fenced != z.rounds || z.written > 0 {
		t.Errorf("%d of %d late writes were refused, %d were made", z.fenced, z.rounds, z.written)
	}
	if z.repeated > 0 {
		t.Logf("%d rounds were repeated: the holder woke up before it was succeeded", z.repeated)
	}
	fmt.Fprintf(os.Stdout, "zombie %sn=%d fenced=%d unfenced_writes=%d lost=%d dup=%d stuck=%d violations=%d\n",
		store, z.rounds, z.fenced, z.written, z.lost, z.dup, z.stuck, z.violations+z.dead)
}

// round reports whether it could be judged.
func (z *zombieDrill) round(t *testing.T, label string) bool {
	site, sink := world.NewSite(t, program(t)), world.NewSink(t)
	doomed, other := "runner", "deliverer"
	if strings.HasPrefix(label, "D") {
		doomed, other = other, doomed
	}
	var all []*world.Process
	run := func(env []string, args ...string) *world.Process {
		p := site.StartWith(t, env, append(args, flags...)...)
		all = append(all, p)
		return p
	}
	run(nil, "registry")
	run(nil, other)
	zombie := run([]string{failpoint + "=" + label + ":1:stop"}, doomed)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	site.Create(t, "a1", sink.Config())
	l := &load{site: site}
	l.send(ctx,
		&message{agent: "a1", peer: "bob", n: 1, kind: "run"}, &message{agent: "a1", peer: "bob", n: 2, kind: "echo"},
		&message{agent: "a1", peer: "carol", n: 3, kind: "run"},
	)
	zombie.Says("failpoint " + label)
	late := z.lateWrite(t, site, doomed)

	run(nil, doomed, "--name", doomed+"-2")
	<-l.done()
	answer := late(ctx)
	zombie.Signal(syscall.SIGCONT)
	// What it says when it knows: by its own clock, or by the registry's word.
	zombie.Says("lease lost")
	// It works again like any other, and nothing of before comes through.
	again := &load{site: site}
	again.send(ctx, &message{agent: "a1", peer: "bob", n: 4, kind: "echo"}, &message{agent: "a1", peer: "dave", n: 5, kind: "run"})
	<-again.done()
	zombie.Signal(syscall.SIGTERM)
	if code := zombie.Exit(); code != 0 {
		t.Errorf("%s: the zombie ended with %d; its log:\n%s", label, code, zombie.Log())
	}
	l.sent = append(l.sent, again.sent...)
	a := &audit{TB: t, load: l, sink: sink}
	a.check()
	if !a.clean() || answer != refused && answer != unjudged {
		t.Errorf("%s: refused=%v %s; the zombie's log:\n%s", label, answer == refused, &a.figures, zombie.Log())
	}
	for i := len(all) - 1; i >= 0; i-- {
		all[i].Kill()
	}
	return z.count(a.figures, answer)
}

// count adds a round and reports whether it could be judged.
func (z *zombieDrill) count(f figures, v verdict) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.add(f)
	switch v {
	case unjudged:
		z.repeated++
		return false
	case refused:
		z.fenced++
	case wrote:
		z.written++
	case failed:
	}
	z.rounds++
	return true
}

// lateWrite remembers the lease that the stopped process works under, and answers
// the write it would make when it comes too late: what the process does by itself
// depends on which of its clocks runs first, this does not.
func (z *zombieDrill) lateWrite(t *testing.T, site *world.Site, name string) func(context.Context) verdict {
	t.Helper()
	conn := site.Dial(t, "registry", rpc.Identity{Kind: rpc.Service, Name: name})
	resource := lease.AgentResource("a1")
	if name == "deliverer" {
		resource = lease.DeliverResource("a1")
	}
	r, err := registryv1.NewLeaseServiceClient(conn).ListLeases(t.Context(), &registryv1.ListLeasesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var held *registryv1.Lease
	for _, l := range r.GetLeases() {
		if l.GetResource() == resource {
			held = l
		}
	}
	if held == nil {
		t.Fatalf("nobody holds %s: %v", resource, r.GetLeases())
	}
	return func(ctx context.Context) verdict { return lateBy(ctx, t, site, conn, held) }
}

// lateBy writes under a lease that another holder has by now.
func lateBy(ctx context.Context, t *testing.T, site *world.Site, conn grpc.ClientConnInterface, held *registryv1.Lease) verdict {
	t.Helper()
	thread := "threads/peers/main-bob"
	ctx = rpc.WithFence(ctx, held.GetResource(), held.GetToken(), held.GetHolder())
	var err error
	if held.GetResource() == lease.DeliverResource("a1") {
		ev := site.Events(t, "a1", thread, "source = 'self'")
		_, err = registryv1.NewDeliveryServiceClient(conn).FinishDelivery(ctx, &registryv1.FinishDeliveryRequest{
			AgentId: "a1", ThreadId: thread, EventId: ev[0].GetId(), Outcome: registryv1.DeliveryOutcome_DELIVERY_OUTCOME_REJECTED, Error: "late",
		})
	} else {
		turn, err1 := site.Turns.GetTurn(ctx, &registryv1.GetTurnRequest{AgentId: "a1", InboxId: 1})
		if err1 != nil {
			t.Errorf("get turn: %v", err1)
			return failed
		}
		_, err = registryv1.NewTurnServiceClient(conn).RecordStep(ctx, &registryv1.RecordStepRequest{
			AgentId: "a1", ThreadId: turn.GetTurn().GetThreadId(), Key: turn.GetTurn().GetKey(), Steps: []*registryv1.Step{{
				Seq: 99, Kind: registryv1.StepKind_STEP_KIND_MODEL, Key: "model:99", State: registryv1.StepState_STEP_STATE_DONE, Result: []byte(`{}`),
			}},
		})
	}
	switch {
	case err == nil:
		return wrote
	case fault.Is(err, fault.LeaseLost):
		return refused
	case fault.Is(err, fault.DeliveryNotFound):
		return unjudged
	}
	t.Errorf("a late write under %s: %v", held.GetResource(), err)
	return failed
}
