package runner_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

const (
	bobsSource = "external:telegram:main:dm:bob:bob"
	bobsPath   = "threads/peers/main-bob"
)

// owned makes bob an owner of the home.
func (w *world) owned() {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.home.Path(), "theclaw.yaml"), []byte("owners: ['telegram:bob']\n"), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// sayAs starts a run of a message from a source.
func (w *world) sayAs(r *workshop, source, text string) string {
	w.t.Helper()
	started, err := r.StartRun(w.t.Context(), &runnerpb.StartRunRequest{AgentId: "a1", Text: text, Source: source})
	if err != nil {
		w.t.Fatal(err)
	}
	return started.GetRunId()
}

// lastReply is the text of the last event of a conversation, and where the answer of the model begins in it.
func (w *world) lastReply(thread string) (text string, from int) {
	w.t.Helper()
	list := w.events("a1", thread)
	var c struct {
		Text       string `json:"text"`
		AnswerFrom int    `json:"answer_from"`
	}
	if last := list[len(list)-1]; last.GetSource() != "self" || json.Unmarshal([]byte(last.GetContent()), &c) != nil {
		w.t.Fatalf("the last event is %v", last)
	}
	return c.Text, c.AnswerFrom
}

// thoughts are the reasoning of a stream.
func thoughts(items []*runnerpb.StreamRunResponse) (text string) {
	for _, i := range items {
		if i.GetStream() == runnerpb.RunStream_RUN_STREAM_REASONING {
			text += i.GetText()
		}
	}
	return text
}

// S1-48, S1-53: what a model thinks between tags is shown nowhere, to clients that watch, or before the reply; live, from
// the journal, and by another runner it is the same, and no later prompt has it.
func TestReasoningModes(t *testing.T) {
	const think = "<think>zebras\n\nthen `x`</think>"
	for mode, c := range map[string]struct{ streamed, before string }{
		"off":    {},
		"stream": {streamed: "zebras\n\nthen `x`"},
		"block":  {before: "> Thinking: zebras\n> \n> then `x`\n\n"},
	} {
		t.Run(mode, func(t *testing.T) {
			w := newWorld(t)
			w.owned()
			w.agent("a1", "reasoning_default: "+mode)
			script := modeltest.New(t, modeltest.Say(think, "an", "swer"), modeltest.Say(think+"again"), modeltest.Say("third"))
			r := w.runner(script)
			id := w.sayAs(r, bobsSource, "hi")
			live := stream(t, r, id, 0)
			end := w.wait(r, "a1", id)
			payload := ""
			for _, p := range end.GetPayloads() {
				if p.GetKind() == runnerpb.PayloadKind_PAYLOAD_KIND_REASONING {
					payload += p.GetText()
				}
			}
			if got := thoughts(live); got != c.streamed || payload != c.streamed || end.GetText() != "answer" {
				t.Errorf("streamed %q, payload %q, want %q; the text is %q", got, payload, c.streamed, end.GetText())
			}
			if text, from := w.lastReply(bobsPath); text != c.before+"answer" || from != len(c.before) {
				t.Errorf("the reply is %q, the answer from %d", text, from)
			}
			r.stop()
			r = w.runner(script)
			if got := thoughts(stream(t, r, id, 0)); got != c.streamed {
				t.Errorf("from the journal: %q", got)
			}
			// A guest has no block.
			guest := "external:telegram:main:dm:eve:eve"
			w.wait(r, "a1", w.sayAs(r, guest, "hi"))
			if text, from := w.lastReply("threads/peers/main-eve"); text != "again" || from != 0 {
				t.Errorf("a guest reads %q", text)
			}
			w.wait(r, "a1", w.sayAs(r, bobsSource, "next"))
			requests := script.Requests()
			if body := string(requests[len(requests)-1].Body); strings.Contains(body, "zebras") || !strings.Contains(body, `"answer"`) {
				t.Errorf("the next prompt: %s", body)
			}
		})
	}
}

// S1-05, S1-48: a run whose owner asks for thinking shows it to those who watch, whatever the setting is.
func TestAskedThinkingIsShown(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "")
	script := modeltest.New(t, modeltest.Say("<think>hm</think>1"), modeltest.Say("<think>hm</think>2"), modeltest.Say("<think>hm</think>3"))
	r := w.runner(script)
	for _, c := range []struct{ thinking, want string }{{"", ""}, {"adaptive", "hm"}, {"off", ""}} {
		run, err := r.StartRun(t.Context(), &runnerpb.StartRunRequest{AgentId: "a1", Text: "hi", Thinking: c.thinking})
		if err != nil {
			t.Fatal(err)
		}
		if got := thoughts(stream(t, r, run.GetRunId(), 0)); got != c.want {
			t.Errorf("thinking %q: %q, want %q", c.thinking, got, c.want)
		}
	}
}

// S4-40, S1-53: a turn that goes on in another runner has the calls of the first one before its reply, as its journal
// says, and the next prompt has none of them.
func TestVerboseOutlivesTheRunner(t *testing.T) {
	w := newWorld(t)
	w.owned()
	w.agent("a1", "")
	gate := make(chan struct{})
	t.Cleanup(func() { close(gate) })
	script := modeltest.New(t,
		modeltest.Step{ToolCalls: []modeltest.ToolCall{{ID: "c1", Name: "bash_exec", Arguments: []string{`{"command":"echo from-the-tool"}`}}}},
		modeltest.Step{Text: []string{"never ", "finished"}, Gate: gate},
		modeltest.Say("done"), modeltest.Say("next"))
	r := w.runner(script)
	if end := w.wait(r, "a1", w.say(r, "a1", "/verbose full")); end.GetText() != "Verbose: full." {
		t.Errorf("of the console: %v", end)
	}
	key := "agent:a1:telegram:main:dm:bob"
	if _, err := registrypb.NewSessionServiceClient(w.conn).PatchSession(t.Context(), &registrypb.PatchSessionRequest{Key: key, Verbose: new("full"), Create: true}); err != nil {
		t.Fatal(err)
	}
	id := w.sayAs(r, bobsSource, "hi")
	w.hears(r, "a1", id, "never ")
	r.stop()
	r = w.runner(script)
	if end := w.wait(r, "a1", id); end.GetText() != "done" {
		t.Fatalf("ended %v", end)
	}
	account, err := w.turns.GetTurn(t.Context(), &registrypb.GetTurnRequest{AgentId: "a1", Key: id})
	if err != nil {
		t.Fatal(err)
	}
	took := ""
	for _, st := range account.GetTurn().GetSteps() {
		if st.GetKind() == registrypb.StepKind_STEP_KIND_TOOL {
			took = st.GetDuration().AsDuration().Round(1e6).String()
		}
	}
	want := "`exec echo from-the-tool`: ok in " + took + "\n```\nfrom-the-tool\n```\n\n"
	if text, from := w.lastReply(bobsPath); text != want+"done" || from != len(want) || took == "" {
		t.Errorf("the reply is %q from %d, want %q", text, from, want+"done")
	}
	w.wait(r, "a1", w.sayAs(r, bobsSource, "and?"))
	requests := script.Requests()
	if body := string(requests[len(requests)-1].Body); strings.Contains(body, "from-the-tool") || !strings.Contains(body, `"done"`) {
		t.Errorf("the next prompt: %s", body)
	}
}
