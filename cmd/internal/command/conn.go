package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/balance"
	"github.com/theclaw/agents/internal/rpc/mtls"
	deliverer "github.com/theclaw/agents/proto/gen/theclaw/deliverer/v1"
	gateway "github.com/theclaw/agents/proto/gen/theclaw/gateway/v1"
	process "github.com/theclaw/agents/proto/gen/theclaw/process/v1"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// The services by the names of their sockets.
const (
	Registry  = "registry"
	Runner    = "runner"
	Deliverer = "deliverer"
	Gateway   = "gateway"
)

// safe are the calls that are repeated when a service is away for a moment.
// PushEvents and StartRun are because agentctl gives each an idempotency key.
var safe = []string{
	registry.AgentService_GetAgent_FullMethodName,
	registry.AgentService_ListAgents_FullMethodName,
	registry.AgentService_GetAgentStatus_FullMethodName,
	registry.AgentService_StartAgent_FullMethodName,
	registry.AgentService_StopAgent_FullMethodName,
	registry.AgentService_BootstrapAgents_FullMethodName,
	registry.AgentService_ReadAgentFile_FullMethodName,
	registry.AgentService_GetAgentConfig_FullMethodName,
	registry.AgentService_ReadAgentLog_FullMethodName,
	registry.ThreadService_PushEvents_FullMethodName,
	registry.ThreadService_PeekEvents_FullMethodName,
	registry.ThreadService_GetThread_FullMethodName,
	registry.ThreadService_ListThreads_FullMethodName,
	registry.TurnService_GetTurn_FullMethodName,
	registry.TurnService_ListTurns_FullMethodName,
	registry.TurnService_SumUsage_FullMethodName,
	registry.SessionService_ListSessions_FullMethodName,
	registry.SessionService_GetSession_FullMethodName,
	registry.RoutingService_ListBindings_FullMethodName,
	registry.RoutingService_ResolveRoute_FullMethodName,
	registry.DeliveryService_ListDeliveries_FullMethodName,
	registry.LeaseService_ListLeases_FullMethodName,
	registry.LeaseService_FindRunner_FullMethodName,
	registry.LeaseService_RequestAbort_FullMethodName,
	registry.ApprovalService_ListApprovals_FullMethodName,
	registry.HomeService_GetHomeConfig_FullMethodName,
	registry.PinService_ListPins_FullMethodName,
	registry.IdentityService_NoteIdentityChange_FullMethodName,
	runner.RunnerService_BuildContext_FullMethodName,
	runner.RunnerService_StartRun_FullMethodName,
	runner.RunnerService_WaitRun_FullMethodName,
	runner.RunnerService_GetRunnerInfo_FullMethodName,
	runner.RunnerService_ListProviders_FullMethodName,
	deliverer.DelivererService_GetDelivererInfo_FullMethodName,
	gateway.GatewayService_GetGatewayInfo_FullMethodName,
	gateway.GatewayService_ListChannels_FullMethodName,
	process.ProcessService_GetProcess_FullMethodName,
	process.ProcessService_SetLogLevel_FullMethodName,
}

// Agents makes, starts and describes agents.
func (e *Env) Agents() registry.AgentServiceClient {
	return registry.NewAgentServiceClient(e.Conn(Registry))
}

// Threads reads and writes event logs.
func (e *Env) Threads() registry.ThreadServiceClient {
	return registry.NewThreadServiceClient(e.Conn(Registry))
}

// Turns reads the journal of turns.
func (e *Env) Turns() registry.TurnServiceClient {
	return registry.NewTurnServiceClient(e.Conn(Registry))
}

// Sessions shows and changes what belongs to conversations besides their events.
func (e *Env) Sessions() registry.SessionServiceClient {
	return registry.NewSessionServiceClient(e.Conn(Registry))
}

// Routing shows and changes which agent the messages of chat platforms belong to.
func (e *Env) Routing() registry.RoutingServiceClient {
	return registry.NewRoutingServiceClient(e.Conn(Registry))
}

// Channels shows and decides who may write to accounts.
func (e *Env) Channels() registry.ChannelServiceClient {
	return registry.NewChannelServiceClient(e.Conn(Registry))
}

// Homes shows and changes the settings of the home.
func (e *Env) Homes() registry.HomeServiceClient {
	return registry.NewHomeServiceClient(e.Conn(Registry))
}

// Deliveries reads the journal of deliveries.
func (e *Env) Deliveries() registry.DeliveryServiceClient {
	return registry.NewDeliveryServiceClient(e.Conn(Registry))
}

// Leases lists who works on what.
func (e *Env) Leases() registry.LeaseServiceClient {
	return registry.NewLeaseServiceClient(e.Conn(Registry))
}

// Approvals lists and answers what agents ask people.
func (e *Env) Approvals() registry.ApprovalServiceClient {
	return registry.NewApprovalServiceClient(e.Conn(Registry))
}

// Questions lists and answers what agents ask the people they talk to.
func (e *Env) Questions() registry.QuestionServiceClient {
	return registry.NewQuestionServiceClient(e.Conn(Registry))
}

// Pins lists and approves the tools of MCP servers.
func (e *Env) Pins() registry.PinServiceClient {
	return registry.NewPinServiceClient(e.Conn(Registry))
}

// Identities puts changes of tokens and certificates on record.
func (e *Env) Identities() registry.IdentityServiceClient {
	return registry.NewIdentityServiceClient(e.Conn(Registry))
}

// DelivererService asks the deliverer.
func (e *Env) DelivererService() deliverer.DelivererServiceClient {
	return deliverer.NewDelivererServiceClient(e.Conn(Deliverer))
}

