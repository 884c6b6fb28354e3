package world_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/mtls"
	"github.com/theclaw/agents/internal/rpc/serve"
	delivererv1 "github.com/theclaw/agents/proto/gen/theclaw/deliverer/v1"
	gatewayv1 "github.com/theclaw/agents/proto/gen/theclaw/gateway/v1"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerv1 "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/deliverer"
	"github.com/theclaw/agents/services/gateway"
	"github.com/theclaw/agents/services/registry"
	"github.com/theclaw/agents/services/runner"
)

// tables are the access tables as they are served. The handlers are not there: a
// call that is let through ends with UNIMPLEMENTED or a wrong argument, and
// changes nothing.
var tables = map[string]struct {
	policy   serve.Policy
	register serve.Registrar
	services []grpc.ServiceDesc
}{
	"registry": {registry.Policy(), func(r grpc.ServiceRegistrar) {
		registryv1.RegisterAgentServiceServer(r, registryv1.UnimplementedAgentServiceServer{})
		registryv1.RegisterThreadServiceServer(r, registryv1.UnimplementedThreadServiceServer{})
		registryv1.RegisterLeaseServiceServer(r, registryv1.UnimplementedLeaseServiceServer{})
		registryv1.RegisterTurnServiceServer(r, registryv1.UnimplementedTurnServiceServer{})
		registryv1.RegisterDeliveryServiceServer(r, registryv1.UnimplementedDeliveryServiceServer{})
		registryv1.RegisterApprovalServiceServer(r, registryv1.UnimplementedApprovalServiceServer{})
		registryv1.RegisterQuestionServiceServer(r, registryv1.UnimplementedQuestionServiceServer{})
		registryv1.RegisterIdentityServiceServer(r, registryv1.UnimplementedIdentityServiceServer{})
		registryv1.RegisterPinServiceServer(r, registryv1.UnimplementedPinServiceServer{})
		registryv1.RegisterMediaServiceServer(r, registryv1.UnimplementedMediaServiceServer{})
		registryv1.RegisterRoutingServiceServer(r, registryv1.UnimplementedRoutingServiceServer{})
		registryv1.RegisterChannelServiceServer(r, registryv1.UnimplementedChannelServiceServer{})
		registryv1.RegisterSessionServiceServer(r, registryv1.UnimplementedSessionServiceServer{})
		registryv1.RegisterHomeServiceServer(r, registryv1.UnimplementedHomeServiceServer{})
		registryv1.RegisterWorkdirServiceServer(r, registryv1.UnimplementedWorkdirServiceServer{})
	}, []grpc.ServiceDesc{
		registryv1.AgentService_ServiceDesc, registryv1.ThreadService_ServiceDesc, registryv1.LeaseService_ServiceDesc,
		registryv1.TurnService_ServiceDesc, registryv1.DeliveryService_ServiceDesc, registryv1.ApprovalService_ServiceDesc, registryv1.QuestionService_ServiceDesc, registryv1.IdentityService_ServiceDesc,
		registryv1.PinService_ServiceDesc, registryv1.MediaService_ServiceDesc, registryv1.RoutingService_ServiceDesc, registryv1.ChannelService_ServiceDesc, registryv1.SessionService_ServiceDesc, registryv1.HomeService_ServiceDesc, registryv1.WorkdirService_ServiceDesc,
	}},
	"runner": {runner.Policy(), func(r grpc.ServiceRegistrar) {
		runnerv1.RegisterRunnerServiceServer(r, runnerv1.UnimplementedRunnerServiceServer{})
		runnerv1.RegisterToolServiceServer(r, runnerv1.UnimplementedToolServiceServer{})
	}, []grpc.ServiceDesc{runnerv1.RunnerService_ServiceDesc, runnerv1.ToolService_ServiceDesc}},
	"gateway": {gateway.Policy(), func(r grpc.ServiceRegistrar) {
		gatewayv1.RegisterGatewayServiceServer(r, gatewayv1.UnimplementedGatewayServiceServer{})
	}, []grpc.ServiceDesc{gatewayv1.GatewayService_ServiceDesc}},
	"deliverer": {deliverer.Policy(), func(r grpc.ServiceRegistrar) {
		delivererv1.RegisterDelivererServiceServer(r, delivererv1.UnimplementedDelivererServiceServer{})
	}, []grpc.ServiceDesc{delivererv1.DelivererService_ServiceDesc}},
}

