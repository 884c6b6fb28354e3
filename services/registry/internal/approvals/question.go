package approvals

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/source"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

const (
	maxLife   = 7 * 24 * time.Hour
	maxAnswer = 64 << 10 // bytes
	// maxWaits is how many answers an agent waits for, of approvals and questions.
	maxWaits = 20
	// byOwner is who answered when the owner did; a message is known by its key, and a person who pressed a button by
	// byPerson and the address, which no key of a message begins with.
	byOwner  = "owner"
	byPerson = "person:"
)

var questionStates = map[string]registryv1.QuestionState{
	store.QuestionPending: registryv1.QuestionState_QUESTION_STATE_PENDING, store.QuestionAnswered: registryv1.QuestionState_QUESTION_STATE_ANSWERED,
	store.QuestionExpired: registryv1.QuestionState_QUESTION_STATE_EXPIRED, store.QuestionCanceled: registryv1.QuestionState_QUESTION_STATE_CANCELED,
}

// Inboxes reads inboxes and turns.
type Inboxes interface {
	Turns
	InboxEvent(ctx context.Context, agent string, id int64) (thread.Event, string, error)
	Origin(ctx context.Context, agent string, id int64) (*store.Origin, error)
	State(ctx context.Context, agent string) (store.InboxState, error)
}

// QuestionDeps are the dependencies of Questions.
type QuestionDeps struct {
	wire.Faults
	Agents    Agents
	Inboxes   Inboxes
	Leases    Leases
	Questions store.Questions
	Approvals store.Approvals
	Meter     Meter
	Wakes     Wakes
	Owners    Owners
}

// Questions implements QuestionService: an agent asks the person it talks to, and waits.
//
//	         answer of an owner, or of the peer in a message or by a button
//	PENDING -------------------------------------------------> ANSWERED
//	   |  \
//	   |   `-- the turn or the agent is stopped --> CANCELED
//	   +------ expiry ----------------------------> EXPIRED
//
// It promises that a question and its answer are on disk before anybody is notified of them,
// that the first answer stands, and that a runner answers only with a later message of the
// peer that was asked, in the same conversation: the registry reads that message itself. A
// gateway answers for the peer that was asked, at the account of the question, and for owners.
// The zero value is not usable; see NewQuestions.
type Questions struct {
	registryv1.UnimplementedQuestionServiceServer
	QuestionDeps
}

// NewQuestions returns the service.
func NewQuestions(d QuestionDeps) *Questions { return &Questions{QuestionDeps: d} }

// RequestQuestion stores a question and waits for its answer.
func (s *Questions) RequestQuestion(ctx context.Context, req *registryv1.RequestQuestionRequest) (*registryv1.RequestQuestionResponse, error) {
	if _, err := s.Agents.Get(req.GetAgentId()); err != nil {
		return nil, err
	}
	if err := s.leased(ctx, req.GetAgentId()); err != nil {
		return nil, err
	}
	if life := req.GetLife().AsDuration(); life <= 0 || life > maxLife {
		return nil, wire.Bad("life is not above 0 and at most 7 days", "say how long the question waits")
	}
	asked, err := s.ask(ctx, req)
	if err != nil {
		return nil, err
	}
	left := time.NewTimer(min(max(req.GetWait().AsDuration(), 0), maxWait, max(time.Until(asked.Expires), 0)))
	defer left.Stop()
	for over := false; ; {
		woken, done := s.Wakes.AwaitApproval(asked.ID)
		q, err := s.change(ctx, asked.ID, func(*store.Question) error { return nil })
		if err != nil || q.State != store.QuestionPending || over {
			done()
			return &registryv1.RequestQuestionResponse{Question: questionMessage(q)}, err
		}
		select {
		case <-woken:
		case <-s.Wakes.Again():
		case <-left.C:
			over = true
		case <-rpc.Draining(ctx):
			over = true
		case <-ctx.Done():
			done()
			return nil, ctx.Err()
		}
		done()
	}
}

// leased refuses a caller without the lease of the agent.
func (s *Questions) leased(ctx context.Context, agent string) error {
	fence, err := wire.RequireFence(ctx, lease.AgentResource(agent))
	if err == nil {
		err = s.Leases.Check(ctx, fence.Resource, fence.Token)
	}
	return s.Fault(agent, "", err)
}

