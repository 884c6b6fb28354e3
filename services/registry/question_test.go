package registry_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/source"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

const (
	waits    = registryv1.QuestionState_QUESTION_STATE_PENDING
	answered = registryv1.QuestionState_QUESTION_STATE_ANSWERED
	over     = registryv1.QuestionState_QUESTION_STATE_EXPIRED
	canceled = registryv1.QuestionState_QUESTION_STATE_CANCELED
)

// conversation is a turn of agent a1 that asks.
type conversation struct {
	*backendtest.World
	ctx  context.Context //nolint:containedctx // of the lease
	turn *registryv1.PendingEvent
}

// converse begins the turn of a message of bob.
func converse(t *testing.T, o backendtest.Options) *conversation {
	t.Helper()
	w := o.Start(t, registry.Config{MaxPerPeer: 1000})
	w.Create("a1")
	w.Push("a1", "bob", "pay", "")
	c := &conversation{World: w}
	c.claim("runner")
	return c
}

// claim begins the first turn under a new lease.
func (c *conversation) claim(holder string) {
	c.Helper()
	c.ctx = c.Leased("a1", holder)
	c.turn = c.read()[0]
	begun, err := c.Turns.BeginTurn(c.ctx, &registryv1.BeginTurnRequest{AgentId: "a1", InboxId: c.turn.GetEvent().GetId(), Key: c.turn.GetKey(), ThreadId: c.turn.GetThreadId()})
	backendtest.Must(c.T, begun, err)
}

func (c *conversation) read() []*registryv1.PendingEvent {
	c.Helper()
	b, err := c.Turns.OpenBatch(c.ctx, &registryv1.OpenBatchRequest{AgentId: "a1"})
	return backendtest.Must(c.T, b, err).GetEvents()
}

// message pushes a message and returns it as the runner reads it.
func (c *conversation) message(peer, text string) *registryv1.PendingEvent {
	c.Helper()
	c.Push("a1", peer, text, "")
	list := c.read()
	return list[len(list)-1]
}

func (c *conversation) request(n int, life time.Duration) *registryv1.RequestQuestionRequest {
	return &registryv1.RequestQuestionRequest{
		AgentId: "a1", ThreadId: c.turn.GetThreadId(), Key: fmt.Sprintf("%s:tool:%d:1", c.turn.GetKey(), n), Text: "Which account?",
		Options: []string{"main", "savings"}, AllowText: n > 1, Life: durationpb.New(life),
	}
}

func (c *conversation) ask(req *registryv1.RequestQuestionRequest) *registryv1.Question {
	c.Helper()
	r, err := c.Question.RequestQuestion(c.ctx, req)
	return backendtest.Must(c.T, r, err).GetQuestion()
}

func (c *conversation) answer(q *registryv1.Question, text string) (*registryv1.Question, error) {
	r, err := c.Question.AnswerQuestion(c.Context(), &registryv1.AnswerQuestionRequest{QuestionId: q.GetQuestionId(), Answer: text})
	return r.GetQuestion(), err
}

// offer answers with a message, as a runner does.
func (c *conversation) offer(q *registryv1.Question, e *registryv1.PendingEvent, text string) (*registryv1.Question, error) {
	as := c.As(rpc.Identity{Kind: rpc.Service, Name: "runner"})
	r, err := as.Question.AnswerQuestion(c.ctx, &registryv1.AnswerQuestionRequest{QuestionId: q.GetQuestionId(), Answer: text, EventKey: e.GetKey()})
	return r.GetQuestion(), err
}

// S3-48: an option is chosen by its number or its text; the first answer stands, over a restart,
// and a later one is refused with who was first.
func TestQuestion(t *testing.T) { backendtest.Each(t, testQuestion) }

