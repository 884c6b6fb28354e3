package runner_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/obs/agentlog"
	"github.com/theclaw/agents/internal/obs/redact"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/serve"
	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/testing/backendtest"
	"github.com/theclaw/agents/proofs/standin/pai/chat"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/registry"
	"github.com/theclaw/agents/services/runner"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
	"github.com/theclaw/agents/services/runner/internal/toolset/mcp/mcptest"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	mcptest.Main(mcptest.Process{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Exit: os.Exit}) // in the sandbox, it is a server
	if filepath.Base(os.Args[0]) == "pai" {                                                                       // this binary is its own stand-in for pai
		os.Exit(chat.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv))
	}
	if what := os.Getenv(victim); what != "" { // and its own runner to kill
		if err := beVictim(what); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		removeSandboxProgram()
		os.Exit(code)
	}))
}

// world is a real registry and a connection to it.
type world struct {
	t       *testing.T
	home    *agentdir.Home
	conn    *grpc.ClientConn
	wire    grpc.ClientConnInterface // what runners get
	agents  registrypb.AgentServiceClient
	threads registrypb.ThreadServiceClient
	turns   registrypb.TurnServiceClient
	leases  registrypb.LeaseServiceClient
	metrics *obs.RunnerMetrics // of the runners; nil: nobody counts
	stop    func()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return openWorld(t, backendtest.Options{Home: t.TempDir()})
}

