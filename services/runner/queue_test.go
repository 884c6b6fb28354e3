package runner_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

// begun waits until a run is worked on.
func begun(t *testing.T, r *workshop, run string) {
	t.Helper()
	s, err := r.StreamRun(t.Context(), &runnerpb.StreamRunRequest{AgentId: "a1", RunId: run})
	if err == nil {
		_, err = s.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// waiting waits until n messages stand behind others.
func waiting(t *testing.T, r *workshop, n int32) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; <-time.After(5 * time.Millisecond) {
		info, err := r.GetRunnerInfo(t.Context(), &runnerpb.GetRunnerInfoRequest{})
		if err != nil || time.Now().After(end) {
			t.Fatalf("%v %v", info, err)
		}
		if info.GetWaiting() == n {
			return
		}
	}
}

func users(c modeltest.Chat) (said []string) {
	for _, m := range c.Messages {
		if m.Role == "user" || m.Role == "tool" {
			said = append(said, m.Role[:1]+":"+m.Content[:min(len(m.Content), 2)])
		}
	}
	return said
}

// S1-20, S1-21, S1-22: three messages come while a fourth is being worked on.
// What the model is asked is in its server's own record.
func TestQueueModes(t *testing.T) {
	for _, c := range []struct {
		mode  string
		asked []string // the end of each request
		into  []int    // the run that answered m1, m2, m3 too; 0: m0; -1: itself
	}{
		{"followup", []string{"u:m0", "u:m0 t:{\"", "u:m0 u:m1", "u:m0 u:m1 u:m2", "u:m0 u:m1 u:m2 u:m3"}, []int{-1, -1, -1}},
		{"collect", []string{"u:m0", "u:m0 t:{\"", "u:m0 u:m1 u:m2 u:m3"}, []int{-1, 1, 1}},
		{"steer", []string{"u:m0", "u:m0 t:{\" u:m1 u:m2 u:m3"}, []int{0, 0, 0}},
	} {
		t.Run(c.mode, func(t *testing.T) {
			w := newWorld(t)
			w.agent("a1", "queue: {mode: "+c.mode+"}")
			gate := make(chan struct{})
			script := modeltest.New(t, modeltest.Step{Gate: gate, ToolCalls: []modeltest.ToolCall{{ID: "c1", Name: "bash_exec", Arguments: []string{`{"command":"true"}`}}}})
			for n := range 4 {
				script.Push(modeltest.Say(fmt.Sprint("answer ", n)))
			}
			r := w.runner(script)
			runs := []string{w.say(r, "a1", "m0")}
			begun(t, r, runs[0])
			for _, text := range []string{"m1", "m2", "m3"} {
				runs = append(runs, w.say(r, "a1", text))
			}
			waiting(t, r, 3)
			close(gate)
			replies := 0
			for n, run := range runs {
				end := w.wait(r, "a1", run)
				if end.GetStatus() != runnerpb.RunStatus_RUN_STATUS_OK || !strings.HasPrefix(end.GetText(), "answer") {
					t.Errorf("m%d ended %v", n, end)
				}
				into := ""
				if n > 0 && c.into[n-1] >= 0 {
					into = runs[c.into[n-1]]
				} else {
					replies++
				}
				if end.GetMergedInto() != into {
					t.Errorf("m%d was merged into %q, want %q", n, end.GetMergedInto(), into)
				}
				items := stream(t, r, run, 0)
				if last := items[len(items)-1]; last.GetPhase() != "end" || last.GetMergedInto() != into {
					t.Errorf("m%d is told %v", n, last)
				}
			}
			var asked []string
			for _, q := range script.Requests() {
				asked = append(asked, strings.Join(users(q.Chat), " "))
			}
			if !slices.Equal(asked, c.asked) {
				t.Errorf("the model was asked\n%q, want\n%q", asked, c.asked)
			}
			var kinds []string
			for _, e := range w.events("a1", console) {
				if e.GetType() == "message" {
					kinds = append(kinds, e.GetSource()[:4])
				}
			}
			if n := len(slices.DeleteFunc(slices.Clone(kinds), func(s string) bool { return s != "self" })); n != replies || len(kinds) != 4+replies {
				t.Errorf("%d replies, want %d; the thread: %v", n, replies, kinds)
			}
		})
	}
}

// texts are what people said in a request, in order.
func texts(c modeltest.Chat) (said []string) {
	for _, m := range c.Messages {
		if m.Role == "user" {
			said = append(said, m.Content)
		}
	}
	return said
}

// write starts a run of a message in a session, as a chat platform has them.
func (w *world) write(r *workshop, text string) string {
	w.t.Helper()
	s, err := r.StartRun(w.t.Context(), &runnerpb.StartRunRequest{AgentId: "a1", Text: text, SessionKey: "agent:a1:console:cli:dm:cli"})
	if err != nil {
		w.t.Fatal(err)
	}
	return s.GetRunId()
}

// S1-23, interrupt: a message ends the turns before it, and their messages are part of what the model sees.
func TestQueueInterrupt(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "queue: {mode: interrupt}")
	gate := make(chan struct{})
	script := modeltest.New(t, modeltest.Step{Text: []string{"never ", "said"}, Gate: gate}, modeltest.Step{Match: "m3", Text: []string{"answer"}, Repeat: true})
	r := w.runner(script)
	runs := []string{w.write(r, "m0")}
	begun(t, r, runs[0])
	for _, text := range []string{"m1", "m2", "m3"} {
		runs = append(runs, w.write(r, text))
	}
	for i, run := range runs {
		end := w.wait(r, "a1", run)
		if last := i == 3; last != (end.GetText() == "answer") || !last && end.GetErrorCode() != runnerpb.RunError_RUN_ERROR_ABORTED {
			t.Errorf("m%d ended %v", i, end)
		}
	}
	close(gate)
	asked := script.Requests()
	if said := texts(asked[len(asked)-1].Chat); !slices.Equal(said, []string{"m0", "m1", "m2", "m3"}) {
		t.Errorf("the model was asked %q", said)
	}
}

