package registry_test

import (
	"testing"

	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// P1: what a message has used counts against the quota of its agent also when each of its claims ends with the process, so
// that the next one finds its attempts used up.
func TestExhaustedTurnCounts(t *testing.T) { backendtest.Each(t, testExhaustedTurnCounts) }

func testExhaustedTurnCounts(t *testing.T, o backendtest.Options) {
	c := converse(t, o)
	c.Config("a1", "quota.tokens_per_day", "1000")
	r, err := c.Turns.RecordStep(c.ctx, &registryv1.RecordStepRequest{AgentId: "a1", ThreadId: c.turn.GetThreadId(), Key: c.turn.GetKey(), Steps: []*registryv1.Step{{
		Seq: 1, Kind: registryv1.StepKind_STEP_KIND_MODEL, Key: "model:1", Name: "p/m", State: registryv1.StepState_STEP_STATE_DONE,
		Result: []byte(`{}`), Usage: &registryv1.Usage{Input: 100, Output: 20},
	}}})
	backendtest.Must(t, r, err)
	begin := &registryv1.BeginTurnRequest{AgentId: "a1", InboxId: c.turn.GetEvent().GetId(), Key: c.turn.GetKey(), ThreadId: c.turn.GetThreadId(), Alone: true}
	outcome := registryv1.BeginTurnOutcome_BEGIN_TURN_OUTCOME_GO
	for outcome == registryv1.BeginTurnOutcome_BEGIN_TURN_OUTCOME_GO {
		b, err := c.Turns.BeginTurn(c.ctx, begin)
		outcome = backendtest.Must(t, b, err).GetOutcome()
	}
	if outcome != registryv1.BeginTurnOutcome_BEGIN_TURN_OUTCOME_EXHAUSTED {
		t.Errorf("it ends with %v", outcome)
	}
	b, err := c.Turns.BeginTurn(c.ctx, begin) // its answer was lost
	backendtest.Must(t, b, err)
	got, err := c.Agents.GetAgentStatus(t.Context(), &registryv1.GetAgentStatusRequest{AgentId: "a1"})
	if n := backendtest.Must(t, got, err).GetTokensToday(); n != 120 {
		t.Errorf("%d tokens are counted, want 120", n)
	}
}
