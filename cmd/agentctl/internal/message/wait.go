package message

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/pause"
	"github.com/theclaw/agents/internal/rpc/runs"
	"github.com/theclaw/agents/internal/thread"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Push appends one event to the inbox of an agent. What it returns has one event id.
func Push(ctx context.Context, e *command.Env, agent, key string, ev *registry.NewEvent) (*registry.PushEventsResponse, error) {
	r, err := e.Threads().PushEvents(ctx, &registry.PushEventsRequest{
		Thread: &registry.ThreadRef{AgentId: agent, ThreadId: thread.Inbox}, Events: []*registry.NewEvent{ev}, IdempotencyKey: key,
	})
	if err != nil {
		return nil, err
	}
	if len(r.GetEventIds()) != 1 {
		return nil, fault.New(codes.Internal, fault.Internal, "the registry returned no event id", "use a client and a service of the same version")
	}
	return r, nil
}

// Say pushes a text of the console. With a session key it belongs to that conversation, else
// to the one of the peer.
func Say(ctx context.Context, e *command.Env, agent string, from Peer, session, key, text string) (id int64, duplicate bool, err error) {
	content := from.Envelope(key, text)
	if err := CheckText(content, text); err != nil {
		return 0, false, err
	}
	r, err := Push(ctx, e, agent, key, &registry.NewEvent{Source: from.Source(), Type: thread.TypeMessage, Content: content, SessionKey: session})
	if err != nil {
		return 0, false, err
	}
	return r.GetEventIds()[0], r.GetDuplicate(), nil
}

// step is how long one call waits for a turn; shorter than what a proxy allows.
const step = 20 * time.Second

// Turn waits until the inbox event has its fate, or ctx ends. A registry that is
// away for a moment does not end the wait. changed, which may be nil, gets the progress each
// time the turn waits for something else; with person also what a person has to answer, which
// takes two more calls for each poll.
func Turn(ctx context.Context, e *command.Env, agent string, id int64, person bool, changed func(Progress)) (*registry.Turn, error) {
	var away time.Time
	var waits waiter
	for {
		call, cancel := context.WithTimeout(ctx, step+command.DefaultTimeout)
		r, err := e.Turns().GetTurn(call, &registry.GetTurnRequest{AgentId: agent, InboxId: id, Wait: durationpb.New(waits.step(changed))})
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil, waits.explain(ctx.Err())
		case fault.Is(err, fault.Deadline) && ends(ctx): // the service has noticed it first
			return nil, waits.explain(context.DeadlineExceeded)
		case command.Unavailable(err):
			if away.IsZero() {
				away = time.Now()
			}
			if time.Since(away) > command.Patience {
				return nil, err
			}
			if err := pause.For(ctx, 200*time.Millisecond); err != nil {
				return nil, err
			}
		case err != nil:
			return nil, err
		case r.GetTurn().GetState() == registry.TurnState_TURN_STATE_DONE:
			return r.GetTurn(), runs.ReadSteps(ctx, e.Turns(), r.GetTurn())
		default:
			away = time.Time{}
			p := Progress{Turn: r.GetTurn()}
			if changed != nil {
				p.Ahead = Ahead(ctx, e, p.Turn)
			}
			if person {
				p.Person = Person(ctx, e, p.Turn)
			}
			waits.see(p, changed)
			// An answer that came early must not become a busy loop.
			if err := pause.For(ctx, 20*time.Millisecond); err != nil {
				return nil, waits.explain(err)
			}
		}
	}
}

// ends reports that the deadline of ctx is there, give or take the way to a service.
func ends(ctx context.Context) bool {
	at, ok := ctx.Deadline()
	return ok && time.Until(at) < time.Second
}

// One call waits for a watched turn firstWatch, then twice as long up to watchStep: what it
// waits for is in no answer before, and the first failed try is to be shown soon.
const (
	firstWatch = 250 * time.Millisecond
	watchStep  = 2 * time.Second
)