// workers says which calls a service may make, beside the owner, who may make all.
// It is written down here a second time on purpose: a call that is added, or a rule
// that is widened, has to be said twice.
var workers = map[string][]string{
	"runner": {
		"OpenBatch", "BeginTurn", "RecordStep", "FinishTurn", "RecordCompaction", "GetMemory", "GetTurnConfig", "WithdrawTurn", "RecordProcess", "ListProcesses", "RequestApproval", "RequestQuestion", "AnswerQuestion",
		"ReportTools", "ListPins", "WriteMedia", "ReadMedia", "GetWorkdir", "CommitWorkdir", "ReadPieces", "WritePieces", "ListHooks",
	},
	"deliverer": {"BeginDelivery", "DecideDelivery", "FinishDelivery", "ReadMedia", "GetRunnerInfo", "RunHook"},
	"gateway": {
		"AcceptMessages", "GetCursor", "PutCursor", "ListPairings", "ResolvePairing", "WatchPairings", "ReportNotice", "WriteMedia", "WatchApprovals", "ResolveApproval", "WatchQuestions", "AnswerQuestion",
		"WatchHomeConfig", "GetTurn", "AcquireLease", "RenewLease", "ReleaseLease",
		"GetAgentStatus", "GetSession", "ListLeases", "GetRunnerInfo", "RunHook", "FindRunner", "StreamRun", "ListProviders",
	},
	"both": {
		"GetAgent", "ListAgents", "GetAgentStatus", "ReadAgentFile", "GetAgentConfig",
		"EnsureThread", "PushEvents", "PeekEvents", "PopEvents", "AckEvents", "Subscribe", "Unsubscribe", "GetThread", "ListThreads", "WatchEvents",
		"AcquireLease", "AcquireDueLease", "RenewLease", "ReleaseLease", "ListLeases", "GetTurn", "ListTurns", "ListDeliveries",
	},
}

// may is whether a caller of a role may make a call, by the list above.
func may(role, method string) bool {
	return role == "owner" || slices.Contains(workers[role], method) || (role == "runner" || role == "deliverer") && slices.Contains(workers["both"], method)
}

// caller is one way to come to a service. Its role is that of the list above;
// empty for one who must not get in anywhere.
type caller struct {
	name, role string
	tcp        bool
	creds      credentials.TransportCredentials
	auth       string
}

