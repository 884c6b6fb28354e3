package toolset

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/toolpolicy"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/registrycall"
)

// Approvals asks a person before a call begins; the registry's ApprovalService does. The call begins only after the
// registry said that its approval is used, now, for exactly this call. No answer, a no, and an answer for anything else
// are all a no. While the registry is away the call waits, as long as the lease is trusted.
type Approvals interface {
	RequestApproval(ctx context.Context, in *registrypb.RequestApprovalRequest, opts ...grpc.CallOption) (*registrypb.RequestApprovalResponse, error)
}

// ErrRefused means that a call must not be made; its text is for the model.
var ErrRefused = errors.New("the owner of this agent did not approve of the command; do not try it again unasked, say what you wanted to do")

// AnswerWait is how long one call waits for an answer; the registry allows no more.
const AnswerWait = 10 * time.Minute

// AnswerTimeout is how long a call may take in addition to its wait.
const AnswerTimeout = 20 * time.Second

// Ask asks until there is an answer; nil is a yes, which is used now. A nil Approvals refuses.
func Ask(ctx context.Context, a Approvals, c Call, req *registrypb.RequestApprovalRequest) (*registrypb.RequestApprovalResponse, error) {
	if a == nil {
		return nil, ErrRefused
	}
	end, closed := WaitInterrupted, func(string) {}
	defer func() { closed(end) }()
	for waits := false; ; {
		r, err := registrycall.Call(ctx, c.Place.Trusted, func(ctx context.Context) (*registrypb.RequestApprovalResponse, error) {
			ctx, cancel := context.WithTimeout(ctx, req.GetWait().AsDuration()+AnswerTimeout)
			defer cancel()
			return a.RequestApproval(ctx, req)
		})
		if err != nil {
			if f := fault.From(err); f.Reason == fault.ApprovalClosed || f.Reason == fault.InvalidArgument && req.GetCreateAgent() == nil {
				end = WaitRefused
				return nil, ErrRefused
			}
			return nil, err
		}
		switch a := r.GetApproval(); {
		case a.GetState() == registrypb.ApprovalState_APPROVAL_STATE_PENDING:
			if !waits { // the first call does not wait: clients learn at once that the turn does
				req.Wait = durationpb.New(AnswerWait)
				waits, closed = true, c.Prompted(Prompt{Kind: PromptApproval, ID: a.GetApprovalId(), Text: cmp.Or(req.GetSummary(), req.GetCommand())})
			}
		case a.GetState() == registrypb.ApprovalState_APPROVAL_STATE_USED && a.GetDigest() == req.GetDigest():
			end = WaitAnswered
			return r, nil
		case a.GetState() == registrypb.ApprovalState_APPROVAL_STATE_EXPIRED:
			end = WaitExpired
			return nil, ErrRefused
		default:
			end = WaitRefused
			return nil, ErrRefused
		}
	}
}

// Digest binds an approval to what it is for. Each part is counted, so that no two lists of parts look the same.
func Digest(parts ...string) string {
	var b strings.Builder
	for _, part := range parts {
		b.WriteString(strconv.Itoa(len(part)) + ":" + part + "\n")
	}
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:])
}

// guarded reports whether a call of an MCP server waits for a person, whatever the server is: it has an effect, and text
// from outside is part of the turn.
func (s Set) guarded(tool Tool, c Call) bool {
	n, ok := s.all.index(c.Name)
	return ok && s.specs[n].Server != "" && c.Outside && c.Place.Config.GetExternalGuard().GetMcp() && tool.Class(c) == Effect
}

// approve asks for a call that is guarded, or that was to be asked for when its intent was journaled; empty: it may begin.
func (s Set) approve(ctx context.Context, tool Tool, c Call) (refusal string) {
	n, ok := s.all.index(c.Name)
	if !ok || s.specs[n].Server == "" || !c.Asks && !s.guarded(tool, c) {
		return ""
	}
	name := toolpolicy.Canonical(c.Name)
	req := &registrypb.RequestApprovalRequest{
		AgentId: c.Place.AgentID, ThreadId: c.Place.ThreadID, Key: c.Key, Command: name + " " + string(c.Args), Cwd: c.Place.Config.GetWorkdir(),
		Reason: "it may change something, and text from outside is part of the conversation", Digest: Digest(s.specs[n].Server, name, string(c.Args)),
		Kind: registrypb.ApprovalKind_APPROVAL_KIND_TOOL, Tool: name, Summary: s.summary(c), External: true,
	}
	err := c.Place.Wait(ctx, func(ctx context.Context) error {
		_, err := Ask(ctx, s.all.Approvals, c, req)
		return err
	})
	if err != nil {
		return "nothing was run: " + err.Error()
	}
	return ""
}
