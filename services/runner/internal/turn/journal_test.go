package turn_test

import (
	"cmp"
	"context"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/sandbox"
	pb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/memory"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/modelcall"
	"github.com/theclaw/agents/services/runner/internal/prompt"
	"github.com/theclaw/agents/services/runner/internal/run"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/toolset/message"
	"github.com/theclaw/agents/services/runner/internal/toolset/shell"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal keeps one turn in memory by the rules of internal/store: what is done
// stays, a fate is given once, claims and tries are counted before the work.
type journal struct {
	mu               sync.Mutex
	config           *pb.TurnConfig
	text             string
	content          string // of the message, instead of text
	steps            []*pb.Step
	page             int // steps of an answer at most; 0: all
	fin              *pb.FinishTurnRequest
	crashes, errors  int
	fates            int
	logs             []string
	says             []*pb.Saying
	notBefore, since time.Time

	// refuse, when set, is the error of a call, which then does nothing.
	refuse func(call string, in any) error
	begun  []*pb.BeginTurnRequest

	// kill, when set, ends the process at a call: before it did anything, or
	// after, when the answer is lost.
	kill  func(call string, n int) (before, after bool)
	calls int
	lost  bool // the lease went to another holder
}

func (j *journal) step(key string) *pb.Step {
	for _, s := range j.steps {
		if s.GetKey() == key {
			return s
		}
	}
	return nil
}

func (j *journal) put(steps []*pb.Step) {
	for _, s := range steps {
		old := j.step(s.GetKey())
		switch {
		case old == nil:
			j.steps = append(j.steps, proto.CloneOf(s))
			j.crashes = 0
		case old.GetState() == pb.StepState_STEP_STATE_INTENT && s.GetState() != pb.StepState_STEP_STATE_INTENT:
			old.State, old.Result = s.GetState(), s.GetResult()
			j.crashes = 0
		}
	}
}

// call runs f as one call that a kill may cut off on either side.
func (j *journal) call(ctx context.Context, name string, in any, logs []*pb.LogLine, f func()) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if j.refuse != nil {
		if err := j.refuse(name, in); err != nil {
			return err
		}
	}
	if j.lost {
		return fault.New(codes.Aborted, fault.LeaseLost, "lost", "")
	}
	j.calls++
	before, after := false, false
	if j.kill != nil {
		before, after = j.kill(name, j.calls)
	}
	if before {
		runtime.Goexit()
	}
	for _, l := range logs {
		j.logs = append(j.logs, l.GetText())
	}
	f()
	if after {
		runtime.Goexit()
	}
	return nil
}

// after answers the steps behind one.
func (j *journal) after(key string) (list []*pb.Step, more bool) {
	from := 1 + slices.IndexFunc(j.steps, func(s *pb.Step) bool { return s.GetKey() == key })
	for _, s := range j.steps[from:] {
		if list = append(list, proto.CloneOf(s)); len(list) == j.page {
			return list, from+j.page < len(j.steps)
		}
	}
	return list, false
}

func (j *journal) GetTurn(ctx context.Context, in *pb.GetTurnRequest, _ ...grpc.CallOption) (*pb.GetTurnResponse, error) {
	out := &pb.Turn{}
	err := j.call(ctx, "get", in, nil, func() { out.Steps, out.MoreSteps = j.after(in.GetAfterStep()) })
	return &pb.GetTurnResponse{Turn: out}, err
}

