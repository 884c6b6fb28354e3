package loop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/theclaw/agents/internal/fault"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/loop"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/toolset/toolsettest"
)

// machine is a piece of work over processes that are killed: what was written stays.
type machine struct {
	script func(round int) model.Response
	// kill, when set, decides at each instant whether the process is killed there.
	kill func(instant string) bool

	mu     sync.Mutex
	rows   []*registrypb.Step
	ran    map[string]int // by key of the step, in this process
	total  map[string]int // in all of them
	asked  map[int]int    // by round, in all of them
	faults []string
}

func (m *machine) fault(format string, args ...any) {
	m.faults = append(m.faults, fmt.Sprintf(format, args...))
}

func (m *machine) row(key string) *registrypb.Step {
	for _, row := range m.rows {
		if row.GetKey() == key {
			return row
		}
	}
	return nil
}

// process is the journal of one process. A kill is a Goexit: no code of ours can catch it.
type process struct {
	*toolsettest.Journal
	m *machine
}

func (p *process) Write(ctx context.Context, says []*registrypb.Saying, rows ...*registrypb.Step) error {
	what := "results"
	if rows[0].GetKind() == registrypb.StepKind_STEP_KIND_MODEL {
		what = "answer"
	}
	p.m.point(what + ".before")
	p.m.mu.Lock()
	for _, row := range rows {
		switch old := p.m.row(row.GetKey()); {
		case old == nil:
			p.m.rows = append(p.m.rows, proto.CloneOf(row))
		case old.GetState() != registrypb.StepState_STEP_STATE_INTENT:
			p.m.fault("%s is journaled again", row.GetKey())
		default:
			old.State, old.Result = row.GetState(), row.GetResult()
		}
	}
	p.m.mu.Unlock()
	p.m.point(what + ".after")
	return p.Journal.Write(ctx, says, rows...)
}

// point is passed at an instant at which the process may be killed.
func (m *machine) point(instant string) {
	m.mu.Lock()
	dies := m.kill != nil && m.kill(instant)
	m.mu.Unlock()
	if dies {
		runtime.Goexit()
	}
}

// echo is a tool that answers which call it was.
type echo struct {
	*machine
	name  string
	class toolset.Class
}

func (e echo) Spec() toolset.Spec {
	return toolset.Spec{Name: e.name, Description: "x", Schema: json.RawMessage(`{"type":"object"}`)}
}
func (e echo) Class(toolset.Call) toolset.Class { return e.class }
func (e echo) Run(_ context.Context, c toolset.Call) toolset.Result {
	e.mu.Lock()
	key := strings.TrimPrefix(c.Key, "turn:")
	if state := e.row(key).GetState(); state != registrypb.StepState_STEP_STATE_INTENT {
		e.fault("%s runs and is %v", key, state)
	}
	e.ran[key]++
	e.total[key]++
	e.mu.Unlock()
	runtime.Gosched()
	return toolset.Result{Text: e.name + " " + key}
}

// life runs the work in a new process, and returns what the model was asked with last, or
// false when the process was killed.
func (m *machine) life(t *testing.T) (said []model.Message, lives bool) {
	t.Helper()
	calls, j := toolsettest.Calls(t, &registrypb.TurnConfig{}, echo{m, "read", toolset.Read}, echo{m, "edit", toolset.Idempotent}, echo{m, "command", toolset.Effect})
	calls.Logf = func(string, string, ...any) {}
	p := &process{Journal: j, m: m}
	for _, row := range m.rows {
		p.Add(row)
	}
	calls.Journal = p
	m.ran = map[string]int{}
	if m.total == nil {
		m.total, m.asked = map[string]int{}, map[int]int{}
	}
	w := &work{Journal: j, script: func(round int) model.Response {
		m.asked[round]++
		return m.script(round)
	}}
	w.loop = loop.Loop{Steps: p, Model: w, Calls: calls}
	fault.SetPoint(m.point)
	defer fault.SetPoint(nil)
	var wg sync.WaitGroup
	wg.Go(func() {
		a, _, _, err := w.loop.Run(t.Context(), nil)
		if err != nil || a.Text != "done" {
			t.Errorf("%q, %v", a.Text, err)
		}
		lives = true
	})
	wg.Wait()
	return w.last, lives
}

// rounds is a script that calls the tools of each answer, and then ends.
func rounds(answers ...string) func(int) model.Response {
	return func(round int) model.Response {
		if round > len(answers) {
			return model.Response{Text: "done", FinishReason: model.FinishStop}
		}
		r := model.Response{FinishReason: model.FinishToolCalls}
		for n, name := range strings.Fields(answers[round-1]) {
			r.ToolCalls = append(r.ToolCalls, model.ToolCall{ID: fmt.Sprintf("c%d-%d", round, n+1), Name: name, Arguments: json.RawMessage(`{}`)})
		}
		return r
	}
}

