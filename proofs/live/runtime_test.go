//go:build proof

package live_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/program"
	"github.com/theclaw/agents/proofs/topology"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// shapes are the runtimes in which something dies: in one home, or the site that
// TOPOLOGY names.
func shapes(t *testing.T) []string {
	t.Helper()
	if kind := topology.Chosen(t); kind != topology.Embedded {
		return []string{string(kind)}
	}
	return []string{"all", "runner"}
}

// runtime is a site at work. What is killed is the processes that turns run in: agentd
// with all services, a runner of its own, or all the runners of a site.
type runtime struct {
	world.Client
	t       *testing.T
	agents  string // more settings of each agent
	workdir string // of the agent
	begin   func() []*world.Process

	mu      sync.Mutex
	workers []*world.Process
	kills   int
}

// work starts a runtime whose model is m.
func work(t *testing.T, m *model, shape string, flags ...string) *runtime {
	t.Helper()
	if shape == "all" || shape == "runner" {
		return atHome(t, m, shape, flags)
	}
	shared := topology.Root(t) // every runner goes on in the same directory
	r := &runtime{t: t, agents: "\nworkdir: {shared: " + shared + "}", workdir: filepath.Join(shared, agent)}
	for _, dir := range []string{shared, r.workdir} { // split: the runner's user works there
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.Chmod(dir, 0o777)); err != nil {
			t.Fatal(err)
		}
	}
	s := spread(t, topology.Kind(shape), m, flags)
	var runners []*topology.Part
	for _, p := range s.Parts {
		if p.Service == "runner" {
			runners = append(runners, p)
			r.workers = append(r.workers, p.Process)
		}
	}
	r.begin = func() (out []*world.Process) {
		for _, p := range runners {
			s.Start(t, p)
			out = append(out, p.Process)
		}
		return out
	}
	r.Client = world.NewClient(s.Dial(t, s.Parts[0], "registry"), s.Dial(t, runners[0], "runner"))
	return r
}

// atHome is a runtime in one home.
func atHome(t *testing.T, m *model, process string, flags []string) *runtime {
	t.Helper()
	s := world.NewSite(t, program.Agentd(t))
	m.with(t, s.Home)
	if process != "all" {
		s.Start(t, append([]string{"registry"}, flags...)...)
		s.Start(t, append([]string{"deliverer"}, flags...)...)
	}
	r := &runtime{t: t, Client: s.Client, workdir: filepath.Join(s.Home, "agents", agent, "workdir")}
	r.begin = func() []*world.Process {
		return []*world.Process{s.Start(t, append([]string{process}, flags...)...)}
	}
	r.workers = r.begin()
	s.Serving(t, r.workers[0], "registry", "runner", "deliverer")
	return r
}

// spread starts the processes of a site, whose runners ask m if there is one.
func spread(t *testing.T, kind topology.Kind, m *model, flags []string) *topology.Site {
	t.Helper()
	o := topology.Options{Kind: kind, Programs: topology.Reachable(t, program.Agentd(t).Path), Root: topology.Root(t), Flags: flags}
	if kind == topology.Cluster {
		o.Database = pgtest.Start(t).Database(t)
	}
	s := topology.New(t, filepath.Join(o.Root, "home"), o)
	if m != nil {
		m.with(t, s.Parts[0].Home)
	}
	s.Up(t)
	return s
}

// calm is a client of services of which none dies: in this process as o says, or those
// of the site that TOPOLOGY names.
func calm(t *testing.T, o world.Options) (c world.Client, shape topology.Kind, home string) {
	t.Helper()
	if shape = topology.Chosen(t); shape == topology.Embedded {
		w := world.Start(t, o)
		return w.Client, shape, w.Home
	}
	s := spread(t, shape, nil, nil)
	cc := s.Dial(t, s.Parts[0], "registry")
	return world.NewClient(cc, cc), shape, ""
}

// kill kills the workers and starts the next ones. It answers the number of the
// kill.
func (r *runtime) kill() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.workers {
		p.Kill()
	}
	r.kills++
	r.workers = r.begin()
	return r.kills
}

// killed is how often they were killed.
func (r *runtime) killed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kills
}

// logs are those of the last workers.
func (r *runtime) logs() (all string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.workers {
		all += p.Log()
	}
	return all
}

// push sends a message; a call that a kill cut off is made again under its key.
func (r *runtime) push(ctx context.Context, agent, peer, text string) int64 {
	id, err := world.Again(ctx, func(ctx context.Context) (int64, error) {
		return r.Push(ctx, agent, world.Peer(peer), text, "key "+peer+" "+text)
	})
	if err != nil {
		r.t.Errorf("push %q: %v", text, err)
	}
	return id
}

// await waits for the fate of a message, through all kills.
func (r *runtime) await(ctx context.Context, agent string, id int64) *registryv1.Turn {
	for {
		a, err := world.Again(ctx, func(ctx context.Context) (*registryv1.GetTurnResponse, error) {
			return r.Turns.GetTurn(ctx, &registryv1.GetTurnRequest{AgentId: agent, InboxId: id, Wait: durationpb.New(20 * time.Second)})
		})
		if err != nil {
			r.t.Errorf("event %d of %s: %v; the logs of the last processes:\n%s", id, agent, err, r.logs())
			return nil
		}
		if a.GetTurn().GetFate() != registryv1.Fate_FATE_UNSPECIFIED {
			return a.GetTurn()
		}
	}
}
