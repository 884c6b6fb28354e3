package turn_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/theclaw/agents/internal/fault"
	pb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/pai"
	"github.com/theclaw/agents/services/runner/internal/modelcall"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

// outside is a program with tools of its own: each call runs them anew, but for
// those it is told of.
type outside struct {
	calls, ran int
	// fail, when set, is how the nth call ends, after its tools.
	fail func(n int) *model.Error
	// told are the results that the last call was told of.
	told int
	// at is called between a tool's beginning and its end.
	at func()
}

func (o *outside) Find(string, string) (modelcall.Model, error) {
	return modelcall.Model{Provider: "pai/p", Name: "m", Program: func(at pai.Place) modelcall.TryFunc {
		return func(_ context.Context, req model.Request, emit func(model.Delta)) (model.Response, modelcall.Try) {
			if err := at.Begin(); err != nil {
				return model.Response{}, modelcall.Try{Err: model.Errorf(model.Canceled, "%v", err)}
			}
			o.calls++
			o.told = 0
			for _, m := range req.Messages {
				if m.Role == model.RoleTool {
					o.told++
				}
			}
			for i := o.told; i < 2; i++ {
				u := model.ToolUse{Call: model.ToolCall{ID: fmt.Sprint("c", i), Name: "bash_exec", Arguments: []byte(`{}`)}}
				emit(model.Delta{Tool: &u})
				o.ran++
				if o.at != nil {
					o.at()
				}
				u.Result = []byte(`{"stdout":"x"}`)
				emit(model.Delta{Tool: &u})
			}
			if o.fail != nil {
				if e := o.fail(o.calls); e != nil {
					return model.Response{}, modelcall.Try{Err: e, Counts: e.CountsTry(), Again: e.Recoverable(), Wait: time.Second}
				}
			}
			emit(model.Delta{Text: "done"})
			return say("done")
		}
	}}, nil
}

// P1, RELIABILITY T5: the process is killed once at each instant. A call that had
// begun is in doubt and is not made again; else the message is answered once.
func TestProgramKilledAtEveryInstant(t *testing.T) {
	type instant struct {
		name  string
		n     int
		after bool
	}
	var instants []instant
	for name, passes := range map[string]int{"begin": 1, "record": 5, "finish": 1, "T3.before": 1, "T3.after": 1, "tool": 2} {
		for n := range passes {
			instants = append(instants, instant{name, n, false})
			if name == "begin" || name == "record" || name == "finish" {
				instants = append(instants, instant{name, n, true})
			}
		}
	}
	for _, at := range instants {
		t.Run(fmt.Sprintf("%s %d %v", at.name, at.n, at.after), func(t *testing.T) {
			b := newBench(t, "do it")
			b.journal.config.SandboxMode = "off"
			o := &outside{}
			b.models = o
			hit, passed := false, 0
			die := func(name string) bool {
				if hit || name != at.name {
					return false
				}
				passed++
				hit = passed > at.n
				return hit
			}
			o.at = func() {
				if die("tool") {
					runtime.Goexit()
				}
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
			if _, _, killed := b.life(t.Context()); !killed {
				t.Fatal("not killed")
			}
			if _, err, killed := b.life(t.Context()); err != nil || killed {
				t.Fatalf("the second life ended with %v, killed %v", err, killed)
			}
			fin := b.journal.fin
			begun := at.name != "begin" && (at.name != "record" || at.n > 0 || at.after)
			finished := at.name == "finish" && at.after
			switch {
			case begun && !finished:
				if fin.GetFate() != pb.Fate_FATE_DEAD || !strings.Contains(fin.GetError(), "in doubt") || o.calls > 1 || o.ran > 2 {
					t.Errorf("%v %q after %d calls, %d tools", fin.GetFate(), fin.GetError(), o.calls, o.ran)
				}
			case fin.GetFate() != pb.Fate_FATE_REPLIED || fin.GetText() != "done" || o.calls != 1 || o.ran != 2:
				t.Errorf("%v %q after %d calls, %d tools", fin.GetFate(), fin.GetText(), o.calls, o.ran)
			}
			if b.journal.fates != 1 {
				t.Errorf("%d fates", b.journal.fates)
			}
			for _, s := range b.journal.steps {
				if s.GetState() == pb.StepState_STEP_STATE_INTENT {
					t.Errorf("%s was left an intent", s.GetKey())
				}
			}
		})
	}
}

// A failed call is made again behind the tools that ran, as often as the tries
// of both sides allow; an outage leaves the same account.
func TestProgramFails(t *testing.T) {
	for _, c := range []struct {
		name  string
		class model.Class
		until int // calls that fail
		calls int
		fate  pb.Fate
	}{
		{"cut once", model.CutStream, 1, 2, pb.Fate_FATE_REPLIED},
		{"cut", model.CutStream, 9, 3, pb.Fate_FATE_DEAD},
		{"busy", model.RateLimited, 5, 6, pb.Fate_FATE_REPLIED}, // F4
		{"away", model.Unreachable, 5, 6, pb.Fate_FATE_REPLIED},
		{"too long", model.ContextTooLong, 9, 1, pb.Fate_FATE_DEAD},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, "do it")
				o := &outside{fail: func(n int) *model.Error {
					if n > c.until {
						return nil
					}
					return model.Errorf(c.class, "told to")
				}}
				b.models = o
				r, err := b.run(t.Context())
				if err != nil || r.Fate != c.fate || o.calls != c.calls || o.ran != 2 {
					t.Errorf("%v, %v after %d calls, %d tools", r.Fate, err, o.calls, o.ran)
				}
				if c.calls > 1 && o.told != 2 {
					t.Errorf("the last call was told of %d tools", o.told)
				}
				if n := len(b.journal.steps); n != c.calls+2 {
					t.Errorf("%d steps", n)
				}
			})
		})
	}
}

// A lease that is lost while a program runs ends it; what it says after that is
// not journaled, and nothing is written.
func TestProgramLosesItsLease(t *testing.T) {
	b := newBench(t, "do it")
	o := &outside{at: func() { b.journal.lost = true }}
	b.models = o
	if _, err := b.run(t.Context()); !errors.Is(err, turn.ErrLost) {
		t.Errorf("ended with %v", err)
	}
	if b.journal.fin != nil || len(b.journal.steps) != 2 || o.ran == 0 {
		t.Errorf("%d steps, fate %v", len(b.journal.steps), b.journal.fin)
	}
}
