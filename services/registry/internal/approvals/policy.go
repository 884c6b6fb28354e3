package approvals

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/execpolicy"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// The kinds and decisions as they are stored.
const (
	kindExec       = "exec"
	kindElevated   = "elevated"
	kindNetwork    = "network"
	kindTool       = "tool"
	kindAgent      = "agent"
	kindPlan       = "plan"
	decisionOnce   = "once"
	decisionAlways = "always"
	decisionDeny   = "deny"
)

var (
	kinds = map[string]registryv1.ApprovalKind{
		"": registryv1.ApprovalKind_APPROVAL_KIND_EXEC, kindExec: registryv1.ApprovalKind_APPROVAL_KIND_EXEC,
		kindElevated: registryv1.ApprovalKind_APPROVAL_KIND_ELEVATED, kindNetwork: registryv1.ApprovalKind_APPROVAL_KIND_NETWORK,
		kindTool: registryv1.ApprovalKind_APPROVAL_KIND_TOOL, kindAgent: registryv1.ApprovalKind_APPROVAL_KIND_AGENT, kindPlan: registryv1.ApprovalKind_APPROVAL_KIND_PLAN,
	}
	decisions = map[string]registryv1.ApprovalDecision{
		decisionOnce: registryv1.ApprovalDecision_APPROVAL_DECISION_ONCE, decisionAlways: registryv1.ApprovalDecision_APPROVAL_DECISION_ALWAYS,
		decisionDeny: registryv1.ApprovalDecision_APPROVAL_DECISION_DENY,
	}
)

func kindOf(req *registryv1.RequestApprovalRequest) string {
	if req.GetCreateAgent() != nil {
		return kindAgent
	}
	for word, k := range kinds {
		if word != "" && k == req.GetKind() {
			return word
		}
	}
	return kindExec
}

// decisionOf returns what a caller answers, and who answers.
func decisionOf(ctx context.Context, req *registryv1.ResolveApprovalRequest) (decision, by string) {
	decision = decisionDeny
	if req.GetApprove() {
		decision = decisionOnce
	}
	for word, d := range decisions {
		if d == req.GetDecision() {
			decision = word
		}
	}
	id, _ := rpc.IdentityFrom(ctx)
	return decision, boundary.Name(cmp.Or(req.GetBy(), id.Role(), "owner"))
}

// answered says who answered a question, and when.
func answered(a store.Approval) string {
	if a.By == "" {
		return ""
	}
	return fmt.Sprintf(" (%s by %s at %s)", a.Decision, a.By, ended(a).UTC().Format(time.DateTime))
}

// ended is when a question was answered, or ended without an answer; zero: it waits. An approval can be used for some time
// after its answer.
func ended(a store.Approval) time.Time {
	switch {
	case a.Decision == decisionOnce || a.Decision == decisionAlways:
		return a.Expires.Add(-usable)
	case a.State == pending && time.Now().Before(a.Expires):
		return time.Time{}
	}
	return a.Expires
}

// patternsText is how entries are stored; empty: there are none.
func patternsText(list []*registryv1.ExecEntry) string {
	if len(list) == 0 {
		return ""
	}
	out := make([]execpolicy.Allowed, len(list))
	for i, e := range list {
		out[i] = execpolicy.Allowed{Pattern: e.GetPattern(), Args: e.GetArgs()}
	}
	b, err := json.Marshal(out)
	if err != nil {
		return "" // texts and lists of texts
	}
	return string(b)
}

func readPatterns(text string) (out []execpolicy.Entry) {
	var list []execpolicy.Allowed
	if text == "" || json.Unmarshal([]byte(text), &list) != nil {
		return nil
	}
	for _, a := range list {
		out = append(out, a.Entry())
	}
	return out
}

func patterns(text string) (out []*registryv1.ExecEntry) {
	for _, e := range readPatterns(text) {
		out = append(out, &registryv1.ExecEntry{Pattern: e.Pattern, Args: e.Args})
	}
	return out
}

// withPatterns returns the policy with what the answer always adds for a question.
func (s *Service) withPatterns(ctx context.Context, a store.Approval) (*store.ExecPolicy, error) {
	p, d, err := s.policy(ctx)
	if err != nil {
		return nil, err
	}
	d.Add(a.Agent, readPatterns(a.Patterns))
	body, err := d.JSON()
	if err != nil {
		return nil, fault.New(codes.ResourceExhausted, fault.Overloaded, "the entries cannot be added: "+err.Error(), "approve it once, or remove entries with 'agentctl approvals policy set'")
	}
	return &store.ExecPolicy{Version: p.Version + 1, Body: body}, nil
}

// policy reads the policy of the installation; one that bounds no agent when there is none.
func (s *Service) policy(ctx context.Context) (store.ExecPolicy, execpolicy.Document, error) {
	p, err := s.Approvals.ExecPolicy(ctx)
	if err != nil {
		return p, execpolicy.Document{}, s.Fault("", "", err)
	}
	if p.Version == 0 {
		return p, execpolicy.NewDocument(), nil
	}
	d, err := execpolicy.Parse(p.Body)
	return p, d, err
}

