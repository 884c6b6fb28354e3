//go:build proof

package cluster_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/mtls"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/drill"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// address is where registries find the database: over the network.
func address(t *testing.T, c *pgtest.Cluster) string {
	t.Helper()
	return "postgres://claw@" + database + ".1:5432/" + pgtest.Name(t, c.Database(t)) + "?sslmode=disable"
}

// lost is a runner that was cut off in the middle of a run.
type lost struct {
	p     *part
	lease *registryv1.Lease
	turn  *registryv1.Turn
}

// A runner is cut off from everybody past its lease while it works: another one takes
// over and finishes, and when the network is healed the runner's writes, that were sent
// too late under its own name and token, are refused (P3, S3).
func TestPartitionRunner(t *testing.T) {
	if !apart(t) {
		return
	}
	seed, r := drill.Seed(t)
	c := wire(t)
	m := newTeller(t, 40, 30*time.Millisecond).at(t, services+".1")
	s := build(t, plan{dsn: address(t, c), registries: 2, runners: 3, providers: m.providers(), place: cabled(t)})
	client, finder := s.client(t), s.finder(t, true)
	for a := range agents {
		client.Create(t, agentID(a), "")
	}
	cuts, takeovers, refused, wrong := 0, 0, 0, 0
	var keys []string
	for n := range drill.Size(t, "N", 2) {
		agent, key := agentID(r.IntN(agents)), fmt.Sprintf("tell-cut%d-end", n)
		keys = append(keys, agent+" "+key)
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		done := make(chan watched, 1)
		go func() { // who watches meanwhile sees it whole
			w, _, err := follow(ctx, finder, agent, key)
			if err != nil {
				t.Errorf("%s: %v", key, err)
			}
			done <- w
		}()
		v := s.working(ctx, t, client, agent, said(keys, agent))
		silently := n%2 == 0
		v.p.cut(t, "eth0", silently)
		cuts++
		if by := takeover(ctx, t, client, v.lease); by != "" {
			takeovers++
		}
		end, err := client.Turns.GetTurn(ctx, &registryv1.GetTurnRequest{AgentId: agent, Key: v.turn.GetKey(), Wait: durationpb.New(time.Minute)})
		if err != nil || end.GetTurn().GetFate() != registryv1.Fate_FATE_REPLIED {
			t.Errorf("%s: %v, %v", key, end, err)
		}
		v.p.heal(t, "eth0", "services", silently)
		refused += s.late(t, v)
		if w := <-done; w.ends != 1 || w.repeats > 0 || strings.TrimSpace(w.text) != strings.TrimSpace(m.tale(key)) {
			wrong++
			t.Errorf("who watched %s saw %+v", key, w)
		}
		cancel()
	}
	missing, dup := 0, 0
	for _, k := range keys {
		agent, key, _ := strings.Cut(k, " ")
		replies := 0
		for _, e := range client.Events(t, agent, "threads/peers/cli-cli", "source = 'self' AND type = 'message'") {
			if strings.TrimSpace(world.Text(e)) == strings.TrimSpace(m.tale(key)) {
				replies++
			}
		}
		missing += max(1-replies, 0)
		dup += max(replies-1, 0)
	}
	drill.Line("partition of=runner cut=%d takeovers=%d late_writes_refused=%d lost=%d dup=%d watched_wrong=%d seed=%d", cuts, takeovers, refused, missing, dup, wrong, seed)
	if missing+dup > 0 || takeovers != cuts || refused != cuts*lateWrites {
		t.Error("a cut did what it must not do")
	}
}

// takeover waits until another runner than that of a lease has its agent, and answers
// which. The one that was cut off may be granted it once more, by a registry at which it
// had left a question: that ends like the first.
func takeover(ctx context.Context, t *testing.T, c world.Client, l *registryv1.Lease) string {
	t.Helper()
	for after := l.GetToken(); ; {
		r, err := c.Leases.FindRunner(ctx, &registryv1.FindRunnerRequest{AgentId: l.GetResource()[len("agent/"):], AfterToken: after, Wait: durationpb.New(time.Minute)})
		if err != nil {
			t.Errorf("nobody took %s over: %v", l.GetResource(), err)
			return ""
		}
		if r.GetLease().GetToken() > after && r.GetLease().GetHolder() != l.GetHolder() {
			return r.GetLease().GetHolder()
		}
		after = max(after, r.GetLease().GetToken())
	}
}

