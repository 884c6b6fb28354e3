package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
	deliverer "github.com/theclaw/agents/proto/gen/theclaw/deliverer/v1"
	gateway "github.com/theclaw/agents/proto/gen/theclaw/gateway/v1"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// reach asks the health of a service and notes what is wrong.
func (x *examination) reach(ctx context.Context, service string) bool {
	r, err := healthpb.NewHealthClient(x.env.Conn(service)).Check(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		f := fault.From(err)
		x.note(service, problem, f.Fix, "%s", f.What)
		return false
	}
	if r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		x.note(service, problem, "wait until it has started, or look into its log", "the %s answers but does not serve (%s)", service, r.GetStatus())
		return false
	}
	return true
}

func (x *examination) registry(ctx context.Context) bool {
	if !x.reach(ctx, command.Registry) {
		return false
	}
	// Health needs no token; this call does.
	if _, err := x.env.AllAgents(ctx); err != nil {
		f := fault.From(err)
		x.note(command.Registry, problem, f.Fix, "%s", f.What)
		return false
	}
	x.serves(command.Registry)
	return true
}

func (x *examination) serves(service string) {
	target, err := x.env.Target(service)
	if err != nil {
		target = err.Error()
	}
	x.good(service, "serves at %s", target)
}

func (x *examination) runner(ctx context.Context) {
	if !x.reach(ctx, command.Runner) {
		return
	}
	info, err := x.env.RunnerService().GetRunnerInfo(ctx, &runner.GetRunnerInfoRequest{})
	if err != nil {
		f := fault.From(err)
		x.note(command.Runner, problem, f.Fix, "%s", f.What)
		return
	}
	x.serves(command.Runner)
	x.model(ctx, info)
	x.sandbox(info)
	for _, d := range info.GetFailingDigests() {
		x.note("memory", warning, "see 'agentctl log show "+d.GetAgentId()+"'; choose a model that can summarize, or set compaction.strategy to truncate",
			"%s of %s was not digested %d times: %s", d.GetName(), d.GetAgentId(), d.GetFailures(), d.GetError())
	}
}

func (x *examination) model(ctx context.Context, info *runner.GetRunnerInfoResponse) {
	x.byDefault = info.GetProvider()
	origin := info.GetProviderOrigin()
	if origin != "" {
		origin = " (" + origin + ")"
	}
	switch p := info.GetProvider(); p {
	case "offline":
		if strings.HasPrefix(info.GetProviderOrigin(), "built in") { // it was not chosen
			origin += "; messages that come through a channel wait for a model, because this one was not chosen"
		}
		x.note("model", warning, "set OPENAI_API_KEY (or DEEPSEEK_API_KEY, MOONSHOT_API_KEY) for agentd, or write "+x.home.Path()+"/providers.yaml; then start agentd again",
			"the built-in offline stand-in answers, which is no language model%s", origin)
	case "":
		x.note("model", problem, "describe a provider in "+x.home.Path()+"/providers.yaml", "no model provider is set up%s", origin)
	default:
		switch why := info.GetProblem(); why {
		case "":
			x.probe(ctx, p, "", p+origin)
		default:
			x.note("model", problem, info.GetProblemFix(), "%s cannot be used%s: %s", p, origin, why)
		}
	}
	for _, o := range info.GetOutages() {
		if o.GetProvider() == info.GetProvider() {
			continue // it was probed
		}
		cause, _ := message.Cause(o.GetError())
		x.note("model", warning, "messages wait for it and are not lost; check the network and its base_url", "%s; next try in %s", cause, o.GetWait().AsDuration().Round(time.Second))
	}
}

// probe makes one small call to a provider: that it is set up does not mean that it answers.
// A program that runs tools itself is not called.
func (x *examination) probe(ctx context.Context, name, model, title string) {
	list, err := x.env.RunnerService().ListProviders(ctx, &runner.ListProvidersRequest{})
	if err != nil || !slices.ContainsFunc(list.GetProviders(), func(p *runner.Provider) bool { return p.GetName() == name && p.GetDriver() != "offline" }) {
		x.good("model", "%s", title)
		return
	}
	r, err := x.env.RunnerService().TestProvider(ctx, &runner.TestProviderRequest{Name: name, Model: model})
	switch f := fault.From(err); {
	case err == nil:
		x.good("model", "%s answers as %s in %s", title, r.GetModel(), r.GetLatency().AsDuration().Round(time.Millisecond))
	case f.Code == codes.DeadlineExceeded:
		x.note("model", problem, "try 'agentctl providers test "+name+"', or a longer --timeout", "%s: no answer within %s", title, x.env.Flags.Timeout)
	default:
		cause, _ := message.Cause(strings.TrimPrefix(f.What, "model: "))
		x.note("model", problem, f.Fix, "%s: %s", title, cause)
	}
}

func (x *examination) sandbox(info *runner.GetRunnerInfoResponse) {
	missing := strings.Join(info.GetSandboxProblems(), "; ")
	switch level := info.GetSandbox(); level {
	case "full", "bubblewrap", "privileged":
		x.good("sandbox", "%s", level)
	case "none", "":
		x.note("sandbox", problem, "allow user namespaces or install bubblewrap; or set sandbox.mode of an agent you trust to reduced or off",
			"tools cannot be sandboxed here, so none is run: %s", missing)
	default:
		x.note("sandbox", warning, "for the full sandbox put right what is missing", "%s: %s", level, missing)
	}
}

