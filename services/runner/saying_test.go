package runner_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	server "github.com/theclaw/agents/internal/testing/world"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

func tell(id, text string) modeltest.ToolCall {
	return modeltest.ToolCall{ID: id, Name: "message_send", Arguments: []string{`{"text":"` + text + `"}`}}
}

// arrived waits until as many messages have reached a sink, and for the end of the
// delivery of whatever the agent said.
func arrived(t *testing.T, w *server.World, s *server.Sink, agent string, n int) (texts []string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); <-time.After(5 * time.Millisecond) {
		r, err := w.Agents.GetAgentStatus(t.Context(), &registrypb.GetAgentStatusRequest{AgentId: agent})
		if err != nil {
			t.Fatal(err)
		}
		texts = nil
		for _, a := range s.Arrivals(agent) {
			texts = append(texts, a.Text)
		}
		if len(texts) >= n && r.GetOutboundPending() == 0 {
			return texts
		}
	}
	t.Fatalf("%d messages arrived, want %d: %q", len(texts), n, texts)
	return nil
}

// S1-47: with text_end each block of text is a message of its own, at once; with
// message_end they are one at the end; off sends the last answer.
func TestBlocks(t *testing.T) {
	for mode, want := range map[string][]string{
		"off": {"It is 7."}, "text_end": {"Let me look.", "It is 7."}, "message_end": {"Let me look.\n\nIt is 7."},
	} {
		t.Run(mode, func(t *testing.T) {
			gate := make(chan struct{})
			w, script := play(t,
				modeltest.Step{Text: []string{"Let me ", "look."}, ToolCalls: []modeltest.ToolCall{bash("c1", "echo 7")}},
				modeltest.Step{Text: []string{"NO_REPLY"}, ToolCalls: []modeltest.ToolCall{bash("c2", "echo 8")}},
				modeltest.Step{Text: []string{"It is 7."}, Gate: gate},
				modeltest.Say("again"))
			sink := server.NewSink(t)
			w.Create(t, "a1", sink.Config()+"\nreply: {break: "+mode+"}")
			id, err := w.Push(t.Context(), "a1", server.Peer("bob"), "what is it?", "")
			if err != nil {
				t.Fatal(err)
			}
			if mode == "text_end" {
				arrived(t, w, sink, "a1", 1) // while the model is still at work
			}
			close(gate)
			turn := w.Await(t, "a1", id)
			if got := arrived(t, w, sink, "a1", len(want)); !slices.Equal(got, want) {
				t.Errorf("arrived %q, want %q", got, want)
			}
			if turn.GetFate() != replied || w.Reply(t, turn) != want[len(want)-1] {
				t.Errorf("%v with %q", turn.GetFate(), w.Reply(t, turn))
			}
			end, err := w.Runner.WaitRun(t.Context(), &runnerpb.WaitRunRequest{AgentId: "a1", RunId: turn.GetKey()})
			if err != nil || end.GetText() != want[len(want)-1] {
				t.Errorf("told %v, %v", end, err)
			}
			var texts []string
			for _, p := range end.GetPayloads() {
				if p.GetKind() == runnerpb.PayloadKind_PAYLOAD_KIND_TEXT {
					texts = append(texts, p.GetText())
				}
			}
			if !slices.Equal(texts, want) {
				t.Errorf("payloads %q, want %q", texts, want)
			}
			w.Await(t, "a1", must(w.Push(t.Context(), "a1", server.Peer("bob"), "and now?", "")))
			last := script.Requests()[3].Chat
			var own []string // what the model reads of its own words
			for _, m := range last.Messages {
				if m.Role == "assistant" {
					own = append(own, m.Content)
				}
			}
			if got := strings.Join(own, "|"); got != strings.Join(want, "|") {
				t.Errorf("the next turn reads %q", got)
			}
		})
	}
}

func must(id int64, err error) int64 {
	if err != nil {
		panic(err)
	}
	return id
}

// S1-52, S1-55, S1-56: the model sends messages while it works; what it says last is
// sent unless a tool has sent it before, white space aside.
func TestMessageTool(t *testing.T) {
	for name, c := range map[string]struct {
		last string
		want []string
		fate registrypb.Fate
	}{
		"the same again": {" done\n ok ", []string{"begun", "done ok"}, registrypb.Fate_FATE_SILENT},
		"something else": {"done too", []string{"begun", "done ok", "done too"}, replied},
		"nothing":        {"", []string{"begun", "done ok"}, registrypb.Fate_FATE_SILENT},
		"silence":        {"NO_REPLY", []string{"begun", "done ok"}, registrypb.Fate_FATE_SILENT},
	} {
		t.Run(name, func(t *testing.T) {
			w, script := play(t,
				modeltest.Step{ToolCalls: []modeltest.ToolCall{tell("c1", "begun"), bash("c2", "exit 3"), tell("c3", " ")}},
				modeltest.Step{ToolCalls: []modeltest.ToolCall{tell("c4", "done ok")}},
				modeltest.Say(c.last))
			sink := server.NewSink(t)
			w.Create(t, "a1", sink.Config()+"\nreply: {message_tool: true}")
			turn := w.Say(t, "a1", server.Peer("bob"), "work")
			if got := arrived(t, w, sink, "a1", len(c.want)); !slices.Equal(got, c.want) {
				t.Errorf("arrived %q, want %q", got, c.want)
			}
			if turn.GetFate() != c.fate {
				t.Errorf("fate %v, want %v", turn.GetFate(), c.fate)
			}
			end, err := w.Runner.WaitRun(t.Context(), &runnerpb.WaitRunRequest{AgentId: "a1", RunId: turn.GetKey()})
			if err != nil || end.GetText() != c.want[len(c.want)-1] {
				t.Errorf("told %v, %v", end, err)
			}
			r := script.Requests()
			if tools := r[0].Chat.Tools; len(tools) != 2 || tools[1].Function.Name != "message_send" {
				t.Errorf("offered %v", tools)
			}
			results := map[string]string{}
			for _, m := range r[2].Chat.Messages {
				if m.Role == "tool" {
					results[m.ToolCallID] = m.Content
				}
			}
			if results["c1"] != `{"sent":true}` || !strings.Contains(results["c3"], "nothing was sent") {
				t.Errorf("the model was told %v", results)
			}
		})
	}
}

// Without the setting the tool is not there, whatever the model believes.
func TestMessageToolIsOff(t *testing.T) {
	w, script := play(t, modeltest.Step{ToolCalls: []modeltest.ToolCall{tell("c1", "hi")}}, modeltest.Say("done"))
	w.Create(t, "a1", "")
	turn := w.Say(t, "a1", server.Peer("bob"), "work")
	want(t, w, turn, replied, "done")
	if got := kinds(t, w, turn); !slices.Equal(got, []string{"external message", "self record/toolcall", "self message"}) {
		t.Errorf("thread holds %q", got)
	}
	if r := script.Requests(); len(r[0].Chat.Tools) != 1 {
		t.Errorf("offered %v", r[0].Chat.Tools)
	}
}