func (j *journal) BeginTurn(ctx context.Context, in *pb.BeginTurnRequest, _ ...grpc.CallOption) (*pb.BeginTurnResponse, error) {
	out := &pb.BeginTurnResponse{}
	err := j.call(ctx, "begin", in, in.GetLogs(), func() {
		switch {
		case j.fin != nil:
			out.Outcome = pb.BeginTurnOutcome_BEGIN_TURN_OUTCOME_FINISHED
		case time.Until(j.notBefore) > 0:
			out.Outcome, out.Wait = pb.BeginTurnOutcome_BEGIN_TURN_OUTCOME_WAIT, durationpb.New(time.Until(j.notBefore))
		case j.crashes >= 1 && !in.GetAlone() && (j.crashes > 1 || in.GetGivenBack() == nil):
			out.Outcome = pb.BeginTurnOutcome_BEGIN_TURN_OUTCOME_ALONE
		default:
			j.begun = append(j.begun, in)
			if b := in.GetGivenBack(); b != nil {
				j.crashes = max(j.crashes-1, 0)
				if b.GetCounted() { // its number is the next one, or it is known
					j.errors = max(j.errors, int(b.GetN()))
				}
				out.Error = b.GetClass() + ": " + b.GetError()
			}
			j.crashes++
			out.Outcome = pb.BeginTurnOutcome_BEGIN_TURN_OUTCOME_GO
			out.Inbound = &pb.Event{Id: 7, Source: "external:tui:tui-main:dm:s1:alice", Type: "message", Content: cmp.Or(j.content, `{"text":"`+j.text+`"}`)}
			out.Tail = []*pb.Event{out.GetInbound()}
			out.Steps, out.MoreSteps = j.after("")
			out.Config, out.ErrorAttempts, out.CrashAttempts = j.config, int32(j.errors), int32(j.crashes)
			if !j.since.IsZero() {
				out.Waited = durationpb.New(time.Since(j.since))
			}
		}
	})
	return out, err
}

func (j *journal) RecordStep(ctx context.Context, in *pb.RecordStepRequest, _ ...grpc.CallOption) (*pb.RecordStepResponse, error) {
	out := &pb.RecordStepResponse{}
	err := j.call(ctx, "record", in, in.GetLogs(), func() {
		j.put(in.GetSteps())
		j.says = append(j.says, in.GetSays()...)
		if f := in.GetFailedTry(); f != nil {
			j.crashes, j.notBefore = 0, time.Now().Add(f.GetWait().AsDuration())
			switch {
			case f.GetCounted():
				j.errors = max(j.errors, int(f.GetN()))
				j.since = time.Time{}
			case j.since.IsZero():
				j.since = time.Now()
			}
		}
		out.ErrorAttempts = int32(j.errors)
	})
	return out, err
}

func (j *journal) FinishTurn(ctx context.Context, in *pb.FinishTurnRequest, _ ...grpc.CallOption) (*pb.FinishTurnResponse, error) {
	out := &pb.FinishTurnResponse{}
	err := j.call(ctx, "finish", in, in.GetLogs(), func() {
		if j.fin == nil {
			j.put(in.GetSteps())
			j.fin = proto.CloneOf(in)
			j.fates++
		}
		out.Fate = j.fin.GetFate()
	})
	return out, err
}

// llm is a model that counts what it was asked and answers from a function.
type llm struct {
	mu    sync.Mutex
	asked map[int]int // tool results seen -> paid answers
	calls int
	last  model.Request
	reply func(ctx context.Context, round, call int, req model.Request, emit func(model.Delta)) (model.Response, modelcall.Try)
}

func (l *llm) Find(string, string) (modelcall.Model, error) {
	return modelcall.Model{Provider: "fake", Name: "m", Try: func(ctx context.Context, req model.Request, emit func(model.Delta)) (model.Response, modelcall.Try) {
		round := 1
		for _, m := range req.Messages {
			if m.Role == model.RoleAssistant {
				round++
			}
		}
		l.mu.Lock()
		l.calls++
		call := l.calls
		l.last = req
		l.mu.Unlock()
		r, try := l.reply(ctx, round, call, req, emit)
		if try.Err == nil {
			l.mu.Lock()
			if l.asked == nil {
				l.asked = map[int]int{}
			}
			l.asked[round]++
			l.mu.Unlock()
		}
		return r, try
	}}, nil
}

func say(text string) (model.Response, modelcall.Try) {
	return model.Response{Text: text, FinishReason: model.FinishStop}, modelcall.Try{}
}

func fails(class model.Class, wait time.Duration) (model.Response, modelcall.Try) {
	e := model.Errorf(class, "told to")
	return model.Response{}, modelcall.Try{Err: e, Counts: e.CountsTry(), Again: e.Recoverable(), Wait: wait}
}

// box counts what was run.
type box struct {
	mu  sync.Mutex
	ran map[string]int // by idempotency key
	do  func(ctx context.Context, c sandbox.Command) (sandbox.Result, error)
}

