// Package wording contains what is said of a run in the same words by its runner and,
// where no runner can be reached, by the client: the errors about a run that is not in the
// state a caller expects, and what a run waits for. It is a package of its own because the runner uses it too and
// must not import the client.
package wording

import (
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// Why a run was aborted, as its turn keeps it.
const (
	ByOwner = "aborted by the owner"
	Early   = "aborted before it began"
)

// NoRun turns the registry's TURN_NOT_FOUND into RUN_NOT_FOUND; others stay.
func NoRun(agent, run string, err error) error {
	if fault.Is(err, fault.TurnNotFound) {
		return fault.Wrap(fault.New(codes.NotFound, fault.RunNotFound, "agent '"+agent+"' has no run '"+run+"'", "use the run id that was answered at the start"), err)
	}
	return err
}

// Ended refuses what a run that has its fate is asked for.
func Ended(run string) error {
	return fault.New(codes.NotFound, fault.RunNotFound, "run '"+run+"' has ended", "nothing to do; 'agentctl explain' shows the outcome")
}

// Together refuses to abort a run that has no reply of its own.
func Together(run, leader string) error {
	return fault.New(codes.FailedPrecondition, fault.TurnBegun, "run '"+run+"' is being answered together with run '"+leader+"'", "abort that one")
}

// Waiting is what a turn waits for that has a failed try behind it; nil: it does not wait.
func Waiting(t *registrypb.Turn) *runnerpb.RunWaiting {
	if t.GetState() != registrypb.TurnState_TURN_STATE_WAITING {
		return nil
	}
	w := &runnerpb.RunWaiting{Error: t.GetError(), NextAt: t.GetNextAt(), Counted: true}
	if a := t.GetAttempts(); len(a) > 0 {
		w.Counted = a[len(a)-1].GetCounted()
	}
	return w
}