// ask stores a question, or finds the one that was asked with this key. The peer is the peer of the
// turn, whose key is the beginning of the question's key: the runner does not choose whom it asks.
func (s *Questions) ask(ctx context.Context, req *registryv1.RequestQuestionRequest) (store.Question, error) {
	agent := req.GetAgentId()
	for {
		q, there, err := s.Questions.Question(ctx, "", agent, req.GetKey())
		if err != nil || there {
			return q, s.Fault(agent, "", err)
		}
		_, id, ok := turnOf(req.GetKey())
		if !ok {
			return q, wire.Bad("the key is not that of a tool call", "begin it with the key of the turn")
		}
		asking, _, err := s.Inboxes.InboxEvent(ctx, agent, id)
		if err != nil {
			return q, s.Fault(agent, thread.Inbox, err)
		}
		inbox, err := s.Inboxes.State(ctx, agent)
		if err != nil {
			return q, s.Fault(agent, thread.Inbox, err)
		}
		if err := checkWaits(ctx, s.Approvals, s.Questions, agent); err != nil {
			return q, s.Fault(agent, "", err)
		}
		now := time.Now()
		q = store.Question{
			ID: newID(now), Agent: agent, Thread: req.GetThreadId(), Key: req.GetKey(), Text: req.GetText(), Options: req.GetOptions(), AllowText: req.GetAllowText(),
			Peer: asking.Source, After: inbox.Head, State: store.QuestionPending, Requested: now, Expires: now.Add(req.GetLife().AsDuration()),
		}
		if err := s.put(ctx, q, ""); !errors.Is(err, store.ErrMoved) { // else it was asked meanwhile
			return q, err
		}
	}
}

// checkWaits refuses an approval or a question of an agent that waits for many answers.
func checkWaits(ctx context.Context, a store.Approvals, q store.Questions, agent string) error {
	const page = 10 * maxWaits // the state of one whose time is over may not be written yet
	questions, err := q.Questions(ctx, "", agent, store.QuestionPending, page)
	if err != nil {
		return err
	}
	approvals, err := a.Approvals(ctx, "", agent, pending, page)
	if err != nil {
		return err
	}
	n, now := 0, time.Now()
	for _, q := range questions {
		if now.Before(q.Expires) {
			n++
		}
	}
	for _, a := range approvals {
		if now.Before(a.Expires) {
			n++
		}
	}
	if n < maxWaits {
		return nil
	}
	return fault.New(codes.ResourceExhausted, fault.Overloaded, fmt.Sprintf("agent '%s' waits for %d answers already", agent, n), "answer some: 'agentctl questions list', 'agentctl approvals list'")
}

// put stores q, whose stored state must be was, and wakes the waiters; store.ErrMoved when it
// has another state.
func (s *Questions) put(ctx context.Context, q store.Question, was string) error {
	err := s.Questions.PutQuestion(ctx, q, was)
	if err == nil {
		if was == store.QuestionPending && q.State != was {
			s.Meter.AddQuestion(q.State)
		}
		s.Wakes.ApprovalChanged(q.ID)
		return nil
	}
	if errors.Is(err, store.ErrMoved) {
		return err
	}
	return s.Fault(q.Agent, "", err)
}

// change reads a question, applies next and stores the result, unless the state stays the same.
// Of two concurrent changes one is repeated. A question whose time is over is closed first.
func (s *Questions) change(ctx context.Context, id string, next func(*store.Question) error) (store.Question, error) {
	for {
		q, there, err := s.Questions.Question(ctx, id, "", "")
		switch {
		case err != nil:
			return q, s.Fault("", "", err)
		case !there:
			return q, fault.New(codes.NotFound, fault.QuestionNotFound, "there is no such question", "see 'agentctl questions list'")
		}
		was := q.State
		if was == store.QuestionPending && time.Now().After(q.Expires) {
			q.State, q.Ended = store.QuestionExpired, q.Expires
		} else if err := next(&q); err != nil || q.State == was {
			return q, err
		}
		if err := s.put(ctx, q, was); err != nil && !errors.Is(err, store.ErrMoved) {
			return q, err
		} else if err == nil && q.State != store.QuestionExpired {
			return q, nil
		}
	}
}

// AnswerQuestion answers a question. One whose turn has ended is canceled instead: nothing reads
// the answer.
func (s *Questions) AnswerQuestion(ctx context.Context, req *registryv1.AnswerQuestionRequest) (*registryv1.AnswerQuestionResponse, error) {
	id, err := named(req.GetQuestionId(), shortQuestion, func(after string, limit int) ([]store.Question, error) {
		return s.Questions.Questions(ctx, after, "", "", limit)
	}, func(q store.Question) string { return q.ID })
	if err != nil {
		return nil, s.Fault("", "", err)
	}
	asked, there, err := s.Questions.Question(ctx, id, "", "")
	if err != nil {
		return nil, s.Fault("", "", err)
	}
	over := false
	if there {
		if err := s.mayAnswer(ctx, asked, req); err != nil {
			return nil, err
		}
		if asked.State == store.QuestionPending {
			if over, err = turnOver(ctx, s.Inboxes, asked.Agent, asked.Key); err != nil {
				return nil, s.Fault(asked.Agent, "", err)
			}
		}
	}
	by := cmp.Or(req.GetEventKey(), byOwner)
	if req.GetBy() != "" {
		by = byPerson + boundary.Name(req.GetBy())
	}
	q, err := s.change(ctx, id, func(q *store.Question) error {
		switch {
		case q.State == store.QuestionAnswered && q.By == by && by != byOwner:
			return nil // the call is repeated
		case q.State == store.QuestionPending && over:
			q.State, q.Ended = store.QuestionCanceled, time.Now()
			return nil
		case q.State != store.QuestionPending:
			return closed(*q)
		}
		answer, err := choose(*q, req.GetAnswer())
		if err != nil {
			return err
		}
		q.State, q.Answer, q.By, q.Ended = store.QuestionAnswered, answer, by, time.Now()
		return nil
	})
	if err == nil && q.State != store.QuestionAnswered {
		err = closed(q)
	}
	if err != nil {
		return nil, err
	}
	return &registryv1.AnswerQuestionResponse{Question: questionMessage(q)}, nil
}