// S3, S1, S2: every call of the descriptors of every service x every kind of caller
// over the socket and over TCP.
func TestEveryCallRefusesEveryWrongCaller(t *testing.T) {
	own, strange := filepath.Join(t.TempDir(), "own"), filepath.Join(t.TempDir(), "strange")
	a, err := mtls.Init(own, "one.test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"owner", "registry", "runner", "runner-2", "deliverer", "gateway"} {
		if _, err := a.Issue(name, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Issue("runner-9", -time.Minute); err != nil {
		t.Fatal(err)
	}
	b, err := mtls.Init(strange, "two.test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Issue("owner", time.Hour); err != nil {
		t.Fatal(err)
	}
	joinAuthorities(t, own, strange)
	total := 0
	for _, service := range slices.Sorted(maps.Keys(tables)) {
		table := tables[service]
		unix, tcp, token := serveTable(t, service, table.policy, table.register, own)
		certificate := func(dir, name string) credentials.TransportCredentials {
			s, err := mtls.Open(dir, name, nil)
			if err != nil {
				t.Fatal(err)
			}
			return mtls.Client(s, service)
		}
		bearer := func(id rpc.Identity) string { return "Bearer " + rpc.Bearer(token, id) }
		peer := rpc.PeerCredentials()
		callers := []caller{
			{name: "owner's token", role: "owner", creds: peer, auth: "Bearer " + token},
			{name: "runner's token", role: "runner", creds: peer, auth: bearer(rpc.Identity{Kind: rpc.Service, Name: "runner"})},
			{name: "deliverer's token", role: "deliverer", creds: peer, auth: bearer(rpc.Identity{Kind: rpc.Service, Name: "deliverer-2"})},
			{name: "gateway's token", role: "gateway", creds: peer, auth: bearer(rpc.Identity{Kind: rpc.Service, Name: "gateway"})},
			{name: "gateway's certificate", role: "gateway", tcp: true, creds: certificate(own, "gateway")},
			{name: "no token", creds: peer},
			{name: "old token", creds: peer, auth: "Bearer " + strings.Repeat("0", 64)},
			{name: "unknown service's token", creds: peer, auth: bearer(rpc.Identity{Kind: rpc.Service, Name: "planner"})},
			{name: "agent's token", creds: peer, auth: bearer(rpc.Identity{Kind: rpc.Agent, Name: "a1"})},
			{name: "forged name", creds: peer, auth: strings.Replace(bearer(rpc.Identity{Kind: rpc.Service, Name: "runner"}), "service:runner", "service:deliverer", 1)},
			{name: "owner's certificate", role: "owner", tcp: true, creds: certificate(own, "owner")},
			{name: "runner's certificate", role: "runner", tcp: true, creds: certificate(own, "runner-2")},
			{name: "deliverer's certificate", role: "deliverer", tcp: true, creds: certificate(own, "deliverer")},
			{name: "registry's certificate", tcp: true, creds: certificate(own, "registry")},
			{name: "runner's certificate, owner's token", role: "runner", tcp: true, creds: certificate(own, "runner"), auth: "Bearer " + token},
			{name: "expired certificate", tcp: true, creds: careless(t, own, "runner-9")},
			{name: "certificate of another domain", tcp: true, creds: careless(t, strange, "owner")},
			{name: "no certificate, owner's token", tcp: true, creds: careless(t, "", ""), auth: "Bearer " + token},
			{name: "plaintext, owner's token", tcp: true, creds: insecure.NewCredentials(), auth: "Bearer " + token},
		}
		for _, c := range callers {
			target := unix
			if c.tcp {
				target = tcp
			}
			cc, err := grpc.NewClient(target, grpc.WithTransportCredentials(c.creds))
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range table.services {
				for _, method := range methods(d) {
					total++
					full := "/" + d.ServiceName + "/" + method
					got := anyCall(t, cc, full, c.auth)
					let := got == codes.Unimplemented || got == codes.InvalidArgument
					if let != may(c.role, method) || !let && got != codes.PermissionDenied && got != codes.Unauthenticated && (!c.tcp || got != codes.Unavailable) {
						t.Errorf("%s as %s: %v", full, c.name, got)
					}
				}
			}
			_ = cc.Close()
		}
	}
	t.Logf("figures: pairs=%d", total)
}

func methods(d grpc.ServiceDesc) (names []string) {
	for _, m := range d.Methods {
		names = append(names, m.MethodName)
	}
	for _, s := range d.Streams {
		names = append(names, s.StreamName)
	}
	return names
}

// serveTable serves a table on a socket and on TCP.
func serveTable(t *testing.T, name string, p serve.Policy, register serve.Registrar, tls string) (unix, tcp, token string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	token, err := rpc.NewToken(filepath.Join(dir, "token"))
	if err != nil {
		t.Fatal(err)
	}
	store, err := mtls.Open(tls, name, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	unix, tcp = "unix://"+filepath.Join(dir, "s"), "dns:///"+l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	for _, o := range []serve.Options{
		{Addr: unix, Token: rpc.NewTokenFile(filepath.Join(dir, "token")).Token},
		{Listener: l, Creds: mtls.Server(store, nil)},
	} {
		o.Policy, o.Services, o.Grace = p, []serve.Registrar{register}, -1
		s, err := serve.New(o)
		if err != nil {
			t.Fatal(err)
		}
		go func() { ended <- s.Run(ctx) }()
	}
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	return unix, tcp, token
}

// anyCall makes a call of any shape with an empty request, which is readable as
// any other.
func anyCall(t *testing.T, cc *grpc.ClientConn, method, auth string) codes.Code {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if auth != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, rpc.MetaAuth, auth)
	}
	s, err := cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err == nil {
		if err := s.SendMsg(&emptypb.Empty{}); err == nil {
			_ = s.CloseSend() // the answer says what was wrong
		}
		err = s.RecvMsg(&emptypb.Empty{})
	}
	if err == nil {
		return codes.OK
	}
	if grpcstatus.Convert(err).Message() == "" {
		t.Errorf("%s: a refusal without a word", method)
	}
	return grpcstatus.Code(err)
}

// joinAuthorities lets the first directory trust both.
func joinAuthorities(t *testing.T, dirs ...string) {
	t.Helper()
	var all []byte
	for _, d := range dirs {
		b, err := os.ReadFile(filepath.Join(d, "ca.pem"))
		if err != nil {
			t.Fatal(err)
		}
		all = fmt.Append(all, string(b))
	}
	if err := os.WriteFile(filepath.Join(dirs[0], "ca.pem"), all, 0o600); err != nil {
		t.Fatal(err)
	}
}
