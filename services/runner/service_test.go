package runner_test

import (
	"strings"
	"testing"

	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

const console = "threads/peers/cli-cli"

// The whole way: message, tool, reply (S0-75, S0-76, S0-78, S0-79, S1-01).
func TestMessageToolReply(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "")
	r := w.runner(nil)
	end := w.wait(r, "a1", w.say(r, "a1", "run: echo $TOOL_IDEMPOTENCY_KEY $XAR_AGENT_ID $XAR_CONV_ID $THECLAW_FENCE"))
	if end.GetStatus() != runnerpb.RunStatus_RUN_STATUS_OK || !strings.Contains(end.GetText(), ":tool:1:1 a1 "+console+" agent/a1=1") {
		t.Fatalf("ended %v", end)
	}
	var kinds []string
	for _, e := range w.events("a1", console) {
		kinds = append(kinds, e.GetType()+"/"+e.GetSubtype()+"/"+strings.SplitN(e.GetSource(), ":", 2)[0])
	}
	if got := strings.Join(kinds, " "); got != "message//external record/toolcall/self message//self" {
		t.Errorf("thread holds %s", got)
	}
}
