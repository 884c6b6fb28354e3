//go:build proof

package runner_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

// reader reads a run and keeps what a person would see.
type reader struct {
	t    *testing.T
	r    *workshop
	run  string
	seq  uint64
	text strings.Builder
	ends int
	n    int
}

// read reads until stop says so, or the end of the run.
func (w *reader) read(stop func(*runnerpb.StreamRunResponse) bool) {
	s, err := w.r.StreamRun(w.t.Context(), &runnerpb.StreamRunRequest{AgentId: "a1", RunId: w.run, AfterSeq: w.seq})
	for err == nil {
		var i *runnerpb.StreamRunResponse
		if i, err = s.Recv(); err != nil {
			break
		}
		if i.GetSeq() <= w.seq {
			w.t.Errorf("seq %d after %d", i.GetSeq(), w.seq)
		}
		w.seq = i.GetSeq()
		w.n++
		switch {
		case i.GetPhase() == "restart":
			w.t.Error("a restart, and nothing was made anew")
		case i.GetStream() == runnerpb.RunStream_RUN_STREAM_ASSISTANT:
			w.text.WriteString(i.GetText())
		case i.GetStream() == runnerpb.RunStream_RUN_STREAM_LIFECYCLE && i.GetPhase() != "start":
			w.ends++
			return
		}
		if stop(i) {
			return
		}
	}
	w.t.Errorf("read %s: %v", w.run, err)
}

func never(*runnerpb.StreamRunResponse) bool { return false }

// S1-46, S1-02: the first piece is here while the provider is still sending, and
// the run was accepted before that.
func TestFirstPiece(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "reasoning_default: stream")
	gate := make(chan struct{})
	r := w.runner(modeltest.New(t, modeltest.Step{Reasoning: []string{"hm"}, Text: []string{"fir", "st"}, Gate: gate}))
	start := time.Now()
	run := w.say(r, "a1", "hi")
	t.Logf("accepted after %v, the model has not answered", time.Since(start))
	one := &reader{t: t, r: r, run: run}
	one.read(func(i *runnerpb.StreamRunResponse) bool {
		return i.GetStream() == runnerpb.RunStream_RUN_STREAM_REASONING
	})
	close(gate)
	one.read(never)
	if one.text.String() != "first" || one.ends != 1 {
		t.Errorf("%q, %d ends", one.text.String(), one.ends)
	}
	// S1-13: the end says what it cost and what came of it.
	items := stream(t, r, run, 0)
	last := items[len(items)-1]
	if p := last.GetPayloads(); len(p) != 2 || p[0].GetText() != "hm" || p[1].GetText() != "first" {
		t.Errorf("payloads %v", p)
	}
}

// 10,000 pieces to 20 watchers, of whom one sleeps: the others are not held up,
// and the sleeper gets the rest, from memory and from the journal, with no gap and
// nothing twice.
func TestSleepingWatcher(t *testing.T) {
	const pieces, watchers = 10_000, 20
	w := newWorld(t)
	w.agent("a1", "")
	gate, hold := make(chan struct{}), make(chan struct{})
	var text []string
	for n := range pieces {
		text = append(text, fmt.Sprintf("%-79d ", n))
	}
	whole := strings.Join(text, "")
	r := w.runner(modeltest.New(t,
		modeltest.Step{Text: text, Gate: gate, ToolCalls: []modeltest.ToolCall{{ID: "c1", Name: "bash_exec", Arguments: []string{`{"command":"true"}`}}}},
		modeltest.Step{Text: []string{"do", "ne"}, Gate: hold}))
	run := w.say(r, "a1", "hi")
	sleeper, err := r.StreamRun(t.Context(), &runnerpb.StreamRunRequest{AgentId: "a1", RunId: run})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sleeper.Recv(); err != nil {
		t.Fatal(err)
	}
	all := make([]*reader, watchers-1)
	var g sync.WaitGroup
	start := time.Now()
	for n := range all {
		all[n] = &reader{t: t, r: r, run: run}
		g.Go(func() {
			all[n].read(func(i *runnerpb.StreamRunResponse) bool { return i.GetText() == "do" })
		})
	}
	close(gate)
	g.Wait() // all have read all pieces; the sleeper, and the model, still wait
	t.Logf("%d watchers read %d items each in %v", len(all), all[0].n, time.Since(start))
	var got strings.Builder
	seq, items := uint64(1), 0
	for got.Len() < len(whole)/10 { // it wakes up for a while, and its line breaks
		i, err := sleeper.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if i.GetSeq() <= seq {
			t.Errorf("seq %d after %d", i.GetSeq(), seq)
		}
		seq = i.GetSeq()
		got.WriteString(i.GetText())
	}
	late := &reader{t: t, r: r, run: run, seq: seq}
	late.text.WriteString(got.String())
	fresh := &reader{t: t, r: r, run: run} // memory has dropped what the journal has
	fresh.read(func(i *runnerpb.StreamRunResponse) bool { return i.GetText() == "do" })
	if fresh.n >= pieces {
		t.Errorf("%d items: nothing came from the journal", fresh.n)
	}
	close(hold)
	late.read(never)
	for n, one := range append(all, late, fresh) {
		if one != late {
			one.read(never)
		}
		if one.text.String() != whole+"done" || one.ends != 1 {
			t.Errorf("watcher %d has %d bytes of %d, %d ends", n, one.text.Len(), len(whole)+4, one.ends)
		}
		items += one.n
	}
	t.Logf("%d items to all; the sleeper resumed with %d", items, late.n)
}

