package runner_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner"
)

const (
	which    = `call: ask_user {"question":"Which account?","options":["main","savings"]}`
	oneOf    = `call: ask_user {"question":"Which account?","options":["main","savings"],"allow_text":false}`
	numbered = "Which account?\n1. main\n2. savings"
)

// eachBackend is backendtest.Each with a server that ends with the test: this package looks for
// what is left running.
func eachBackend(t *testing.T, test func(t *testing.T, o backendtest.Options)) {
	t.Run("sqlite", func(t *testing.T) { test(t, backendtest.Options{Home: t.TempDir()}) })
	t.Run("postgres", func(t *testing.T) {
		test(t, backendtest.Options{Home: t.TempDir(), DSN: pgtest.Start(t, "fsync = off").Database(t)})
	})
}

// asker is a world whose agent a1 may ask.
type asker struct {
	*world
	o         backendtest.Options
	questions registrypb.QuestionServiceClient
}

func newAsker(t *testing.T, o backendtest.Options, settings ...string) *asker {
	t.Helper()
	a := &asker{o: o}
	a.open(t)
	if _, err := a.agents.CreateAgent(t.Context(), &registrypb.CreateAgentRequest{AgentId: "a1"}); err != nil {
		t.Fatal(err)
	}
	settings = append(settings, "tools.also_allow", "[ask_user]", "outbound", "[]")
	for n := 0; n < len(settings); n += 2 {
		if _, err := a.agents.SetAgentConfig(t.Context(), &registrypb.SetAgentConfigRequest{AgentId: "a1", Key: settings[n], Value: settings[n+1]}); err != nil {
			t.Fatal(settings[n], err)
		}
	}
	a.start(t)
	return a
}

// open opens the registry, again after its stop.
func (a *asker) open(t *testing.T) {
	t.Helper()
	a.world = openWorld(t, a.o)
	a.questions = registrypb.NewQuestionServiceClient(a.conn)
}

func (a *asker) start(t *testing.T) {
	t.Helper()
	if _, err := a.agents.StartAgent(t.Context(), &registrypb.StartAgentRequest{AgentId: "a1"}); err != nil {
		t.Fatal(err)
	}
}

// asked waits for a question that waits and is not among known, and returns it.
func (a *asker) asked(t *testing.T, known ...*registrypb.Question) *registrypb.Question {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	watch, err := a.questions.WatchQuestions(ctx, &registrypb.WatchQuestionsRequest{})
	for err == nil {
		var r *registrypb.WatchQuestionsResponse
		if r, err = watch.Recv(); err == nil && r.GetQuestion().GetState() == registrypb.QuestionState_QUESTION_STATE_PENDING &&
			!slices.ContainsFunc(known, func(q *registrypb.Question) bool { return q.GetQuestionId() == r.GetQuestion().GetQuestionId() }) {
			return r.GetQuestion()
		}
	}
	t.Fatal(err)
	return nil
}

func (a *asker) answer(t *testing.T, q *registrypb.Question, text string) error {
	t.Helper()
	_, err := a.questions.AnswerQuestion(t.Context(), &registrypb.AnswerQuestionRequest{QuestionId: q.GetQuestionId(), Answer: text})
	return err
}

// says counts a message of the agent, after it is there.
func (a *asker) says(t *testing.T, q *registrypb.Question, text string) int {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-time.After(5 * time.Millisecond) {
		n := 0
		for _, e := range a.events("a1", q.GetThreadId()) {
			if e.GetSource() == "self" && strings.Contains(e.GetContent(), jsonText(text)) {
				n++
			}
		}
		if n > 0 {
			return n
		}
	}
	return 0
}

func jsonText(text string) string { return strings.ReplaceAll(text, "\n", `\n`) }

// ended checks the end of a run that asked.
func (a *asker) ended(t *testing.T, r *workshop, run, text string) {
	t.Helper()
	if end := a.wait(r, "a1", run); end.GetStatus() != runnerpb.RunStatus_RUN_STATUS_OK || !strings.Contains(end.GetText(), text) || end.GetMergedInto() != "" {
		t.Errorf("ended %v, want %q", end, text)
	}
}