// said is how many of some keys are of an agent.
func said(keys []string, agent string) (n int) {
	for _, k := range keys {
		if strings.HasPrefix(k, agent+" ") {
			n++
		}
	}
	return n
}

// working waits until a runner is in the middle of the nth message of an agent.
func (s *site) working(ctx context.Context, t *testing.T, c world.Client, agent string, inbox int) lost {
	t.Helper()
	for ctx.Err() == nil {
		turn, err := c.Turns.GetTurn(ctx, &registryv1.GetTurnRequest{AgentId: agent, InboxId: int64(inbox)})
		if err == nil && turn.GetTurn().GetState() == registryv1.TurnState_TURN_STATE_CLAIMED {
			found, err := c.Leases.FindRunner(ctx, &registryv1.FindRunnerRequest{AgentId: agent})
			for _, p := range s.of("runner") {
				if err == nil && found.GetLease().GetAddress() == "dns:///"+p.address {
					return lost{p, found.GetLease(), turn.GetTurn()}
				}
			}
		}
		rest(ctx)
	}
	t.Fatalf("message %d of %s is not worked on", inbox, agent)
	return lost{}
}

// lateWrites is how many kinds of writes a runner makes.
const lateWrites = 5

// late sends the writes of a runner that has come back, with its own certificate, holder
// and token, and answers how many were refused because of the token.
func (s *site) late(t *testing.T, v lost) (refused int) {
	t.Helper()
	own, err := mtls.Open(filepath.Join(s.root, "tls"), v.p.name, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := s.options(t, "registry")
	o.Creds = mtls.Client(own, "registry")
	c := world.NewClient(dialWith(t, s.registries(), o), s.dial(t, "dns:///127.0.0.1:1", "runner"))
	ctx := rpc.WithFence(t.Context(), v.lease.GetResource(), v.lease.GetToken(), v.lease.GetHolder())
	id, key, thread, inbox := v.turn.GetAgentId(), v.turn.GetKey(), v.turn.GetThreadId(), v.turn.GetInboxId()
	for what, write := range map[string]func() error{
		"open": func() error {
			_, err := c.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: id})
			return err
		},
		"begin": func() error {
			_, err := c.Turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{AgentId: id, InboxId: inbox, Key: key, ThreadId: thread})
			return err
		},
		"step": func() error {
			_, err := c.Turns.RecordStep(ctx, &registryv1.RecordStepRequest{AgentId: id, ThreadId: thread, Key: key, Steps: []*registryv1.Step{{
				Seq: 9, Kind: registryv1.StepKind_STEP_KIND_MODEL, Key: "model:9", State: registryv1.StepState_STEP_STATE_DONE, Result: []byte(`{"text":"too late"}`),
			}}})
			return err
		},
		"finish": func() error {
			_, err := c.Turns.FinishTurn(ctx, &registryv1.FinishTurnRequest{AgentId: id, ThreadId: thread, Key: key, InboxId: inbox, Fate: registryv1.Fate_FATE_REPLIED, Text: "too late"})
			return err
		},
		"renew": func() error {
			_, err := c.Leases.RenewLease(ctx, &registryv1.RenewLeaseRequest{Resource: v.lease.GetResource(), Token: v.lease.GetToken(), Holder: v.lease.GetHolder()})
			return err
		},
	} {
		if err := write(); fault.Is(err, fault.LeaseLost) {
			refused++
		} else {
			t.Errorf("the late %s was answered %v", what, err)
		}
	}
	return refused
}

// A registry is cut off from the database, and serves everybody else: who asks it is
// told that it cannot answer, or asks the other one, and nothing is lost or done twice.
func TestPartitionDatabase(t *testing.T) {
	if !apart(t) {
		return
	}
	s := build(t, plan{dsn: address(t, wire(t)), registries: 2, runners: 3, deliverers: 0, place: cabled(t)})
	l := &load{c: s.client(t)}
	for a := range agents {
		l.c.Create(t, agentID(a), "")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := l.start(ctx, t)
	n := drill.Size(t, "N", 2)
	for i := range n {
		p, silently := s.of("registry")[i%2], i/2%2 == 0
		p.cut(t, "eth1", silently)
		l.during(t, 4*time.Second)
		p.heal(t, "eth1", "database", silently)
		l.during(t, time.Second)
	}
	cancel()
	<-done
	f := l.replied(t)
	drill.Line("partition of=database cut=%d messages=%d lost=%d dup=%d stuck=%d errors=%d", n, f.messages, f.lost, f.dup, f.stuck, l.failed.Load())
}
