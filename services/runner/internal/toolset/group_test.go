package toolset_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/toolset/toolsettest"
)

const (
	intent  = registrypb.StepState_STEP_STATE_INTENT
	done    = registrypb.StepState_STEP_STATE_DONE
	inDoubt = registrypb.StepState_STEP_STATE_IN_DOUBT
)

// parallel is how many reads run at once.
const parallel = 8

// scripted is a tool that does what a function does.
type scripted struct {
	name  string
	class toolset.Class
	run   func(ctx context.Context, n int, c toolset.Call) toolset.Result
	// finished, when set, is called by Finished.
	finished func(n int)
}

func (s scripted) Spec() toolset.Spec {
	return toolset.Spec{Name: s.name, Description: "x", Schema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)}
}
func (s scripted) Class(toolset.Call) toolset.Class { return s.class }
func (s scripted) Run(ctx context.Context, c toolset.Call) toolset.Result {
	return s.run(ctx, number(c), c)
}

// Finished implements [toolset.Finisher].
func (s scripted) Finished(c toolset.Call) {
	if s.finished != nil {
		s.finished(number(c))
	}
}

// number is the argument of a call: its place in the answer.
func number(c toolset.Call) int {
	var a struct{ N int }
	_ = json.Unmarshal(c.Args, &a) // the schema was checked
	return a.N
}

// answer is an answer that calls these tools.
func answer(names ...string) (calls []model.ToolCall) {
	for n, name := range names {
		calls = append(calls, model.ToolCall{ID: fmt.Sprint("c", n+1), Name: name, Arguments: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n+1))})
	}
	return calls
}

func key(n int) string { return fmt.Sprint("tool:1:", n) }

// planned are the calls of a turn with these tools, after the answer was journaled.
func planned(t *testing.T, made []model.ToolCall, tools ...toolset.Tool) (*toolset.Calls, *toolsettest.Journal) {
	t.Helper()
	calls, j := toolsettest.Calls(t, &registrypb.TurnConfig{}, tools...)
	calls.Logf = func(string, string, ...any) {}
	if err := j.Write(t.Context(), nil, calls.Intents(key, made)...); err != nil {
		t.Fatal(err)
	}
	j.Writes = 0
	return calls, j
}

// states are those of the calls of an answer.
func states(j *toolsettest.Journal, made []model.ToolCall) (out []registrypb.StepState) {
	for n := range made {
		out = append(out, j.Tool(key(n+1)).GetState())
	}
	return out
}

// schedule runs an answer in which an edit, an edit and a command stand in this order among
// reads, as the seed decides. It returns what was out of order.
func schedule(t *testing.T, seed uint64, edit, command toolset.Class) (violations []string) {
	chance := rand.New(rand.NewPCG(seed, 1))
	var names []string
	for _, name := range []string{"edit", "edit", "command", ""} {
		for range chance.IntN(3) {
			names = append(names, "read")
		}
		if name != "" {
			names = append(names, name)
		}
	}
	var mu sync.Mutex
	running := map[int]string{}
	var calls *toolset.Calls
	var j *toolsettest.Journal
	violate := func(format string, args ...any) { violations = append(violations, fmt.Sprintf(format, args...)) }
	run := func(_ context.Context, n int, c toolset.Call) toolset.Result {
		mu.Lock()
		for m, other := range running {
			if other != "read" || c.Name != "read" {
				violate("%s %d runs with %s %d", c.Name, n, other, m)
			}
		}
		running[n] = c.Name
		for m := 1; m < n; m++ {
			if before := j.Tool(key(m)); before.GetState() == intent && (c.Name != "read" || before.GetName() != "read") {
				violate("%s %d has begun, and %s %d has no result in the journal", c.Name, n, before.GetName(), m)
			}
		}
		turns := chance.IntN(5)
		mu.Unlock()
		for range turns {
			runtime.Gosched()
		}
		mu.Lock()
		delete(running, n)
		mu.Unlock()
		return toolset.Result{Text: fmt.Sprint(c.Name, " ", n)}
	}
	made := answer(names...)
	calls, j = planned(t, made, scripted{name: "read", class: toolset.Read, run: run},
		scripted{name: "edit", class: edit, run: run}, scripted{name: "command", class: command, run: run})
	results, err := calls.Use(t.Context(), key, made, "")
	if err != nil {
		t.Fatal(err)
	}
	for n, name := range names {
		if want := fmt.Sprintf(`{"text":"%s %d"}`, name, n+1); results[n] != want {
			t.Errorf("seed %d: result %d is %s", seed, n+1, results[n])
		}
	}
	return violations
}

