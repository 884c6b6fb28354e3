// Package shell owns how a turn runs one call of its model: in which sandbox, after
// whose approval, and with what beside it.
//
//	call --> sandbox of the agent's mode --> approval, where one is needed --> run
//	                                  +-- before and after it, the working directory
//	                                      is brought and kept, where it moves
//	                                  +-- a socket for new agents, while it runs
//	                                      (package broker), for who may make them
//
// It promises that a command runs only where and when the agent's settings let it,
// and that what goes wrong on the way is an answer for the model, never an error of
// the turn. It journals nothing and repeats nothing: the turn does.
package shell

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/theclaw/agents/internal/broker"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/obs/tracing"
	"github.com/theclaw/agents/internal/sandbox"
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
	// Agent is the program `agent`, as programs in the sandbox see it; empty: they
	// look for it in the usual places.
	Agent  string
	Logger *slog.Logger
	// Files brings and keeps working directories that move between machines; nil: they
	// do not.
	Files Files
}

// Files keeps working directories; see package kept.
type Files interface {
	// Ready makes the working directory what was kept last; an error is for the model.
	Ready(ctx context.Context, c *registrypb.TurnConfig, at tool.Place) error
	// Keep keeps what a command has left in it; an error is for the model too.
	Keep(ctx context.Context, c *registrypb.TurnConfig, at tool.Place) error
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
	if c.GetCreatesAgents() { // also for the approval, which is bound to the names
		at.Env = map[string]string{broker.Variable: ""}
		if s.Agent != "" {
			at.Env["PATH"] = sandbox.Path + ":" + filepath.Dir(s.Agent)
		}
	}
	if c.GetAskApproval() {
		if err := approval.Ask(ctx, s.Approvals, trusted, approval.Question{Place: at, Call: made, Mode: c.GetSandboxMode()}); err != nil {
			return tool.Problem(err.Error())
		}
	}
	_, runs := tool.Command(at, made)
	if c.GetCreatesAgents() && runs {
		door, err := broker.Listen(ctx, at.Workdir, func(ctx context.Context, r broker.Request) (string, error) {
			return approval.Create(ctx, s.Approvals, trusted, at, made.Key, r)
		})
		if err == nil {
			defer door.Close()
			at.Env[broker.Variable] = door.Path()
		} else { // the command may not want it
			s.Logger.WarnContext(ctx, "no socket for new agents", "agent_id", at.AgentID, "error", err)
		}
	}
	if s.Files == nil || !c.GetWorkdirSync() || !runs {
		return tool.Run(ctx, box, at, made)
	}
	if err := s.Files.Ready(ctx, c, at); err != nil {
		return tool.Problem("nothing was run: " + err.Error())
	}
	result := tool.Run(ctx, box, at, made)
	if err := s.Files.Keep(ctx, c, at); err != nil {
		return tool.Note(result, err.Error())
	}
	return result
}
