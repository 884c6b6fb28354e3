package invariant

import (
	"github.com/theclaw/agents/internal/invariant/snapshot"
	"github.com/theclaw/agents/internal/store"
)

// The states of an approval that was used, and of a question with an answer.
const (
	approvalUsed     = "used"
	questionAnswered = "answered"
)

// i40: a call that asked a person ran only with an approval that was used. The approval may be gone, which is kept for
// some days; the lists that let others run are not kept at all.
// i42: an approval, or the answer to a question, belongs to one step.
func (c *check) i40i42(a *snapshot.Agent) {
	if len(a.Prompts) == 0 {
		return
	}
	steps := map[string]int{} // by the key of the call
	for _, d := range a.Threads {
		for _, s := range d.Steps {
			if s.Kind == store.StepTool {
				steps[s.Turn+":"+s.Key]++
			}
		}
	}
	approvals, taken := map[string]string{}, map[string]string{}
	for _, p := range a.Prompts {
		if p.Kind == "approval" {
			approvals[p.Key] = p.State
		}
		if p.State != approvalUsed && p.State != questionAnswered {
			continue
		}
		switch other := taken[p.Kind+p.Key]; {
		case steps[p.Key] > 1:
			c.report("I42", a.Inbox, 0, look(a.ID), "%s %s belongs to %d steps (%s)", p.Kind, p.ID, steps[p.Key], p.Key)
		case other != "":
			c.report("I42", a.Inbox, 0, look(a.ID), "%ss %s and %s belong to one step (%s)", p.Kind, other, p.ID, p.Key)
		}
		taken[p.Kind+p.Key] = p.ID
	}
	for _, d := range a.Threads {
		for _, s := range d.Asked {
			state, there := approvals[s.Turn+":"+s.Key]
			if there && state != approvalUsed && s.State == store.StepDone && !s.IsError {
				c.report("I40", d, 0, look(a.ID), "step %s of %s has run, and its approval is %s", s.Key, s.Turn, state)
			}
		}
	}
}