// joined checks that a message was merged into a run and has no reply of its own.
func (a *asker) joined(t *testing.T, r *workshop, run, into string) {
	t.Helper()
	if end := a.wait(r, "a1", run); end.GetMergedInto() != into {
		t.Errorf("the message with the answer: %v, want it merged into %s", end, into)
	}
	turn := a.turn(t, run)
	if turn.GetFate() != registrypb.Fate_FATE_MERGED || turn.GetLeader() != into {
		t.Errorf("its turn: %v", turn)
	}
}

func (a *asker) turn(t *testing.T, run string) *registrypb.Turn {
	t.Helper()
	r, err := a.turns.GetTurn(t.Context(), &registrypb.GetTurnRequest{AgentId: "a1", Key: run})
	if err != nil {
		t.Fatal(err)
	}
	return r.GetTurn()
}

// S3-48: the first answer counts: of the owner by the registry, or of the peer as its next
// message, which joins the turn. What is none of the options gets one hint and a turn of its own.
func TestAskUser(t *testing.T) { eachBackend(t, testAskUser) }

func testAskUser(t *testing.T, o backendtest.Options) {
	a := newAsker(t, o)
	r := a.runner(nil)
	var known []*registrypb.Question
	next := func() *registrypb.Question {
		t.Helper()
		q := a.asked(t, known...)
		known = append(known, q)
		return q
	}

	run := a.say(r, "a1", which)
	q := next()
	if n := a.says(t, q, numbered); n != 1 {
		t.Errorf("the peer was asked %d times", n)
	}
	if err := a.answer(t, q, "2"); err != nil {
		t.Fatal(err)
	}
	a.ended(t, r, run, `{"answer":"savings"}`)

	run = a.say(r, "a1", which)
	next()
	reply := a.say(r, "a1", " Main ")
	a.ended(t, r, run, `{"answer":"main"}`)
	a.joined(t, r, reply, run)

	run = a.say(r, "a1", oneOf)
	q = next()
	other := a.say(r, "a1", "say: neither")
	if n := a.says(t, q, "Please answer with a number from 1 to 2, or one of: main, savings."); n != 1 {
		t.Errorf("%d hints", n)
	}
	late := a.say(r, "a1", "say: nothing")
	reply = a.say(r, "a1", "1")
	a.ended(t, r, run, `{"answer":"main"}`)
	a.joined(t, r, reply, run)
	a.ended(t, r, other, "neither")
	a.ended(t, r, late, "nothing")
	if n := a.says(t, q, "Please answer"); n != 1 {
		t.Errorf("%d hints", n)
	}

	// A turn that ends takes its question with it.
	run = a.say(r, "a1", which)
	q = next()
	if _, err := r.AbortRun(t.Context(), &runnerpb.AbortRunRequest{AgentId: "a1", RunId: run}); err != nil {
		t.Fatal(err)
	}
	if end := a.wait(r, "a1", run); end.GetErrorCode() != runnerpb.RunError_RUN_ERROR_ABORTED {
		t.Errorf("aborted: %v", end)
	}
	list, err := a.questions.ListQuestions(t.Context(), &registrypb.ListQuestionsRequest{State: registrypb.QuestionState_QUESTION_STATE_CANCELED})
	if err != nil || len(list.GetQuestions()) != 1 || list.GetQuestions()[0].GetQuestionId() != q.GetQuestionId() {
		t.Errorf("canceled: %v %v", list, err)
	}
	if err := a.answer(t, q, "1"); !fault.Is(err, fault.QuestionClosed) {
		t.Errorf("answered after the abort: %v", err)
	}

	run = a.say(r, "a1", which)
	q = next()
	if _, err := a.agents.StopAgent(t.Context(), &registrypb.StopAgentRequest{AgentId: "a1"}); err != nil {
		t.Fatal(err)
	}
	if err := a.answer(t, q, "1"); !fault.Is(err, fault.QuestionClosed) {
		t.Errorf("answered after the stop: %v", err)
	}
	a.start(t)
	a.ended(t, r, run, "the question was canceled")
}

// S3-48: all services are ended and started while a question waits. The drain does not wait for
// the answer, no attempt is counted, and the same turn continues.
func TestAskUserRestart(t *testing.T) { eachBackend(t, testAskUserRestart) }

