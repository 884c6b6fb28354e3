//go:build proof

package linearizability_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/drill"
	"github.com/theclaw/agents/proofs/program"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

func TestMain(m *testing.M) { program.Main(m) }

const agent = "a1"

// drama is registries that are killed while clients call them: one with its home, or two
// over one PostgreSQL, which is killed as well.
type drama struct {
	t     *testing.T
	sites []*world.Site

	gate sync.RWMutex // held for writing until nothing of what a strike cut off is left

	clock   atomic.Int64
	calls   atomic.Int64
	unknown atomic.Int64 // calls that were cut off
	lost    atomic.Int64 // pushes among them
	pushes  atomic.Int64
	flying  atomic.Int64 // calls under way
	mu      sync.Mutex
	history []porcupine.Operation
}

// do makes one call and writes it down.
func (d *drama) do(client int, in op) answer {
	for {
		call := d.clock.Add(1)
		d.flying.Add(1)
		out, err := d.call(d.sites[client%len(d.sites)], in)
		d.flying.Add(-1)
		switch status.Code(err) {
		case codes.OK:
		case codes.Unauthenticated: // refused at the door with an earlier start's token: it was no call
			continue
		case codes.Unavailable, codes.Canceled:
			out = answer{unknown: true}
			d.unknown.Add(1)
			if in.verb == "push" {
				d.lost.Add(1)
			}
		default:
			if !fault.Is(err, fault.LeaseHeld) && !fault.Is(err, fault.LeaseLost) {
				d.t.Errorf("%+v: %v", in, err)
			}
		}
		if out.unknown && len(d.sites) > 1 {
			// It has happened or will not, but only when the strike is over.
			d.gate.RLock()
			d.gate.RUnlock() //nolint:staticcheck // nothing is done inside
		}
		back := d.clock.Add(1)
		d.calls.Add(1)
		if in.verb == "push" {
			d.pushes.Add(1)
		}
		d.mu.Lock()
		d.history = append(d.history, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: back})
		d.mu.Unlock()
		if !out.unknown {
			return out
		}
	}
}

func (d *drama) call(site *world.Site, in op) (answer, error) {
	ctx, cancel := context.WithTimeout(d.t.Context(), 30*time.Second)
	defer cancel()
	switch in.verb {
	case "push":
		id, err := site.Push(ctx, agent, world.Peer("bob"), "say: "+in.key, in.key)
		return answer{ok: err == nil, id: id}, err
	case "acquire":
		kind := registryv1.LeaseKind_LEASE_KIND_RUN
		if in.resource == "deliver/"+agent {
			kind = registryv1.LeaseKind_LEASE_KIND_DELIVER
		}
		r, err := site.Leases.AcquireLease(ctx, &registryv1.AcquireLeaseRequest{
			AgentId: agent, Kind: kind, Holder: in.holder, RequestId: in.request, Ttl: durationpb.New(10 * time.Minute),
		})
		return answer{ok: err == nil, token: r.GetLease().GetToken()}, err
	case "renew":
		_, err := site.Leases.RenewLease(ctx, &registryv1.RenewLeaseRequest{Resource: in.resource, Holder: in.holder, Token: in.token})
		return answer{ok: err == nil}, err
	default:
		_, err := site.Leases.ReleaseLease(ctx, &registryv1.ReleaseLeaseRequest{Resource: in.resource, Token: in.token})
		return answer{ok: err == nil}, err
	}
}

// client is one caller's life: it takes leases, uses and returns them, and pushes.
func (d *drama) client(n, calls int, chance *rand.Rand) {
	holder, last, wish := fmt.Sprint("remote-", n), map[string]uint64{}, map[string]string{}
	for i := range calls {
		r := []string{"agent/" + agent, "deliver/" + agent}[chance.IntN(2)]
		switch k := chance.IntN(10); {
		case k < 4:
			if wish[r] == "" || chance.IntN(3) > 0 {
				wish[r] = fmt.Sprintf("r%d.%d", n, i)
			}
			if out := d.do(n, op{verb: "acquire", resource: r, holder: holder, request: wish[r]}); out.ok {
				last[r] = out.token
			}
		case k < 6:
			d.do(n, op{verb: "renew", resource: r, holder: holder, token: last[r]})
		case k < 8:
			if last[r] > 0 {
				d.do(n, op{verb: "release", resource: r, holder: holder, token: last[r]})
			}
		default:
			key := fmt.Sprintf("k%d.%d", n, chance.IntN(i+1)) // some are repeats
			d.do(n, op{verb: "push", resource: "inbox", key: key})
		}
	}
}