// Two edits and a command of one answer keep their order, alone and after every result
// before them, in 1,000 schedules. The control, where all are of class read, does not.
func TestChangesKeepTheirOrder(t *testing.T) {
	broken := 0
	for seed := range uint64(1000) {
		if v := schedule(t, seed, toolset.Idempotent, toolset.Effect); v != nil {
			t.Fatalf("seed %d: %s", seed, strings.Join(v, "; "))
		}
		if schedule(t, seed, toolset.Read, toolset.Read) != nil {
			broken++
		}
	}
	if broken == 0 {
		t.Error("the control has kept its order: this test cannot fail")
	}
	t.Logf("the control broke the order in %d of 1,000 schedules", broken)
}

// meeting is a tool whose calls end when a number of them run at the same time, or with ctx.
func meeting(class toolset.Class, size int) (tool scripted, began func() int) {
	var mu sync.Mutex
	n, met := 0, make(chan struct{})
	tool = scripted{name: "meet", class: class, run: func(ctx context.Context, _ int, _ toolset.Call) toolset.Result {
		mu.Lock()
		if n++; n == size {
			close(met)
		}
		mu.Unlock()
		select {
		case <-met:
			return toolset.Result{Text: "met"}
		case <-ctx.Done():
			return toolset.Failed("alone")
		}
	}}
	return tool, func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

// 8 reads, each of which waits for all others, end in one answer.
// The control of a class that runs alone does not get past its first call.
func TestReadsRunTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := answer(slices.Repeat([]string{"meet"}, parallel)...)
		tool, _ := meeting(toolset.Read, parallel)
		calls, j := planned(t, made, tool)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // of the bubble
		defer cancel()
		results, err := calls.Use(ctx, key, made, "")
		if err != nil || slices.ContainsFunc(results, func(s string) bool { return s != `{"text":"met"}` }) || j.Writes != 1 {
			t.Errorf("%q, %d writes, %v", results, j.Writes, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		made := answer(slices.Repeat([]string{"meet"}, parallel)...)
		tool, began := meeting(toolset.Idempotent, parallel)
		calls, j := planned(t, made, tool)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // before the tool's own time is over
		defer cancel()
		if _, err := calls.Use(ctx, key, made, ""); !errors.Is(err, context.DeadlineExceeded) || began() != 1 || j.Writes != 0 {
			t.Errorf("the control: %d calls began, %d writes, %v", began(), j.Writes, err)
		}
	})
}

// However many reads an answer has, at most 8 run at once, or as many as the settings say, and one
// that ends makes room for one other.
func TestParallelIsBounded(t *testing.T) {
	t.Run("default", func(t *testing.T) { testParallel(t, nil, parallel) })
	t.Run("set", func(t *testing.T) { testParallel(t, &registrypb.ToolLimits{Parallel: 3}, 3) })
}