// Progress is how far a turn is that has no fate yet.
type Progress struct {
	Turn *registry.Turn
	// Ahead is the turn that comes before it and waits; nil: there is none.
	Ahead  *registry.Turn
	Person string // see the function Person
}

// Person is what a person has to answer before a turn goes on, with the command for that; empty
// also when that is not known. A conversation has one turn at work.
func Person(ctx context.Context, e *command.Env, t *registry.Turn) string {
	if t.GetState() != registry.TurnState_TURN_STATE_CLAIMED {
		return ""
	}
	a, _ := e.Approvals().ListApprovals(ctx, &registry.ListApprovalsRequest{AgentId: t.GetAgentId(), State: registry.ApprovalState_APPROVAL_STATE_PENDING})
	for _, one := range a.GetApprovals() {
		if one.GetThreadId() == t.GetThreadId() {
			return "it waits until a person allows a command; to allow it: agentctl approvals approve " + one.GetApprovalId()
		}
	}
	q, _ := e.Questions().ListQuestions(ctx, &registry.ListQuestionsRequest{AgentId: t.GetAgentId(), State: registry.QuestionState_QUESTION_STATE_PENDING})
	for _, one := range q.GetQuestions() {
		if one.GetThreadId() == t.GetThreadId() {
			return fmt.Sprintf("it asks %.200q; to answer: agentctl questions answer %s ANSWER", one.GetText(), one.GetQuestionId())
		}
	}
	return ""
}

// waiter remembers what a turn waits for.
type waiter struct {
	Progress
	seen string
	last time.Duration
}

func (w *waiter) step(changed func(Progress)) time.Duration {
	if changed == nil {
		return step
	}
	w.last = min(max(firstWatch, 2*w.last), watchStep)
	return w.last
}

func (w *waiter) see(p Progress, changed func(Progress)) {
	w.Progress = p
	now := p.Person + "\n"
	for _, one := range []*registry.Turn{p.Turn, p.Ahead} {
		now += one.GetState().String() + " " + one.GetNextAt().String() + " " + one.GetError() + "\n"
	}
	if now != w.seen && changed != nil {
		changed(p)
	}
	w.seen = now
}

// explain adds to the end of a wait what the turn waits for.
func (w *waiter) explain(err error) error {
	what := cmp.Or(w.Person, WaitOf(w.Turn, w.Ahead, time.Now()).String())
	switch state := w.Turn.GetState(); {
	case what != "":
	case state == registry.TurnState_TURN_STATE_CLAIMED && w.Turn.GetClaimedAt() != nil:
		what = fmt.Sprintf("a runner has been working on it for %s", time.Since(w.Turn.GetClaimedAt().AsTime()).Round(time.Second))
	case state == registry.TurnState_TURN_STATE_QUEUED && w.Ahead == nil:
		what = "no runner works on it yet"
	default:
		return err
	}
	return fmt.Errorf("%w: %w", errWaiting(what), err)
}

// Note reports what a turn waits for, once for each cause.
func Note(e *command.Env) func(Progress) {
	said := ""
	return func(p Progress) {
		w := WaitOf(p.Turn, p.Ahead, time.Now())
		if p.Person != "" {
			w = Wait{Cause: p.Person}
		}
		if w.Cause != "" && w.Cause != said {
			e.Note("message %d: %s", p.Turn.GetInboxId(), screen.Line(w.String()))
			said = w.Cause
		}
	}
}

type errWaiting string

func (e errWaiting) Error() string { return string(e) }

