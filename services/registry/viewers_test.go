package registry_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/obs/agentlog"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/serve"
	"github.com/theclaw/agents/internal/testing/backendtest"
	"github.com/theclaw/agents/internal/workdir"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// viewerNames are the columns of viewers: the callers that ask for what agent a1 has. A runner with the
// lease of another agent shows that lease with its call.
var viewerNames = []string{"owner", "runner, its lease", "runner, another lease", "runner, no lease", "deliverer", "gateway", "an agent", "no token"}

// viewers is what each of them gets. yes: the answer, with what is in it; no:
// PERMISSION_DENIED; -: UNAUTHENTICATED. docs/spec/security.md has the same table.
var viewers = []struct {
	what, call string
	get        string // one letter for each viewer: y, n or -
}{
	{"history", "PeekEvents", "yyyyynn-"},
	{"history", "WatchEvents", "yyyyynn-"},
	{"memory", "ReadAgentFile", "yyyyynn-"},
	{"memory", "GetMemory", "yyyynnn-"},
	{"workdir", "GetWorkdir", "yyyynnn-"},
	{"workdir", "ReadPieces", "yyyynnn-"},
	{"session list", "ListSessions", "ynnnnnn-"},
	{"session list", "GetSession", "ynnnnyn-"},
	{"status", "GetAgentStatus", "yyyyyyn-"},
	{"status", "ListAgents", "yyyyynn-"},
}

// outcomes are the words of the table.
var outcomes = map[byte]string{'y': "yes", 'n': "no", '-': "-"}

// viewed is what agent a1 has, and what an answer contains that shows it.
const (
	viewedKey    = "agent:a1:telegram:tg:dm:bob"
	viewedThread = "threads/peers/tg-bob"
	viewedText   = "the cat is called Mia"
	viewedMemory = "Bob has a cat"
	viewedFile   = "cat.txt"
)

// S4-35, S4-91: who may see whose messages: each viewer makes each call about agent a1 to a
// registry on a Unix socket, with its own token.
func TestViewers(t *testing.T) { backendtest.Each(t, testViewers) }

func testViewers(t *testing.T, o backendtest.Options) {
	specified(t)
	dial := viewedRegistry(t, o)
	owner := newViewer(dial(rpc.Identity{Kind: rpc.Owner}, true))
	piece := fill(t, owner, newViewer(dial(rpc.Identity{Kind: rpc.Service, Name: "runner"}, true)), o.DSN != "")

	runner := rpc.Identity{Kind: rpc.Service, Name: "runner"}
	callers := []struct {
		id    rpc.Identity
		token bool
		lease string // agent whose lease it shows
	}{
		{rpc.Identity{Kind: rpc.Owner}, true, ""},
		{runner, true, "a1"},
		{runner, true, "a2"},
		{runner, true, ""},
		{rpc.Identity{Kind: rpc.Service, Name: "deliverer"}, true, ""},
		{rpc.Identity{Kind: rpc.Service, Name: "gateway"}, true, ""},
		{rpc.Identity{Kind: rpc.Agent, Name: "a1"}, true, ""},
		{rpc.Identity{}, false, ""},
	}
	if len(callers) != len(viewerNames) {
		t.Fatalf("%d callers for %d columns", len(callers), len(viewerNames))
	}
	cells := 0
	for i, c := range callers {
		v := newViewer(dial(c.id, c.token))
		ctx := t.Context()
		if c.lease != "" {
			ctx = backendtest.Under(ctx, v.acquire(t, c.lease))
		}
		for _, row := range viewers {
			cells++
			answer, want, err := v.ask(ctx, row.call, piece)
			got := byte('?')
			switch code := status.Code(err); {
			case err == nil && strings.Contains(answer, want):
				got = 'y'
			case o.DSN == "" && row.what == "workdir" && code == codes.FailedPrecondition:
				got = 'y' // it was admitted: the registry of a home keeps no working directories
			case code == codes.PermissionDenied:
				got = 'n'
			case code == codes.Unauthenticated:
				got = '-'
			}
			if got != row.get[i] {
				t.Errorf("%s by %s: %q, %v, want %s and %q", row.call, viewerNames[i], answer, err, outcomes[row.get[i]], want)
			}
		}
	}
	t.Logf("figures: cells=%d", cells)
}

