package runner_test

import (
	"strings"
	"testing"

	server "github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

// F1: an answer with bytes that are not UTF-8 is journaled and sent after one call, and the
// agent's log says what was changed.
func TestAnswerNotUTF8(t *testing.T) {
	w, script := play(t, modeltest.Step{Text: []string{"a%FF%b"}, Replace: []string{"%FF%", "\xff"}})
	w.Create(t, "a1", "")
	turn := w.Say(t, "a1", server.Peer("bob"), "hi")
	want(t, w, turn, replied, "a\uFFFDb")
	if n := len(script.Requests()); n != 1 || turn.GetErrorAttempts() != 0 || turn.GetCrashAttempts() > 1 {
		t.Errorf("%d calls, %v", n, turn)
	}
	if log := agentLog(t, w, "a1"); !strings.Contains(log, "model: model:1: the answer's text: bytes that are not UTF-8 were replaced by U+FFFD in 1 places") {
		t.Errorf("agent.log says nothing of it:\n%s", log)
	}
}

// F9: a call that cannot be made is answered with what is wrong, the other calls of the
// answer are made, and nothing is paid twice.
func TestRefusedCall(t *testing.T) {
	cut := modeltest.ToolCall{ID: "c1", Name: "bash_exec", Arguments: []string{`{"comm%FF%`}}
	w, script := play(t, modeltest.Step{ToolCalls: []modeltest.ToolCall{cut, bash("c2", "echo made")}, Replace: []string{"%FF%", "\xff"}}, modeltest.Say("done"))
	w.Create(t, "a1", "")
	turn := w.Say(t, "a1", server.Peer("bob"), "hi")
	want(t, w, turn, replied, "done")
	requests := script.Requests()
	if len(requests) != 2 || turn.GetErrorAttempts() != 0 {
		t.Fatalf("%d calls, %v", len(requests), turn)
	}
	var results []string
	for _, m := range requests[1].Chat.Messages {
		if m.Role == "tool" {
			results = append(results, m.ToolCallID+" "+m.Content)
		}
	}
	if len(results) != 2 || !strings.HasPrefix(results[0], `c1 {"note":"arguments: bytes that are not UTF-8`) || !strings.Contains(results[0], "not valid JSON") || !strings.Contains(results[1], `made\n`) {
		t.Errorf("results %q", results)
	}
	if sent := string(requests[1].Body); !strings.Contains(sent, "{\\\"_raw\\\":\\\"{\\\\\\\"comm\uFFFD\\\"}") {
		t.Errorf("sent back %s", sent)
	}
	if log := agentLog(t, w, "a1"); !strings.Contains(log, "tool call 1 (bash_exec): the arguments are not valid JSON") {
		t.Errorf("agent.log says nothing of it:\n%s", log)
	}
}

// F19: what hit the output limit says so; where nothing else is there, the same call is not
// paid again.
func TestOutputLimit(t *testing.T) {
	w, script := play(t, modeltest.Step{Text: []string{"half an ans"}, Finish: "length"}, modeltest.Step{Reasoning: []string{"hm"}, Finish: "length"})
	w.Create(t, "a1", "")
	want(t, w, w.Say(t, "a1", server.Peer("bob"), "hi"), replied, "half an ans\n\n[This answer is incomplete: the model reached its output limit.]")
	turn := w.Say(t, "a1", server.Peer("bob"), "think")
	if n := len(script.Requests()); turn.GetFate() != dead || n != 2 || !strings.Contains(turn.GetError(), "output limit before the first word") {
		t.Errorf("%d calls, %v", n, turn)
	}
}