func testParallel(t *testing.T, limits *registrypb.ToolLimits, parallel int) {
	synctest.Test(t, func(t *testing.T) {
		const reads = 20
		made := answer(slices.Repeat([]string{"read"}, reads)...)
		var mu sync.Mutex
		var began []int
		let := make(chan struct{})
		calls, j := planned(t, made, scripted{name: "read", class: toolset.Read, run: func(_ context.Context, n int, _ toolset.Call) toolset.Result {
			mu.Lock()
			began = append(began, n)
			mu.Unlock()
			<-let
			return toolset.Result{Text: "x"}
		}})
		calls.Place.Config.ToolLimits = limits
		var used sync.WaitGroup
		used.Go(func() {
			if _, err := calls.Use(t.Context(), key, made, ""); err != nil {
				t.Error(err)
			}
		})
		for ended := range reads {
			synctest.Wait()
			mu.Lock()
			if want := min(parallel+ended, reads); len(began) != want || slices.Max(began) != want {
				t.Errorf("after %d ends these began: %v", ended, began)
			}
			mu.Unlock()
			if j.Writes != 0 {
				t.Errorf("after %d ends something was journaled", ended)
			}
			let <- struct{}{}
		}
		used.Wait()
		if j.Writes != 1 {
			t.Errorf("%d writes", j.Writes)
		}
	})
}

// A group is one write, and a call of another class is one; the results of a group that are
// larger than a message are several, in the order of the calls.
func TestWrites(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		bytes  int // of each result
		writes int
	}{
		"one group":           {"read read read read read read read read", 10, 1},
		"a read":              {"read", 10, 1},
		"changes":             {"edit edit command", 10, 3},
		"groups and changes":  {"read read edit read read read command command read", 10, 6},
		"a group of 31":       {strings.Repeat("read ", 31), 10, 1},
		"larger than allowed": {"read read read read read read read read", 600 << 10, 2},
	} {
		t.Run(name, func(t *testing.T) {
			made := answer(strings.Fields(c.answer)...)
			run := func(_ context.Context, n int, _ toolset.Call) toolset.Result {
				return toolset.Result{JSON: json.RawMessage(fmt.Sprintf(`{"n":%d,"x":"%s"}`, n, strings.Repeat("x", c.bytes))), Bounded: true}
			}
			calls, j := planned(t, made, scripted{name: "read", class: toolset.Read, run: run},
				scripted{name: "edit", class: toolset.Idempotent, run: run}, scripted{name: "command", class: toolset.Effect, run: run})
			results, err := calls.Use(t.Context(), key, made, "")
			if err != nil || j.Writes != c.writes {
				t.Errorf("%d writes, want %d (%v)", j.Writes, c.writes, err)
			}
			for n, r := range results {
				if !strings.HasPrefix(r, fmt.Sprintf(`{"n":%d,`, n+1)) || string(j.Tool(key(n+1)).GetResult()) != r {
					t.Errorf("result %d is %.20s", n+1, r)
				}
			}
		})
	}
}

// Of 100 calls in one answer 32 run, and the others get an error. That is decided at the
// intent: it is of class read, and an intent that another build has left runs nothing
// either.
func TestMaxCalls(t *testing.T) {
	made := answer(slices.Repeat([]string{"command"}, 100)...)
	var ran []int
	command := scripted{name: "command", class: toolset.Effect, run: func(_ context.Context, n int, _ toolset.Call) toolset.Result {
		ran = append(ran, n)
		return toolset.Result{Text: "ran"}
	}, finished: func(n int) {
		if n > toolset.MaxCalls {
			t.Errorf("call %d is finished, and was not made", n)
		}
	}}
	calls, j := planned(t, made, command)
	for n := range made {
		want := registrypb.ToolClass_TOOL_CLASS_EFFECT
		if n >= toolset.MaxCalls {
			want = registrypb.ToolClass_TOOL_CLASS_READ
		}
		if class := j.Tool(key(n + 1)).GetClass(); class != want {
			t.Errorf("the intent of call %d is of %v", n+1, class)
		}
	}
	j.Tool(key(50)).Class = registrypb.ToolClass_TOOL_CLASS_EFFECT
	results, err := calls.Use(t.Context(), key, made, "")
	if err != nil || len(ran) != toolset.MaxCalls || slices.Max(ran) != toolset.MaxCalls {
		t.Fatalf("these ran: %v (%v)", ran, err)
	}
	for n, r := range results {
		refused := strings.HasPrefix(r, `{"error":"only 32 calls of one answer are made: nothing was run;`)
		if refused != (n >= toolset.MaxCalls) || j.Tool(key(n+1)).GetState() != done {
			t.Errorf("call %d: %s", n+1, r)
		}
	}
	if j.Writes != toolset.MaxCalls+3 { // the intent of class effect divides the others
		t.Errorf("%d writes", j.Writes)
	}
}

