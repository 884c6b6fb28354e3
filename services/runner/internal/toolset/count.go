package toolset

import (
	"time"

	"github.com/theclaw/agents/internal/toolpolicy"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// The outcomes of a call, for metrics.
const (
	outcomeOK      = "ok"
	outcomeError   = "error"   // the tool ran, or a person was asked, and nothing was done
	outcomeDenied  = "denied"  // the policy does not offer the tool
	outcomeInvalid = "invalid" // no such tool, or wrong arguments
	outcomeInDoubt = "in_doubt"
)

// journaled are the classes by what the journal has of them.
var journaled = func() map[registrypb.ToolClass]Class {
	out := map[registrypb.ToolClass]Class{}
	for class, row := range classes {
		out[row] = class
	}
	return out
}()

// count counts a call that was made, or refused.
func (c *Calls) count(u *use, took time.Duration) {
	outcome := outcomeOK
	n, ok := c.Set.all.index(u.call.Name)
	_, refusal := c.Set.decide(u.call)
	switch d := c.Set.decision(n, ok); {
	case u.done.GetState() == registrypb.StepState_STEP_STATE_IN_DOUBT:
		outcome = outcomeInDoubt
	case u.call.Problem == "" && ok && !d.Allowed:
		outcome = outcomeDenied
		layer := "" // none of the policy: no person is there, or there are too many tools
		if d.Layer > 0 {
			layer = c.Set.layers[d.Layer-1].Name
		}
		c.Meter.AddDenied(layer)
	case refusal != "":
		outcome = outcomeInvalid
	case u.done.GetIsError():
		outcome = outcomeError
	}
	c.Meter.AddCall(c.Set.label(u.call.Name), journaled[u.row.GetClass()].String(), outcome, took)
}

// decision is the policy's on the nth tool; there: there is one.
func (s Set) decision(n int, there bool) (d toolpolicy.Decision) {
	if there {
		d = s.decisions[n]
	}
	return d
}

// label is a tool in metrics.
func (s Set) label(name string) string {
	n, ok := s.all.index(name)
	switch {
	case !ok:
		return "unknown"
	case s.specs[n].Server != "":
		return s.specs[n].Server + "__*"
	}
	return toolpolicy.Canonical(name)
}