func (b *box) Run(ctx context.Context, c sandbox.Command) (sandbox.Result, error) {
	b.mu.Lock()
	if b.ran == nil {
		b.ran = map[string]int{}
	}
	b.ran[c.Env["TOOL_IDEMPOTENCY_KEY"]]++
	b.mu.Unlock()
	if b.do != nil {
		return b.do(ctx, c)
	}
	return sandbox.Result{Stdout: []byte("ok")}, nil
}

// place is a slot without competition.
type place struct {
	alone bool
	back  *pb.FailedTry
	later turn.Background // nil: nothing may follow
	yield bool            // the batch ends in the next pause
	taken bool            // other turns run, and do not end
}

func (p *place) Pause(ctx context.Context, d time.Duration, back <-chan struct{}) error {
	if p.yield {
		return turn.ErrYield
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-back:
		return nil
	case <-time.After(d):
		return nil
	}
}
func (p *place) GivenBack() *pb.FailedTry     { return p.back }
func (p *place) Hold(string, bool) bool       { return false }
func (p *place) Queue(pb.QueueMode, bool)     {}
func (p *place) Collect() ([]*pb.Member, int) { return nil, 0 }
func (p *place) Steer() []*pb.Member          { return nil }
func (p *place) Background() turn.Background  { return p.later }

func (p *place) Alone(ctx context.Context) error {
	if p.taken {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	p.alone = true
	return nil
}

func (p *place) Wait(ctx context.Context, f func(context.Context) error) error { return f(ctx) }

func (p *place) Behind(int64) ([]*pb.PendingEvent, <-chan struct{}) { return nil, nil }

func (p *place) AwaitBackground(context.Context, time.Duration, bool) bool { return true }

// ear hears a turn.
type ear struct{ *bench }

func (e ear) Seed([]run.Item, uint64) {}
func (e ear) Call()                   {}
func (e ear) Span() run.Span          { return run.Span{} }
func (e ear) Settle()                 {}
func (e ear) Publish(i run.Item)      { e.items = append(e.items, i) }

// bench is one turn with everything around it.
type bench struct {
	journal *journal
	llm     *llm
	models  modelcall.Models // instead of llm
	tools   []toolset.Tool   // in addition to those of every agent
	box     *box
	place   *place
	items   []run.Item
	panics  int
	dead    int
	check   func() error
	abort   context.Context
	memory  *memory.Registry
	speech  *speech // nil: there are no voice messages
}

func newBench(t *testing.T, text string) *bench {
	return &bench{
		journal: &journal{text: text, config: &pb.TurnConfig{Workdir: t.TempDir(), SandboxMode: "required", MaxAttempts: 3}},
		llm:     &llm{}, box: &box{}, place: &place{}, check: func() error { return nil }, abort: context.Background(),
	}
}

// life runs the turn as a process that may be killed in it, and tells whether
// it was. A kill is a Goexit: no code of ours can catch it.
func (b *bench) life(ctx context.Context) (r turn.Result, err error, killed bool) {
	killed = true
	var wg sync.WaitGroup
	wg.Go(func() {
		r, err = b.run(ctx)
		killed = false
	})
	wg.Wait()
	return r, err, killed
}

func (b *bench) run(ctx context.Context) (turn.Result, error) {
	var models modelcall.Models = b.llm
	if b.models != nil {
		models = b.models
	}
	all := append([]toolset.Tool{&shell.Tool{Sandbox: func(string) (shell.Sandbox, error) { return b.box, nil }}, message.Tool{}}, b.tools...)
	tools, err := toolset.New(all...)
	if err != nil {
		return turn.Result{}, err
	}
	d := &turn.Driver{
		Journal: b.journal, Models: models, Meter: obs.NewRunnerMetrics(nil), Logger: slog.New(slog.DiscardHandler), Tools: tools, Sources: prompt.Standard(), Memory: b.memory,
	}
	if b.speech != nil {
		d.Media, d.Transcribers = b.speech, b.speech
	}
	return d.Run(ctx, turn.Work{
		AgentID: "a1", ThreadID: "threads/peers/tui-main-alice", Key: "k", InboxID: 7, Source: "external:tui:tui-main:dm:s1:alice",
		Fence: "agent/a1=3", Check: b.check, Slot: b.place, Stream: ear{b},
		Panicked: func(string) { b.panics++ }, Dead: func(string) { b.dead++ }, Abort: b.abort,
	})
}