func (x *examination) deliverer(ctx context.Context) {
	if !x.reach(ctx, command.Deliverer) {
		return
	}
	info, err := x.env.DelivererService().GetDelivererInfo(ctx, &deliverer.GetDelivererInfoRequest{})
	if err != nil {
		f := fault.From(err)
		x.note(command.Deliverer, problem, f.Fix, "%s", f.What)
		return
	}
	x.serves(command.Deliverer)
	const shown = 10 // an outage of a gateway is one of each of its chats
	for i, b := range info.GetBreakers() {
		if left := len(info.GetBreakers()) - i; i == shown && left > 1 {
			x.note("channel", warning, "repair the receiving systems; sending resumes automatically", "%d more destinations are down", left)
			break
		}
		x.note("channel", warning, "repair the receiving system; sending resumes automatically",
			"channel %s is %s, next probe in %s; its replies wait and are not lost", b.GetChannel(), b.GetState(), b.GetWait().AsDuration())
	}
}

// gateway checks the accounts. A home without accounts needs no gateway.
func (x *examination) gateway(ctx context.Context) {
	info, err := x.env.Gateway().GetGatewayInfo(ctx, &gateway.GetGatewayInfoRequest{})
	if err != nil {
		f := fault.From(err)
		if s, failed := x.env.HomeSettings(ctx); failed == nil && len(s.Accounts) > 0 {
			x.note(command.Gateway, problem, f.Fix, "%s; what people write to the accounts waits at its sender", f.What)
		}
		return
	}
	x.serves(command.Gateway)
	x.clients(info.GetClients())
	if p := info.GetSettingsProblem(); p != "" {
		x.note(command.Gateway, warning, "see the log of the gateway", "changes of the settings do not arrive: %s", p)
	}
	list, err := x.env.Gateway().ListChannels(ctx, &gateway.ListChannelsRequest{})
	if err != nil {
		f := fault.From(err)
		x.note(command.Gateway, problem, f.Fix, "%s", f.What)
		return
	}
	if p := info.GetHttpProblem(); p != "" && len(list.GetChannels()) > 0 { // a home without accounts needs no address
		x.note(command.Gateway, warning, "end what uses the address, or set gateway.http in theclaw.yaml, and start agentd again", "%s", p)
	}
	for _, c := range list.GetChannels() {
		x.account(c)
	}
}

// clients reports who follows runs, by kind and account.
func (x *examination) clients(list []*gateway.Client) {
	type surface struct{ kind, account string }
	count := map[surface]int{}
	var longest []*gateway.Client // of each surface
	for _, c := range list {
		s := surface{c.GetKind(), c.GetAccount()}
		if count[s]++; count[s] == 1 {
			longest = append(longest, c)
		}
	}
	for _, c := range longest {
		clients := "1 client follows a run"
		if n := count[surface{c.GetKind(), c.GetAccount()}]; n > 1 {
			clients = fmt.Sprint(n, " clients follow runs")
		}
		x.good(command.Gateway, "%s by %s %s, for up to %s", clients, c.GetKind(), c.GetAccount(), time.Since(c.GetSince().AsTime()).Round(time.Second))
	}
}

const (
	// longStart is after how long an account that is starting is a warning.
	longStart = time.Minute
	// muchLag is how late a message, or how far off the clock may be.
	muchLag = time.Minute
)

// account reports an account that does not receive, one whose messages come late, and a clock that is off.
func (x *examination) account(c *gateway.Channel) {
	name, state, status, fix := c.GetName(), command.Word(c.GetState(), "CHANNEL_STATE_", "unknown"), problem, ""
	switch c.GetState() {
	case gateway.ChannelState_CHANNEL_STATE_UP:
	case gateway.ChannelState_CHANNEL_STATE_STANDBY: // another gateway receives
	case gateway.ChannelState_CHANNEL_STATE_OFF:
		x.good("channel", "account %s is off: %s", name, c.GetWhat())
	case gateway.ChannelState_CHANNEL_STATE_STARTING:
		if time.Since(c.GetSince().AsTime()) > longStart {
			status, fix = warning, "see the log of the gateway"
		}
	case gateway.ChannelState_CHANNEL_STATE_CONFLICT:
		fix = "stop the other program that uses its token, or create a new token"
	case gateway.ChannelState_CHANNEL_STATE_AUTH:
		fix = "correct the secret; then start agentd again where it is a variable, else 'agentctl channels restart " + name + "'"
	case gateway.ChannelState_CHANNEL_STATE_STOPPED:
		fix = "let the gateway listen: set gateway.http in theclaw.yaml, and start agentd again"
	default:
		fix = "correct what it names; it is tried again, at once with 'agentctl channels restart " + name + "'"
	}
	if fix != "" {
		x.note("channel", status, fix, "account %s is %s: %s", name, state, c.GetWhat())
	}
	if d := c.GetLag().AsDuration(); d > muchLag {
		x.note("channel", warning, "if all messages are late, see the log of the gateway and compare the clock of this machine ('date') with the right time",
			"the last message of account %s was stored %s after it was sent", name, d.Round(time.Second))
	}
	if d := c.GetBehind().AsDuration(); d > muchLag {
		x.note("clock", warning, "set the clock of this machine, for example with 'timedatectl set-ntp true'",
			"it is %s behind that of the sender of the last message of account %s", d.Round(time.Second), name)
	}
}
