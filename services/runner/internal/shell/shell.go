// Package shell owns how a turn runs one call of its model: in which sandbox, after
// whose approval, and with what beside it.
//
//	call --> sandbox of the agent's mode --> approval, where one is needed --> run
//
// It promises that a command runs only where and when the agent's settings let it,
// and that what goes wrong on the way is an answer for the model, never an error of
// the turn. It journals nothing and repeats nothing: the turn does.
package shell

import (
	"context"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/obs/tracing"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/approval"
	"github.com/theclaw/agents/services/runner/internal/tool"
)

// Shell runs the calls of all turns.
type Shell struct {
	// Sandbox answers the sandbox for a mode of the configuration.
	Sandbox func(mode string) (tool.Sandbox, error)
	// Approvals asks people; nil refuses what has to be asked.
	Approvals approval.Client
	Trace     *tracing.Tracer // nil: no traces
}

// Run makes one call under the settings of its agent and answers its result.
// trusted answers nil while the lease is.
func (s *Shell) Run(ctx context.Context, trusted func(context.Context) error, c *registrypb.TurnConfig, at tool.Place, made tool.Call) []byte {
	ctx, span := s.Trace.Tool(ctx, made.Name, made.Key)
	defer span.End()
	box, err := s.Sandbox(c.GetSandboxMode())
	if err != nil {
		return tool.Problem(fault.From(err).What)
	}
	at.Workdir, at.Network = c.GetWorkdir(), c.GetSandboxNetwork()
	if c.GetAskApproval() {
		if err := approval.Ask(ctx, s.Approvals, trusted, approval.Question{Place: at, Call: made, Mode: c.GetSandboxMode()}); err != nil {
			return tool.Problem(err.Error())
		}
	}
	return tool.Run(ctx, box, at, made)
}