// TestLinearizability makes HISTORIES histories, each over RESTARTS kills.
func TestLinearizability(t *testing.T) {
	const clients, calls = 5, 60
	histories, kills := drill.Size(t, "HISTORIES", 2), drill.Size(t, "RESTARTS", 3)
	seed, chance := drill.Seed(t)
	db, store := (*pgtest.Cluster)(nil), ""
	if v := os.Getenv("STORE"); v == "postgres" {
		db, store = pgtest.Start(t), "store=postgres "
	} else if v != "" && v != "sqlite" {
		t.Fatalf("STORE=%s: it is sqlite or postgres", v)
	}
	var ops, pushes, unknown, lost int64
	good, killed, busy := 0, 0, 0
	for range histories {
		d := &drama{t: t}
		strike, end := d.begin(db)
		d.sites[0].Create(t, agent, "outbound: []")
		done := make(chan struct{})
		var all sync.WaitGroup
		for c := range clients {
			mine := rand.New(rand.NewPCG(chance.Uint64(), 1))
			all.Go(func() { d.client(c, calls, mine) })
		}
		go func() { all.Wait(); close(done) }()
		for k := range kills { // evenly over the history, at whatever the registry is doing then
			at := int64(clients * calls * (k + 1) / (kills + 1))
			for reached := false; !reached; {
				select {
				case <-done:
					reached = true
				default:
					if reached = d.calls.Load() >= at; !reached {
						<-time.After(100 * time.Microsecond) // the injury's instant, not a wait
					}
				}
			}
			if d.flying.Load() > 0 {
				busy++
			}
			strike(k)
			killed++
		}
		<-done
		end()
		got := porcupine.CheckOperationsTimeout(model.ToModel(), d.history, time.Minute)
		if got == porcupine.Ok {
			good++
		} else {
			t.Errorf("a history of %d calls is %v", len(d.history), got)
			d.explain()
		}
		ops, pushes = ops+d.calls.Load(), pushes+d.pushes.Load()
		unknown, lost = unknown+d.unknown.Load(), lost+d.lost.Load()
	}
	if pushes == 0 || unknown == 0 || busy == 0 {
		t.Error("no call was ever cut off by a kill: this has shown nothing")
	}
	drill.Line("linearizability %shistories=%d ok=%d calls=%d pushes=%d kills=%d (with calls under way: %d) cut_off=%d (pushes: %d) seed=%d",
		store, histories, good, ops, pushes, killed, busy, unknown, lost, seed)
}

// begin starts the registries, over a new database of db if there is one. strike kills
// and starts again: the registries in turn, and the database; end ends all.
func (d *drama) begin(db *pgtest.Cluster) (strike func(n int), end func()) {
	args, victims, dsn := []string{"registry", "--lease-ttl", "10m"}, 1, ""
	if db != nil {
		victims, dsn = 2, db.Database(d.t)
	}
	var processes []*world.Process
	start := func(i int) *world.Process {
		if db == nil {
			return d.sites[i].Start(d.t, args...)
		}
		return d.sites[i].Start(d.t, append(args, "--dsn", dsn+"&application_name="+name(i))...)
	}
	for i := range victims {
		d.sites = append(d.sites, world.NewSite(d.t, program.Agentd(d.t)))
		processes = append(processes, start(i))
		d.sites[i].Serving(d.t, processes[i], "registry")
	}
	strike = func(n int) {
		d.gate.Lock()
		defer d.gate.Unlock()
		if db != nil && n%3 == 2 {
			db.Kill(d.t)
			db.Up(d.t)
			return
		}
		n %= victims
		processes[n].Kill()
		if db != nil {
			db.Gone(d.t, name(n))
		}
		processes[n] = start(n)
	}
	return strike, func() {
		for _, p := range processes {
			p.Kill()
		}
	}
}

// name is a registry's in the database.
func name(i int) string { return fmt.Sprint("registry", i) }

// explain logs the part of a history that no order of its calls explains.
func (d *drama) explain() {
	for _, part := range model.Partition(d.history) {
		if porcupine.CheckOperations(porcupine.Model{
			Init: model.ToModel().Init, Step: model.ToModel().Step, Equal: model.ToModel().Equal,
		}, part) {
			continue
		}
		for _, o := range part {
			d.t.Logf("%d-%d client %d: %+v -> %+v", o.Call, o.Return, o.ClientId, o.Input, o.Output)
		}
	}
}