// S1-23, debounce: messages that come quickly after each other are there together when the turn begins.
func TestQueueDebounce(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "queue: {mode: collect, debounce: 3s}")
	script := modeltest.New(t, modeltest.Step{Text: []string{"answer"}, Repeat: true})
	r := w.runner(script)
	var runs []string
	for _, text := range []string{"m0", "m1", "m2"} {
		runs = append(runs, w.write(r, text))
	}
	for i, run := range runs {
		if end := w.wait(r, "a1", run); end.GetText() != "answer" || (i > 0) != (end.GetMergedInto() == runs[0]) {
			t.Errorf("m%d ended %v", i, end)
		}
	}
	if asked := script.Requests(); len(asked) != 1 || !slices.Equal(texts(asked[0].Chat), []string{"m0", "m1", "m2"}) {
		t.Errorf("%d requests, the first %q", len(asked), texts(asked[0].Chat))
	}
}

// S1-23, cap and drop: of five messages that wait where two may, the oldest three are answered together with the
// fourth, in short or left out, and each has its fate. A person chooses another mode for the conversation.
func TestQueueCap(t *testing.T) {
	long := strings.Repeat("x", 300)
	short := func(s string) string { return s + strings.Repeat("x", 158) + "…" }
	for _, c := range []struct {
		drop, command string
		asked         [][]string // what is new in each request after the first
		into          []int      // the run that answered m1 to m5 too; -1: itself
	}{
		{"summarize", "", [][]string{{short("m1"), short("m2"), short("m3"), "m4" + long}, {"m5" + long}}, []int{-1, 1, 1, 1, -1}},
		{"old", "", [][]string{{"[3 earlier messages left out]", "m4" + long}, {"m5" + long}}, []int{-1, 1, 1, 1, -1}},
		{"old", "/queue collect", [][]string{{"[3 earlier messages left out]", "m4" + long, "m5" + long}}, []int{-1, 1, 1, 1, 1}},
	} {
		t.Run(c.drop+c.command, func(t *testing.T) {
			w := newWorld(t)
			w.agent("a1", "queue: {cap: 2, drop: "+c.drop+"}")
			gate := make(chan struct{})
			script := modeltest.New(t, modeltest.Step{Text: []string{"a", "b"}, Gate: gate}, modeltest.Step{Text: []string{"answer"}, Repeat: true})
			r := w.runner(script)
			if c.command != "" {
				if end := w.wait(r, "a1", w.write(r, c.command)); end.GetText() != "Queue: collect." {
					t.Error(end)
				}
			}
			runs := []string{w.write(r, "m0")}
			begun(t, r, runs[0])
			for i := range 5 {
				runs = append(runs, w.write(r, fmt.Sprint("m", i+1, long)))
			}
			waiting(t, r, 5)
			close(gate)
			for i, run := range runs {
				into := ""
				if i > 0 && c.into[i-1] >= 0 {
					into = runs[c.into[i-1]]
				}
				if end := w.wait(r, "a1", run); end.GetStatus() != runnerpb.RunStatus_RUN_STATUS_OK || end.GetMergedInto() != into {
					t.Errorf("m%d ended %v, want it merged into %q", i, end, into)
				}
			}
			before := []string{"m0"}
			for i, q := range script.Requests()[1:] {
				said := texts(q.Chat)
				if i >= len(c.asked) || !slices.Equal(said, slices.Concat(before, c.asked[i])) {
					t.Errorf("request %d: %q", i+1, said)
				}
				before = said
			}
		})
	}
}

