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

// A8, S0-113: the digest of a tenth turn is in the stream of its run, while it happens
// and read later from the journal, under the same numbers.
func TestDigestIsStreamed(t *testing.T) {
	w, _ := play(t, modeltest.FactModel())
	w.Create(t, "a1", "compaction:\n  after_turns: 2")
	for n := 1; n <= 2; n++ {
		started, err := w.Runner.StartRun(t.Context(), &runnerpb.StartRunRequest{AgentId: "a1", Source: server.Peer("bob"), Text: fmt.Sprintf("turn %d with fact-%03d", n, n)})
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
			want := map[int]string{1: "", 2: "1 start, 2 end"}[n]
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
		if journaled != 2*(n-1) {
			t.Errorf("turn %d: %d items in the journal", n, journaled)
		}
	}
}