// mayAnswer refuses callers, people and messages that are not asked.
func (s *Questions) mayAnswer(ctx context.Context, q store.Question, req *registryv1.AnswerQuestionRequest) error {
	refused := func(what string) error {
		return fault.New(codes.PermissionDenied, fault.NotAsked, what, "only the peer that was asked and the owner answer a question")
	}
	caller, _ := rpc.IdentityFrom(ctx)
	key := req.GetEventKey()
	switch owner := caller.Kind == rpc.Owner; {
	case key != "" && req.GetBy() != "":
		return wire.Bad("the answer is of a message and of a person", "name one of them")
	case key != "":
		return s.isAnswer(ctx, q, key, refused)
	case req.GetBy() == "" && !owner:
		return refused("a service answers a question with the message of the peer that was asked")
	case req.GetBy() == "":
		return nil
	case !owner && caller.Role() != "gateway":
		return refused("only a gateway answers for a person")
	}
	if from, _, err := source.ParseLenient(q.Peer); err == nil && from.Kind == source.External && from.ChannelID == req.GetAccount() && from.ChannelType+":"+from.PeerID == req.GetBy() {
		return nil
	}
	owner, err := isOwner(ctx, s.Owners, s.Agents, q.Agent, req.GetBy())
	if err != nil {
		return s.Fault(q.Agent, "", err)
	}
	if !owner {
		return refused("another person was asked")
	}
	return nil
}

// isAnswer refuses the message with a key unless it may be the answer.
func (s *Questions) isAnswer(ctx context.Context, q store.Question, key string, refused func(what string) error) error {
	if err := s.leased(ctx, q.Agent); err != nil {
		return err
	}
	id, _ := thread.KeyID(key)
	if id <= q.After {
		return refused("the message is older than the question")
	}
	answer, known, err := s.Inboxes.InboxEvent(ctx, q.Agent, id)
	if err != nil {
		return s.Fault(q.Agent, thread.Inbox, err)
	}
	origin, err := s.Inboxes.Origin(ctx, q.Agent, id)
	if err != nil {
		return s.Fault(q.Agent, thread.Inbox, err)
	}
	_, turn, _ := turnOf(q.Key)
	asking, _, err := s.Inboxes.InboxEvent(ctx, q.Agent, turn)
	if err != nil {
		return s.Fault(q.Agent, thread.Inbox, err)
	}
	to, _, err := route.Of(asking.Source, asking.Content)
	if err != nil {
		return err
	}
	from, _, err := route.Of(answer.Source, answer.Content)
	switch {
	case err != nil:
		return err
	case known != key:
		return refused("the inbox has another message under this id")
	case answer.Source != q.Peer || from != to:
		return refused("the message is of another peer or conversation")
	case answer.Type != thread.TypeMessage || origin != nil && origin.Command != "":
		return refused("a command is no answer")
	}
	return nil
}

// choose returns what an answer selects: an option by its number or its text, or else the text.
func choose(q store.Question, text string) (string, error) {
	text = strings.TrimSpace(text)
	if n, err := strconv.Atoi(text); err == nil && n >= 1 && n <= len(q.Options) {
		return q.Options[n-1], nil
	}
	if n := slices.IndexFunc(q.Options, func(o string) bool { return strings.EqualFold(strings.TrimSpace(o), text) }); n >= 0 {
		return q.Options[n], nil
	}
	var what string
	switch {
	case text == "":
		what = "the answer is empty"
	case len(text) > maxAnswer:
		what = fmt.Sprintf("the answer has %d bytes; the limit is %d", len(text), maxAnswer)
	case len(q.Options) == 0 || q.AllowText:
		return text, nil
	default:
		what = "the answer is none of the options"
	}
	fix := "answer in words"
	if len(q.Options) > 0 {
		fix = fmt.Sprintf("answer with a number from 1 to %d, or one of: %s", len(q.Options), strings.Join(q.Options, ", "))
	}
	return "", fault.New(codes.InvalidArgument, fault.AnswerInvalid, what, fix)
}

