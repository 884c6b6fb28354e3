package turn_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/fault"
	pb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/modelcall"
	"github.com/theclaw/agents/services/runner/internal/step"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// threeRounds answers with two tool calls, then one, then text.
func threeRounds(_ context.Context, round, _ int, req model.Request, emit func(model.Delta)) (model.Response, modelcall.Try) {
	call := func(n int) model.ToolCall {
		return model.ToolCall{ID: fmt.Sprintf("c%d-%d", round, n), Name: "bash_exec", Arguments: json.RawMessage(fmt.Sprintf(`{"command":"echo %d %d"}`, round, n))}
	}
	switch round {
	case 1:
		return model.Response{Text: "looking", ToolCalls: []model.ToolCall{call(1), call(2)}, FinishReason: model.FinishToolCalls}, modelcall.Try{}
	case 2:
		return model.Response{ToolCalls: []model.ToolCall{call(1)}, FinishReason: model.FinishToolCalls}, modelcall.Try{}
	}
	emit(model.Delta{Text: "done"})
	r, try := say("done")
	r.Reasoning = "all ran"
	return r, try
}

// P1: the process is killed once at each instant, and the next one goes on. No
// message is answered twice, no answer in the journal is paid for again, no tool
// runs twice, and what is not known is told to the model.
func TestKilledAtEveryInstant(t *testing.T) {
	type instant struct {
		name  string
		n     int // how often it was passed before
		after bool
	}
	var instants []instant
	for _, name := range []string{"begin", "record", "finish"} {
		for n := range map[string]int{"begin": 1, "record": 5, "finish": 1}[name] {
			instants = append(instants, instant{name, n, false}, instant{name, n, true})
		}
	}
	for _, label := range []string{"T3.before", "T3.after", "T5.before", "T5.after"} {
		for n := range 3 {
			instants = append(instants, instant{label, n, false})
		}
	}
	for _, at := range instants {
		t.Run(fmt.Sprintf("%s %d %v", at.name, at.n, at.after), func(t *testing.T) {
			b := newBench(t, "do it")
			b.llm.reply = threeRounds
			b.journal.config.Parts = &pb.ReplyParts{Verbose: "full", Reasoning: "block"}
			hit, passed := false, 0
			die := func(name string) bool {
				if hit || name != at.name {
					return false
				}
				if passed++; passed <= at.n {
					return false
				}
				hit = true
				return true
			}
			b.journal.kill = func(call string, _ int) (before, after bool) {
				d := die(call)
				return d && !at.after, d && at.after
			}
			fault.SetPoint(func(label string) {
				if die(label) {
					runtime.Goexit()
				}
			})
			defer fault.SetPoint(nil)

			if _, _, killed := b.life(t.Context()); !killed || !hit {
				t.Fatalf("not killed (%v)", hit)
			}
			r, err, killed := b.life(t.Context())
			if err != nil || killed {
				t.Fatalf("the second life ended with %v, killed %v", err, killed)
			}
			fin := b.journal.fin
			if fin.GetFate() != pb.Fate_FATE_REPLIED || fin.GetText() != "done" || b.journal.fates != 1 {
				t.Fatalf("fate %v %q, %d times (%+v)", fin.GetFate(), fin.GetText(), b.journal.fates, r)
			}
			// S4-40, S1-48: what precedes the reply is made of the journal, whichever life wrote it.
			got, want := took.ReplaceAllString(fin.GetBefore(), ""), took.ReplaceAllString(b.before(t), "")
			if got != want || strings.Count(got, "`exec echo ") != 3 || !strings.HasSuffix(got, "\n\n> Thinking: all ran") {
				t.Errorf("the reply is preceded by %q, want %q", got, want)
			}
			doubts := 0
			for key, n := range b.box.ran {
				if n > 1 {
					t.Errorf("tool %s ran %d times", key, n)
				}
			}
			for _, s := range b.journal.steps {
				if s.GetState() == pb.StepState_STEP_STATE_INTENT {
					t.Errorf("%s was left an intent", s.GetKey())
				}
				if s.GetState() == pb.StepState_STEP_STATE_IN_DOUBT {
					doubts++
					if !strings.Contains(string(s.GetResult()), "outcome unknown, verify before repeating") {
						t.Errorf("in doubt: %s", s.GetResult())
					}
				}
			}
			// The one instant at which a paid answer may be asked for again is
			// between the answer and its row (window C).
			windowC := at.name == "T3.after" || at.name == "finish" && !at.after || at.name == "record" && !at.after && (at.n == 0 || at.n == 3)
			for round, n := range b.llm.asked {
				if n > 1 && !windowC || n > 2 {
					t.Errorf("round %d was paid %d times", round, n)
				}
			}
			// A tool is in doubt exactly when the kill came between its intent and
			// its result (window A, and T4 for all one can know).
			windowA := strings.HasPrefix(at.name, "T5") || at.name == "record" && (!at.after && at.n != 0 && at.n != 3 || at.after && at.n != 2 && at.n != 4)
			if windowA != (doubts == 1) || doubts > 1 {
				t.Errorf("%d tools in doubt", doubts)
			}
			if doubts == 1 && !told(b.llm.last) {
				t.Error("the model was not told")
			}
		})
	}
}

