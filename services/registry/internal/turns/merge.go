package turns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/state"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// maxMerged is how many bytes of messages may be merged into a turn at once: they become
// one row of the journal.
const maxMerged = 256 << 10

// mergedMessages reads the events that are to be merged into the turn of a leader: those
// from the leader's speaker, up to the first of another one, because memory and the
// address of the reply belong to the speaker. The first short of them are made short as drop says,
// but for the last, which is the one to answer.
func (s *Service) mergedMessages(ctx context.Context, agentID, source string, who route.Tuple, asked []*registryv1.Member, short int, drop string) ([]store.Member, error) {
	var out []store.Member
	left, whole := maxMerged, "" // whole is the content of the last one
	for i, m := range asked {
		ev, err := s.inboxEvent(ctx, agentID, m.GetInboxId(), m.GetKey())
		if err != nil {
			return nil, err
		}
		tuple, _, err := route.Of(ev.Source, ev.Content)
		full := ev.Content
		if err == nil && i < short {
			ev.Content = unread(ev.Content, drop, 0)
		}
		if left -= len(ev.Content); err != nil || tuple != who || ev.Source != source || left < 0 {
			break
		}
		out, whole = append(out, store.Member{Event: ev, Key: m.GetKey()}), full
	}
	if n := len(out); n > 0 { // those behind it are left for a later turn
		out[n-1].Event.Content = whole
	}
	return out, nil
}

// maxSummary is how many characters of a message are left that waited beyond the cap of the queue.
const maxSummary = 160

// unread is the content of a message that waited beyond the cap of the queue, without its files: the beginning of its
// text, or none of it. The first of such messages says how many were left out; it has n.
func unread(content, drop string, n int) string {
	text := ""
	if drop == config.DropOld && n > 0 {
		text = fmt.Sprintf("[%d earlier messages left out]", n)
	} else if drop != config.DropOld {
		var c struct{ Text string }
		_ = json.Unmarshal([]byte(content), &c)
		if text = strings.TrimSpace(c.Text); utf8.RuneCountInString(text) > maxSummary {
			text = string([]rune(text)[:maxSummary]) + "…"
		}
	}
	return withFields(content, map[string]any{"text": text, "attachments": nil, "reply_to": nil})
}

// steer merges messages into a running turn.
func (s *Service) steer(ctx context.Context, a *state.Agent, fence store.Fence, req *registryv1.RecordStepRequest) (*registryv1.Step, error) {
	if !strings.HasPrefix(req.GetSteerKey(), store.StepSteer+":") { // by which it is found again
		return nil, fault.New(codes.InvalidArgument, fault.InvalidArgument, fmt.Sprintf("steer_key %.80q is not steer:i", req.GetSteerKey()), "name the step steer:i, for the model call i that will see the messages")
	}
	inboxID, _ := thread.KeyID(req.GetKey())
	c, err := s.claimOf(ctx, a, &registryv1.FinishTurnRequest{ThreadId: req.GetThreadId(), Key: req.GetKey(), InboxId: inboxID})
	if err != nil {
		return nil, err
	}
	merged, err := s.mergedMessages(ctx, a.ID, c.Source, c.Tuple, req.GetMembers(), 0, "")
	if err != nil || len(merged) == 0 {
		return nil, err
	}
	fault.Point("steer.before")
	st, err := s.Store.Steer(ctx, store.Ref{Agent: a.ID, Thread: req.GetThreadId()}, fence, store.Steer{
		Key: req.GetKey(), Step: req.GetSteerKey(), Seq: int(req.GetSteerSeq()), Members: merged,
	})
	if err != nil || st.Key == "" {
		return nil, s.Fault(a.ID, req.GetThreadId(), err)
	}
	fault.Point("steer.after")
	return wire.Steps([]store.Step{st})[0], nil
}

// WithdrawTurn ends an event that no turn has begun. Only the holder of the run
// lease begins turns, so that none can begin between the two reads.
func (s *Service) WithdrawTurn(ctx context.Context, req *registryv1.WithdrawTurnRequest) (*registryv1.WithdrawTurnResponse, error) {
	a, err := s.Agents.Get(req.GetAgentId())
	if err != nil {
		return nil, err
	}
	fence, err := wire.RequireFence(ctx, lease.AgentResource(a.ID))
	if err != nil {
		return nil, err
	}
	if _, err := s.inboxEvent(ctx, a.ID, req.GetInboxId(), req.GetKey()); err != nil {
		return nil, err
	}
	begun, err := s.Store.Claimed(ctx, store.Ref{Agent: a.ID, Thread: req.GetThreadId()}, req.GetKey())
	switch {
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return nil, s.Fault(a.ID, req.GetThreadId(), err)
	case begun:
		return nil, fault.New(codes.FailedPrecondition, fault.TurnBegun, "the turn of this message has begun", "it is answered in its own turn")
	}
	s.Log.Append(a.ID, req.GetLogs())
	a.NoteWrite()
	acked, err := s.Store.Settle(ctx, a.ID, fence, store.Settlement{InboxID: req.GetInboxId(), Key: req.GetKey(), Fate: store.FateAborted})
	if err != nil {
		return nil, s.Fault(a.ID, req.GetThreadId(), err)
	}
	s.settled(a, acked)
	return &registryv1.WithdrawTurnResponse{}, nil
}