// closed is the error of an answer that comes too late: who was first, and when.
func closed(q store.Question) error {
	who := ""
	if person, ok := strings.CutPrefix(q.By, byPerson); ok {
		who = " by " + person
	} else if id, ok := thread.KeyID(q.By); ok {
		who = fmt.Sprintf(" by message %d of the peer", id)
	} else if q.By != "" {
		who = " by the " + q.By
	}
	what := map[string]string{store.QuestionAnswered: "was answered", store.QuestionCanceled: "was canceled"}[q.State]
	return fault.New(codes.FailedPrecondition, fault.QuestionClosed,
		fmt.Sprintf("the question %s%s at %s", cmp.Or(what, "expired"), who, q.Ended.UTC().Format(time.RFC3339)), "nothing was changed; 'agentctl questions list --all' shows the answer")
}

// Cancel ends the questions that a turn waits for, or with an empty turn those of the agent.
func (s *Questions) Cancel(ctx context.Context, agent, turn, by string) error {
	const page = 200
	for after := ""; ; {
		list, err := s.Questions.Questions(ctx, after, agent, store.QuestionPending, page)
		if err != nil {
			return s.Fault(agent, "", err)
		}
		for _, q := range list {
			if after = q.ID; turn != "" && !strings.HasPrefix(q.Key, turn+":") {
				continue
			}
			if _, err := s.change(ctx, q.ID, func(q *store.Question) error {
				if q.State == store.QuestionPending {
					q.State, q.By, q.Ended = store.QuestionCanceled, by, time.Now()
				}
				return nil
			}); err != nil && !fault.Is(err, fault.QuestionNotFound) {
				return err
			}
		}
		if len(list) < page {
			return nil
		}
	}
}

// ListQuestions returns questions, oldest first.
func (s *Questions) ListQuestions(ctx context.Context, req *registryv1.ListQuestionsRequest) (*registryv1.ListQuestionsResponse, error) {
	size := wire.Limit(req.GetPageSize(), 100)
	state := ""
	for name, st := range questionStates {
		if st == req.GetState() && name != store.QuestionExpired { // that one may not be written yet
			state = name
		}
	}
	list, err := s.Questions.Questions(ctx, req.GetPageToken(), req.GetAgentId(), state, size)
	if err != nil {
		return nil, s.Fault(req.GetAgentId(), "", err)
	}
	out := &registryv1.ListQuestionsResponse{}
	for _, q := range list {
		if m := questionMessage(q); req.GetState() == 0 || m.GetState() == req.GetState() {
			out.Questions = append(out.Questions, m)
		}
	}
	if len(list) == size {
		out.NextPageToken = list[size-1].ID
	}
	return out, nil
}

// questionMessage converts a question; one whose time is over is expired.
func questionMessage(q store.Question) *registryv1.Question {
	if q.State == store.QuestionPending && time.Now().After(q.Expires) {
		q.State, q.Ended = store.QuestionExpired, q.Expires
	}
	m := &registryv1.Question{
		QuestionId: q.ID, ShortId: shortOf(shortQuestion, q.ID), AgentId: q.Agent, ThreadId: q.Thread, Key: q.Key, Text: q.Text, Options: q.Options, AllowText: q.AllowText, Peer: wire.Text(q.Peer),
		State: questionStates[q.State], Answer: q.Answer, By: q.By, AfterId: q.After,
		RequestedAt: timestamppb.New(q.Requested), ExpiresAt: timestamppb.New(q.Expires),
	}
	if !q.Ended.IsZero() {
		m.EndedAt = timestamppb.New(q.Ended)
	}
	return m
}

// turnOf returns the key of the turn that asks and the id of its message: the key of what it
// asks begins with them.
func turnOf(key string) (turn string, id int64, ok bool) {
	parts := strings.SplitN(key, ":", turnKeyParts+1)
	if len(parts) <= turnKeyParts {
		return "", 0, false
	}
	turn = strings.Join(parts[:turnKeyParts], ":")
	id, ok = thread.KeyID(turn)
	return turn, id, ok
}

// turnOver reports whether the turn that asks has its fate, or is gone.
func turnOver(ctx context.Context, turns Turns, agent, key string) (bool, error) {
	turn, id, ok := turnOf(key)
	if !ok {
		return false, nil
	}
	t, err := turns.Turn(ctx, agent, store.TurnQuery{InboxID: id, Key: turn, Route: wire.ThreadOf})
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrNoTurn) || errors.Is(err, store.ErrKeyMismatch) {
		return true, nil
	}
	return err == nil && t.State == store.TurnDone, err
}
