package turn_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/sandbox"
	pb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/loop"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/modelcall"
	"github.com/theclaw/agents/services/runner/internal/run"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

func isLost(err error) bool { return errors.Is(err, turn.ErrLost) }

// last is the item that ended the run; it fails when there is not exactly one
// (S1-09).
func (b *bench) last(t *testing.T) run.Item {
	t.Helper()
	var ends []run.Item
	for _, i := range b.items {
		if i.Last() {
			ends = append(ends, i)
		}
	}
	if len(ends) != 1 {
		t.Fatalf("%d ends of the run", len(ends))
	}
	return ends[0]
}

// S0-86: failures that pass are tried again, with the waits the model room asks
// for, and each is in the journal.
func TestTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "hi")
		b.llm.reply = func(_ context.Context, _, call int, req model.Request, _ func(model.Delta)) (model.Response, modelcall.Try) {
			if req.Try != call {
				t.Errorf("call %d says try %d", call, req.Try)
			}
			if call < 3 {
				return fails(model.RateLimited, 2*time.Second)
			}
			return say("at last")
		}
		start := time.Now()
		if _, err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if b.journal.fin.GetText() != "at last" || b.journal.errors != 0 || time.Since(start) != 4*time.Second {
			t.Errorf("%v after %v, %d errors", b.journal.fin, time.Since(start), b.journal.errors)
		}
		if b.last(t).Phase != run.End {
			t.Error("the run did not end well")
		}
	})
}

// S0-87, S0-89: what cannot help is not tried again; what is used up is dead.
func TestDead(t *testing.T) {
	for _, c := range []struct {
		name  string
		class model.Class
		calls int
		want  string
	}{
		{"auth", model.Auth, 1, "key refused"},
		{"policy", model.Policy, 1, "content policy"},
		{"used up", model.BadResponse, 3, "tried 3 times"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, "hi")
				b.journal.config.NotifyPeer = c.class == model.Policy
				b.llm.reply = func(context.Context, int, int, model.Request, func(model.Delta)) (model.Response, modelcall.Try) {
					return fails(c.class, time.Second)
				}
				if _, err := b.run(t.Context()); err != nil {
					t.Fatal(err)
				}
				fin := b.journal.fin
				if fin.GetFate() != pb.Fate_FATE_DEAD || !strings.Contains(fin.GetError(), c.want) || b.llm.calls != c.calls {
					t.Errorf("%v after %d calls", fin, b.llm.calls)
				}
				if (fin.GetText() != "") != b.journal.config.GetNotifyPeer() { // S0-90
					t.Errorf("apology %q", fin.GetText())
				}
				if b.last(t).Phase != run.Error {
					t.Error("the run ended well")
				}
			})
		})
	}
}

// An outage spends no try and no time of the turn, but its age is bounded.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "hi")
		b.journal.config.RetryMaxAge = durationpb.New(2 * time.Hour)
		start := time.Now()
		b.llm.reply = func(context.Context, int, int, model.Request, func(model.Delta)) (model.Response, modelcall.Try) {
			if time.Since(start) < time.Hour {
				return fails(model.Unreachable, 30*time.Second)
			}
			return say("back")
		}
		if _, err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if b.journal.fin.GetText() != "back" || b.journal.errors != 0 {
			t.Errorf("%v, %d tries spent", b.journal.fin, b.journal.errors)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "hi")
		b.journal.config.RetryMaxAge = durationpb.New(time.Hour)
		b.journal.since = time.Now().Add(-50 * time.Minute) // waited before a crash
		start := time.Now()
		b.llm.reply = func(context.Context, int, int, model.Request, func(model.Delta)) (model.Response, modelcall.Try) {
			return fails(model.Unreachable, 30*time.Second)
		}
		if _, err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); b.journal.fin.GetFate() != pb.Fate_FATE_DEAD || took < 9*time.Minute || took > 11*time.Minute {
			t.Errorf("%v after %v", b.journal.fin, took)
		}
	})
}