// A tool is informed of a result when the journal has it, and again when it is met there.
func TestFinished(t *testing.T) {
	made := append(answer("read", "read", "command", "read"), model.ToolCall{ID: "bad", Name: "read", Arguments: json.RawMessage(`{"n":"5"}`)})
	var j *toolsettest.Journal
	var finished []int
	inform := func(n int) {
		if j.Tool(key(n)).GetState() != done {
			t.Errorf("call %d is finished, and not in the journal", n)
		}
		finished = append(finished, n)
	}
	run := func(context.Context, int, toolset.Call) toolset.Result { return toolset.Failed("no such file") }
	calls, j := planned(t, made, scripted{"read", toolset.Read, run, inform}, scripted{"command", toolset.Effect, run, inform})
	for _, want := range []int{3, 0} { // writes: the second time all is there
		j.Writes, finished = 0, nil
		if _, err := calls.Use(t.Context(), key, made, ""); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(finished, []int{1, 2, 3, 4}) || j.Writes != want {
			t.Errorf("finished %v after %d writes", finished, j.Writes)
		}
	}
	// Not of a call that is in doubt, nor when the journal does not take the result.
	finished = nil
	calls, j = planned(t, made[2:3], scripted{"command", toolset.Effect, run, inform})
	if _, err := calls.Use(t.Context(), key, made[2:3], key(1)); err != nil || j.Tool(key(1)).GetState() != inDoubt {
		t.Fatal(err)
	}
	calls, j = planned(t, made[:2], scripted{"read", toolset.Read, run, inform})
	full := errors.New("the disk is full")
	calls.Journal = refusing{j, full}
	if _, err := calls.Use(t.Context(), key, made[:2], ""); !errors.Is(err, full) {
		t.Error(err)
	}
	if finished != nil {
		t.Errorf("finished %v", finished)
	}
}

// refusing is a journal that cannot be written.
type refusing struct {
	*toolsettest.Journal
	err error
}

func (r refusing) Write(context.Context, []*registrypb.Saying, ...*registrypb.Step) error {
	return r.err
}

// watcher keeps what it is notified of.
type watcher struct {
	*toolsettest.Journal
	mu   sync.Mutex
	seen []string
}

func (w *watcher) add(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, what)
}

func (w *watcher) ToolStart(s toolset.Shown) {
	w.add(fmt.Sprint("start ", s.N, s.Step.GetCallId(), " in ", s.Parallel))
}

func (w *watcher) Progress(s toolset.Shown) func(string) {
	return func(text string) { w.add(fmt.Sprint(text, " ", s.N, s.Step.GetCallId())) }
}

func (w *watcher) ToolEnd(s toolset.Shown) {
	if string(w.Tool(key(s.N)).GetResult()) != string(s.Step.GetResult()) {
		w.add("too early:")
	}
	w.add(fmt.Sprint("end ", s.N, s.Step.GetCallId()))
}

