package deliverer

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/catalog"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/hook"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/deliverer/internal/delivery"
)

// callLimit bounds a call of the registry that waits for nothing.
const callLimit = 10 * time.Second

// journal is the registry's DeliveryService as a drain sees it.
type journal struct {
	client registryv1.DeliveryServiceClient
	xgw    channel.XGW
	runs   bool // ask which message a reply answers
}

func (j journal) Begin(ctx context.Context, agentID, threadID string, peek bool) (delivery.Due, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	resp, err := j.client.BeginDelivery(ctx, &registryv1.BeginDeliveryRequest{AgentId: agentID, ThreadId: threadID, Peek: peek, WithRun: j.runs})
	if err != nil {
		return delivery.Due{}, fmt.Errorf("begin delivery: %w", meaning(err))
	}
	return j.due(resp), nil
}

func (j journal) Finish(ctx context.Context, agentID, threadID string, f delivery.Finish) (delivery.Finished, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	req := &registryv1.FinishDeliveryRequest{
		AgentId: agentID, ThreadId: threadID, EventId: f.EventID, Outcome: outcomes[f.Outcome],
		Channel: f.Channel, ProviderId: f.ProviderID, Error: f.Error, Next: f.Next, WithRun: j.runs,
		InDoubt: f.InDoubt, Parts: int32(f.Parts), Reach: f.Reach, Logs: []*registryv1.LogLine{{Level: f.Level, Text: f.Log}},
	}
	if f.RetryAfter > 0 {
		req.RetryAfter = durationpb.New(f.RetryAfter)
	}
	resp, err := j.client.FinishDelivery(ctx, req)
	if err != nil {
		return delivery.Finished{}, fmt.Errorf("finish delivery: %w", meaning(err))
	}
	done := delivery.Finished{Dead: resp.GetDelivery().GetState() == registryv1.DeliveryState_DELIVERY_STATE_DEAD}
	if resp.GetNext() != nil {
		due := j.due(resp.GetNext())
		done.Next = &due
	}
	return done, nil
}

func (j journal) Decide(ctx context.Context, agentID, threadID string, due delivery.Due, d hook.Decision) (hook.Decision, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	resp, err := j.client.DecideDelivery(ctx, &registryv1.DecideDeliveryRequest{
		AgentId: agentID, ThreadId: threadID, EventId: due.Event.ID, Key: due.Key,
		Decision: &registryv1.HookDecision{Hook: d.Hook, Cancel: d.Cancel, Reason: d.Reason, Text: d.Text},
	})
	if err != nil {
		return hook.Decision{}, fmt.Errorf("decide delivery: %w", meaning(err))
	}
	return decision(resp.GetDecision()), nil
}

func decision(d *registryv1.HookDecision) hook.Decision {
	return hook.Decision{Hook: d.GetHook(), Answer: hook.Answer{Cancel: d.GetCancel(), Reason: d.GetReason(), Text: d.Text}}
}

var outcomes = map[delivery.Outcome]registryv1.DeliveryOutcome{
	delivery.Sent:        registryv1.DeliveryOutcome_DELIVERY_OUTCOME_SENT,
	delivery.Failed:      registryv1.DeliveryOutcome_DELIVERY_OUTCOME_FAILED,
	delivery.Unavailable: registryv1.DeliveryOutcome_DELIVERY_OUTCOME_UNAVAILABLE,
	delivery.Rejected:    registryv1.DeliveryOutcome_DELIVERY_OUTCOME_REJECTED,
	delivery.Skipped:     registryv1.DeliveryOutcome_DELIVERY_OUTCOME_SKIPPED,
	delivery.Part:        registryv1.DeliveryOutcome_DELIVERY_OUTCOME_PART,
}

func (j journal) due(r *registryv1.BeginDeliveryResponse) delivery.Due {
	switch r.GetOutcome() {
	case registryv1.BeginDeliveryOutcome_BEGIN_DELIVERY_OUTCOME_SEND:
	case registryv1.BeginDeliveryOutcome_BEGIN_DELIVERY_OUTCOME_WAIT:
		return delivery.Due{Found: delivery.Wait, Wait: r.GetWait().AsDuration()}
	default:
		return delivery.Due{Found: delivery.Idle}
	}
	e := r.GetEvent()
	out := delivery.Due{
		Found: delivery.Send, Key: r.GetKey(), RunID: r.GetRunId(), Attempt: int(r.GetAttempt()), MaybeDuplicate: r.GetMaybeDuplicate(),
		Event: thread.Event{
			ID: e.GetId(), CreatedAt: e.GetCreatedAt(), Source: e.GetSource(), Type: e.GetType(),
			Subtype: e.Subtype, Content: e.GetContent(),
		},
		Settings: j.settings(r), MaxChars: int(r.GetMaxChars()), Parts: int(r.GetParts()), Reach: r.GetReach(), MessageID: r.GetMessageId(),
		Hooks: hook.FromProto(r.GetHooks()), SessionKey: r.GetSessionKey(),
	}
	if r.GetDecision() != nil {
		d := decision(r.GetDecision())
		out.Decision = &d
	}
	return out
}

func (j journal) settings(r *registryv1.BeginDeliveryResponse) channel.Settings {
	s := channel.Settings{XGW: j.xgw}
	if r.GetOutboundSet() { // an empty list is a decision, an absent one is not
		s.Outbound = make([]channel.Rule, 0, len(r.GetOutbound()))
		for _, o := range r.GetOutbound() {
			s.Outbound = append(s.Outbound, channel.Rule{ThreadPattern: o.GetThreadPattern(), Via: o.GetVia()})
		}
	}
	if len(r.GetChannels()) > 0 {
		s.Channels = make(map[string]channel.Definition, len(r.GetChannels()))
		for _, c := range r.GetChannels() {
			s.Channels[c.GetName()] = definition(c)
		}
	}
	if c := r.GetAccount(); c != nil {
		s.Account, s.AccountType = c.GetName(), c.GetType()
		if catalog.Sends(definition(c)) {
			if s.Channels == nil {
				s.Channels = map[string]channel.Definition{}
			}
			s.Channels[c.GetName()] = definition(c)
		}
	}
	return s
}

func definition(c *registryv1.ChannelConfig) channel.Definition {
	return channel.Definition{
		Type: c.GetType(), URL: c.GetUrl(), Secret: c.GetSecret(), AllowPrivate: c.GetAllowPrivate(),
		Token: c.GetToken(), AppToken: c.GetAppToken(), API: c.GetApi(), Plugin: c.GetPlugin(), ReplyTo: c.GetReplyTo(),
	}
}

// meaning turns the registry's answer into what a holder has to know: the lease
// is lost, or it is useless to ask again. The rest stays as it is.
func meaning(err error) error {
	e := fault.From(err)
	if e.Reason == fault.LeaseLost {
		return fmt.Errorf("%w: %w", lease.ErrLost, err)
	}
	switch e.Code {
	case codes.NotFound, codes.InvalidArgument, codes.OutOfRange, codes.FailedPrecondition, codes.AlreadyExists,
		codes.PermissionDenied, codes.Unimplemented, codes.DataLoss:
		return fmt.Errorf("%w: %w", delivery.ErrRefused, err)
	}
	return err
}