// specified compares the table with that of the specification.
func specified(t *testing.T) {
	t.Helper()
	var table strings.Builder
	fmt.Fprintf(&table, "| what | call | %s |\n|%s\n", strings.Join(viewerNames, " | "), strings.Repeat("---|", len(viewerNames)+2))
	for _, row := range viewers {
		fmt.Fprintf(&table, "| %s | `%s` |", row.what, row.call)
		for _, c := range []byte(row.get) {
			fmt.Fprintf(&table, " %s |", outcomes[c])
		}
		table.WriteString("\n")
	}
	page, err := os.ReadFile("../../docs/spec/security.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "\n\n"+table.String()+"\n") {
		t.Errorf("docs/spec/security.md does not have the table\n%s", table.String())
	}
}

// viewer is a caller of the registry.
type viewer struct {
	agents   registryv1.AgentServiceClient
	threads  registryv1.ThreadServiceClient
	leases   registryv1.LeaseServiceClient
	turns    registryv1.TurnServiceClient
	workdirs registryv1.WorkdirServiceClient
	sessions registryv1.SessionServiceClient
}

func newViewer(c grpc.ClientConnInterface) *viewer {
	return &viewer{
		registryv1.NewAgentServiceClient(c), registryv1.NewThreadServiceClient(c), registryv1.NewLeaseServiceClient(c),
		registryv1.NewTurnServiceClient(c), registryv1.NewWorkdirServiceClient(c), registryv1.NewSessionServiceClient(c),
	}
}

// viewedRegistry serves a registry on a Unix socket. What it returns dials it with the token of an
// identity, or without one.
func viewedRegistry(t *testing.T, o backendtest.Options) func(rpc.Identity, bool) grpc.ClientConnInterface {
	t.Helper()
	h, err := agentdir.OpenHome(o.Home)
	if err != nil {
		t.Fatal(err)
	}
	log := agentlog.New(nil)
	svc, err := o.Open(t.Context(), registry.Config{}, registry.Deps{Home: h, Logger: slog.New(slog.DiscardHandler), Metrics: obs.NewRegistryMetrics(nil), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "view") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	tokenPath, addr := filepath.Join(dir, "token"), "unix://"+filepath.Join(dir, "run", "s")
	token, err := rpc.NewToken(tokenPath)
	if err != nil {
		t.Fatal(err)
	}
	srv, err := serve.New(serve.Options{
		Addr: addr, Token: func() string { return token }, Services: []serve.Registrar{svc.Register}, Policy: registry.Policy(), Audit: svc.Auditor(), Grace: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 2)
	go func() { done <- srv.Run(ctx) }()
	go func() { done <- svc.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		err := errors.Join(<-done, <-done, svc.Close(), log.Close(), h.Close(), os.RemoveAll(dir))
		if err != nil {
			t.Error(err)
		}
	})
	return func(id rpc.Identity, withToken bool) grpc.ClientConnInterface {
		t.Helper()
		d := rpc.DialOptions{As: id, WaitForReady: true}
		if withToken {
			d.TokenPath = tokenPath
		}
		c, err := rpc.Dial(addr, d)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
}

// fill gives a1 a conversation, a memory and, where the registry keeps one, a working directory
// of one file, whose piece it returns. There is another agent, a2.
func fill(t *testing.T, owner, runner *viewer, workdirs bool) (piece string) {
	t.Helper()
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"a1", "a2"} {
		must(owner.agents.CreateAgent(ctx, &registryv1.CreateAgentRequest{AgentId: id}))
		must(owner.agents.StartAgent(ctx, &registryv1.StartAgentRequest{AgentId: id}))
	}
	must(owner.agents.WriteAgentFile(ctx, &registryv1.WriteAgentFileRequest{AgentId: "a1", Name: "memory/agent.md", Content: []byte(viewedMemory)}))
	must(owner.threads.PushEvents(ctx, &registryv1.PushEventsRequest{
		Thread: &registryv1.ThreadRef{AgentId: "a1", ThreadId: "inbox"},
		Events: []*registryv1.NewEvent{{Source: "external:telegram:tg:dm:bob:bob", Type: "message", Content: `{"text":"` + viewedText + `"}`}},
	}))
	l := runner.acquire(t, "a1")
	ctx = backendtest.Under(ctx, l)
	b, err := runner.turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: "a1"})
	must(b, err)
	for _, p := range b.GetEvents() {
		if p.GetThreadId() != viewedThread {
			t.Fatalf("the conversation is %s", p.GetThreadId())
		}
		must(runner.turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{AgentId: "a1", InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId()}))
		must(runner.turns.FinishTurn(ctx, &registryv1.FinishTurnRequest{
			AgentId: "a1", InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId(), Fate: registryv1.Fate_FATE_REPLIED, Text: "good to know",
		}))
	}
	if workdirs {
		data := []byte(viewedText)
		piece = workdir.Hash(data)
		manifest, _, err := (workdir.Tree{Entries: []workdir.Entry{{Path: viewedFile, Kind: workdir.File, Mode: 0o600, Size: int64(len(data)), Pieces: []string{piece}}}}).Encode()
		must(manifest, err)
		out, err := runner.workdirs.WritePieces(ctx)
		must(out, err)
		must(nil, out.Send(&registryv1.WritePiecesRequest{AgentId: "a1", Piece: &registryv1.Piece{Sha256: piece, Data: data}}))
		must(out.CloseAndRecv())
		must(runner.workdirs.CommitWorkdir(ctx, &registryv1.CommitWorkdirRequest{AgentId: "a1", Manifest: manifest}))
	} else {
		piece = workdir.Hash(nil)
	}
	must(runner.leases.ReleaseLease(ctx, &registryv1.ReleaseLeaseRequest{Resource: l.GetResource(), Token: l.GetToken()}))
	return piece
}