// S1-24, S1-50: a watcher sees pairs of start and end in the order of the calls, also where
// they run together, and each end when the journal has the result.
func TestWatcherSeesPairs(t *testing.T) {
	made := answer("read", "read", "read", "command", "read")
	run := func(_ context.Context, _ int, c toolset.Call) toolset.Result {
		if c.Progress != nil {
			c.Progress("prints")
		}
		return toolset.Result{Text: "x"}
	}
	calls, j := planned(t, made, scripted{name: "read", class: toolset.Read, run: run}, scripted{name: "command", class: toolset.Effect, run: run})
	w := &watcher{Journal: j}
	calls.Watcher = w
	if _, err := calls.Use(t.Context(), key, made, ""); err != nil {
		t.Fatal(err)
	}
	want := "start 1c1 in 1, prints 1c1, end 1c1, start 2c2 in 1, end 2c2, start 3c3 in 1, end 3c3, start 4c4 in 0, prints 4c4, end 4c4, start 5c5 in 0, prints 5c5, end 5c5"
	if got := strings.Join(w.seen, ", "); got != want {
		t.Errorf("seen\n%s, want\n%s", got, want)
	}
}

// When the work ends in the middle of a group, what is known of it goes with the fate in the
// order of the calls, and what has not begun does not begin.
func TestGroupIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := answer(slices.Repeat([]string{"read"}, 12)...)
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("the work has ended")
		calls, j := planned(t, made, scripted{name: "read", class: toolset.Read, run: func(ctx context.Context, n int, _ toolset.Call) toolset.Result {
			if n == 3 {
				synctest.Wait() // all others that may run do
				cancel(cause)
			}
			<-ctx.Done()
			if n == 2 {
				return toolset.Result{Text: "x", Messages: []toolset.Message{{Text: "not said"}}}
			}
			return toolset.Failed("ended")
		}})
		_, err := calls.Use(ctx, key, made, "")
		var kept []string
		for _, row := range j.Unwritten {
			kept = append(kept, row.GetKey())
		}
		if want := "tool:1:1 tool:1:3 tool:1:4 tool:1:5 tool:1:6 tool:1:7 tool:1:8"; !errors.Is(err, cause) || strings.Join(kept, " ") != want || j.Writes != 0 || len(j.Said) != 0 {
			t.Errorf("%v, kept %v, %d writes, said %q", err, kept, j.Writes, j.Said)
		}
	})
}

// What goes with the fate is no larger than a message to the journal.
func TestGroupIsEndedWithLargeResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := answer(slices.Repeat([]string{"read"}, parallel)...)
		ctx, cancel := context.WithCancel(t.Context())
		calls, j := planned(t, made, scripted{name: "read", class: toolset.Read, run: func(ctx context.Context, n int, _ toolset.Call) toolset.Result {
			if n == parallel {
				synctest.Wait()
				cancel()
			}
			<-ctx.Done()
			return toolset.Result{JSON: json.RawMessage(`{"x":"` + strings.Repeat("x", 600<<10) + `"}`), Bounded: true}
		}})
		if _, err := calls.Use(ctx, key, made, ""); !errors.Is(err, context.Canceled) || len(j.Unwritten) != 5 || j.Unwritten[4].GetKey() != key(5) {
			t.Errorf("%v, kept %d results", err, len(j.Unwritten))
		}
	})
}

// S0-84: the lease is asked for before each call of a group. When it is not trusted any more,
// the calls that run are ended, no other begins and nothing is written.
func TestGroupWithoutTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := answer("read", "read", "read", "read")
		lost := errors.New("the lease is lost")
		var mu sync.Mutex
		var ended []int
		calls, j := planned(t, made, scripted{name: "read", class: toolset.Read, run: func(ctx context.Context, n int, _ toolset.Call) toolset.Result {
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			if ended = append(ended, n); !errors.Is(context.Cause(ctx), lost) {
				t.Errorf("call %d was ended by %v", n, context.Cause(ctx))
			}
			return toolset.Failed("ended")
		}})
		asked := 0
		calls.Place.Trusted = func(context.Context) error {
			if asked++; asked > 2 {
				return lost
			}
			return nil
		}
		_, err := calls.Use(t.Context(), key, made, "")
		slices.Sort(ended)
		if !errors.Is(err, lost) || !slices.Equal(ended, []int{1, 2}) || asked != 3 || j.Writes != 0 || j.Unwritten != nil {
			t.Errorf("%v after %d questions, ended %v, %d writes, kept %v", err, asked, ended, j.Writes, j.Unwritten)
		}
	})
}

