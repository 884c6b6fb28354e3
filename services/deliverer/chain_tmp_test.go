package deliverer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/obs/agentlog"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/serve"
	delivererv1 "github.com/theclaw/agents/proto/gen/theclaw/deliverer/v1"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/deliverer"
	"github.com/theclaw/agents/services/registry"
)

type chain struct {
	*testing.T
	home string
	conn *grpc.ClientConn
	n    int
}

func newChain(t *testing.T) *chain {
	home := t.TempDir()
	h, err := agentdir.OpenHome(home)
	if err != nil {
		t.Fatal(err)
	}
	log := agentlog.New(nil)
	svc, err := registry.New(t.Context(), registry.Config{}, registry.Deps{Home: h, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), Metrics: obs.NewRegistryMetrics(nil), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	l := bufconn.Listen(1 << 20)
	srv, err := serve.New(serve.Options{Listener: l, Insecure: true, Services: []serve.Registrar{svc.Register}, Policy: registry.Policy(), Grace: -1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- srv.Run(ctx) }()
	go func() { done <- svc.Run(ctx) }()
	conn, err := rpc.Dial("passthrough:///registry", rpc.DialOptions{Insecure: true, Dialer: func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		svc.Close()
		log.Close()
		h.Close()
	})
	return &chain{T: t, home: home, conn: conn}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (c *chain) create(id string) {
	a := registryv1.NewAgentServiceClient(c.conn)
	must(a.CreateAgent(c.Context(), &registryv1.CreateAgentRequest{AgentId: id}))
	must(a.StartAgent(c.Context(), &registryv1.StartAgentRequest{AgentId: id}))
}

func (c *chain) push(agent, source, content string) {
	must(registryv1.NewThreadServiceClient(c.conn).PushEvents(c.Context(), &registryv1.PushEventsRequest{
		Thread: &registryv1.ThreadRef{AgentId: agent, ThreadId: "inbox"}, Events: []*registryv1.NewEvent{{Source: source, Type: "message", Content: content}}}))
}

// reply does the turns of one agent by hand.
func (c *chain) reply(text string) (threads []string) {
	leases, turns := registryv1.NewLeaseServiceClient(c.conn), registryv1.NewTurnServiceClient(c.conn)
	c.n++
	due := must(leases.AcquireDueLease(c.Context(), &registryv1.AcquireDueLeaseRequest{Kind: 1, Holder: "r1", RequestId: fmt.Sprint(c.n), MaxNew: 1})).GetDue()
	if len(due) != 1 {
		c.Fatal("nothing due")
	}
	id, l := due[0].GetAgentId(), due[0].GetLease()
	ctx := rpc.WithFence(c.Context(), l.GetResource(), l.GetToken(), "r1")
	for _, p := range must(turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: id})).GetEvents() {
		must(turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{AgentId: id, InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId()}))
		must(turns.FinishTurn(ctx, &registryv1.FinishTurnRequest{AgentId: id, InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId(), Fate: registryv1.Fate_FATE_REPLIED, Text: text}))
		threads = append(threads, p.GetThreadId())
	}
	must(leases.ReleaseLease(c.Context(), &registryv1.ReleaseLeaseRequest{Resource: l.GetResource(), Token: l.GetToken()}))
	return threads
}

func (c *chain) until(what string, f func() bool) {
	c.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if f() {
			return
		}
	}
	c.Fatal("never: " + what)
}

func (c *chain) delivery(agent, thread string, id int64) *registryv1.Delivery {
	for _, d := range must(registryv1.NewDeliveryServiceClient(c.conn).ListDeliveries(c.Context(), &registryv1.ListDeliveriesRequest{AgentId: agent, ThreadId: thread})).GetDeliveries() {
		if d.GetEventId() == id {
			return d
		}
	}
	return nil
}

func run(t *testing.T, s *deliverer.Service) func() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() {
		cancel()
		began := time.Now()
		if err := <-done; err != nil {
			t.Error(err)
		}
		t.Log("stop took", time.Since(began))
	}
}