// S1-12: the turn's time is over in the middle of a model call, or of a tool.
func TestTimeout(t *testing.T) {
	for _, where := range []string{"model", "tool"} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, "hi")
			b.journal.config.Timeout = durationpb.New(time.Second)
			b.llm.reply = func(ctx context.Context, round, call int, req model.Request, emit func(model.Delta)) (model.Response, modelcall.Try) {
				if where == "model" {
					<-ctx.Done()
					e := model.AsError(ctx.Err())
					return model.Response{}, modelcall.Try{Err: e, Counts: true, Again: true}
				}
				return threeRounds(ctx, round, call, req, emit)
			}
			b.box.do = func(ctx context.Context, _ sandbox.Command) (sandbox.Result, error) {
				<-ctx.Done()
				return sandbox.Result{ExitCode: 137, TimedOut: true}, nil
			}
			if _, err := b.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if fin := b.journal.fin; fin.GetFate() != pb.Fate_FATE_DEAD || !strings.HasPrefix(fin.GetError(), "timeout") {
				t.Errorf("%s: %v", where, fin)
			}
			if s := b.journal.step("tool:1:1"); where == "tool" && s.GetState() != pb.StepState_STEP_STATE_DONE {
				t.Errorf("what is known of the tool was not kept: %v", s)
			}
		})
	}
}

// S1-16: a person ends a turn; what was said so far is kept.
func TestAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "hi")
		abort, cancel := context.WithCancelCause(t.Context())
		b.abort = abort
		b.llm.reply = func(ctx context.Context, _, _ int, _ model.Request, emit func(model.Delta)) (model.Response, modelcall.Try) {
			emit(model.Delta{Text: "half a "})
			cancel(turn.ErrAborted)
			<-ctx.Done()
			return fails(model.Canceled, 0)
		}
		if _, err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if fin := b.journal.fin; fin.GetFate() != pb.Fate_FATE_ABORTED || !strings.Contains(fin.GetError(), "half a") {
			t.Errorf("%v", fin)
		}
	})
	synctest.Test(t, func(t *testing.T) { // while it waits for its next try
		b := newBench(t, "hi")
		abort, cancel := context.WithCancelCause(t.Context())
		b.abort = abort
		b.llm.reply = func(context.Context, int, int, model.Request, func(model.Delta)) (model.Response, modelcall.Try) {
			time.AfterFunc(time.Second, func() { cancel(turn.ErrAborted) })
			return fails(model.Unreachable, time.Hour)
		}
		start := time.Now()
		if _, err := b.run(t.Context()); err != nil || b.journal.fin.GetFate() != pb.Fate_FATE_ABORTED || time.Since(start) != time.Second {
			t.Errorf("%v %v after %v", err, b.journal.fin, time.Since(start))
		}
	})
	synctest.Test(t, func(t *testing.T) { // while it waits to be alone after a crash
		b := newBench(t, "hi")
		abort, cancel := context.WithCancelCause(t.Context())
		b.abort, b.journal.crashes, b.place.taken = abort, 2, true
		time.AfterFunc(time.Second, func() { cancel(turn.ErrAborted) })
		ctx, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		if _, err := b.run(ctx); err != nil || b.journal.fin.GetFate() != pb.Fate_FATE_ABORTED {
			t.Errorf("%v %v", err, b.journal.fin)
		}
	})
}

// A drain or a lost lease in the middle leaves the journal as it is.
func TestStoppedIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "hi")
		cause := errors.New("drained")
		ctx, cancel := context.WithCancelCause(t.Context())
		b.llm.reply = threeRounds
		b.box.do = func(ctx context.Context, _ sandbox.Command) (sandbox.Result, error) {
			cancel(cause)
			<-ctx.Done()
			return sandbox.Result{Canceled: true}, nil
		}
		_, err := b.run(ctx)
		if !errors.Is(err, cause) || b.journal.fin != nil || b.journal.step("tool:1:1").GetState() != pb.StepState_STEP_STATE_INTENT {
			t.Errorf("%v, fate %v", err, b.journal.fin)
		}
	})
}

// A panic is a failed try of its event; three of them end it. What it was thrown with
// is not in the journal: nobody knows what is in it.
func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "hi")
		b.llm.reply = func(context.Context, int, int, model.Request, func(model.Delta)) (model.Response, modelcall.Try) {
			panic("poison")
		}
		if _, err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if fin := b.journal.fin; fin.GetFate() != pb.Fate_FATE_DEAD || !strings.HasPrefix(fin.GetError(), "panic") || strings.Contains(fin.GetError(), "poison") || b.panics != 3 || b.journal.errors != 3 {
			t.Errorf("%v, %d panics, %d errors", fin, b.panics, b.journal.errors)
		}
		if b.last(t).Phase != run.Error {
			t.Error("no error at the end of the run")
		}
	})
}