func testQuestion(t *testing.T, o backendtest.Options) {
	c := converse(t, o)
	first := c.ask(c.request(1, time.Hour))
	if first.GetState() != waits || !strings.HasSuffix(first.GetPeer(), ":bob") || first.GetAfterId() != 1 {
		t.Errorf("asked: %v", first)
	}
	if again := c.ask(c.request(1, time.Minute)); again.GetQuestionId() != first.GetQuestionId() || !again.GetExpiresAt().AsTime().Equal(first.GetExpiresAt().AsTime()) {
		t.Errorf("the same question: %v", again)
	}
	if _, err := c.answer(first, "neither"); !fault.Is(err, fault.AnswerInvalid) || !strings.Contains(fault.From(err).Fix, "from 1 to 2, or one of: main, savings") {
		t.Errorf("none of the options: %v", err)
	}
	woken := make(chan *registryv1.Question, 1)
	go func() {
		req := c.request(1, time.Hour)
		req.Wait = durationpb.New(time.Minute)
		r, err := c.Question.RequestQuestion(c.ctx, req)
		if err != nil {
			t.Error(err)
		}
		woken <- r.GetQuestion()
	}()
	if q, err := c.answer(first, " 2 "); err != nil || q.GetAnswer() != "savings" || q.GetState() != answered || q.GetBy() != "owner" {
		t.Errorf("answered: %v %v", q, err)
	}
	if q := <-woken; q.GetAnswer() != "savings" {
		t.Errorf("who waited reads %v", q)
	}
	if _, err := c.answer(first, "1"); !fault.Is(err, fault.QuestionClosed) || !strings.Contains(err.Error(), "was answered by the owner at 20") {
		t.Errorf("answered again: %v", err)
	}
	if _, err := c.Question.AnswerQuestion(c.Context(), &registryv1.AnswerQuestionRequest{QuestionId: "none", Answer: "1"}); !fault.Is(err, fault.QuestionNotFound) {
		t.Errorf("an unknown one: %v", err)
	}
	for n, text := range []string{"MAIN", "something else"} {
		q, err := c.answer(c.ask(c.request(n+2, time.Hour)), text)
		if want := []string{"main", text}[n]; err != nil || q.GetAnswer() != want {
			t.Errorf("%q: %v %v", text, q, err)
		}
	}
	waiting := c.ask(c.request(4, time.Hour))
	c.Release(c.Held("agent/a1"))
	c.Stop()

	c.World = o.Start(t, registry.Config{})
	list := func(state registryv1.QuestionState) []*registryv1.Question {
		r, err := c.Question.ListQuestions(c.Context(), &registryv1.ListQuestionsRequest{AgentId: "a1", State: state})
		return backendtest.Must(t, r, err).GetQuestions()
	}
	if all, left := list(0), list(waits); len(all) != 4 || all[0].GetAnswer() != "savings" || len(left) != 1 || left[0].GetQuestionId() != waiting.GetQuestionId() {
		t.Errorf("after a restart: %v, waiting %v", all, left)
	}
	c.claim("runner")
	if q := c.ask(c.request(4, time.Hour)); q.GetQuestionId() != waiting.GetQuestionId() || q.GetState() != waits {
		t.Errorf("asked by the next holder: %v", q)
	}
}

// SECURITY: a runner answers only with a later message of the asked peer, which is no command.
func TestWhoMayAnswer(t *testing.T) { backendtest.Each(t, testWhoMayAnswer) }

