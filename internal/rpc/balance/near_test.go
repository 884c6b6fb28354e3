package balance

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/theclaw/agents/internal/rpc"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Agents are spread evenly; a registry that goes moves its own agents alone, and a call
// that is made again goes where the agent moves to.
func TestNear(t *testing.T) {
	all := []registry{{address: "10.0.0.1:7443"}, {address: "10.0.0.2:7443"}, {address: "10.0.0.3:7443"}}
	n := map[string]int{}
	for i := range 3000 {
		agent := fmt.Sprint("agent-", i)
		at, second := near(all, agent, 0), near(all, agent, 1)
		n[at.address]++
		left := slices.DeleteFunc(slices.Clone(all), func(r registry) bool { return r == at })
		if near(left, agent, 0) != second {
			t.Fatalf("%s is near %s, then %s, and near %s without the first", agent, at.address, second.address, near(left, agent, 0).address)
		}
		if near(all, agent, 3) != at {
			t.Fatalf("%s: the fourth try is not at the first registry again", agent)
		}
	}
	for at, n := range n {
		if n < 900 || n > 1100 {
			t.Errorf("%s has %d of 3000 agents", at, n)
		}
	}
}

// serves starts a server that says it serves and knows no call.
func serves(t *testing.T) (address string, stop func()) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	healthpb.RegisterHealthServer(s, health.NewServer())
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String(), s.Stop
}

// Unary calls and streams about an agent meet one registry, those of a worker that asks
// for any one too, others each in turn; when it is gone they meet the next.
func TestCallsAreNear(t *testing.T) {
	stops, list := map[string]func(){}, []string{}
	for range 3 {
		address, stop := serves(t)
		stops[address], list = stop, append(list, "dns:///"+address)
	}
	cc, err := Dial(strings.Join(list, ","), rpc.DialOptions{Insecure: true, WaitForReady: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cc.Close() }()
	known := func(err error) {
		if status.Code(err) != codes.Unimplemented {
			t.Helper()
			t.Error(err)
		}
	}
	var at peer.Peer
	met := map[string]bool{} // all are connected when all have answered what is about no agent
	for n := 0; len(met) < len(stops) && n < 10000; n++ {
		_, err := registryv1.NewAgentServiceClient(cc).ListAgents(t.Context(), &registryv1.ListAgentsRequest{}, grpc.Peer(&at))
		known(err)
		met[at.Addr.String()] = true
	}
	worker := map[string]bool{} // asks for work of any agent
	for range 10 {
		_, err := registryv1.NewLeaseServiceClient(cc).AcquireDueLease(t.Context(), &registryv1.AcquireDueLeaseRequest{Holder: "runner-1"}, grpc.Peer(&at))
		known(err)
		worker[at.Addr.String()] = true
	}
	if len(worker) != 1 {
		t.Errorf("one worker asks %v", worker)
	}
	threads := registryv1.NewThreadServiceClient(cc)
	ref := &registryv1.ThreadRef{AgentId: "a1", ThreadId: "inbox"}
	home := func() string {
		met := map[string]bool{}
		for range 10 {
			_, err := threads.PushEvents(t.Context(), &registryv1.PushEventsRequest{Thread: ref}, grpc.Peer(&at))
			known(err)
			met[at.Addr.String()] = true
			_, err = registryv1.NewTurnServiceClient(cc).GetTurn(t.Context(), &registryv1.GetTurnRequest{AgentId: "a1"}, grpc.Peer(&at))
			known(err)
			met[at.Addr.String()] = true
			w, err := threads.WatchEvents(t.Context(), &registryv1.WatchEventsRequest{Thread: ref})
			if err != nil {
				t.Fatal(err)
			}
			_, err = w.Recv()
			known(err)
			p, _ := peer.FromContext(w.Context())
			met[p.Addr.String()] = true
		}
		if len(met) != 1 {
			t.Fatalf("calls about one agent met %v", met)
		}
		return at.Addr.String()
	}
	first := home()
	stops[first]()
	for n, gone := 0, false; !gone && n < 10000; n++ { // the connection ends meanwhile
		_, err := threads.PushEvents(t.Context(), &registryv1.PushEventsRequest{Thread: ref})
		gone = status.Code(err) == codes.Unimplemented
	}
	if second := home(); second == first {
		t.Errorf("calls still meet %s", first)
	}
}