// S1-50, S1-51: what a tool prints is seen while it runs; a picture and five
// megabytes are not passed on.
func TestToolOutput(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "")
	r := w.runner(nil)
	run := w.say(r, "a1", "run: echo one; until [ -e go ]; do sleep 0.02; done; echo two; "+
		"printf 'data:image/png;base64,'; head -c 4000 /dev/zero | tr '\\0' A; echo; head -c 5000000 /dev/zero | tr '\\0' ' '")
	var phases []string
	var end string
	bytes := 0
	w1 := &reader{t: t, r: r, run: run}
	w1.read(func(i *runnerpb.StreamRunResponse) bool {
		if i.GetStream() == runnerpb.RunStream_RUN_STREAM_TOOL {
			bytes += len(i.GetText())
			if len(phases) == 0 || phases[len(phases)-1] != i.GetPhase() {
				phases = append(phases, i.GetPhase())
			}
			if i.GetText() == "one\n" {
				if err := os.WriteFile(filepath.Join(w.home.Path(), "agents/a1/workdir/go"), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if i.GetPhase() == "result" {
				end = i.GetText()
			}
		}
		return false
	})
	if got := strings.Join(phases, " "); got != "start update result" || bytes > 1<<20 {
		t.Errorf("%s, %d bytes", got, bytes)
	}
	if !strings.Contains(end, "one\\ntwo\\n[picture left out, 40") || !strings.Contains(end, `"truncated":true`) || strings.Contains(end, "AAAA") {
		t.Errorf("the result: %.200s", end)
	}
	for _, e := range w.events("a1", console) {
		if strings.Contains(e.GetContent(), "AAAA") || len(e.GetContent()) > 1<<20 {
			t.Errorf("event %d of %d bytes holds the picture", e.GetId(), len(e.GetContent()))
		}
	}
}

// S1-12, S1-61: a run that takes too long ends with a code of its own, its program
// with it.
func TestTimeout(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "run: {timeout: 1s}")
	r := w.runner(nil)
	end := w.wait(r, "a1", w.say(r, "a1", "run: sleep 600"))
	if end.GetErrorCode() != runnerpb.RunError_RUN_ERROR_TIMEOUT || len(end.GetPayloads()) != 1 {
		t.Errorf("ended %v", end)
	}
}

// S1-54, S1-56: silence is not heard; where a tool failed and nothing is said, one
// reply says so; where none did, the answer is no answer.
func TestNothingToSay(t *testing.T) {
	tool := func(command string) modeltest.Step {
		return modeltest.Step{ToolCalls: []modeltest.ToolCall{{ID: "c1", Name: "bash_exec", Arguments: []string{`{"command":"` + command + `"}`}}}}
	}
	for _, c := range []struct {
		name   string
		script []modeltest.Step
		fate   registrypb.Fate
		text   string // in the reply or in the error
	}{
		{"silence", []modeltest.Step{modeltest.Say("NO", "_REP", "LY")}, registrypb.Fate_FATE_SILENT, ""},
		{"silence after a failure", []modeltest.Step{tool("exit 3"), modeltest.Say("NO_REPLY")}, registrypb.Fate_FATE_SILENT, ""},
		{"the word in a text", []modeltest.Step{modeltest.Say("Done.\nNO_", "REPLY")}, registrypb.Fate_FATE_REPLIED, "Done.\n"},
		{"nothing after a failure", []modeltest.Step{tool("exit 3"), {}}, registrypb.Fate_FATE_REPLIED, "bash_exec failed, it ended with exit code 3"},
		{"nothing after a success", []modeltest.Step{tool("true"), {}, {}, {}}, registrypb.Fate_FATE_DEAD, "the model answered nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.agent("a1", "")
			r := w.runner(modeltest.New(t, c.script...))
			run := w.say(r, "a1", "hi")
			end := w.wait(r, "a1", run)
			turn, err := w.turns.GetTurn(t.Context(), &registrypb.GetTurnRequest{AgentId: "a1", Key: run})
			if err != nil || turn.GetTurn().GetFate() != c.fate || !strings.Contains(end.GetText()+end.GetError(), c.text) {
				t.Errorf("ended %v: %v %v", turn.GetTurn().GetFate(), end, err)
			}
			var said strings.Builder
			ends := 0
			for _, i := range stream(t, r, run, 0) {
				if i.GetStream() == runnerpb.RunStream_RUN_STREAM_ASSISTANT {
					said.WriteString(i.GetText())
				} else if i.GetStream() == runnerpb.RunStream_RUN_STREAM_LIFECYCLE && i.GetPhase() != "start" {
					ends++
				}
			}
			if ends != 1 || said.String() != end.GetText() {
				t.Errorf("heard %q and %d ends, want %q", said.String(), ends, end.GetText())
			}
		})
	}
}