// Bound makes the policies for commands in an agent's settings at least as strict as that of the
// installation, and adds the agent's allow list. Settings without one are left as they are: no
// command leaves the sandbox.
func (s *Service) Bound(ctx context.Context, agent string, c *registryv1.TurnConfig) error {
	for _, p := range []*registryv1.ExecPolicy{c.GetElevated().GetExec(), c.GetPrograms().GetExec()} {
		if p == nil {
			continue
		}
		if err := s.bound(ctx, agent, p); err != nil {
			return err
		}
	}
	p := c.GetExec()
	if p == nil {
		return nil
	}
	err := s.bound(ctx, agent, p)
	c.AskApproval = p.GetSecurity() != string(execpolicy.Full) || p.GetAsk() == string(execpolicy.AskAlways)
	return err
}

func (s *Service) bound(ctx context.Context, agent string, p *registryv1.ExecPolicy) error {
	stored, d, err := s.policy(ctx)
	if err != nil || stored.Version == 0 {
		return err
	}
	b := d.Bound(agent, execpolicy.Policy{Security: execpolicy.Security(p.GetSecurity()), Ask: execpolicy.Ask(p.GetAsk()), Fallback: execpolicy.Security(p.GetAskFallback())})
	p.Security, p.Ask, p.AskFallback = string(b.Security), string(b.Ask), string(b.Fallback)
	for _, e := range b.Allow {
		p.Allowlist = append(p.Allowlist, &registryv1.ExecEntry{Pattern: e.Pattern, Args: e.Args})
	}
	return nil
}

// denies reports whether the policy that holds now refuses what a question is about, whatever
// its answer was.
func (s *Service) denies(ctx context.Context, a store.Approval) (bool, error) {
	if k := kinds[a.Kind]; k != registryv1.ApprovalKind_APPROVAL_KIND_EXEC && k != registryv1.ApprovalKind_APPROVAL_KIND_ELEVATED && k != registryv1.ApprovalKind_APPROVAL_KIND_NETWORK {
		return false, nil
	}
	set, err := s.settings(ctx, a.Agent)
	if err != nil {
		return false, err
	}
	p := &registryv1.ExecPolicy{Security: set.Config.Tools.Exec.Security}
	if err := s.bound(ctx, a.Agent, p); err != nil {
		return false, err
	}
	return p.GetSecurity() == string(execpolicy.Deny), nil
}

// GetExecPolicy returns the policy of the installation.
func (s *Service) GetExecPolicy(ctx context.Context, _ *registryv1.GetExecPolicyRequest) (*registryv1.GetExecPolicyResponse, error) {
	p, err := s.Approvals.ExecPolicy(ctx)
	if err != nil {
		return nil, s.Fault("", "", err)
	}
	return &registryv1.GetExecPolicyResponse{Json: string(p.Body), Version: p.Version}, nil
}

// SetExecPolicy replaces the policy of the installation.
func (s *Service) SetExecPolicy(ctx context.Context, req *registryv1.SetExecPolicyRequest) (*registryv1.SetExecPolicyResponse, error) {
	d, err := execpolicy.Parse([]byte(req.GetJson()))
	if err != nil {
		return nil, wire.Bad(err.Error(), "write it in the form of exec-approvals.json, version 1")
	}
	body, err := d.JSON()
	if err != nil {
		return nil, wire.Bad(err.Error(), "remove entries")
	}
	p := store.ExecPolicy{Version: req.GetVersion() + 1, Body: body}
	switch err := s.Approvals.PutExecPolicy(ctx, p); {
	case errors.Is(err, store.ErrMoved):
		return nil, fault.New(codes.Aborted, fault.VersionConflict, fmt.Sprintf("the policy is no longer version %d: it was changed meanwhile", req.GetVersion()), "read it, change it and write it again")
	case err != nil:
		return nil, s.Fault("", "", err)
	}
	return &registryv1.SetExecPolicyResponse{Version: p.Version}, nil
}

// NotBegun marks the tools among open steps that have not begun although their intent is
// stored: what asks a person, or has asked one, begins when an approval is used, and a question
// has no effect.
func (s *Service) NotBegun(ctx context.Context, agent, turn string, steps []*registryv1.Step) error {
	for _, st := range steps {
		if st.GetKind() != registryv1.StepKind_STEP_KIND_TOOL || st.GetState() != registryv1.StepState_STEP_STATE_INTENT {
			continue
		}
		a, there, err := s.Approvals.Approval(ctx, "", agent, turn+":"+st.GetKey())
		if err != nil {
			return s.Fault(agent, "", err)
		}
		st.NotBegun = (st.GetAsks() || there) && a.State != used
		if !st.GetAsks() && !there {
			if _, st.NotBegun, err = s.Questions.Question(ctx, "", agent, turn+":"+st.GetKey()); err != nil {
				return s.Fault(agent, "", err)
			}
		}
	}
	return nil
}
