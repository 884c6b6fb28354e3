package shell

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/broker"
	"github.com/theclaw/agents/internal/execpolicy"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/toolpolicy"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

const (
	// maxWhy and maxSummary bound the reason and the summary of a question, in bytes, and
	// maxPatterns the entries that the answer always adds.
	maxWhy      = 400
	maxSummary  = 1000
	maxPatterns = 32
)

// ask asks and waits. It returns nil when the command may run now, toolset.ErrRefused
// when not, and any other error when it is not known.
func ask(ctx context.Context, a toolset.Approvals, c toolset.Call, p program, command sandbox.Command, v execpolicy.Verdict) error {
	reason, kind := "it runs outside of the sandbox", registrypb.ApprovalKind_APPROVAL_KIND_EXEC
	switch {
	case p.elevated:
		reason, kind = "it asks to run outside of the sandbox", registrypb.ApprovalKind_APPROVAL_KIND_ELEVATED
	case c.Place.Config.GetSandboxMode() != string(sandbox.Off):
		reason, kind = "it runs with the network open", registrypb.ApprovalKind_APPROVAL_KIND_NETWORK
	}
	why, _ := boundary.Text(v.Why, maxWhy)
	req := &registrypb.RequestApprovalRequest{
		AgentId: c.Place.AgentID, ThreadId: c.Place.ThreadID, Key: c.Key, Command: cmp.Or(command.Shell, v.Text), Cwd: command.Workdir,
		Reason: reason + "; " + why, Digest: digest(c, command),
		Kind: kind, Tool: toolpolicy.Canonical(c.Name), Summary: summary(p.shown), Fallback: v.Fallback, External: c.Outside,
	}
	if len(v.Always) <= maxPatterns { // else it cannot be allowed in advance
		for _, e := range v.Always {
			req.Patterns = append(req.Patterns, &registrypb.ExecEntry{Pattern: e.Pattern, Args: e.Args})
		}
	}
	return c.Place.Wait(ctx, func(ctx context.Context) error {
		_, err := toolset.Ask(ctx, a, c, req)
		return err
	})
}

// create asks for an agent and waits until the registry has made it; it returns its
// directory. The same agent asked for again in one call is the same question.
func create(ctx context.Context, a toolset.Approvals, c toolset.Call, workdir string, r broker.Request) (string, error) {
	refused := fault.New(codes.PermissionDenied, fault.ApprovalClosed, "the owner did not approve of agent '"+r.AgentID+"'",
		"do not ask again unasked; say what the agent is wanted for")
	kind := registrypb.AgentKind_AGENT_KIND_USER
	if r.System {
		kind = registrypb.AgentKind_AGENT_KIND_SYSTEM
	}
	resp, err := toolset.Ask(ctx, a, c, &registrypb.RequestApprovalRequest{
		AgentId: c.Place.AgentID, ThreadId: c.Place.ThreadID, Key: c.Key + ":create:" + r.Digest()[:16], Command: r.Words(), Cwd: workdir,
		Reason: createReason, Digest: r.Digest(),
		CreateAgent: &registrypb.NewAgent{AgentId: r.AgentID, Kind: kind, Provider: r.Provider, Model: r.Model},
	})
	if errors.Is(err, toolset.ErrRefused) {
		return "", refused
	}
	return resp.GetCreatedDir(), err
}

// createReason is why it is asked.
const createReason = "it makes a new agent"

// digest binds an approval to a command: what runs, where, which variables it is given, and
// the call that it is of. Each part is counted, so that no two commands look the same.
func digest(call toolset.Call, c sandbox.Command) string {
	return toolset.Digest(append([]string{cmp.Or(c.Shell, execpolicy.Join(c.Argv)), c.Workdir, strconv.FormatBool(c.Network), toolpolicy.Canonical(call.Name), string(call.Args)}, slices.Sorted(maps.Keys(c.Env))...)...)
}