func testAskUserRestart(t *testing.T, o backendtest.Options) {
	a := newAsker(t, o)
	patient := func(c *runner.Config) { c.Grace = time.Hour } // a drain that waited would not end
	r := a.runner(nil, patient)
	run := a.say(r, "a1", which)
	q := a.asked(t)
	for range 3 {
		if a.says(t, q, numbered) != 1 {
			t.Error("the peer was not asked once")
		}
		r.stop()
		a.stop()
		a.open(t)
		if turn := a.turn(t, run); turn.GetCrashAttempts() != 0 || turn.GetErrorAttempts() != 0 || len(turn.GetAttempts()) != 0 {
			t.Errorf("an attempt was counted: %v", turn)
		}
		r = a.runner(nil, patient)
		if again := a.asked(t); again.GetQuestionId() != q.GetQuestionId() {
			t.Errorf("another question: %v", again)
		}
		begun(t, r, run)
	}
	reply := a.say(r, "a1", "savings")
	a.ended(t, r, run, `{"answer":"savings"}`)
	a.joined(t, r, reply, run)
}

// cut is a connection to the registry that ends with the process of the runner: at an instant
// that the test chooses.
type cut struct {
	grpc.ClientConnInterface
	at   func(args, reply any) bool // after this call
	died chan struct{}
	once sync.Once
}

var errKilled = status.Error(codes.Unavailable, "the runner was killed")

func (c *cut) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	select {
	case <-c.died:
		return errKilled
	default:
	}
	err := c.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
	if err == nil && c.at(args, reply) {
		c.once.Do(func() { close(c.died) })
		return errKilled
	}
	return err
}

func (c *cut) NewStream(ctx context.Context, d *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	select {
	case <-c.died:
		return nil, errKilled
	default:
	}
	return c.ClientConnInterface.NewStream(ctx, d, method, opts...)
}

// S3-48, TQ1 to TQ3: killed after the question is stored, after the message is committed, after
// the answer of a message was accepted and after it joined: the same row, one message, one turn.
func TestAskUserKilled(t *testing.T) { eachBackend(t, testAskUserKilled) }

func testAskUserKilled(t *testing.T, o backendtest.Options) {
	a := newAsker(t, o)
	var known []*registrypb.Question
	for n, c := range []struct {
		name   string
		at     func(args, reply any) bool
		answer bool // before the kill
	}{
		{"TQ1", func(args, _ any) bool { _, ok := args.(*registrypb.RequestQuestionRequest); return ok }, false},
		{"TQ2", func(args, _ any) bool {
			r, ok := args.(*registrypb.RecordStepRequest)
			return ok && len(r.GetSays()) > 0
		}, false},
		{"TQ3", func(args, _ any) bool { _, ok := args.(*registrypb.AnswerQuestionRequest); return ok }, true},
		{"joined", func(args, _ any) bool {
			r, ok := args.(*registrypb.RecordStepRequest)
			return ok && len(r.GetMembers()) > 0
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dying := &cut{ClientConnInterface: a.conn, at: c.at, died: make(chan struct{})}
			a.world.t, a.wire = t, dying
			r := a.runner(nil, func(c *runner.Config) { c.Grace = 10 * time.Millisecond })
			run := a.say(r, "a1", which)
			q := a.asked(t, known...)
			known = append(known, q)
			reply := ""
			if c.answer {
				reply = a.push(t, "2", fmt.Sprint("answer ", n))
			}
			<-dying.died
			token := a.token("a1")
			r.stop()
			_, err := a.leases.ReleaseLease(t.Context(), &registrypb.ReleaseLeaseRequest{Resource: "agent/a1", Token: token})
			if err != nil {
				t.Fatal(err)
			}
			a.wire = a.conn
			r = a.runner(nil)
			if !c.answer {
				reply = a.push(t, "2", fmt.Sprint("answer ", n))
			}
			a.ended(t, r, run, `{"answer":"savings"}`)
			a.joined(t, r, reply, run)
			list, err := a.questions.ListQuestions(t.Context(), &registrypb.ListQuestionsRequest{})
			if err != nil || len(list.GetQuestions()) != n+1 || list.GetQuestions()[n].GetBy() != reply {
				t.Errorf("questions %v %v", list, err)
			}
			if got := a.says(t, q, numbered); got != n+1 {
				t.Errorf("%d times asked in %d turns", got, n+1)
			}
			replies := 0
			for _, e := range a.events("a1", q.GetThreadId()) {
				if e.GetSource() == "self" && strings.Contains(e.GetContent(), "offline: ") {
					replies++
				}
			}
			if replies != n+1 {
				t.Errorf("%d replies after %d turns", replies, n+1)
			}
		})
	}
}

