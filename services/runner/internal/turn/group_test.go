package turn_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	pb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/modelcall"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// reader is a tool that changes nothing. It counts its calls, and those that it was informed
// of, by their keys.
type reader struct {
	mu            sync.Mutex
	ran, finished map[string]int
	// do, when set, is done in each call.
	do func(ctx context.Context, key string)
}

func (*reader) Spec() toolset.Spec {
	return toolset.Spec{Name: "look", Description: "Looks.", Schema: json.RawMessage(`{"type":"object"}`)}
}
func (*reader) Class(toolset.Call) toolset.Class { return toolset.Read }
func (r *reader) Run(ctx context.Context, c toolset.Call) toolset.Result {
	r.mu.Lock()
	if r.ran == nil {
		r.ran, r.finished = map[string]int{}, map[string]int{}
	}
	r.ran[c.Key]++
	r.mu.Unlock()
	if r.do != nil {
		r.do(ctx, c.Key)
	}
	return toolset.Result{Text: c.Key}
}

// Finished implements [toolset.Finisher].
func (r *reader) Finished(c toolset.Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.finished == nil { // another process ran it
		r.finished = map[string]int{}
	}
	r.finished[c.Key]++
}

// everyTool lets a turn have all tools of its runner.
var everyTool = []*pb.ToolLayer{{Name: "agent"}}

// lookAndRun answers with three reads and a command, then with text.
func lookAndRun(_ context.Context, round, _ int, _ model.Request, _ func(model.Delta)) (model.Response, modelcall.Try) {
	if round > 1 {
		return say("done")
	}
	r := model.Response{FinishReason: model.FinishToolCalls}
	for n, name := range []string{"look", "look", "look", "bash_exec"} {
		r.ToolCalls = append(r.ToolCalls, model.ToolCall{ID: fmt.Sprint("c", n+1), Name: name, Arguments: json.RawMessage(`{"command":"true"}`)})
	}
	return r, modelcall.Try{}
}

// P1, S1-24: the process is killed once at each instant of a turn whose calls run together.
// The next one ends it: the model reads every call with its result in their order, a read
// runs again only where its group has no results in the journal, the command is made once or
// is in doubt, and the reader was informed of each result. A turn without a kill writes its
// group in one call.
func TestGroupKilledAtEveryInstant(t *testing.T) {
	type instant struct {
		name  string
		n     int // how often it was passed before
		after bool
	}
	instants := []instant{{name: "none"}}
	for name, n := range map[string]int{"begin": 1, "record": 3, "finish": 1} {
		for n := range n {
			instants = append(instants, instant{name, n, false}, instant{name, n, true})
		}
	}
	for name, n := range map[string]int{"T3.before": 2, "T3.after": 2, "T5.before": 4, "T5.after": 4} {
		for n := range n {
			instants = append(instants, instant{name, n, false})
		}
	}
	for _, at := range instants {
		t.Run(fmt.Sprintf("%s %d %v", at.name, at.n, at.after), func(t *testing.T) {
			b, look := newBench(t, "look"), &reader{}
			b.journal.config.ToolLayers = everyTool
			b.llm.reply, b.tools = lookAndRun, []toolset.Tool{look}
			var mu sync.Mutex
			hit, passed := false, 0
			die := func(name string) bool {
				mu.Lock()
				defer mu.Unlock()
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
			_, err, killed := b.life(t.Context())
			if killed == (at.name == "none") || hit != killed {
				t.Fatalf("killed %v, %v", killed, err)
			}
			if killed {
				if _, err, killed = b.life(t.Context()); err != nil || killed {
					t.Fatalf("the second life ended with %v, killed %v", err, killed)
				}
			} else if b.journal.calls != 5 { // begin, answer, group, command, finish
				t.Errorf("%d calls to the journal", b.journal.calls)
			}
			if fin := b.journal.fin; fin.GetFate() != pb.Fate_FATE_REPLIED || b.journal.fates != 1 {
				t.Errorf("fate %v, %d times", fin.GetFate(), b.journal.fates)
			}
			var read []string
			for _, m := range b.llm.last.Messages {
				switch m.Role {
				case model.RoleAssistant:
					for _, c := range m.ToolCalls {
						read = append(read, c.ID)
					}
				case model.RoleTool:
					text := strings.NewReplacer(toolset.Unknown, "in doubt", `\n`, "").Replace(m.Text)
					read = append(read, m.ToolCallID+" "+text)
				}
			}
			command := `c4 {"stdout":"ok","stderr":"","exitCode":0,"timedOut":false,"truncated":false}`
			doubt := at.name == "record" && (at.n == 1 && at.after || at.n == 2 && !at.after) || at.name[:2] == "T5" && at.n == 3
			if doubt {
				command = `c4 {"error":"in doubt"}`
			}
			want := `c1, c2, c3, c4, c1 {"text":"k:tool:1:1"}, c2 {"text":"k:tool:1:2"}, c3 {"text":"k:tool:1:3"}, ` + command
			if got := strings.Join(read, ", "); got != want || b.box.ran["k:tool:1:4"] > 1 {
				t.Errorf("the model read\n%s, want\n%s; commands %v", got, want, b.box.ran)
			}
			for _, key := range []string{"k:tool:1:1", "k:tool:1:2", "k:tool:1:3"} {
				again := at.name[:2] == "T5" && at.n < 3 || at.name == "record" && at.n == 1 && !at.after
				if n := look.ran[key]; n == 0 || n > 2 || n > 1 && !again || look.finished[key] == 0 {
					t.Errorf("%s ran %d times, and was finished %d times", key, n, look.finished[key])
				}
			}
		})
	}
}

// S1-12: when the turn's time is over in a group, what is known of it goes with the fate.
func TestTimeoutInGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "look")
		b.journal.config.ToolLayers = everyTool
		b.journal.config.Timeout = durationpb.New(time.Minute) // before the time of a tool is over
		b.llm.reply = lookAndRun
		b.tools = []toolset.Tool{&reader{do: func(ctx context.Context, key string) {
			if key == "k:tool:1:2" {
				<-ctx.Done()
			}
		}}}
		if _, err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range b.journal.steps[1:] {
			got = append(got, s.GetState().String())
		}
		done, intent := pb.StepState_STEP_STATE_DONE.String(), pb.StepState_STEP_STATE_INTENT.String()
		if fin := b.journal.fin; fin.GetFate() != pb.Fate_FATE_DEAD || !strings.HasPrefix(fin.GetError(), "timeout") || fmt.Sprint(got) != fmt.Sprint([]string{done, done, done, intent}) {
			t.Errorf("%v, %v", fin, got)
		}
	})
}

// S3-42: a tool that panics has failed, alone or next to others: the model reads so, without the value, and the turn goes on.
func TestPanicOfTool(t *testing.T) {
	for _, key := range []string{"k:tool:1:1", "k:tool:1:2"} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, "look")
			b.journal.config.ToolLayers = everyTool
			b.llm.reply = lookAndRun
			b.tools = []toolset.Tool{&reader{do: func(_ context.Context, made string) {
				if made == key {
					panic("poison")
				}
			}}}
			if _, err := b.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := string(b.journal.step(strings.TrimPrefix(key, "k:")).GetResult())
			if fin := b.journal.fin; fin.GetFate() != pb.Fate_FATE_REPLIED || b.panics != 0 || b.llm.calls != 2 || !strings.Contains(got, "defect of the runtime: the runner's log says what") || strings.Contains(got, "poison") {
				t.Errorf("%v, %d panics, %d paid answers, %s", fin, b.panics, b.llm.calls, got)
			}
		})
	}
}