// Reply is the text a finished turn was answered with; ok is false when there is
// none to show. A turn that failed permanently is an error that says why.
func Reply(ctx context.Context, e *command.Env, t *registry.Turn) (text string, ok bool, err error) {
	switch t.GetFate() {
	case registry.Fate_FATE_REPLIED:
	case registry.Fate_FATE_DEAD, registry.Fate_FATE_ABORTED:
		return "", false, failed(t)
	default:
		return "", false, nil
	}
	r, err := e.Threads().PeekEvents(ctx, &registry.PeekEventsRequest{
		Thread: &registry.ThreadRef{AgentId: t.GetAgentId(), ThreadId: t.GetThreadId()}, AfterId: t.GetReplyEventId() - 1, Limit: 1,
	})
	if err != nil {
		return "", false, err
	}
	if len(r.GetEvents()) == 0 || r.GetEvents()[0].GetId() != t.GetReplyEventId() {
		return "", false, fault.New(codes.NotFound, fault.Internal,
			fmt.Sprintf("the reply %d is not in %s any more", t.GetReplyEventId(), t.GetThreadId()),
			fmt.Sprintf("see 'agentctl explain %s %d'", t.GetAgentId(), t.GetInboxId()))
	}
	return Text(r.GetEvents()[0].GetContent()), true, nil
}

func failed(t *registry.Turn) error {
	word := "died"
	if t.GetFate() == registry.Fate_FATE_ABORTED {
		word = "was aborted"
	}
	what := fmt.Sprintf("message %d %s", t.GetInboxId(), word)
	if cause := strings.TrimSpace(t.GetError()); cause != "" {
		what += ": " + cause
	}
	return fault.New(codes.Aborted, fault.Internal, what, fmt.Sprintf("see 'agentctl explain %s %d'", t.GetAgentId(), t.GetInboxId()))
}

// Text is the text of a message's content; content that is not ours is shown as
// it is.
func Text(content string) string {
	var m struct {
		Text *string `json:"text"`
	}
	if json.Unmarshal([]byte(content), &m) != nil || m.Text == nil {
		return content
	}
	return *m.Text
}

// ToPeer is the text that a call of the message tool sends to its peer; false: it changes an earlier message, or writes
// elsewhere.
func ToPeer(arguments string) (text string, ok bool) {
	var a struct {
		Action    string `json:"action"`
		Channel   string `json:"channel"`
		To        string `json:"to"`
		MessageID string `json:"message_id"`
	}
	_ = json.Unmarshal([]byte(arguments), &a) // what is not understood is shown as it is
	return Text(arguments), (a.Action == "" || a.Action == "send") && a.Channel+a.To+a.MessageID == ""
}

// Done is the text of a message with which the agent changed an earlier one or wrote elsewhere, behind what it did.
func Done(content string) string {
	var c struct {
		Action string `json:"action"`
		To     struct {
			Account string `json:"channel_id"`
			Session string `json:"session_id"`
			Peer    string `json:"peer_id"`
		} `json:"reply_context"`
	}
	_ = json.Unmarshal([]byte(content), &c) // what is not understood has no place
	return strings.TrimSpace(fmt.Sprintf("[%s in %s of %s] %s", cmp.Or(c.Action, "sent"), cmp.Or(c.To.Session, c.To.Peer), c.To.Account, Text(content)))
}

// RequireStarted returns an error for an agent that will not answer.
func RequireStarted(ctx context.Context, e *command.Env, agent string) error {
	r, err := e.Agents().GetAgent(ctx, &registry.GetAgentRequest{AgentId: agent})
	if err != nil {
		return err
	}
	if !r.GetAgent().GetStarted() {
		return fault.New(codes.FailedPrecondition, fault.AgentStopped, fmt.Sprintf("Agent '%s' is stopped, so it would not answer", agent),
			fmt.Sprintf("run 'agentctl start %s' first", agent))
	}
	return nil
}

// TimedOut turns the end of a wait into words; other errors pass.
func TimedOut(err error, agent string, id int64) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	what := fmt.Sprintf("message %d has no reply yet; it is not lost", id)
	if w, ok := errors.AsType[errWaiting](err); ok {
		what += "; " + string(w)
	}
	return fault.New(codes.DeadlineExceeded, fault.Deadline, what,
		fmt.Sprintf("see 'agentctl explain %s %d', or wait longer with --timeout", agent, id))
}