func TestChain(t *testing.T) {
	c := newChain(t)
	c.create("a")
	c.create("b")
	bin := filepath.Join(t.TempDir(), "xgw")
	os.WriteFile(bin, []byte("#!/bin/sh\necho \"$@\" >> $HOME/calls; cat >> $HOME/calls; echo >> $HOME/calls; echo '{\"success\":true}'\n"), 0o700)
	hdir := t.TempDir()
	holder, err := lease.NewHolder(filepath.Join(c.home, "run", "holders"), "deliverer")
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	s := deliverer.New(deliverer.Config{TTL: time.Second, Keep: 300 * time.Millisecond, XGW: deliverer.XGW{Path: bin}, BootID: "boot"}, deliverer.Deps{
		Registry: c.conn, Holder: holder.ID(), Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), Environ: []string{"HOME=" + hdir, "PATH=" + os.Getenv("PATH")},
	})
	stop := run(t, s)
	time.Sleep(1500 * time.Millisecond) // older than the ttl
	c.push("a", "external:telegram:main:dm:bob:bob", `{"text":"hello"}`)
	th := c.reply("hi -bob \"q\"\nline")
	began := time.Now()
	c.until("sent", func() bool {
		return c.delivery("a", th[0], 2).GetState() == registryv1.DeliveryState_DELIVERY_STATE_SENT
	})
	t.Log("sent after", time.Since(began))
	calls, _ := os.ReadFile(filepath.Join(hdir, "calls"))
	t.Logf("%s", calls)
	if !strings.Contains(string(calls), "send --channel main --peer bob --session bob --json\nhi -bob \"q\"\nline") {
		t.Error("xgw")
	}
	// a second one on the held lease, then released, then again
	for i := range 3 {
		c.push("a", "external:telegram:main:dm:bob:bob", `{"text":"again"}`)
		c.reply("again")
		began := time.Now()
		c.until("sent", func() bool {
			return c.delivery("a", th[0], int64(4+2*i)).GetState() == registryv1.DeliveryState_DELIVERY_STATE_SENT
		})
		t.Log("sent after", time.Since(began))
		if i == 1 {
			c.until("released", func() bool {
				return len(must(registryv1.NewLeaseServiceClient(c.conn).ListLeases(t.Context(), &registryv1.ListLeasesRequest{})).GetLeases()) == 0
			})
		}
	}
	// a -> b -> a
	c.push("b", "internal:dm:default:a", `{"text":"from a","hops":1}`)
	c.reply("answer of b")
	c.until("b's answer in a's inbox", func() bool {
		ev := must(registryv1.NewThreadServiceClient(c.conn).PeekEvents(t.Context(), &registryv1.PeekEventsRequest{Thread: &registryv1.ThreadRef{AgentId: "a", ThreadId: "inbox"}})).GetEvents()
		last := ev[len(ev)-1]
		if last.GetSource() == "internal:dm:default:b" {
			t.Log(last.GetContent())
			return true
		}
		return false
	})
	log, _ := os.ReadFile(filepath.Join(c.home, "agents", "a", "logs", "agent.log"))
	t.Logf("%s", log)
	stop()
	if l := must(registryv1.NewLeaseServiceClient(c.conn).ListLeases(t.Context(), &registryv1.ListLeasesRequest{})).GetLeases(); len(l) != 0 {
		t.Error(l)
	}
}

func TestChainBatch(t *testing.T) {
	c := newChain(t)
	c.create("a")
	var mu sync.Mutex
	var got []string
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			Text string
			Key  string
		}
		json.NewDecoder(r.Body).Decode(&m)
		mu.Lock()
		got = append(got, m.Text+" "+r.Header.Get("X-TheClaw-Fence"))
		mu.Unlock()
	}))
	defer hook.Close()
	cfg := filepath.Join(c.home, "agents", "a", "config.yaml")
	b, _ := os.ReadFile(cfg)
	os.WriteFile(cfg, append(b, []byte("\noutbound:\n  - thread_pattern: \"**\"\n    via: hook\nchannels:\n  hook:\n    type: webhook\n    url: "+hook.URL+"/x\n    allow_private: true\n")...), 0o600)
	s1 := deliverer.New(deliverer.Config{Poll: 50 * time.Millisecond}, deliverer.Deps{Registry: c.conn, Holder: "d1", Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	s2 := deliverer.New(deliverer.Config{}, deliverer.Deps{Registry: c.conn, Holder: "d2"})
	stop1 := run(t, s1)
	for i := range 20 {
		c.push("a", "external:telegram:main:dm:bob:bob", fmt.Sprintf(`{"text":"m%d"}`, i))
		th := c.reply(fmt.Sprint("r", i))
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				r, err := s1.DeliverBatch(t.Context(), &delivererv1.DeliverBatchRequest{AgentId: "a", ThreadId: th[0]})
				if err != nil {
					t.Error(i, r, err)
				}
			})
		}
		wg.Wait()
		mu.Lock()
		if len(got) != i+1 {
			t.Errorf("round %d: %v", i, got)
		}
		mu.Unlock()
	}
	stop2 := run(t, s2)
	_, err := s2.DeliverBatch(t.Context(), &delivererv1.DeliverBatchRequest{AgentId: "a", ThreadId: "threads/peers/main-bob"})
	t.Log(err)
	if err == nil {
		t.Error("held by another")
	}
	_, err = s2.DeliverBatch(t.Context(), &delivererv1.DeliverBatchRequest{AgentId: "a", ThreadId: "threads/none"})
	t.Log(err)
	stop2()
	stop1()
}