// took is how long a call took, which the journal of the tests does not keep.
var took = regexp.MustCompile(` in [0-9.]+(ms|s)`)

// before is what the journal says precedes the reply.
func (b *bench) before(t *testing.T) string {
	t.Helper()
	tools, err := toolset.New()
	if err != nil {
		t.Fatal(err)
	}
	log := step.Log{Tools: tools}
	for _, s := range b.journal.steps {
		log.Add(s)
	}
	last, err := step.Decode(b.journal.step("model:3").GetResult())
	if err != nil {
		t.Fatal(err)
	}
	return log.Before(last, b.journal.config.GetParts())
}

func told(req model.Request) bool {
	for _, m := range req.Messages {
		if m.Role == model.RoleTool && strings.Contains(m.Text, "outcome unknown") {
			return true
		}
	}
	return false
}

// A life after the fate does nothing but learn of it.
func TestFinishedIsFinished(t *testing.T) {
	b := newBench(t, "hi")
	b.llm.reply = threeRounds
	if _, err := b.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := b.run(t.Context())
	if err != nil || !r.Already || b.llm.calls != 3 || b.journal.fates != 1 {
		t.Errorf("%+v %v, %d calls, %d fates", r, err, b.llm.calls, b.journal.fates)
	}
}

// I4, zombie: a holder whose lease went on writes nothing and starts nothing.
func TestLostLeaseStops(t *testing.T) {
	b := newBench(t, "hi")
	b.llm.reply = threeRounds
	b.journal.kill = func(call string, n int) (bool, bool) {
		if call == "record" {
			b.journal.lost = true // from the next call on
		}
		return false, false
	}
	_, err := b.run(t.Context())
	if !isLost(err) || b.journal.fin != nil || len(b.box.ran) != 1 {
		t.Errorf("ended with %v, fate %v, ran %v", err, b.journal.fin, b.box.ran)
	}
}

// S0-84: the trust window is asked before each model call, tool and write.
func TestUntrustedBeginsNothing(t *testing.T) {
	for allowed := range 8 {
		b := newBench(t, "hi")
		b.llm.reply = threeRounds
		left := allowed
		b.check = func() error {
			if left--; left < 0 {
				return context.DeadlineExceeded
			}
			return nil
		}
		_, err := b.run(t.Context())
		if !isLost(err) {
			t.Fatalf("%d: ended with %v", allowed, err)
		}
		if done := b.journal.calls + b.llm.calls + len(b.box.ran); done > allowed {
			t.Errorf("%d checks passed, %d things done", allowed, done)
		}
	}
}