// acquire gets the lease of an agent, which outlasts the test.
func (v *viewer) acquire(t *testing.T, agent string) *registryv1.Lease {
	t.Helper()
	const holder = "runner-01JZZZZZZZZZZZZZZZZZZZZZZZ"
	r, err := v.leases.AcquireLease(t.Context(), &registryv1.AcquireLeaseRequest{
		Kind: backendtest.KindRun, AgentId: agent, Holder: holder, RequestId: t.Name() + agent, Ttl: backendtest.DurationOf(10 * time.Minute),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r.GetLease()
}

// ask makes a call about a1 and returns the text of its answer, and what is in it when a1 is
// seen.
func (v *viewer) ask(ctx context.Context, call, piece string) (answer, want string, err error) {
	thread := &registryv1.ThreadRef{AgentId: "a1", ThreadId: viewedThread}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	switch call {
	case "PeekEvents":
		r, err := v.threads.PeekEvents(ctx, &registryv1.PeekEventsRequest{Thread: thread})
		return r.String(), viewedText, err
	case "WatchEvents":
		in, err := v.threads.WatchEvents(ctx, &registryv1.WatchEventsRequest{Thread: thread})
		if err != nil {
			return "", viewedText, err
		}
		if _, err := in.Recv(); err != nil { // the first answer is empty
			return "", viewedText, err
		}
		r, err := in.Recv()
		return r.String(), viewedText, err
	case "ReadAgentFile":
		r, err := v.agents.ReadAgentFile(ctx, &registryv1.ReadAgentFileRequest{AgentId: "a1", Name: "memory/agent.md"})
		return string(r.GetContent()), viewedMemory, err
	case "GetMemory":
		r, err := v.turns.GetMemory(ctx, &registryv1.GetMemoryRequest{AgentId: "a1", ThreadId: viewedThread})
		return r.String(), viewedMemory, err
	case "GetWorkdir":
		r, err := v.workdirs.GetWorkdir(ctx, &registryv1.GetWorkdirRequest{AgentId: "a1"})
		return string(r.GetManifest()), viewedFile, err
	case "ReadPieces":
		in, err := v.workdirs.ReadPieces(ctx, &registryv1.ReadPiecesRequest{AgentId: "a1", Sha256: []string{piece}})
		if err != nil {
			return "", viewedText, err
		}
		r, err := in.Recv()
		return string(r.GetPiece().GetData()), viewedText, err
	case "ListSessions":
		r, err := v.sessions.ListSessions(ctx, &registryv1.ListSessionsRequest{AgentId: "a1"})
		return r.String(), viewedKey, err
	case "GetSession":
		r, err := v.sessions.GetSession(ctx, &registryv1.GetSessionRequest{Key: viewedKey})
		return r.String(), viewedThread, err
	case "GetAgentStatus":
		r, err := v.agents.GetAgentStatus(ctx, &registryv1.GetAgentStatusRequest{AgentId: "a1"})
		return r.String(), "inbox", err
	case "ListAgents":
		r, err := v.agents.ListAgents(ctx, &registryv1.ListAgentsRequest{})
		return r.String(), "a1", err
	}
	return "", "", fmt.Errorf("no call %s", call)
}