func testWhoMayAnswer(t *testing.T, o backendtest.Options) {
	c := converse(t, o)
	before := c.message("bob", "and quickly")
	q := c.ask(c.request(1, time.Hour))
	other, right := c.message("carol", "1"), c.message("bob", "2")
	for what, e := range map[string]*registryv1.PendingEvent{
		"an older message": before, "another peer": other, "the message that asked": c.turn, "no event": {Key: "x"}, "no key": {},
	} {
		if _, err := c.offer(q, e, "1"); !fault.Is(err, fault.NotAsked) {
			t.Errorf("%s: %v", what, err)
		}
	}
	forged := right.GetKey()[:len(right.GetKey())-4] + "0000"
	if _, err := c.offer(q, &registryv1.PendingEvent{Key: forged}, "1"); !fault.Is(err, fault.NotAsked) {
		t.Errorf("another message under the id: %v", err)
	}
	lease := c.ctx
	c.ctx = c.Context()
	if _, err := c.offer(q, right, "2"); status.Code(err) != codes.Aborted {
		t.Errorf("without the lease: %v", err)
	}
	c.ctx = lease
	for range 2 { // a repeat is the same answer
		if got, err := c.offer(q, right, "2"); err != nil || got.GetAnswer() != "savings" || got.GetBy() != right.GetKey() {
			t.Errorf("the peer answers: %v %v", got, err)
		}
	}
	if _, err := c.answer(q, "1"); !fault.Is(err, fault.QuestionClosed) || !strings.Contains(err.Error(), "by message 4 of the peer") {
		t.Errorf("the owner answers later: %v", err)
	}
	if _, err := c.offer(q, c.message("bob", "1"), "1"); !fault.Is(err, fault.QuestionClosed) {
		t.Errorf("a second message: %v", err)
	}
}

// S3-48: a gateway answers for the person who was asked, at the account of the question, and for an owner, and for no
// other person; a repeat is the same answer, which stands. No other service answers for a person.
func TestAnswerInChat(t *testing.T) { backendtest.Each(t, testAnswerInChat) }