// A process is killed at each instant of a group: the next one runs all reads of it again,
// none of those before it, and the command behind it, which had not begun.
func TestGroupRunsAgain(t *testing.T) {
	const reads = 5
	for _, instant := range []string{"T5.before", "T5.after"} {
		for n := range reads {
			t.Run(fmt.Sprint(instant, " ", n+1), func(t *testing.T) {
				m := &machine{script: rounds("read read edit read read read read read command")}
				passed := 0
				m.kill = func(at string) bool {
					if at == instant {
						passed++
					}
					return at == instant && passed == 3+n+1
				}
				if _, lives := m.life(t); lives {
					t.Fatal("not killed")
				}
				m.kill = nil
				if _, lives := m.life(t); !lives {
					t.Fatal("killed again")
				}
				want := map[string]int{"tool:1:4": 1, "tool:1:5": 1, "tool:1:6": 1, "tool:1:7": 1, "tool:1:8": 1, "tool:1:9": 1}
				if fmt.Sprint(m.ran) != fmt.Sprint(want) || m.faults != nil {
					t.Errorf("the second process ran %v, want %v; %v", m.ran, want, m.faults)
				}
				for key := range want {
					if m.row(key).GetState() != registrypb.StepState_STEP_STATE_DONE {
						t.Errorf("%s is %v", key, m.row(key).GetState())
					}
				}
			})
		}
	}
}

// S1-24, S0-79: whatever the calls of the answers are and wherever the processes are killed,
// the model reads each call with its result, in the order of the calls; no call runs that
// has a result in the journal, and no command runs twice.
func TestPairs(t *testing.T) {
	kills, doubts, again := 0, 0, 0
	for seed := range uint64(300) {
		chance := rand.New(rand.NewPCG(seed, 1))
		var answers []string
		for range 3 {
			var names []string
			for range 1 + chance.IntN(10) {
				names = append(names, []string{"read", "read", "read", "edit", "command"}[chance.IntN(5)])
			}
			answers = append(answers, strings.Join(names, " "))
		}
		m := &machine{script: rounds(answers...)}
		left, lost := 4, 0
		m.kill = func(at string) bool {
			if left == 0 || chance.IntN(12) > 0 {
				return false
			}
			if left--; at == "answer.before" {
				lost++ // and is paid again
			}
			kills++
			return true
		}
		said, lives := m.life(t)
		for range 4 {
			if !lives {
				said, lives = m.life(t)
			}
		}
		if !lives {
			t.Fatalf("seed %d: the fifth process was killed", seed)
		}
		if m.faults != nil {
			t.Errorf("seed %d: %s", seed, strings.Join(m.faults, "; "))
		}
		paid := 0
		for round, answer := range answers {
			names := strings.Fields(answer)
			if len(said) < 1+len(names) || len(said[0].ToolCalls) != len(names) {
				t.Fatalf("seed %d, round %d: %d messages are left", seed, round+1, len(said))
			}
			for n, name := range names {
				c, result := said[0].ToolCalls[n], said[1+n]
				key := fmt.Sprintf("tool:%d:%d", round+1, n+1)
				want := fmt.Sprintf(`{"text":"%s %s"}`, name, key)
				if m.row(key).GetState() == registrypb.StepState_STEP_STATE_IN_DOUBT && name == "command" {
					want = `{"error":"` + toolset.Unknown + `"}`
					doubts++
				}
				if result.Role != model.RoleTool || c.Name != name || result.ToolCallID != c.ID || result.Text != want || string(m.row(key).GetResult()) != want {
					t.Errorf("seed %d: call %d of round %d is %s, its result %+v", seed, n+1, round+1, name, result)
				}
				switch total := m.total[key]; {
				case total > 1 && name == "command", total == 0 && m.row(key).GetState() == registrypb.StepState_STEP_STATE_DONE:
					t.Errorf("seed %d: %s %s ran %d times", seed, name, key, total)
				case total > 1:
					again++
				}
			}
			said = said[1+len(names):]
			paid += m.asked[round+1]
		}
		if len(said) != 0 || paid != len(answers)+lost {
			t.Errorf("seed %d: %d messages without a call; %d answers were paid, and %d lost", seed, len(said), paid, lost)
		}
	}
	if kills < 300 || doubts == 0 || again == 0 {
		t.Errorf("%d kills, %d commands in doubt, %d calls made again: this test shows too little", kills, doubts, again)
	}
	t.Logf("%d kills, %d commands in doubt, %d calls made again", kills, doubts, again)
}

