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
	"slices"
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
	"github.com/theclaw/agents/internal/testing/backendtest"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
	"github.com/theclaw/agents/services/runner"
)

// victim is the variable that makes this binary a runner: the registry's socket, a directory,
// where the runner kills itself, and what starts the programs of its sandbox.
const victim = "RUNNER_TEST_VICTIM"

// An instant is where a runner kills itself: before or after a call of the registry.
type instant struct {
	after bool
	is    func(args, reply any) bool
}

// recordedStep is the instant at which such a step is recorded.
func recordedStep(after bool, is func(*registrypb.Step) bool) instant {
	return instant{after, func(args, _ any) bool {
		in, ok := args.(*registrypb.RecordStepRequest)
		return ok && slices.ContainsFunc(in.GetSteps(), is)
	}}
}

func process(state registrypb.ProcessState, after bool) instant {
	return instant{after, func(args, _ any) bool {
		in, ok := args.(*registrypb.RecordProcessRequest)
		return ok && in.GetProcess().GetState() == state
	}}
}

// instants are those of the calls; the instants of a change of files are failpoints.
var instants = map[string]instant{
	"T4.before": recordedStep(false, intent), "T4.after": recordedStep(true, intent),
	"T6.before": recordedStep(false, result), "T6.after": recordedStep(true, result),
	"TV1": recordedStep(true, transcript(registrypb.StepState_STEP_STATE_INTENT)), // a file is about to be transcribed
	"TV2": recordedStep(false, transcript(registrypb.StepState_STEP_STATE_DONE)),  // its text is there, and is not recorded
	"TV3": recordedStep(true, transcript(registrypb.StepState_STEP_STATE_DONE)),
	"TX1": process(registrypb.ProcessState_PROCESS_STATE_STARTING, true), // the row is there, nothing was started
	"TX2": process(registrypb.ProcessState_PROCESS_STATE_RUNNING, true),  // it runs, and the result of the call may be missing
	"TX3": process(registrypb.ProcessState_PROCESS_STATE_EXITED, false),  // it has exited, and that is not recorded
	"TA3": {true, func(_, reply any) bool { // the approval is used, and the command has not begun
		out, ok := reply.(*registrypb.RequestApprovalResponse)
		return ok && out.GetApproval().GetState() == registrypb.ApprovalState_APPROVAL_STATE_USED
	}},
	"C2.begun": {true, func(args, _ any) bool { // what the command stops has its fate, and it is not answered
		_, ok := args.(*registrypb.ListTurnsRequest)
		return ok
	}},
	"C2.answered": {true, func(args, _ any) bool {
		in, ok := args.(*registrypb.FinishTurnRequest)
		return ok && strings.HasPrefix(in.GetText(), "Stopped ")
	}},
	"TQ1": {true, func(args, _ any) bool { // the question is stored
		_, ok := args.(*registrypb.RequestQuestionRequest)
		return ok
	}},
	"TQ2": {true, func(args, _ any) bool { // the message with the question is there
		in, ok := args.(*registrypb.RecordStepRequest)
		return ok && len(in.GetSays()) > 0
	}},
	"TQ3": {true, func(args, _ any) bool { // a message is the answer, and not a member of the turn yet
		_, ok := args.(*registrypb.AnswerQuestionRequest)
		return ok
	}},
}

func intent(s *registrypb.Step) bool {
	return s.GetKind() == registrypb.StepKind_STEP_KIND_TOOL && s.GetState() == registrypb.StepState_STEP_STATE_INTENT
}

func result(s *registrypb.Step) bool {
	return s.GetKind() == registrypb.StepKind_STEP_KIND_TOOL && s.GetState() != registrypb.StepState_STEP_STATE_INTENT
}

func transcript(state registrypb.StepState) func(*registrypb.Step) bool {
	return func(s *registrypb.Step) bool {
		return s.GetKind() == registrypb.StepKind_STEP_KIND_TRANSCRIPT && s.GetState() == state
	}
}

// mortal is a connection to the registry that kills the process at an instant.
type mortal struct {
	grpc.ClientConnInterface

	at   string
	left atomic.Int32 // times that the instant comes until then
}

// dies kills the process at the last of the times.
func (m *mortal) dies() {
	if m.left.Add(-1) == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
}

func (m *mortal) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	i, ok := instants[m.at]
	if ok && !i.after && i.is(args, reply) {
		m.dies()
	}
	err := m.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
	if ok && i.after && err == nil && i.is(args, reply) {
		m.dies()
	}
	return err
}

// beVictim runs a runner until its input ends, or it kills itself.
func beVictim(what string) error {
	f := strings.Split(what, ",") // socket, directory, instant, which record, starter of its sandbox
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
	fault.SetPoint(func(label string) {
		if label == wire.at {
			wire.dies()
		}
	})
	s, err := runner.New(runner.Config{
		TTL: 2 * time.Second, Grace: time.Second, ProvidersFile: filepath.Join(f[1], "providers.yaml"), Sandbox: sandbox.Options{ScratchDir: f[1], Program: f[4]},
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

// hunted is a runner of its own process.
type hunted struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Closer
	log strings.Builder
}

// start starts one that kills itself when an instant comes for the n-th time.
func (p prey) start(at string, n int) *hunted {
	p.t.Helper()
	h := &hunted{t: p.t, cmd: exec.Command("/proc/self/exe")}
	h.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s,%s,%s,%d,%s", victim, p.socket, p.dir, at, n, sandboxProgram(p.t)))
	h.cmd.Stdout, h.cmd.Stderr = &h.log, &h.log
	in, err := h.cmd.StdinPipe()
	if err == nil {
		h.in, err = in, h.cmd.Start()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return h
}

// stop lets it drain, and waits for its end.
func (h *hunted) stop() {
	h.t.Helper()
	_ = h.in.Close()
	if _ = h.cmd.Wait(); h.cmd.ProcessState.ExitCode() != 0 {
		h.t.Errorf("the runner ended with %v: %s", h.cmd.ProcessState, h.log.String())
	}
}

// kill kills it from here.
func (h *hunted) kill() { _ = h.cmd.Process.Kill() }

// dead waits until it was killed.
func (h *hunted) dead() {
	h.t.Helper()
	timer := time.AfterFunc(time.Minute, func() { _ = h.cmd.Process.Signal(syscall.SIGTERM) })
	defer timer.Stop()
	if _ = h.cmd.Wait(); !strings.Contains(h.cmd.ProcessState.String(), "killed") {
		h.t.Fatalf("the runner ended with %v: %s", h.cmd.ProcessState, h.log.String())
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
	eachBackend(t, func(t *testing.T, o backendtest.Options) {
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
			first := p.start(at, 1+n/3%agents)
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
			first.dead()
			next := p.start("never", 0)
			for agent, id := range ids { // the calls have their results or are in doubt
				turn := w.fate(agent, id)
				if turn.GetFate() != registrypb.Fate_FATE_REPLIED {
					t.Errorf("kill %d at %s, %s: %v", n, at, agent, turn.GetFate())
				}
			}
			next.stop() // what still runs ends, and is recorded
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
	for end := time.Now().Add(time.Minute); ; <-time.After(5 * time.Millisecond) {
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