// S3-48: the runner is killed again and again during one wait, more often than a message that kills
// it may: no crash is counted, the same question waits, and the turn is never worked on alone.
func TestAskUserKilledOften(t *testing.T) { eachBackend(t, testAskUserKilledOften) }

func testAskUserKilledOften(t *testing.T, o backendtest.Options) {
	a := newAsker(t, o)
	var run string
	var q *registrypb.Question
	for n := range 20 {
		waits := make(chan struct{}, 1)
		dying := &cut{ClientConnInterface: a.conn, died: make(chan struct{}), at: func(args, _ any) bool {
			if r, ok := args.(*registrypb.RecordStepRequest); ok && r.GetWaits() {
				waits <- struct{}{}
			}
			return false
		}}
		a.wire = dying
		r := a.runner(nil, func(c *runner.Config) { c.Grace = time.Millisecond })
		if n == 0 {
			run = a.say(r, "a1", which)
			q = a.asked(t)
		}
		<-waits
		dying.once.Do(func() { close(dying.died) })
		token := a.token("a1")
		r.stop()
		if o.DSN != "" { // the lease of a dead holder lasts for its time there, and is free at once in a home
			if _, err := a.leases.ReleaseLease(t.Context(), &registrypb.ReleaseLeaseRequest{Resource: "agent/a1", Token: token}); err != nil {
				t.Fatal(err)
			}
		}
		if turn := a.turn(t, run); turn.GetCrashAttempts() != 0 || len(turn.GetAttempts()) != 0 {
			t.Fatalf("after %d kills: %v", n+1, turn)
		}
	}
	if again := a.asked(t); again.GetQuestionId() != q.GetQuestionId() {
		t.Errorf("another question: %v", again)
	}
	a.wire = a.conn
	r := a.runner(nil)
	reply := a.say(r, "a1", "1")
	a.ended(t, r, run, `{"answer":"main"}`)
	a.joined(t, r, reply, run)
}

// push pushes a message of the console's peer, as `agentctl send` does, and returns its key.
func (a *asker) push(t *testing.T, text, key string) string {
	t.Helper()
	r, err := a.threads.PushEvents(t.Context(), &registrypb.PushEventsRequest{
		Thread:         &registrypb.ThreadRef{AgentId: "a1", ThreadId: "inbox"},
		Events:         []*registrypb.NewEvent{{Source: "external:console:cli:dm:cli:cli", Type: "message", Content: `{"text":"` + text + `"}`}},
		IdempotencyKey: key,
	})
	if err != nil {
		t.Fatal(err)
	}
	turn, err := a.turns.GetTurn(t.Context(), &registrypb.GetTurnRequest{AgentId: "a1", InboxId: r.GetEventIds()[0]})
	if err != nil {
		t.Fatal(err)
	}
	return turn.GetTurn().GetKey()
}

// An answer that does not come: the model reads so, and the turn goes on.
func TestAskUserExpires(t *testing.T) { eachBackend(t, testAskUserExpires) }

func testAskUserExpires(t *testing.T, o backendtest.Options) {
	a := newAsker(t, o)
	a.wire = shortly{a.conn}
	r := a.runner(nil)
	a.ended(t, r, a.say(r, "a1", which), "no answer within 1s")
}

// shortly is a connection on which questions wait for a second: settings allow no less than a
// minute.
type shortly struct{ grpc.ClientConnInterface }

func (s shortly) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	err := s.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
	if begun, ok := reply.(*registrypb.BeginTurnResponse); ok && err == nil {
		begun.GetConfig().QuestionTimeout = durationpb.New(time.Second)
	}
	return err
}

