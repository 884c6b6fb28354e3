package turn

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	pb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/replay"
	"github.com/theclaw/agents/services/runner/internal/run"
	"github.com/theclaw/agents/services/runner/internal/step"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/toolset/toolsettest"
)

// shown is what a person would see of items: a restart takes back what was said
// since the last tool.
func shown(b string, items []run.Item) string {
	for _, i := range items {
		switch {
		case i.Phase == run.Restart:
			b = b[:strings.LastIndexByte(b, '|')+1]
		case i.Kind == run.Tool && i.Phase == run.Done:
			b += "{" + i.CallID + "}|"
		case i.Phase == run.Start && i.Kind == run.Lifecycle:
			b += "|"
		case i.Phase == run.Delta:
			b += i.Text
		}
	}
	return b
}

// intent is the row of a call before it is made.
func intent(seq int32, key string, c model.ToolCall) *pb.Step {
	return &pb.Step{
		Seq: seq, Kind: pb.StepKind_STEP_KIND_TOOL, Key: key, Class: pb.ToolClass_TOOL_CLASS_EFFECT,
		State: pb.StepState_STEP_STATE_INTENT, Name: c.Name, CallId: c.ID, Arguments: string(c.Arguments),
	}
}

// S1-15, S1-48: whatever a watcher has got, from whichever process and whichever try, it
// gets the rest from the journal: no gap, and nothing twice.
func TestJournalTellsWhatWasHeard(t *testing.T) {
	for seed := range uint64(200) {
		chance := rand.New(rand.NewPCG(seed, 1))
		hides := seed%4 == 0 // what the model thinks
		var journal []*pb.Step
		type reader struct {
			seq  uint64
			text string
		}
		var readers []reader
		want := "|"
		gen := uint64(1)
		var hub *run.Hub
		var s *run.Stream
		var v *publisher
		process := func() { // a new one, or the first
			hub = &run.Hub{}
			s = hub.Open("k", gen)
			v = &publisher{to: s, hides: hides}
			v.Begin(journal)
			gen++
		}
		look := func() { // everybody reads on; somebody new comes
			readers = append(readers, reader{})
			for n := range readers {
				r := &readers[n]
				if chance.IntN(2) == 0 {
					continue
				}
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				items, err := s.Next(ctx, r.seq)
				if err != nil {
					continue // nothing new
				}
				items = items[:1+chance.IntN(len(items))]
				r.text, r.seq = shown(r.text, items), items[len(items)-1].Seq
			}
		}
		process()
		for round := 1; round <= 4; round++ {
			for tries := chance.IntN(3); tries >= 0; tries-- {
				if chance.IntN(3) == 0 {
					process()
				}
				v.Call("", nil)
				var resp model.Response
				for p := range chance.IntN(6) {
					d := model.Delta{Text: fmt.Sprintf("<%d.%d.%d>", round, tries, p)}
					if chance.IntN(3) == 0 {
						d = model.Delta{Reasoning: fmt.Sprintf("(%d)", p)}
					}
					resp.Text += d.Text
					resp.Reasoning += d.Reasoning
					v.Delta(d)
					if hides {
						d.Reasoning = ""
					}
					if tries == 0 {
						want += d.Text + d.Reasoning
					}
					look()
				}
				if tries > 0 {
					continue
				}
				_, result, _ := step.NewAnswer(resp, v.EndAnswer())
				row := step.Model(int32(len(journal)+1), round, "p", model.Request{}, resp, result)
				journal = append(journal, row)
				v.to.Settle()
			}
			tools := 1 + chance.IntN(3)
			if round == 4 {
				tools = 0 // the answer that ends the run
			}
			for n := 1; n <= tools; n++ {
				c := model.ToolCall{ID: fmt.Sprintf("%d.%d", round, n), Name: "bash_exec", Arguments: []byte("{}")}
				row := intent(int32(len(journal)+1), step.ToolKey(round, n), c)
				journal = append(journal, row)
				if chance.IntN(4) == 0 {
					process()
				}
				v.ToolStart(toolset.Shown{N: n, Step: row})
				v.Progress(toolset.Shown{N: n, Step: row})("printed")
				v.Prompt(toolset.Shown{N: n, Step: row}, toolset.Prompt{Kind: toolset.PromptQuestion, ID: "q", Text: "which?"})()
				look()
				journal[len(journal)-1] = step.WithResult(row, pb.StepState_STEP_STATE_DONE, []byte("{}"))
				v.ToolEnd(toolset.Shown{N: n, Step: journal[len(journal)-1]})
				want += "{" + c.ID + "}|"
				look()
			}
		}
		tale := replay.Of(journal)
		if !tale.Exact {
			t.Fatalf("seed %d: not exact", seed)
		}
		for _, r := range append(readers, reader{}) {
			if got := shown(r.text, tale.After(r.seq)); got != want {
				t.Fatalf("seed %d: a reader at %d.%d got\n%s, want\n%s", seed, r.seq>>32, r.seq&(1<<32-1), got, want)
			}
		}
	}
}