// openWorld opens a registry over either backend; stop ends it before the test does.
func openWorld(t *testing.T, o backendtest.Options) *world {
	t.Helper()
	home, err := agentdir.OpenHome(o.Home)
	if err != nil {
		t.Fatal(err)
	}
	log := agentlog.New(redact.New())
	reg, err := o.Open(t.Context(), registry.Config{}, registry.Deps{
		Home: home, Logger: slog.New(slog.DiscardHandler), Metrics: obs.NewRegistryMetrics(nil), Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	conn, end := serveOn(t, reg.Register, registry.Policy(), reg.Run)
	stop := sync.OnceFunc(func() {
		end()
		if err := reg.Close(); err != nil {
			t.Error(err)
		}
		_ = log.Close()
		_ = home.Close()
	})
	t.Cleanup(stop)
	return &world{
		t: t, home: home, conn: conn, wire: conn, stop: stop,
		agents: registrypb.NewAgentServiceClient(conn), threads: registrypb.NewThreadServiceClient(conn),
		turns: registrypb.NewTurnServiceClient(conn), leases: registrypb.NewLeaseServiceClient(conn),
	}
}

// serveOn serves and runs a service in memory; stop ends both and waits.
func serveOn(t *testing.T, register serve.Registrar, policy serve.Policy, loop func(context.Context) error) (*grpc.ClientConn, func()) {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	srv, err := serve.New(serve.Options{Listener: listener, Insecure: true, Services: []serve.Registrar{register}, Policy: policy, Grace: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := rpc.Dial("passthrough:///memory", rpc.DialOptions{
		Insecure: true, Dialer: func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, f := range []func(context.Context) error{srv.Run, loop} {
		wg.Go(func() {
			if err := f(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	var once sync.Once
	return conn, func() {
		once.Do(func() {
			cancel()
			wg.Wait()
			_ = conn.Close()
		})
	}
}

// agent makes and starts an agent.
func (w *world) agent(id, config string) {
	w.t.Helper()
	if _, err := w.agents.CreateAgent(w.t.Context(), &registrypb.CreateAgentRequest{AgentId: id}); err != nil {
		w.t.Fatal(err)
	}
	if config != "" {
		f, err := os.OpenFile(filepath.Join(w.home.Path(), "agents", id, "config.yaml"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			w.t.Fatal(err)
		}
		if _, err := f.WriteString("\n" + config + "\n"); err != nil {
			w.t.Fatal(err)
		}
		_ = f.Close()
	}
	if _, err := w.agents.StartAgent(w.t.Context(), &registrypb.StartAgentRequest{AgentId: id}); err != nil {
		w.t.Fatal(err)
	}
}

// workshop is a running runner.
type workshop struct {
	runnerpb.RunnerServiceClient
	runnerpb.ToolServiceClient

	stop func()
}

// runner starts a runner; with a script its default model is that provider.
func (w *world) runner(script *modeltest.Server, change ...func(*runner.Config)) *workshop {
	w.t.Helper()
	if script == nil {
		return w.runnerAt("", change...)
	}
	return w.runnerAt(script.URL(), change...)
}

// runnerAt is runner with the URL of a provider.
func (w *world) runnerAt(url string, change ...func(*runner.Config)) *workshop {
	w.t.Helper()
	holder, err := lease.NewHolder(w.home.HoldersDir(), "runner")
	if err != nil {
		w.t.Fatal(err)
	}
	cfg := runner.Config{Grace: 5 * time.Second, Sandbox: sandbox.Options{ScratchDir: w.t.TempDir(), Program: sandboxProgram(w.t)}}
	cfg.ProvidersFile = filepath.Join(w.t.TempDir(), "providers.yaml")
	text := "default: offline\n" // without a choice it answers no peer
	if url != "" {
		text = fmt.Sprintf("default: work\nproviders:\n  work:\n    api: openai\n    base_url: %s\n    models: [m1]\n", url)
	}
	if err := os.WriteFile(cfg.ProvidersFile, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	for _, f := range change {
		f(&cfg)
	}
	s, err := runner.New(cfg, runner.Deps{Registry: w.wire, Metrics: w.metrics, Holder: holder.ID(), Getenv: func(string) string { return "" }, Logger: slog.New(slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		w.t.Fatal(err)
	}
	conn, stop := serveOn(w.t, s.Register, runner.Policy(), s.Run)
	shop := &workshop{runnerpb.NewRunnerServiceClient(conn), runnerpb.NewToolServiceClient(conn), func() { stop(); _ = holder.Close() }}
	w.t.Cleanup(shop.stop)
	return shop
}

// say starts a run and answers its id.
func (w *world) say(r *workshop, agent, text string) string {
	w.t.Helper()
	started, err := r.StartRun(w.t.Context(), &runnerpb.StartRunRequest{AgentId: agent, Text: text})
	if err != nil {
		w.t.Fatal(err)
	}
	return started.GetRunId()
}

// hears follows a run until it says a text.
func (w *world) hears(r *workshop, agent, id, text string) {
	w.t.Helper()
	s, err := r.StreamRun(w.t.Context(), &runnerpb.StreamRunRequest{AgentId: agent, RunId: id})
	if err != nil {
		w.t.Fatal(err)
	}
	for said := ""; said != text; {
		item, err := s.Recv()
		if err != nil {
			w.t.Fatal(err)
		}
		said = item.GetText()
	}
}

func (w *world) wait(r *workshop, agent, id string) *runnerpb.WaitRunResponse {
	w.t.Helper()
	end, err := r.WaitRun(w.t.Context(), &runnerpb.WaitRunRequest{AgentId: agent, RunId: id})
	if err != nil {
		w.t.Fatal(err)
	}
	return end
}

func (w *world) events(agent, thread string) []*registrypb.Event {
	w.t.Helper()
	page, err := w.threads.PeekEvents(w.t.Context(), &registrypb.PeekEventsRequest{Thread: &registrypb.ThreadRef{AgentId: agent, ThreadId: thread}})
	if err != nil {
		w.t.Fatal(err)
	}
	return page.GetEvents()
}

// readings is a connection to the registry on which the test sees which inboxes
// were read to their end.
type readings struct {
	grpc.ClientConnInterface
	read chan string // an agent, each time
}

func (r readings) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	err := r.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
	if out, ok := reply.(*registrypb.OpenBatchResponse); ok && err == nil && !out.GetMore() && len(out.GetEvents()) > 0 {
		r.read <- args.(*registrypb.OpenBatchRequest).GetAgentId()
	}
	return err
}

// watched makes the runners that are started from now on tell of their readings.
func (w *world) watched() <-chan string {
	r := readings{w.conn, make(chan string, 1024)}
	w.wire = r
	return r.read
}

// token is that of the agent's run lease.
func (w *world) token(agent string) uint64 {
	w.t.Helper()
	l, err := w.leases.ListLeases(w.t.Context(), &registrypb.ListLeasesRequest{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, lease := range l.GetLeases() {
		if lease.GetResource() == "agent/"+agent {
			return lease.GetToken()
		}
	}
	w.t.Fatalf("no lease of %s in %v", agent, l)
	return 0
}

func durationOf(d time.Duration) *durationpb.Duration { return durationpb.New(d) }