// A call of a group that leaves its goroutine leaves that of the caller, after the others have ended.
func TestGroupBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := answer(slices.Repeat([]string{"read"}, 12)...)
		var mu sync.Mutex
		ended := 0
		calls, j := planned(t, made, scripted{name: "read", class: toolset.Read, run: func(ctx context.Context, n int, _ toolset.Call) toolset.Result {
			if n == 2 {
				synctest.Wait()
				runtime.Goexit()
			}
			<-ctx.Done()
			mu.Lock()
			ended++
			mu.Unlock()
			return toolset.Failed("ended")
		}})
		returned := false
		var caller sync.WaitGroup
		caller.Go(func() {
			_, _ = calls.Use(t.Context(), key, made, "")
			returned = true
		})
		caller.Wait()
		if returned || ended != parallel-1 || j.Writes != 0 || j.Unwritten != nil || slices.Contains(states(j, made), done) {
			t.Errorf("returned %v, %d ended, %d writes, %v", returned, ended, j.Writes, states(j, made))
		}
	})
}

// S3-42: a call that panics has failed, and the others of its group have their results; of one with an effect it is not
// known how far it came.
func TestPanics(t *testing.T) {
	for class, want := range map[toolset.Class]registrypb.StepState{toolset.Read: done, toolset.Idempotent: done, toolset.Effect: inDoubt} {
		made := answer("read", "read", "read")
		calls, j := planned(t, made, scripted{name: "read", class: class, run: func(_ context.Context, n int, _ toolset.Call) toolset.Result {
			if n == 2 {
				panic("poison")
			}
			return toolset.Result{Text: "fine"}
		}})
		seen := []any{}
		calls.Panicked = func(value any, args ...any) string {
			seen = append(append(seen, value), args...)
			return "see the log"
		}
		results, err := calls.Use(t.Context(), key, made, "")
		if err != nil || !slices.Equal(seen, []any{"poison", "tool", "read", "call_key", calls.Key + ":" + key(2)}) || !slices.Equal(states(j, made), []registrypb.StepState{done, want, done}) ||
			!strings.Contains(results[1], "defect of the runtime: see the log") || !strings.Contains(results[2], "fine") {
			t.Errorf("%v: %v, %q, %v", class, err, results, states(j, made))
		}
	}
}

// BenchmarkReads prints how long 8 reads of 200 ms in one answer take, as a multiple of one
// read; serial is the control of a class that runs alone.
func BenchmarkReads(b *testing.B) {
	const read = 200 * time.Millisecond
	took := func(class toolset.Class, n int) float64 {
		tool := scripted{name: "read", class: class, run: func(context.Context, int, toolset.Call) toolset.Result {
			<-time.After(read)
			return toolset.Result{Text: "x"}
		}}
		list, err := toolset.New(tool)
		if err != nil {
			b.Fatal(err)
		}
		j := &toolsettest.Journal{}
		calls := &toolset.Calls{
			Set: list.Set(&registrypb.TurnConfig{ToolLayers: []*registrypb.ToolLayer{{Name: "all"}}}), Key: "turn", Journal: j, Watcher: j, Meter: j, Logf: func(string, string, ...any) {},
			Place: toolset.Place{Trusted: func(context.Context) error { return nil }},
		}
		start := time.Now()
		if _, err := calls.Use(b.Context(), key, answer(slices.Repeat([]string{"read"}, n)...), ""); err != nil {
			b.Fatal(err)
		}
		return float64(time.Since(start))
	}
	var one, parallel, serial float64
	for b.Loop() {
		one += took(toolset.Read, 1)
		parallel += took(toolset.Read, toolset.Parallel)
		serial += took(toolset.Idempotent, toolset.Parallel)
	}
	b.ReportMetric(parallel/one, "parallel/one")
	b.ReportMetric(serial/one, "serial/one")
}