// S3-13, S2-105: each kind of wrong arguments costs one round: nothing runs, the model reads
// why, the beginning of what is no JSON object is kept, and the loop goes on.
func TestBadArguments(t *testing.T) {
	put := model.Tool{Name: "put", Schema: json.RawMessage(`{"type":"object","required":["path"],"additionalProperties":false,` +
		`"properties":{"path":{"type":"string"},"mode":{"enum":["a","b"]},"lines":{"type":"array","items":{"type":"integer"}}}}`)}
	for _, c := range []struct{ kind, name, arguments, want, kept string }{
		{"no value", "put", `{"path": }`, "invalid arguments for put: the arguments are not valid JSON (offset 9: ", `{"_raw":"{\"path\": }"}`},
		{"cut", "put", `{"path":"a`, "invalid arguments for put: the arguments are not valid JSON (offset 9: ", `{"_raw":"{\"path\":\"a"}`},
		{"two objects", "put", `{"path":"a"} {"path":"b"}`, "are not valid JSON (offset 13: ", `{"_raw":"{\"path\":\"a\"} {\"path\":\"b\"}"}`},
		{"bytes", "put", "{\"path\":\"a\xff", "are not valid JSON", `{"_raw":"{\"path\":\"a` + "\uFFFD" + `"}`},
		{"list", "put", `["a"]`, "invalid arguments for put: the arguments are not a JSON object (offset 0)", `{"_raw":"[\"a\"]"}`},
		{"string", "put", `"{\"path\":\"a\"}"`, "are not a JSON object", `{"_raw":"\"{\\\"path\\\":\\\"a\\\"}\""}`},
		{"words", "put", `write a file`, "are not a JSON object", `{"_raw":"write a file"}`},
		{"nothing", "put", ``, "path is missing", `{}`},
		{"null", "put", `null`, "path is missing", `{}`},
		{"wrong type", "put", `{"path":7}`, "path must be of type string and is of type integer", `{"path":7}`},
		{"wrong element", "put", `{"path":"a","lines":[1,"2"]}`, "lines[1] must be of type integer", `{"path":"a","lines":[1,"2"]}`},
		{"not in the list", "put", `{"path":"a","mode":"c"}`, `mode must be one of [\"a\",\"b\"]`, `{"path":"a","mode":"c"}`},
		{"unknown argument", "put", `{"path":"a","file":"b"}`, "file is not an argument of this tool", `{"path":"a","file":"b"}`},
		{"too large", "put", `{"path":"` + strings.Repeat("x", toolset.MaxArguments) + `"}`, "are larger than 192 KiB", `{"_raw":"{\"path\":\"xxx`},
		{"unknown tool", "putt", `{"path":"a"}`, `tool \"putt\" is not available here; the nearest is put`, `{"path":"a"}`},
		{"no tool", "", `{"path":"a"}`, "the call names no tool", `{"path":"a"}`},
	} {
		t.Run(c.kind, func(t *testing.T) {
			ran := &counter{}
			calls, j := toolsettest.Calls(t, &registrypb.TurnConfig{}, checked{ran, put})
			w := &work{Journal: j, script: func(round int) model.Response {
				bad := model.ToolCall{ID: "bad", Name: c.name, Arguments: json.RawMessage(c.arguments)}
				good := model.ToolCall{ID: "good", Name: "put", Arguments: json.RawMessage(`{"path":"a"}`)}
				made := []model.ToolCall{bad, good}
				switch round {
				case 1:
					made = made[:1]
				case 3:
					return model.Response{Text: "done", FinishReason: model.FinishStop}
				}
				return model.Response{ToolCalls: model.SealToolCalls(model.Request{Tools: []model.Tool{put}}, made), FinishReason: model.FinishToolCalls}
			}}
			w.loop = loop.Loop{Steps: j, Model: w, Calls: calls}
			a, _, failed, err := w.loop.Run(t.Context(), nil)
			if err != nil || failed != nil || a.Text != "done" || !slices.Equal(w.asked, []int{1, 2, 3}) || ran.runs != 1 {
				t.Fatalf("%q after rounds %v and %d runs: %v, %v", a.Text, w.asked, ran.runs, failed, err)
			}
			for n, want := range []string{"", c.want, "", c.want, `{"text":"1"}`} {
				m := w.last[n]
				if n < 4 && want != "" && c.name == "put" && !strings.Contains(m.Text, `. The schema of the arguments is {\"type\":\"object\"`) {
					t.Errorf("the model does not read the schema: %s", m.Text)
				}
				if want != "" && (m.Role != model.RoleTool || !strings.Contains(m.Text, want) || !json.Valid([]byte(m.Text)) || len(m.Text) > 4096+100) {
					t.Errorf("the model reads %s, want %s", m.Text, want)
				}
			}
			row := j.Tool("tool:1:1")
			if row.GetClass() != registrypb.ToolClass_TOOL_CLASS_READ || row.GetState() != registrypb.StepState_STEP_STATE_DONE || toolset.Failure(row.GetResult()) == "" || !strings.HasPrefix(row.GetArguments(), c.kept) {
				t.Errorf("journaled %v %v %.100s: %s", row.GetClass(), row.GetState(), row.GetArguments(), row.GetResult())
			}
		})
	}
}

// checked is a counter with a schema.
type checked struct {
	*counter
	as model.Tool
}

func (c checked) Spec() toolset.Spec {
	return toolset.Spec{Name: c.as.Name, Description: "x", Schema: c.as.Schema}
}