// S0-106: a model that calls tools for ever is stopped.
func TestToolLoopBound(t *testing.T) {
	b := newBench(t, "hi")
	b.llm.reply = func(ctx context.Context, _, _ int, req model.Request, emit func(model.Delta)) (model.Response, modelcall.Try) {
		return model.Response{ToolCalls: []model.ToolCall{{ID: "c", Name: "bash_exec", Arguments: json.RawMessage(`{"command":"true"}`)}}}, modelcall.Try{}
	}
	if _, err := b.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if fin := b.journal.fin; fin.GetFate() != pb.Fate_FATE_DEAD || b.llm.calls != loop.MaxRounds || len(b.box.ran) != loop.MaxRounds {
		t.Errorf("%v after %d calls and %d tools", fin, b.llm.calls, len(b.box.ran))
	}
}

// Silence, nothing at all, and too much.
func TestWords(t *testing.T) {
	for _, c := range []struct {
		name, said string
		fate       pb.Fate
		text       func(string) bool
	}{
		{"silent", " NO_REPLY\n", pb.Fate_FATE_SILENT, func(s string) bool { return s == "" }},
		{"not silent", "NO_REPLY, he said", pb.Fate_FATE_REPLIED, func(s string) bool { return s != "" }},
		{"nothing", " \n", pb.Fate_FATE_DEAD, func(s string) bool { return s == "" }},
		{"huge", strings.Repeat("\"", 1<<20), pb.Fate_FATE_REPLIED, func(s string) bool {
			return len(s) <= 900<<10 && strings.HasSuffix(s, "larger than a message can be]")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, "hi")
				b.llm.reply = func(context.Context, int, int, model.Request, func(model.Delta)) (model.Response, modelcall.Try) {
					return say(c.said)
				}
				if _, err := b.run(t.Context()); err != nil {
					t.Fatal(err)
				}
				if fin := b.journal.fin; fin.GetFate() != c.fate || !c.text(fin.GetText()) {
					t.Errorf("%v %.100q", fin.GetFate(), fin.GetText())
				}
				for _, s := range b.journal.steps {
					if len(s.GetResult()) > 1<<20 {
						t.Errorf("%s has %d bytes", s.GetKey(), len(s.GetResult()))
					}
				}
			})
		})
	}
}

// A9: a model that answers nothing is not asked again at once.
func TestEmptyAnswersWait(t *testing.T) {
	var longest time.Duration
	for range 20 { // full jitter
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, "hi")
			b.llm.reply = func(context.Context, int, int, model.Request, func(model.Delta)) (model.Response, modelcall.Try) {
				return say("")
			}
			b.journal.refuse = func(_ string, in any) error {
				if r, ok := in.(*pb.RecordStepRequest); ok {
					longest = max(longest, r.GetFailedTry().GetWait().AsDuration())
				}
				return nil
			}
			if _, err := b.run(t.Context()); err != nil || b.llm.calls != 3 || b.journal.fin.GetFate() != pb.Fate_FATE_DEAD {
				t.Errorf("%v after %d calls: %v", b.journal.fin, b.llm.calls, err)
			}
		})
	}
	if longest < 500*time.Millisecond || longest > 4*time.Second {
		t.Errorf("waits of up to %v", longest)
	}
}

// S0-101, S0-112: the session file shows the turn, and S0-139 the log.
func TestSessionAndLog(t *testing.T) {
	b := newBench(t, "hi")
	b.journal.config.SessionsDir = filepath.Join(t.TempDir(), "sessions")
	b.llm.reply = threeRounds
	if _, err := b.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(b.journal.config.GetSessionsDir(), "threads%2Fpeers%2Ftui-main-alice.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var roles []string
	for line := range strings.Lines(string(data)) {
		var l struct{ Role, Content string }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		roles = append(roles, l.Role)
	}
	if got := strings.Join(roles, " "); got != "system user assistant tool tool assistant tool assistant" {
		t.Errorf("session has %s", got)
	}
	log := strings.Join(b.journal.logs, "\n")
	for _, want := range []string{"route: inbox event 7 from external:tui", "model: fake/m", "tokens in", "tool: bash_exec (tool:1:2)", "result: inbox event 7 replied"} {
		if !strings.Contains(log, want) {
			t.Errorf("agent.log lacks %q in\n%s", want, log)
		}
	}
}
