package runner_test

import (
	"fmt"
	"strings"
	"testing"

	server "github.com/theclaw/agents/internal/testing/world"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
	"github.com/theclaw/agents/services/runner/internal/replay"
	"github.com/theclaw/agents/services/runner/internal/run"
)

// A8, S0-113: the digest that a message needs, because its prompt would lack others, is in
// the stream of its run, while it happens and read later from the journal, under the same
// numbers. One that follows a turn is in no stream.
func TestDigestIsStreamed(t *testing.T) {
	w, _ := play(t, modeltest.FactModel())
	w.Create(t, "a1", "context_window: 6000\nmax_output_tokens: 1000\ncompaction:\n  after_turns: 3\n  at_percent: 100")
	for n, text := range []string{"the first fact-001", strings.Repeat("word ", 1000), strings.Repeat("long", 4200), "and", "so", "on"} {
		n++
		started, err := w.Runner.StartRun(t.Context(), &runnerpb.StartRunRequest{AgentId: "a1", Source: server.Peer("bob"), Text: text})
		if err != nil {
			t.Fatal(err)
		}
		for _, when := range []string{"live", "later"} {
			var told []string
			for _, i := range watch(t, w, started.GetRunId()) {
				if i.GetStream() == runnerpb.RunStream_RUN_STREAM_COMPACTION {
					told = append(told, fmt.Sprintf("%d %s", i.GetSeq()&0xffffffff, i.GetPhase()))
				}
			}
			want := map[int]string{3: "1 start, 2 end", 4: "1 start, 2 end"}[n] // 3 alone fills the prompt of 4
			if got := strings.Join(told, ", "); got != want {
				t.Errorf("turn %d, %s: %q, want %q", n, when, got, want)
			}
		}
		journaled := 0
		for _, i := range replay.Of(w.Await(t, "a1", started.GetInboxId()).GetSteps()).Items {
			if i.Kind == run.Compaction {
				journaled++
			}
		}
		if journaled != map[int]int{3: 2, 4: 2}[n] {
			t.Errorf("turn %d: %d items in the journal", n, journaled)
		}
		settled(t, w)
	}
	if n := len(w.Events(t, "a1", bobThread, "subtype = 'decision'")); n != 3 { // one follows turn 6
		t.Errorf("%d digests, want 3", n)
	}
}
