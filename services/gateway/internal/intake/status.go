package intake

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/price"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerv1 "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// modelsLimit bounds the call that asks a runner for its models: a person gets an answer without what they cost.
const modelsLimit = 2 * time.Second

// Models lists the models of a runner, with their prices and context windows; [runs.Client] does.
type Models interface {
	ListProviders(ctx context.Context, in *runnerv1.ListProvidersRequest, opts ...grpc.CallOption) (*runnerv1.ListProvidersResponse, error)
}

// models are those of a runner by PROVIDER/NAME; none while no runner answers.
func (a *Account) models(ctx context.Context) map[string]*runnerv1.ProviderModel {
	ctx, cancel := context.WithTimeout(ctx, modelsLimit)
	defer cancel()
	r, err := a.deps.Models.ListProviders(ctx, &runnerv1.ListProvidersRequest{})
	if err != nil {
		return nil // what is not known is not shown
	}
	out := map[string]*runnerv1.ProviderModel{}
	for _, p := range r.GetProviders() {
		for _, m := range p.GetModels() {
			out[p.GetName()+"/"+m.GetName()] = m
		}
	}
	return out
}

// session returns the session of a message with what its epoch has used, and with waiting what waits in its conversation;
// an empty one where there are no messages yet.
func (a *Account) session(ctx context.Context, r *registryv1.AcceptedMessage, waiting bool) (*registryv1.GetSessionResponse, error) {
	s, err := a.deps.Sessions.GetSession(ctx, &registryv1.GetSessionRequest{AgentId: r.GetAgentId(), Key: r.GetSessionKey(), WithUsage: true, WithWaiting: waiting})
	if fault.Is(err, fault.SessionNotFound) {
		return &registryv1.GetSessionResponse{}, nil
	}
	return s, err
}

// usage describes what the epoch of a conversation has used.
func (a *Account) usage(ctx context.Context, r *registryv1.AcceptedMessage) (string, error) {
	s, err := a.session(ctx, r, false)
	if err != nil {
		return "", err
	}
	if len(s.GetUsage()) == 0 {
		return "This session: no answers of models yet.", nil
	}
	used, cost := spent(s.GetUsage(), a.models(ctx))
	if cost == "" {
		return "This session: " + used + ". The cost is not known: a model has no price here.", nil
	}
	return "This session: " + used + ", " + cost + ".", nil
}

// spent describes answers of models, and what they cost by the prices of the models; empty: a part of them has no price.
func spent(sums []*registryv1.UsageSum, models map[string]*runnerv1.ProviderModel) (used, cost string) {
	var answers, input, cached, output int64
	total, known := 0.0, true
	for _, s := range sums {
		u := s.GetUsage()
		answers, input, cached, output = answers+s.GetAnswers(), input+u.GetInput(), cached+u.GetCachedInput(), output+u.GetOutput()
		p := models[s.GetModel()].GetPrice()
		if known = known && p != nil; !known {
			continue
		}
		var part float64
		part, known = price.Price{Input: p.GetInput(), Output: p.GetOutput(), CacheRead: p.CacheRead, CacheWrite: p.CacheWrite}.Cost(price.Tokens{
			Input: u.GetInput(), Output: u.GetOutput(), Cached: u.GetCachedInput(), CacheWrite: u.GetCacheWrite(),
		})
		total += part
	}
	used = fmt.Sprintf("%d answers of models, %d tokens in", answers, input)
	if answers == 1 {
		used = fmt.Sprintf("1 answer of a model, %d tokens in", input)
	}
	if cached > 0 {
		used += fmt.Sprintf(" (%d cached)", cached)
	}
	used += fmt.Sprintf(", %d out", output)
	if known {
		cost = "cost " + strconv.FormatFloat(total, 'f', 6, 64) + " by the prices of providers.yaml" // which name no currency
	}
	return used, cost
}

// status describes the agent and the session of a message. What is not known is left out.
func (a *Account) status(ctx context.Context, r *registryv1.AcceptedMessage) (string, error) {
	agent, err := a.deps.Agents.GetAgentStatus(ctx, &registryv1.GetAgentStatusRequest{AgentId: r.GetAgentId()})
	if err != nil {
		return "", err
	}
	s, err := a.session(ctx, r, true)
	if err != nil {
		return "", err
	}
	state := "started"
	if !agent.GetAgent().GetStarted() {
		state = "stopped: messages wait"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Agent: %s, %s\nModel: %s", r.GetAgentId(), state, agent.GetAgent().GetModel())
	if a.deps.Version != "" {
		b.WriteString("\nVersion: " + a.deps.Version)
	}
	b.WriteString(waiting(s, r.GetOwner(), time.Now()))
	if n := agent.GetTokensPerDay(); n > 0 {
		fmt.Fprintf(&b, "\nTokens today: %d of %d", agent.GetTokensToday(), n)
	}
	if len(s.GetUsage()) > 0 {
		models := a.models(ctx)
		if last := s.GetLast(); last.GetUsage().GetInput() > 0 {
			fmt.Fprintf(&b, "\nContext: %d", last.GetUsage().GetInput())
			if w := window(agent.GetAgent().GetContextWindow(), models[last.GetModel()].GetContextWindow()); w > 0 {
				fmt.Fprintf(&b, " of %d", w)
			}
			b.WriteString(" tokens")
		}
		used, cost := spent(s.GetUsage(), models)
		b.WriteString("\nUsed: " + used)
		if cost != "" {
			b.WriteString(", " + cost)
		}
	}
	se := s.GetSession()
	if se == nil {
		return b.String() + "\nSession: " + r.GetSessionKey() + ", no messages yet", nil
	}
	if se.GetSessionId() != "" {
		b.WriteString("\nEpoch: " + se.GetSessionId())
		if at := se.GetStartedAt(); at.IsValid() {
			b.WriteString(", since " + at.AsTime().UTC().Format(time.DateTime) + " UTC")
		}
	}
	fmt.Fprintf(&b, "\nSession: %s, %d messages", se.GetKey(), se.GetMessages())
	o := se.GetOverrides()
	for _, v := range []struct{ name, value string }{{"model", o.GetModel()}, {"queue", o.GetQueueMode()}, {"verbose", o.GetVerbose()}, {"reasoning", o.GetReasoning()}} {
		if v.value != "" {
			b.WriteString(", " + v.name + " " + v.value)
		}
	}
	return b.String(), nil
}

// waiting is the line of the messages that wait, and what for. Only an owner reads the error itself: it may have names of
// machines and accounts.
func waiting(s *registryv1.GetSessionResponse, owner bool, now time.Time) string {
	if s.GetWaiting() == 0 {
		return ""
	}
	line := fmt.Sprintf("\nWaiting: %d messages", s.GetWaiting())
	if s.GetWaiting() == 1 {
		line = "\nWaiting: 1 message"
	}
	t := s.GetWaitingTurn()
	if t == nil {
		return line
	}
	why := t.GetError()
	if !owner {
		why, _, _ = strings.Cut(why, ": ")
	}
	line += ", for the model: " + why
	if left := t.GetNextAt().AsTime().Sub(now).Round(time.Second); t.GetNextAt() != nil && left > 0 {
		line += "; next try in " + left.String()
	}
	return line
}

// window is the context window in tokens, as the runner takes it: that of the settings, or of the model where it is smaller;
// 0: it is not known.
func window(configured, ofModel int64) int64 {
	if ofModel <= 0 {
		return 0
	}
	if configured <= 0 {
		return ofModel
	}
	return min(configured, ofModel)
}