// A turn that waits holds no slot, and its time stands still: with one slot others are answered
// meanwhile, and the turn takes longer than its timeout allows.
func TestAskUserHoldsNoSlot(t *testing.T) {
	a := newAsker(t, backendtest.Options{Home: t.TempDir()}, "run.concurrency", "1", "run.timeout", "1s")
	r := a.runner(nil, func(c *runner.Config) { c.Slots = 1 })
	const peers = 19
	var runs []string
	for n := range peers {
		s, err := r.StartRun(t.Context(), &runnerpb.StartRunRequest{AgentId: "a1", Text: which, Source: fmt.Sprintf("external:tui:main:dm:s:p%d", n)})
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, s.GetRunId())
	}
	var known []*registrypb.Question
	for range peers {
		known = append(known, a.asked(t, known...))
	}
	for _, q := range known { // those that waited before are older than the timeout
		a.ended(t, r, a.say(r, "a1", "say: "+q.GetQuestionId()), q.GetQuestionId())
	}
	for n := 0; time.Since(known[peers-1].GetRequestedAt().AsTime()) < time.Second; n++ {
		a.ended(t, r, a.say(r, "a1", fmt.Sprint("say: more ", n)), fmt.Sprint("more ", n))
	}
	for _, q := range known {
		if err := a.answer(t, q, "1"); err != nil {
			t.Error(err)
		}
	}
	for _, run := range runs {
		a.ended(t, r, run, `{"answer":"main"}`)
	}
}

// Trap "question answered twice", 500 times in all: the owner and a message answer at the same
// instant. One answer counts, and the message is never lost: it joined the turn, or has a reply of
// its own.
func TestAskUserAnsweredTwice(t *testing.T) { eachBackend(t, testAskUserAnsweredTwice) }

func testAskUserAnsweredTwice(t *testing.T, o backendtest.Options) {
	const rounds = 250
	a := newAsker(t, o, "context.recent_messages", "2")
	r := a.runner(nil)
	watch, err := a.questions.WatchQuestions(t.Context(), &registrypb.WatchQuestionsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	next := func() *registrypb.Question {
		for {
			q, err := watch.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if q.GetQuestion().GetState() == registrypb.QuestionState_QUESTION_STATE_PENDING {
				return q.GetQuestion()
			}
		}
	}
	joined := 0
	for n := range rounds {
		run := a.say(r, "a1", which)
		q := next()
		var g sync.WaitGroup
		var refused error
		var reply string
		stored := make(chan struct{})
		if n%2 == 0 { // else the owner answers while the runner reads the message
			close(stored)
		}
		g.Go(func() { <-stored; refused = a.answer(t, q, "1") })
		g.Go(func() {
			if reply = a.say(r, "a1", "2"); n%2 != 0 {
				close(stored)
			}
		})
		g.Wait()
		end, other := a.wait(r, "a1", run), a.wait(r, "a1", reply)
		switch {
		case refused == nil && strings.Contains(end.GetText(), `{"answer":"main"}`) && other.GetMergedInto() == "" && other.GetText() != "":
		case fault.Is(refused, fault.QuestionClosed) && strings.Contains(end.GetText(), `{"answer":"savings"}`) && other.GetMergedInto() == run:
			joined++
		default:
			t.Fatalf("round %d: the owner's answer %v, the turn %v, the message %v", n, refused, end, other)
		}
	}
	t.Logf("%d of %d messages were the answer and joined, the others have replies", joined, rounds)
}

// S1-23, S3-48: where a message ends the turn before it, the one that answers a question does not, also when it came
// while no runner was there: the same turn continues.
func TestAskUserInterrupt(t *testing.T) { eachBackend(t, testAskUserInterrupt) }

func testAskUserInterrupt(t *testing.T, o backendtest.Options) {
	a := newAsker(t, o, "queue.mode", "interrupt")
	r := a.runner(nil)
	run := a.say(r, "a1", which)
	q := a.asked(t)
	a.says(t, q, numbered)
	r.stop()
	reply := a.push(t, "savings", "answer")
	r = a.runner(nil)
	a.ended(t, r, run, `{"answer":"savings"}`)
	a.joined(t, r, reply, run)
}