// S1-50: what a tool printed is live only. Who stopped reading at any of it gets the
// end from the journal, under the number at which those who stayed have seen it.
func TestUpdatesAreLive(t *testing.T) {
	s := (&run.Hub{}).Open("k", 1)
	v := &publisher{to: s}
	v.Begin(nil)
	v.Call("", nil)
	v.Delta(model.Delta{Text: "let me look"})
	c := model.ToolCall{ID: "c1", Name: "bash_exec", Arguments: []byte("{}")}
	resp := model.Response{Text: "let me look", ToolCalls: []model.ToolCall{c}}
	_, result, _ := step.NewAnswer(resp, v.EndAnswer())
	row := intent(2, step.ToolKey(1, 1), c)
	v.to.Settle()
	v.ToolStart(toolset.Shown{N: 1, Step: row})
	print := v.Progress(toolset.Shown{N: 1, Step: row})
	print("one")
	print("two")
	row = step.WithResult(row, pb.StepState_STEP_STATE_DONE, []byte(`{"stdout":"onetwo"}`))
	v.ToolEnd(toolset.Shown{N: 1, Step: row})
	live, err := s.Next(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	tale := replay.Of([]*pb.Step{step.Model(1, 1, "p", model.Request{}, resp, result), row})
	if updates := continues(t, live, tale); updates != 2 {
		t.Errorf("%d updates", updates)
	}
}

// S1-15, S1-24: what runs together is published as the journal tells it: who stopped reading
// anywhere gets the rest from there.
func TestGroupsAreAsJournaled(t *testing.T) {
	s := (&run.Hub{}).Open("k", 1)
	v := &publisher{to: s}
	v.Begin(nil)
	v.Call("", nil)
	v.Delta(model.Delta{Text: "let me look"})
	resp := model.Response{Text: "let me look"}
	for n := range 12 {
		resp.ToolCalls = append(resp.ToolCalls, model.ToolCall{ID: fmt.Sprint("c", n+1), Name: "look", Arguments: []byte("{}")})
	}
	_, result, _ := step.NewAnswer(resp, v.EndAnswer())
	calls, j := toolsettest.Calls(t, &pb.TurnConfig{}, look{})
	calls.Watcher, calls.Logf = v, func(string, string, ...any) {}
	key := func(n int) string { return step.ToolKey(1, n) }
	rows := []*pb.Step{step.Model(j.NextSeq(), 1, "p", model.Request{}, resp, result)}
	if err := j.Write(t.Context(), nil, append(rows, calls.Intents(key, resp.ToolCalls)...)...); err != nil {
		t.Fatal(err)
	}
	v.to.Settle()
	if _, err := calls.Use(t.Context(), key, resp.ToolCalls, ""); err != nil {
		t.Fatal(err)
	}
	for n := range resp.ToolCalls {
		rows = append(rows, j.Tool(key(n+1)))
	}
	live, err := s.Next(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if updates := continues(t, live, replay.Of(rows)); updates == 0 || j.Writes != 2 {
		t.Errorf("%d updates, %d writes", updates, j.Writes)
	}
}

// look is a tool that changes nothing, and prints.
type look struct{}

func (look) Spec() toolset.Spec {
	return toolset.Spec{Name: "look", Description: "Looks.", Schema: []byte(`{"type":"object"}`)}
}
func (look) Class(toolset.Call) toolset.Class { return toolset.Read }
func (look) Run(_ context.Context, c toolset.Call) toolset.Result {
	if c.Progress != nil {
		c.Progress("printed")
	}
	return toolset.Result{Text: "seen"}
}

// continues checks that a reader who stopped after any of the items gets the others from the
// journal, under the same numbers. It counts the updates, which the journal does not have.
func continues(t *testing.T, live []run.Item, tale replay.Sequence) (updates int) {
	t.Helper()
	for n, i := range live {
		if i.Phase == run.Update {
			updates++
		}
		var want []run.Item // what is to come and is not an update
		for _, later := range live[n+1:] {
			if later.Phase != run.Update && later.Phase != run.Restart {
				want = append(want, later)
			}
		}
		var got []run.Item
		for _, later := range tale.After(i.Seq) {
			if later.Phase != run.Restart {
				got = append(got, later)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("after %d (%s): %s", i.Seq, i.Phase, diff)
		}
	}
	return updates
}