func testAnswerInChat(t *testing.T, o backendtest.Options) {
	c := converse(t, o)
	setHome(t, o, c.World, "owners: ['webhook:boss']\nchannels:\n  wh: {type: webhook, dm: open}\n")
	peer, _, err := source.ParseLenient(c.ask(c.request(1, time.Hour)).GetPeer())
	if err != nil {
		t.Fatal(err)
	}
	bob := peer.ChannelType + ":" + peer.PeerID
	gateway := c.As(rpc.Identity{Kind: rpc.Service, Name: "gateway-2"})
	answer := func(as *backendtest.World, q *registryv1.Question, by, account, text string) (*registryv1.Question, error) {
		r, err := as.Question.AnswerQuestion(t.Context(), &registryv1.AnswerQuestionRequest{QuestionId: q.GetQuestionId(), Answer: text, By: by, Account: account})
		return r.GetQuestion(), err
	}
	q := c.ask(c.request(1, time.Hour))
	for what, err := range map[string]error{
		"another person":      second(answer(gateway, q, peer.ChannelType+":carol", peer.ChannelID, "1")),
		"another account":     second(answer(gateway, q, bob, "other", "1")),
		"another type":        second(answer(gateway, q, "other:"+peer.PeerID, peer.ChannelID, "1")),
		"no person":           second(answer(gateway, q, "", peer.ChannelID, "1")),
		"a runner for a peer": second(answer(c.As(rpc.Identity{Kind: rpc.Service, Name: "runner"}), q, bob, peer.ChannelID, "1")),
	} {
		if !fault.Is(err, fault.NotAsked) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := answer(gateway, q, bob, peer.ChannelID, "3"); !fault.Is(err, fault.AnswerInvalid) {
		t.Errorf("none of the options: %v", err)
	}
	for _, text := range []string{"2", "2", "1"} {
		if got, err := answer(gateway, q, bob, peer.ChannelID, text); err != nil || got.GetAnswer() != "savings" || got.GetBy() != "person:"+bob {
			t.Errorf("the person who was asked: %v %v", got, err)
		}
	}
	if _, err := c.answer(q, "1"); !fault.Is(err, fault.QuestionClosed) || !strings.Contains(err.Error(), "was answered by "+bob+" at 20") {
		t.Errorf("the owner answers later: %v", err)
	}
	if got, err := answer(gateway, c.ask(c.request(2, time.Hour)), "webhook:boss", "wh", "1"); err != nil || got.GetAnswer() != "main" {
		t.Errorf("an owner: %v %v", got, err)
	}
}

func second[A any](_ A, err error) error { return err }

// Trap "question answered twice": CLI and message at the same instant, 500 times: one answer.
func TestAnsweredTwice(t *testing.T) { backendtest.Each(t, testAnsweredTwice) }

func testAnsweredTwice(t *testing.T, o backendtest.Options) {
	const rounds = 500
	c := converse(t, o)
	byMessage := 0
	for n := range rounds {
		q := c.ask(c.request(n+2, time.Hour))
		c.Push("a1", "bob", "1", "")
		b, err := c.Turns.OpenBatch(c.ctx, &registryv1.OpenBatchRequest{AgentId: "a1", AfterId: int64(n + 1)})
		e := backendtest.Must(t, b, err).GetEvents()[0]
		var g sync.WaitGroup
		var got [2]*registryv1.Question
		var errs [2]error
		g.Go(func() { got[0], errs[0] = c.answer(q, "2") })
		g.Go(func() { got[1], errs[1] = c.offer(q, e, "1") })
		g.Wait()
		won := 0
		if errs[0] != nil {
			won = 1
		}
		if errs[won] != nil || !fault.Is(errs[1-won], fault.QuestionClosed) || got[won].GetAnswer() != []string{"savings", "main"}[won] {
			t.Fatalf("round %d: %v, %v", n, got, errs)
		}
		if q := c.ask(c.request(n+2, time.Hour)); q.GetAnswer() != got[won].GetAnswer() {
			t.Fatalf("round %d: %v stands, %v was accepted", n, q, got[won])
		}
		byMessage += won
	}
	t.Logf("%d of %d were answered by the message", byMessage, rounds)
}

// A question ends with its time, its turn, or the stop of its agent, and nothing answers it then;
// the watch shows each change.
func TestQuestionEnds(t *testing.T) { backendtest.Each(t, testQuestionEnds) }

func testQuestionEnds(t *testing.T, o backendtest.Options) {
	c := converse(t, o)
	watch, err := c.Question.WatchQuestions(t.Context(), &registryv1.WatchQuestionsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	seen := func(q *registryv1.Question, state registryv1.QuestionState) {
		t.Helper()
		if r, err := watch.Recv(); err != nil || r.GetQuestion().GetQuestionId() != q.GetQuestionId() || r.GetQuestion().GetState() != state {
			t.Errorf("watched %v %v, want %v of %s", r, err, state, q.GetQuestionId())
		}
	}
	short := c.ask(c.request(1, 3*time.Second)) // a watch may come late by less
	seen(short, waits)
	req := c.request(1, time.Hour)
	req.Wait = durationpb.New(30 * time.Second)
	q := c.ask(req)
	for q.GetState() == waits {
		q = c.ask(req)
	}
	seen(short, over)
	if q.GetState() != over || !q.GetEndedAt().AsTime().Equal(q.GetExpiresAt().AsTime()) {
		t.Errorf("without an answer: %v", q)
	}
	if _, err := c.answer(short, "1"); !fault.Is(err, fault.QuestionClosed) || !strings.Contains(err.Error(), "expired at 20") {
		t.Errorf("after its time: %v", err)
	}
	for n, end := range []func(){
		func() {
			fin, err := c.Turns.FinishTurn(c.ctx, &registryv1.FinishTurnRequest{
				AgentId: "a1", InboxId: c.turn.GetEvent().GetId(), Key: c.turn.GetKey(), ThreadId: c.turn.GetThreadId(), Fate: registryv1.Fate_FATE_ABORTED, Error: "by the owner",
			})
			backendtest.Must(t, fin, err)
		},
		func() { c.StopAgent("a1") },
	} {
		q := c.ask(c.request(n+2, time.Hour))
		seen(q, waits)
		end()
		seen(q, canceled)
		if _, err := c.answer(q, "1"); !fault.Is(err, fault.QuestionClosed) || !strings.Contains(err.Error(), "was canceled by the owner at 20") {
			t.Errorf("after the end: %v", err)
		}
		if n == 0 {
			c.message("bob", "again")
			c.turn = c.read()[0]
			begun, err := c.Turns.BeginTurn(c.ctx, &registryv1.BeginTurnRequest{AgentId: "a1", InboxId: c.turn.GetEvent().GetId(), Key: c.turn.GetKey(), ThreadId: c.turn.GetThreadId()})
			backendtest.Must(t, begun, err)
		}
	}
}

// An agent waits for 20 answers at most, of questions and of approvals.
func TestManyQuestions(t *testing.T) { backendtest.Each(t, testManyQuestions) }

func testManyQuestions(t *testing.T, o backendtest.Options) {
	c := converse(t, o)
	var first *registryv1.Question
	for n := range 19 {
		if q := c.ask(c.request(n+1, time.Hour)); n == 0 {
			first = q
		}
	}
	c.Ask(c.ctx, backendtest.Question(c.turn.GetKey()+":tool:20:1", "ls", 0))
	if _, err := c.Question.RequestQuestion(c.ctx, c.request(21, time.Hour)); !fault.Is(err, fault.Overloaded) {
		t.Errorf("the 21st: %v", err)
	}
	if _, err := c.Approvals.RequestApproval(c.ctx, backendtest.Question(c.turn.GetKey()+":tool:21:2", "ls", 0)); !fault.Is(err, fault.Overloaded) || !strings.Contains(err.Error(), "waits for 20 answers") {
		t.Errorf("an approval as the 21st: %v", err)
	}
	if a := c.Ask(c.ctx, backendtest.Question(c.turn.GetKey()+":tool:20:1", "ls", 0)); a.GetState() != pending {
		t.Errorf("an approval that was asked for: %v", a)
	}
	if q := c.ask(c.request(1, time.Hour)); q.GetQuestionId() != first.GetQuestionId() {
		t.Errorf("one that was asked: %v", q)
	}
	if _, err := c.answer(first, "1"); err != nil {
		t.Fatal(err)
	}
	if q := c.ask(c.request(21, time.Hour)); q.GetState() != waits {
		t.Errorf("after an answer: %v", q)
	}
}

// P1: the registry is killed right after it has ended a turn that waits for people. What the turn asked ends when its message is
// claimed again, and so before the message is done: so no person is asked for what no turn waits for.
func TestWaitsEndWithTheirTurn(t *testing.T) { backendtest.Each(t, testWaitsEndWithTheirTurn) }

func testWaitsEndWithTheirTurn(t *testing.T, o backendtest.Options) {
	t.Cleanup(func() { fault.SetPoint(nil) })
	c := converse(t, o)
	a := c.Ask(c.ctx, backendtest.Question(c.turn.GetKey()+":tool:1:1", "ls", 0))
	q := c.ask(c.request(2, time.Hour))
	fault.SetPoint(func(label string) {
		if label == "T9.after" {
			panic("killed")
		}
	})
	end := &registryv1.FinishTurnRequest{AgentId: "a1", InboxId: c.turn.GetEvent().GetId(), Key: c.turn.GetKey(), ThreadId: c.turn.GetThreadId(), Fate: registryv1.Fate_FATE_DEAD, Error: "e"}
	if _, err := c.Turns.FinishTurn(c.ctx, end); err == nil {
		t.Fatal("not killed")
	}
	fault.SetPoint(func(label string) {
		if label == "T8.after" {
			panic("killed again, right before the answer")
		}
	})
	_, _ = c.Turns.BeginTurn(c.ctx, &registryv1.BeginTurnRequest{AgentId: "a1", InboxId: end.GetInboxId(), Key: end.GetKey(), ThreadId: end.GetThreadId()})
	fault.SetPoint(nil)
	if got := c.Ask(c.ctx, backendtest.Question(c.turn.GetKey()+":tool:1:1", "ls", 0)); got.GetState() != expired || got.GetApprovalId() != a.GetApprovalId() {
		t.Errorf("the approval is %v", got)
	}
	if got := c.ask(c.request(2, time.Hour)); got.GetState() != canceled && got.GetState() != over || got.GetQuestionId() != q.GetQuestionId() {
		t.Errorf("the question is %v", got)
	}
}
