package turns

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/state"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// RecordStep journals progress (T3, T4, T6).
func (s *Service) RecordStep(ctx context.Context, req *registryv1.RecordStepRequest) (*registryv1.RecordStepResponse, error) {
	a, fence, set, err := s.turnCall(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	if req.GetCheck() {
		return &registryv1.RecordStepResponse{}, s.say(ctx, a, set, req, &store.Record{})
	}
	s.Log.Append(a.ID, req.GetLogs())
	rec := store.Record{Key: req.GetKey(), Waits: req.GetWaits()}
	rec.Steps, rec.Records = wire.ReadSteps(req.GetSteps())
	rec.Failed = wire.ReadFailedTry(req.GetFailedTry())
	out := &registryv1.RecordStepResponse{}
	if len(req.GetMembers()) > 0 {
		if out.Steer, err = s.steer(ctx, a, fence, req); err != nil {
			return nil, err
		}
	}
	if len(req.GetSays()) > 0 {
		if err := s.say(ctx, a, set, req, &rec); err != nil {
			return nil, err
		}
	}
	label := stepLabel(rec.Steps)
	point(label, ".before")
	n, err := s.Store.Record(ctx, store.Ref{Agent: a.ID, Thread: req.GetThreadId()}, fence, rec)
	if err != nil {
		return nil, s.Fault(a.ID, req.GetThreadId(), err)
	}
	point(label, ".after")
	a.Use(req.GetThreadId(), req.GetKey(), rec.Steps)
	for _, st := range req.GetSteps() {
		s.Approvals.Used(ctx, a.ID, st.GetExecUse())
	}
	if len(rec.Says) > 0 {
		s.Replies.SayStored(ctx, a, req.GetThreadId())
	}
	out.ErrorAttempts = int32(n)
	return out, nil
}

// say adds the messages that steps send to the peer.
func (s *Service) say(ctx context.Context, a *state.Agent, set *agentdir.Agent, req *registryv1.RecordStepRequest, rec *store.Record) error {
	inboxID, _ := thread.KeyID(req.GetKey())
	c, err := s.claimOf(ctx, a, &registryv1.FinishTurnRequest{ThreadId: req.GetThreadId(), Key: req.GetKey(), InboxId: inboxID})
	if err != nil {
		return err
	}
	rec.Deliver, rec.Console = delivery(set, c.Tuple, req.GetThreadId())
	rec.BootID = s.Generation.Name()
	for _, said := range req.GetSays() {
		if said.GetText() == "" && said.GetFile() == nil && said.GetAction() == "" {
			return wire.Bad("a message has neither a text nor a file", "send one of them")
		}
		say := store.Say{Step: said.GetStepKey(), Action: addressed(said)}
		switch {
		case len(rec.Says) > 0 && rec.Says[0].Action != say.Action:
			return wire.Bad("some messages of the call have an address and others have none", "record them in calls of their own")
		case say.Action:
			to, err := s.targetOf(ctx, a, set, c, req.GetThreadId(), said)
			if err != nil {
				return err
			}
			if say.Content, err = to.content(said); err != nil {
				return err
			}
			rec.Deliver, rec.Console = true, false // an account sends it, also while a console watches
		default:
			say.Content = replyContent(said.GetText(), c.ReplyContext, said.GetFile())
			if said.GetQuestionId() != "" {
				if say.Content, err = s.withOptions(ctx, a.ID, req.GetKey(), said.GetQuestionId(), say.Content); err != nil {
					return err
				}
			}
		}
		rec.Says = append(rec.Says, say)
	}
	return nil
}

// withOptions adds the options of a question to the content of the message that asks it. The runner names the question
// alone, so that the answers that people can choose are those that the registry has.
func (s *Service) withOptions(ctx context.Context, agent, turn, id, content string) (string, error) {
	q, found, err := s.Questions.Question(ctx, id, "", "")
	if err != nil {
		return "", s.Fault(agent, "", err)
	}
	if !found || q.Agent != agent || !strings.HasPrefix(q.Key, turn+":") || len(q.Options) == 0 {
		return content, nil
	}
	b, err := json.Marshal(channel.Question{ID: q.ID, Options: q.Options})
	if err != nil {
		return "", fmt.Errorf("write the options of a question: %w", err)
	}
	return `{"question":` + string(b) + "," + content[1:], nil
}

// stepLabel is the failpoint a set of steps passes: T6 with a result, T4 with an
// intent.
func stepLabel(steps []store.Step) string {
	for _, st := range steps {
		if st.Kind == store.StepTool && st.State == store.StepIntent {
			return "T4"
		}
	}
	for _, st := range steps {
		if st.Kind == store.StepTool {
			return "T6"
		}
	}
	return ""
}

func point(label, at string) {
	if label != "" {
		fault.Point(label + at)
	}
}