// Gateway shows and restarts the accounts of the gateway.
func (e *Env) Gateway() gateway.GatewayServiceClient {
	return gateway.NewGatewayServiceClient(e.Conn(Gateway))
}

// HomeSettings are the settings of the home, as they are written.
func (e *Env) HomeSettings(ctx context.Context) (layer.HomeSettings, error) {
	r, err := e.Homes().GetHomeConfig(ctx, &registry.GetHomeConfigRequest{})
	if err != nil {
		return layer.HomeSettings{}, err
	}
	s, err := layer.ReadHome(layer.File{Name: r.GetName(), Data: []byte(r.GetText())})
	if err == nil {
		return s, nil
	}
	what := err.Error()
	if e, ok := errors.AsType[*layer.Error](err); ok && len(e.Problems) > 0 {
		what = e.Problems[0].Text // without its place
	}
	return s, fault.New(codes.FailedPrecondition, fault.ConfigInvalid, what, "'agentctl config status' shows what is wrong")
}

// Process looks into the process that serves a service.
func (e *Env) Process(service string) process.ProcessServiceClient {
	return process.NewProcessServiceClient(e.Conn(service))
}

// Conn is the connection to a service; it is dialed at the first call, whose
// error says what was wrong with the target.
func (e *Env) Conn(service string) grpc.ClientConnInterface {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.conns[service]
	if c == nil {
		c = &conn{env: e, service: service}
		e.conns[service] = c
	}
	return c
}

func (e *Env) given(service string) string {
	return map[string]string{Registry: e.Flags.Registry, Runner: e.Flags.Runner, Deliverer: e.Flags.Deliverer, Gateway: e.Flags.Gateway}[service]
}

// Target is the address of a service: its flag, else its socket in the home.
func (e *Env) Target(service string) (string, error) {
	if given := e.given(service); given != "" {
		return given, nil
	}
	home, err := e.Home()
	if err != nil {
		return "", err
	}
	path, err := home.Socket(service)
	if err != nil {
		return "", err
	}
	return "unix://" + path, nil
}

// conn says which service at which address did not answer; the transport's own
// words would only name sockets and errnos.
type conn struct {
	env     *Env
	service string
	once    sync.Once
	settled sync.Once
	target  string
	cc      *grpc.ClientConn
	err     error
}

func (c *conn) dial() (*grpc.ClientConn, error) {
	c.once.Do(func() {
		if c.target, c.err = c.env.Target(c.service); c.err != nil {
			return
		}
		home, err := c.env.Home()
		if err != nil {
			c.err = err
			return
		}
		o := rpc.DialOptions{DefaultTimeout: c.env.Flags.Timeout, Safe: safe, UserAgent: "agentctl/" + c.env.Version}
		if strings.HasPrefix(c.target, "unix:") {
			o.TokenPath = home.TokenFile()
		} else { // the token stays here: over TCP the certificate says who we are
			store, err := mtls.Open(cmp.Or(c.env.Flags.TLS, home.TLSDir()), "owner", nil)
			if err != nil {
				c.err = err
				return
			}
			o.Creds = mtls.Client(store, c.service)
		}
		c.cc, err = balance.Dial(c.target, o)
		if err != nil {
			c.err = fault.Usage(err.Error(), "use unix:///path/to/"+c.service+".sock, or dns:///host:port with TLS, a comma list of them for several registries")
		}
	})
	return c.cc, c.err
}

func (c *conn) close() {
	if c.cc != nil {
		_ = c.cc.Close()
	}
}

func (c *conn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	cc, err := c.dial()
	if err != nil {
		return err
	}
	c.settled.Do(func() { c.settle(ctx, cc) })
	return c.explain(ctx, cc.Invoke(ctx, method, args, reply, opts...))
}

func (c *conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	cc, err := c.dial()
	if err != nil {
		return nil, err
	}
	c.settled.Do(func() { c.settle(ctx, cc) })
	s, err := cc.NewStream(ctx, desc, method, opts...)
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	return &stream{ClientStream: s, conn: c, ctx: ctx}, nil
}

// stream explains the errors of a stream; its context is that of the one call.
type stream struct {
	grpc.ClientStream
	conn *conn
	ctx  context.Context
}

func (s *stream) RecvMsg(m any) error { return s.conn.explain(s.ctx, s.ClientStream.RecvMsg(m)) }

func (c *conn) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	switch e := fault.From(err); {
	case ctx.Err() != nil:
		return err
	case e.Code == codes.Unavailable && mtls.Explain(err) != nil:
		return mtls.Explain(err)
	case e.Code == codes.Unavailable && e.Reason == fault.ServiceUnavailable:
		reason := fault.ServiceUnavailable
		if c.service == Registry {
			reason = fault.RegistryUnavailable
		}
		return fault.Wrap(fault.New(codes.Unavailable, reason,
			fmt.Sprintf("the %s does not answer at %s", c.service, c.target), "start it with 'agentd all'"), err)
	case e.Code == codes.DeadlineExceeded:
		return fault.Wrap(fault.New(codes.DeadlineExceeded, fault.Deadline,
			fmt.Sprintf("the %s at %s did not answer in time", c.service, c.target),
			"try again with a longer --timeout, or ask 'agentctl doctor'"), err)
	}
	return err
}

// Unavailable reports whether err means that a service does not answer now, so that a
// command that waits may try again.
func Unavailable(err error) bool {
	return err != nil && fault.From(err).Code == codes.Unavailable
}

// Patience is how long a command that waits goes on while a service is away: a
// restart takes seconds.
const Patience = 30 * time.Second