// A message that is too large to be answered together with those before it gets its own turn, and the one before it is
// answered in full.
func TestQueueCapOfLargeMessage(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "queue: {cap: 2, drop: old}")
	gate := make(chan struct{})
	script := modeltest.New(t, modeltest.Step{Text: []string{"a", "b"}, Gate: gate}, modeltest.Step{Text: []string{"answer"}, Repeat: true})
	r := w.runner(script)
	runs := []string{w.write(r, "m0")}
	begun(t, r, runs[0])
	for _, text := range []string{"m1", "m2", "m3", strings.Repeat("\u5b57", 90_000), "m5"} {
		runs = append(runs, w.write(r, text))
	}
	waiting(t, r, 5)
	close(gate)
	for i, into := range []string{"", "", runs[1], runs[1], "", ""} {
		if end := w.wait(r, "a1", runs[i]); end.GetStatus() != runnerpb.RunStatus_RUN_STATUS_OK || end.GetMergedInto() != into {
			t.Errorf("m%d ended %v, want it merged into %q", i, end, into)
		}
	}
	if said := texts(script.Requests()[1].Chat); !slices.Equal(said, []string{"m0", "[2 earlier messages left out]", "m3"}) {
		t.Errorf("the model was asked %q", said)
	}
}

// S1-16: a run that waits behind another one, or for a place, ends at once; no
// model is asked for it, and the others do not notice.
func TestAbortQueued(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "run: {concurrency: 1}")
	gate := make(chan struct{})
	script := modeltest.New(t, modeltest.Step{Text: []string{"a", "b"}, Gate: gate}, modeltest.Say("c"))
	r := w.runner(script)
	first := w.say(r, "a1", "one")
	begun(t, r, first)
	behind := w.say(r, "a1", "two")
	other, err := r.StartRun(t.Context(), &runnerpb.StartRunRequest{AgentId: "a1", Text: "three", Source: "external:tui:main:dm:s:bob"})
	if err != nil {
		t.Fatal(err)
	}
	last := w.say(r, "a1", "four")
	for _, run := range []string{behind, other.GetRunId()} {
		start := time.Now()
		if _, err := r.AbortRun(t.Context(), &runnerpb.AbortRunRequest{AgentId: "a1", RunId: run}); err != nil {
			t.Fatal(err)
		}
		t.Logf("aborted after %v", time.Since(start))
		end := w.wait(r, "a1", run)
		if end.GetStatus() != runnerpb.RunStatus_RUN_STATUS_ERROR || end.GetErrorCode() != runnerpb.RunError_RUN_ERROR_ABORTED {
			t.Errorf("ended %v", end)
		}
		if got := shape(stream(t, r, run, 0)); got != "lifecycle/start lifecycle/error" {
			t.Errorf("told %s", got)
		}
	}
	close(gate)
	if end := w.wait(r, "a1", first); end.GetText() != "ab" {
		t.Errorf("the first: %v", end)
	}
	if end := w.wait(r, "a1", last); end.GetText() != "c" {
		t.Errorf("the last: %v", end)
	}
	turn, err := w.turns.GetTurn(t.Context(), &registrypb.GetTurnRequest{AgentId: "a1", Key: behind})
	if err != nil || turn.GetTurn().GetFate() != registrypb.Fate_FATE_ABORTED {
		t.Errorf("%v %v", turn, err)
	}
	if n := len(script.Requests()); n != 2 {
		t.Errorf("%d model calls", n)
	}
}

// RELIABILITY 5: one slow model call delays no other conversation.
func TestManyConversations(t *testing.T) {
	const others = 200
	w := newWorld(t)
	w.agent("a1", "run: {concurrency: 256}")
	gate := make(chan struct{})
	script := modeltest.New(t, modeltest.Step{Match: "slow", Text: []string{"at ", "last"}, Gate: gate},
		modeltest.Step{Match: "hold", Text: []string{"o", "k"}, Gate: gate, Repeat: true})
	r := w.runner(script)
	slow := w.say(r, "a1", "slow")
	begun(t, r, slow)
	start := func(n int, text string) string {
		s, err := r.StartRun(t.Context(), &runnerpb.StartRunRequest{AgentId: "a1", Text: text, Source: fmt.Sprintf("external:tui:main:dm:s:p%d", n)})
		if err != nil {
			t.Fatal(err)
		}
		return s.GetRunId()
	}
	var held, quick []string
	for n := range others { // all of them under way at the same time
		held = append(held, start(n, "hold"))
	}
	for n := 0; ; n = int(info(t, r).GetTurnsActive()) {
		if n == others+1 {
			break
		}
	}
	script.Push(modeltest.Step{Match: "quick", Text: []string{"ok"}, Repeat: true})
	began := time.Now()
	for n := range 20 {
		quick = append(quick, start(others+n, "quick"))
	}
	for _, run := range quick {
		if end := w.wait(r, "a1", run); end.GetText() != "ok" {
			t.Errorf("ended %v", end)
		}
	}
	t.Logf("20 conversations were answered in %v while %d waited for their models", time.Since(began), others+1)
	close(gate)
	for _, run := range append(held, slow) {
		if end := w.wait(r, "a1", run); end.GetStatus() != runnerpb.RunStatus_RUN_STATUS_OK {
			t.Errorf("ended %v", end)
		}
	}
}

func info(t *testing.T, r *workshop) *runnerpb.GetRunnerInfoResponse {
	t.Helper()
	i, err := r.GetRunnerInfo(t.Context(), &runnerpb.GetRunnerInfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return i
}
