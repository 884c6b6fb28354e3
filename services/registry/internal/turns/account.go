package turns

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

const maxTurnWait = 10 * time.Minute

// GetTurn explains one inbox event, and waits for its fate on request.
func (s *Service) GetTurn(ctx context.Context, req *registryv1.GetTurnRequest) (*registryv1.GetTurnResponse, error) {
	a, err := s.Agents.Get(req.GetAgentId())
	if err != nil {
		return nil, err
	}
	q := store.TurnQuery{InboxID: req.GetInboxId(), Key: req.GetKey(), Route: wire.ThreadOf}
	if q.InboxID == 0 {
		var ok bool
		if q.InboxID, ok = thread.KeyID(q.Key); !ok {
			return nil, wire.Bad("no message is named: inbox_id is 0 and key is not a run id", "give the inbox id, or the run id")
		}
	}
	var deadline <-chan time.Time
	if w := req.GetWait().AsDuration(); w > 0 {
		t := time.NewTimer(min(w, maxTurnWait))
		defer t.Stop()
		deadline = t.C
	}
	for {
		woken, done := s.Wakes.AwaitFate(a.ID)
		t, err := s.Store.Turn(ctx, a.ID, q)
		// A waiter finds the inbox acknowledged as well.
		if err != nil || t.Settled || deadline == nil {
			done()
			if err != nil {
				return nil, s.Fault(a.ID, thread.Inbox, err)
			}
			out := &registryv1.GetTurnResponse{Turn: wire.Turn(t)}
			if req.GetWithReply() {
				if out.Reply, err = s.replyTo(ctx, a.ID, t); err != nil {
					return nil, err
				}
			}
			return out, s.cutSteps(ctx, out, req.GetAfterStep())
		}
		select {
		case <-woken:
		case <-s.Wakes.Again():
		case <-deadline:
			deadline = nil
		case <-rpc.Draining(ctx):
			deadline = nil
		case <-ctx.Done():
			done()
			return nil, ctx.Err()
		}
		done()
	}
}

// cutSteps leaves of the steps of an answer those behind a step that it has room for. The holder of the agent's lease goes
// on with the turn and is told which of them have not begun, as by its claim.
func (s *Service) cutSteps(ctx context.Context, out *registryv1.GetTurnResponse, after string) error {
	t := out.GetTurn()
	steps := t.GetSteps()
	if after != "" {
		n := slices.IndexFunc(steps, func(st *registryv1.Step) bool { return st.GetKey() == after })
		if n < 0 {
			return wire.Bad(fmt.Sprintf("the turn has no step %.80q", after), "pass the key of the last step of the answer before")
		}
		steps = steps[n+1:]
	}
	if t.Steps, t.MoreSteps = stepsIn(thread.MaxAnswer-len(out.GetReply()), steps); len(t.GetSteps()) == 0 && t.GetMoreSteps() {
		t.Steps, t.MoreSteps = steps[:1], len(steps) > 1
	}
	if f, ok := wire.Fence(ctx); ok && f.Resource == lease.AgentResource(t.GetAgentId()) {
		return s.Approvals.NotBegun(ctx, t.GetAgentId(), t.GetKey(), t.GetSteps())
	}
	return nil
}

// stepsIn are the first steps that take at most so many bytes, and whether there are others.
func stepsIn(room int, steps []*registryv1.Step) (first []*registryv1.Step, more bool) {
	for n, st := range steps {
		if room -= proto.Size(st); room < 0 {
			return steps[:n], true
		}
	}
	return steps, false
}

// replyTo returns the text of the reply of a turn, or of the turn that it was merged into.
func (s *Service) replyTo(ctx context.Context, agent string, t store.Turn) (string, error) {
	if t.Fate == store.FateMerged {
		id, ok := thread.KeyID(t.Leader)
		if !ok {
			return "", nil
		}
		var err error
		if t, err = s.Store.Turn(ctx, agent, store.TurnQuery{InboxID: id, Route: wire.ThreadOf}); err != nil {
			return "", s.Fault(agent, thread.Inbox, err)
		}
	}
	if t.Fate == store.FateReplied || t.Fate == store.FateSilent {
		if text := textInBlocks(t.Steps); text != "" {
			return text, nil
		}
	}
	if t.ReplyID == 0 {
		return "", nil
	}
	p, err := s.Store.Read(ctx, store.Ref{Agent: agent, Thread: t.Thread}, store.Query{After: t.ReplyID - 1, Limit: 1})
	if err != nil || len(p.Events) == 0 || p.Events[0].ID != t.ReplyID {
		return "", s.Fault(agent, t.Thread, err)
	}
	var content struct{ Text string }
	_ = json.Unmarshal([]byte(p.Events[0].Content), &content) // a reply is ours, and has a text
	return content.Text, nil
}

