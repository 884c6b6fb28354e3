package runner_test

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/obs/agentlog"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/serve"
	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
	"github.com/theclaw/agents/services/runner"
)

// victim is the variable that makes this binary a runner: the registry's socket, a directory,
// and where the runner kills itself.
const victim = "RUNNER_TEST_VICTIM"

// instants are where a runner kills itself: the n-th record of a state before or after it is sent.
var instants = map[string]struct {
	state registrypb.ProcessState
	after bool
}{
	"TX1": {registrypb.ProcessState_PROCESS_STATE_STARTING, true}, // the row is there, nothing was started
	"TX2": {registrypb.ProcessState_PROCESS_STATE_RUNNING, true},  // it runs, and the result of the call may be missing
	"TX3": {registrypb.ProcessState_PROCESS_STATE_EXITED, false},  // it has exited, and that is not recorded
}

// mortal is a connection to the registry that kills the process at an instant.
type mortal struct {
	grpc.ClientConnInterface

	at   string
	left atomic.Int32 // records of the state until then
}

func (m *mortal) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	in, ok := args.(*registrypb.RecordProcessRequest)
	i, mine := instants[m.at]
	hit := ok && mine && in.GetProcess().GetState() == i.state && m.left.Add(-1) == 0
	if hit && !i.after {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	err := m.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
	if hit {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return err
}

// beVictim runs a runner until its input ends, or it kills itself.
func beVictim(what string) error {
	f := strings.Split(what, ",") // socket, directory, instant, which record
	conn, err := rpc.Dial("passthrough:///registry", rpc.DialOptions{
		Insecure: true, Dialer: func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", f[0])
		},
	})
	if err != nil {
		return err
	}
	holder, err := lease.NewHolder(filepath.Join(f[1], "holders"), "runner")
	if err != nil {
		return err
	}
	wire := &mortal{ClientConnInterface: conn, at: f[2]}
	n, err := strconv.Atoi(f[3])
	if err != nil {
		return err
	}
	wire.left.Store(int32(n))
	s, err := runner.New(runner.Config{
		TTL: 2 * time.Second, Grace: time.Second, ProvidersFile: filepath.Join(f[1], "providers.yaml"), Sandbox: sandbox.Options{ScratchDir: f[1]},
	}, runner.Deps{Registry: wire, Holder: holder.ID(), Getenv: func(string) string { return "" }, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return s.Run(ctx)
}

// prey starts runners that may kill themselves.
type prey struct {
	t           *testing.T
	socket, dir string
}

// start starts one; stop lets it drain, and dead waits until it has killed itself.
func (p prey) start(at string, n int) (stop func(), dead func()) {
	p.t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s,%s,%s,%d", victim, p.socket, p.dir, at, n))
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	wait := func() { _ = cmd.Wait() }
	return func() {
			_ = in.Close()
			if wait(); cmd.ProcessState.ExitCode() != 0 {
				p.t.Errorf("the runner ended with %v: %s", cmd.ProcessState, log.String())
			}
		}, func() {
			timer := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
			defer timer.Stop()
			if wait(); !strings.Contains(cmd.ProcessState.String(), "killed") {
				p.t.Fatalf("the runner ended with %v: %s", cmd.ProcessState, log.String())
			}
		}
}

// socketWorld is a registry over an engine that other processes can call.
func socketWorld(t *testing.T, o backendtest.Options) (w *world, socket string) {
	t.Helper()
	home, err := agentdir.OpenHome(o.Home)
	if err != nil {
		t.Fatal(err)
	}
	log := agentlog.New(nil)
	svc, err := o.Open(t.Context(), registry.Config{}, registry.Deps{Home: home, Logger: slog.New(slog.DiscardHandler), Metrics: obs.NewRegistryMetrics(nil), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "kill") // a short path, for a socket
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv, err := serve.New(serve.Options{Listener: listener, Insecure: true, Services: []serve.Registrar{svc.Register}, Policy: registry.Policy(), Grace: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- srv.Run(ctx) }()
	go func() { done <- svc.Run(ctx) }()
	conn, err := rpc.Dial("passthrough:///registry", rpc.DialOptions{
		Insecure: true, Dialer: func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if err := svc.Close(); err != nil {
			t.Error(err)
		}
		_ = log.Close()
		_ = home.Close()
		_ = os.RemoveAll(dir)
	})
	return &world{
		t: t, home: home, conn: conn, wire: conn, agents: registrypb.NewAgentServiceClient(conn), threads: registrypb.NewThreadServiceClient(conn),
		turns: registrypb.NewTurnServiceClient(conn), leases: registrypb.NewLeaseServiceClient(conn),
	}, socket
}

// each is backendtest.Each with a database server that ends with the test.
func each(t *testing.T, test func(t *testing.T, o backendtest.Options)) {
	t.Run("sqlite", func(t *testing.T) { test(t, backendtest.Options{Home: filepath.Join(t.TempDir(), "h")}) })
	t.Run("postgres", func(t *testing.T) {
		test(t, backendtest.Options{Home: filepath.Join(t.TempDir(), "h"), DSN: pgtest.Start(t, "fsync = off").Database(t)})
	})
}

// idOfRun is the id of the process that the first call of a run starts.
func idOfRun(run string) string {
	sum := sha256.Sum256([]byte(run + ":tool:1:1"))
	return "p-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:8]
}

// S4-64, I41: a runner that is killed at any instant of a process leaves it accounted once: with the
// next lease the agent has one message that it was ended by a restart, nothing of it runs, and its
// call is not made again. KILLS is how many runners are killed.
func TestProcessesOutliveNoRunner(t *testing.T) {
	kills := 3
	if n, err := strconv.Atoi(os.Getenv("KILLS")); err == nil {
		kills = n
	}
	each(t, func(t *testing.T, o backendtest.Options) {
		const agents = 4
		w, socket := socketWorld(t, o)
		p := prey{t, socket, t.TempDir()}
		if err := os.WriteFile(filepath.Join(p.dir, "providers.yaml"), []byte("default: offline\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for a := range agents {
			id := fmt.Sprint("a", a)
			_, err := w.agents.CreateAgent(t.Context(), &registrypb.CreateAgentRequest{AgentId: id})
			if err == nil {
				_, err = w.agents.SetAgentConfig(t.Context(), &registrypb.SetAgentConfigRequest{AgentId: id, Key: "tools.profile", Value: "full"})
			}
			if err == nil {
				_, err = w.agents.StartAgent(t.Context(), &registrypb.StartAgentRequest{AgentId: id})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		marker := fmt.Sprintf("sleep 2000.%d", os.Getpid())
		lost, dup, restarts := 0, 0, 0
		for n := range kills {
			at := []string{"TX1", "TX2", "TX3"}[n%3]
			command := "exec " + marker
			if at == "TX3" {
				command = "true"
			}
			_, dead := p.start(at, 1+n/3%agents)
			ids := map[string]int64{}
			for a := range agents {
				out, err := w.threads.PushEvents(t.Context(), &registrypb.PushEventsRequest{
					Thread: &registrypb.ThreadRef{AgentId: fmt.Sprint("a", a), ThreadId: "inbox"},
					Events: []*registrypb.NewEvent{{
						Source: "external:console:cli:dm:cli:cli", Type: "message", Content: `{"text":` + strconv.Quote("call: "+bashCall(command, `,"background":true`)) + `}`,
					}},
				})
				if err != nil {
					t.Fatal(err)
				}
				ids[fmt.Sprint("a", a)] = out.GetEventIds()[0]
			}
			dead()
			stop, _ := p.start("never", 0)
			for agent, id := range ids { // the calls have their results or are in doubt
				turn := w.fate(agent, id)
				if turn.GetFate() != registrypb.Fate_FATE_REPLIED {
					t.Errorf("kill %d at %s, %s: %v", n, at, agent, turn.GetFate())
				}
			}
			stop() // what still runs ends, and is recorded
			for agent, id := range ids {
				process, got := idOfRun(w.fate(agent, id).GetKey()), 0
				recorded := w.recorded(agent, process)
				for _, e := range w.events(agent, "inbox") {
					if strings.HasPrefix(e.GetSource(), "internal:process:"+process+":") {
						got++
						if strings.Contains(e.GetContent(), "ended by a restart") {
							restarts++
						}
					}
				}
				switch {
				case got > 1:
					dup++
				case got == 0 && recorded:
					lost++
				case got == 1 && !recorded:
					t.Errorf("%s of %s has a message and no row", process, agent)
				}
			}
			if left := running(t, marker); left > 0 {
				t.Fatalf("kill %d at %s: %d programs run", n, at, left)
			}
		}
		fmt.Fprintf(os.Stdout, "processes kills=%d restarts=%d lost=%d dup=%d\n", kills, restarts, lost, dup)
		if lost+dup > 0 || restarts < kills {
			t.Errorf("lost=%d dup=%d, %d ended by %d restarts", lost, dup, restarts, kills)
		}
	})
}

// fate waits for that of a message.
func (w *world) fate(agent string, id int64) *registrypb.Turn {
	w.t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		r, err := w.turns.GetTurn(w.t.Context(), &registrypb.GetTurnRequest{AgentId: agent, InboxId: id, Wait: durationOf(10 * time.Second)})
		if err != nil {
			w.t.Fatal(err)
		}
		if r.GetTurn().GetFate() != registrypb.Fate_FATE_UNSPECIFIED {
			return r.GetTurn()
		}
		if time.Now().After(end) {
			w.t.Fatalf("message %d of %s has no fate", id, agent)
		}
	}
}

// recorded reports whether the registry has a process of the console's conversation; it takes the
// lease, as the next runner does.
func (w *world) recorded(agent, process string) bool {
	w.t.Helper()
	var l *registrypb.AcquireLeaseResponse
	for err := error(nil); l == nil; { // the lease of a runner that was killed ends with its time
		l, err = w.leases.AcquireLease(w.t.Context(), &registrypb.AcquireLeaseRequest{
			Kind: registrypb.LeaseKind_LEASE_KIND_RUN, AgentId: agent, Holder: "test", RequestId: process, Ttl: durationOf(5 * time.Second),
		})
		if err != nil && !fault.Is(err, fault.LeaseHeld) {
			w.t.Fatal(err)
		}
	}
	ctx := backendtest.Under(w.t.Context(), l.GetLease())
	if _, err := w.turns.OpenBatch(ctx, &registrypb.OpenBatchRequest{AgentId: agent}); err != nil {
		w.t.Fatal(err)
	}
	list, err := w.turns.ListProcesses(ctx, &registrypb.ListProcessesRequest{AgentId: agent, ThreadId: cli})
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.leases.ReleaseLease(ctx, &registrypb.ReleaseLeaseRequest{Resource: l.GetLease().GetResource(), Token: l.GetLease().GetToken()}); err != nil {
		w.t.Fatal(err)
	}
	for _, p := range list.GetProcesses() {
		if p.GetId() == process {
			return true
		}
	}
	return false
}
