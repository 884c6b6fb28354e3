// Package wording contains the errors about a run that is not in the state a caller
// expects, so that they read the same from its runner and, where no runner can be
// reached, from the client. It is a package of its own because the runner uses it too and
// must not import the client.
package wording

import (
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
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
	return fault.New(codes.NotFound, fault.RunNotFound, "run '"+run+"' has ended", "nothing: see how with 'agentctl explain'")
}

// Together refuses to abort a run that has no reply of its own.
func Together(run, leader string) error {
	return fault.New(codes.FailedPrecondition, fault.TurnBegun, "run '"+run+"' is being answered together with run '"+leader+"'", "abort that one")
}