// textInBlocks is the text of the last answer of a turn, where a part of it was sent in blocks: the reply
// event has only the rest. It is empty for other turns.
func textInBlocks(steps []store.Step) string {
	if !slices.ContainsFunc(steps, func(s store.Step) bool { return s.Kind == store.StepBlock }) {
		return ""
	}
	for _, s := range slices.Backward(steps) {
		if s.Kind != store.StepModel {
			continue
		}
		var answer struct {
			Text     string `json:"text"`
			InBlocks int    `json:"in_blocks"`
		}
		if json.Unmarshal(s.Result, &answer) != nil || answer.InBlocks == 0 {
			return ""
		}
		return answer.Text
	}
	return ""
}

// ListTurns returns turns, newest inbox event first.
func (s *Service) ListTurns(ctx context.Context, req *registryv1.ListTurnsRequest) (*registryv1.ListTurnsResponse, error) {
	a, err := s.Agents.Get(req.GetAgentId())
	if err != nil {
		return nil, err
	}
	before := int64(0)
	if tok := req.GetPageToken(); tok != "" {
		if before, err = strconv.ParseInt(tok, 10, 64); err != nil {
			return nil, wire.Bad("the page token was not issued by this service", "pass next_page_token as it was answered")
		}
	}
	size := wire.Limit(req.GetPageSize(), 100)
	turns, err := s.Store.ListTurns(ctx, a.ID, store.ListTurns{Fate: wire.ReadFate(req.GetFate()), Before: before, Limit: size, Unresolved: req.GetUnresolved()})
	if err != nil {
		return nil, s.Fault(a.ID, thread.Inbox, err)
	}
	if req.GetWithUsage() {
		if err := s.fillUsage(ctx, a.ID, turns); err != nil {
			return nil, err
		}
	}
	out := &registryv1.ListTurnsResponse{}
	for _, t := range turns {
		out.Turns = append(out.Turns, wire.Turn(t))
	}
	if len(turns) == size {
		out.NextPageToken = strconv.FormatInt(turns[size-1].InboxID, 10)
	}
	return out, nil
}

// RetryTurn pushes the event of a dead turn again, as a new event with a key of
// its own, so that asking twice retries once.
func (s *Service) RetryTurn(ctx context.Context, req *registryv1.RetryTurnRequest) (*registryv1.RetryTurnResponse, error) {
	a, err := s.Agents.Get(req.GetAgentId())
	if err != nil {
		return nil, err
	}
	ev, key, err := s.Store.ResolveTurn(ctx, a.ID, req.GetInboxId(), "retried")
	if err != nil {
		return nil, s.Fault(a.ID, thread.Inbox, err)
	}
	origin, err := s.Store.Origin(ctx, a.ID, req.GetInboxId())
	if err != nil {
		return nil, s.Fault(a.ID, thread.Inbox, err)
	}
	out, err := s.Store.Append(ctx, store.Inbox(a.ID), []store.NewEvent{{Source: ev.Source, Type: ev.Type, Subtype: ev.Subtype, Content: ev.Content, Origin: origin}},
		store.AppendOptions{Key: fmt.Sprintf("%s:retry:1", key)})
	if err != nil {
		return nil, s.Fault(a.ID, thread.Inbox, err)
	}
	if !out.Duplicate {
		a.CountDead(-1)
	}
	return &registryv1.RetryTurnResponse{InboxId: out.IDs[0]}, nil
}

// DropTurn removes a dead turn from the dead letters.
func (s *Service) DropTurn(ctx context.Context, req *registryv1.DropTurnRequest) (*registryv1.DropTurnResponse, error) {
	a, err := s.Agents.Get(req.GetAgentId())
	if err != nil {
		return nil, err
	}
	if _, _, err := s.Store.ResolveTurn(ctx, a.ID, req.GetInboxId(), "dropped"); err != nil {
		return nil, s.Fault(a.ID, thread.Inbox, err)
	}
	a.CountDead(-1)
	return &registryv1.DropTurnResponse{}, nil
}
