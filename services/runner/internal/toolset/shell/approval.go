package shell

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/broker"
	"github.com/theclaw/agents/internal/execpolicy"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/toolpolicy"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/registrycall"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

const (
	// poll is how long one call waits for the answer.
	poll = 20 * time.Second
	// maxWhy and maxSummary bound the reason and the summary of a question, in bytes, and
	// maxPatterns the entries that the answer always adds.
	maxWhy      = 400
	maxSummary  = 1000
	maxPatterns = 32
)

// Approvals asks a person before a command runs outside of the sandbox, or with the
// network open, and before an agent is made that a program has asked for; the registry's
// ApprovalService does. A command runs only after the registry said that its approval is
// used, now, for exactly this command: its words, its directory and the names of its
// environment. No answer, a no, and an answer for anything else are all a no. While the
// registry is away the call waits, as long as the lease is trusted.
type Approvals interface {
	RequestApproval(ctx context.Context, in *registrypb.RequestApprovalRequest, opts ...grpc.CallOption) (*registrypb.RequestApprovalResponse, error)
}

// errRefused means that the command must not run; its text is for the model.
var errRefused = errors.New("the owner of this agent did not approve of the command; do not try it again unasked, say what you wanted to do")

// ask asks and waits. It returns nil when the command may run now, errRefused
// when not, and any other error when it is not known.
func ask(ctx context.Context, a Approvals, c toolset.Call, shown string, command sandbox.Command, v execpolicy.Verdict) error {
	if a == nil {
		return errRefused
	}
	reason, kind := "it runs outside of the sandbox", registrypb.ApprovalKind_APPROVAL_KIND_EXEC
	if c.Place.Config.GetSandboxMode() != string(sandbox.Off) {
		reason, kind = "it runs with the network open", registrypb.ApprovalKind_APPROVAL_KIND_NETWORK
	}
	why, _ := boundary.Text(v.Why, maxWhy)
	req := &registrypb.RequestApprovalRequest{
		AgentId: c.Place.AgentID, ThreadId: c.Place.ThreadID, Key: c.Key, Command: command.Shell, Cwd: command.Workdir,
		Reason: reason + "; " + why, Digest: digest(c, command), Wait: durationpb.New(poll),
		Kind: kind, Tool: toolpolicy.Canonical(c.Name), Summary: summary(shown), Fallback: v.Fallback,
	}
	if len(v.Always) <= maxPatterns { // else it cannot be allowed in advance
		for _, e := range v.Always {
			req.Patterns = append(req.Patterns, &registrypb.ExecEntry{Pattern: e.Pattern, Args: e.Args})
		}
	}
	return c.Place.Wait(ctx, func(ctx context.Context) error {
		_, err := wait(ctx, a, c, req)
		return err
	})
}

// create asks for an agent and waits until the registry has made it; it returns its
// directory. The same agent asked for again in one call is the same question.
func create(ctx context.Context, a Approvals, c toolset.Call, workdir string, r broker.Request) (string, error) {
	refused := fault.New(codes.PermissionDenied, fault.ApprovalClosed, "the owner did not approve of agent '"+r.AgentID+"'",
		"do not ask again unasked; say what the agent is wanted for")
	if a == nil {
		return "", refused
	}
	kind := registrypb.AgentKind_AGENT_KIND_USER
	if r.System {
		kind = registrypb.AgentKind_AGENT_KIND_SYSTEM
	}
	resp, err := wait(ctx, a, c, &registrypb.RequestApprovalRequest{
		AgentId: c.Place.AgentID, ThreadId: c.Place.ThreadID, Key: c.Key + ":create:" + r.Digest()[:16], Command: r.Words(), Cwd: workdir,
		Reason: createReason, Digest: r.Digest(), Wait: durationpb.New(poll),
		CreateAgent: &registrypb.NewAgent{AgentId: r.AgentID, Kind: kind, Provider: r.Provider, Model: r.Model},
	})
	if errors.Is(err, errRefused) {
		return "", refused
	}
	return resp.GetCreatedDir(), err
}

// createReason is why it is asked.
const createReason = "it makes a new agent"

// wait asks until there is an answer; nil is a yes, which is used now.
func wait(ctx context.Context, a Approvals, c toolset.Call, req *registrypb.RequestApprovalRequest) (*registrypb.RequestApprovalResponse, error) {
	end, closed := toolset.WaitInterrupted, func(string) {}
	defer func() { closed(end) }()
	for waits := false; ; {
		r, err := registrycall.Call(ctx, c.Place.Trusted, func(ctx context.Context) (*registrypb.RequestApprovalResponse, error) {
			ctx, cancel := context.WithTimeout(ctx, 2*poll)
			defer cancel()
			return a.RequestApproval(ctx, req)
		})
		if err != nil {
			if f := fault.From(err); f.Reason == fault.ApprovalClosed || f.Reason == fault.InvalidArgument && req.GetCreateAgent() == nil {
				end = toolset.WaitRefused
				return nil, errRefused
			}
			return nil, err
		}
		switch a := r.GetApproval(); {
		case a.GetState() == registrypb.ApprovalState_APPROVAL_STATE_PENDING:
			if !waits {
				waits, closed = true, c.Prompted(toolset.Prompt{Kind: toolset.PromptApproval, ID: a.GetApprovalId(), Text: cmp.Or(req.GetSummary(), req.GetCommand())})
			}
		case a.GetState() == registrypb.ApprovalState_APPROVAL_STATE_USED && a.GetDigest() == req.GetDigest():
			end = toolset.WaitAnswered
			return r, nil
		default:
			end = toolset.WaitRefused
			if a.GetState() == registrypb.ApprovalState_APPROVAL_STATE_EXPIRED {
				end = toolset.WaitExpired
			}
			return nil, errRefused
		}
	}
}

// digest binds an approval to a command: what runs, where, which variables it is given, and
// the call that it is of. Each part is counted, so that no two commands look the same.
func digest(call toolset.Call, c sandbox.Command) string {
	var b strings.Builder
	for _, part := range append([]string{c.Shell, c.Workdir, strconv.FormatBool(c.Network), toolpolicy.Canonical(call.Name), string(call.Args)}, slices.Sorted(maps.Keys(c.Env))...) {
		b.WriteString(strconv.Itoa(len(part)) + ":" + part + "\n")
	}
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:])
}
