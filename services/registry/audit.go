package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/audit"
	"github.com/theclaw/agents/internal/broker"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/serve"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// changes are the calls with which people change something. Each is on record before it
// happens, or does not happen; only a stop happens without a record.
var changes = map[string]bool{
	"CreateAgent": true, "StartAgent": true, "StopAgent": true, "BootstrapAgents": true, "WriteAgentFile": true, "SetAgentConfig": true,
	"BackupAgents": true, "RestoreAgents": true, "ExportHome": true, "ExportPeer": true, "ErasePeer": true, "DeleteAgent": true, "RetryTurn": true, "DropTurn": true, "RequestAbort": true, "RetryDelivery": true, "DropDelivery": true,
	"Subscribe": true, "Unsubscribe": true, "ResolveApproval": true, "SetExecPolicy": true, "AnswerQuestion": true, "NoteIdentityChange": true,
	"SetBindings": true, "SetHomeConfig": true, "SetHomeValue": true, "ResolvePins": true, "ResolvePairing": true, "PatchSession": true, "ResetSession": true, "ArchiveSession": true,
}

// maxRefusals are recorded per minute, and the number of further ones.
const maxRefusals = 100

// auditor turns calls into entries of the audit log.
type auditor struct {
	log  *audit.Log
	warn *slog.Logger

	mu      sync.Mutex
	minute  time.Time
	refused int
}

// Auditor records the calls of the server of the registry, and of other services in the
// same process.
func (s *Service) Auditor() serve.Auditor { return s.auditor }

// makeFor makes an agent that another one asked for and the owner approved. It is on
// record before it happens.
func (s *Service) makeFor(ctx context.Context, by, approval string, r broker.Request) (string, error) {
	if err := s.auditor.log.Append(entry(ctx, audit.Entry{
		Action: "CreateAgent", Agent: r.AgentID, Outcome: "allowed", Detail: fmt.Sprintf("asked by agent %s, approval %s: %s", by, approval, r.Words()),
	}), true); err != nil {
		return "", unrecorded(err)
	}
	kind := "user"
	if r.System {
		kind = "system"
	}
	dir, err := s.agents.Make(ctx, r.AgentID, agentdir.Spec{Kind: kind, Provider: r.Provider, Model: r.Model})
	if err != nil {
		f := fault.From(err)
		s.auditor.append(ctx, audit.Entry{Action: "CreateAgent", Agent: r.AgentID, Outcome: "failed", Detail: f.Reason + ": " + f.What})
	}
	return dir, err
}

// added records the decisions of a restored home before they are added.
func (a *auditor) added(ctx context.Context, what string) error {
	if err := a.log.Append(entry(ctx, audit.Entry{Action: "ImportHome", Outcome: "allowed", Detail: what}), true); err != nil {
		return unrecorded(err)
	}
	return nil
}

func unrecorded(err error) error {
	return fault.Wrap(fault.New(codes.ResourceExhausted, fault.DiskFull, "the audit log cannot be written, so nothing was done",
		"free some space and see the registry's log"), err)
}

// Refused notes a caller that was not let in; the method is empty when that was
// its connection.
func (a *auditor) Refused(ctx context.Context, method, origin string, err error) {
	if !a.countRefusal() {
		return
	}
	what := err.Error()
	if f, ok := errors.AsType[*fault.Error](err); ok {
		what = f.Reason + ": " + f.What
	}
	action := path.Base(method)
	if method == "" {
		action = "connect"
	}
	a.append(ctx, audit.Entry{Action: action, From: origin, Outcome: "refused", Detail: what})
}

// countRefusal lets a flood write a bounded number of lines.
func (a *auditor) countRefusal() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := time.Now(); now.Sub(a.minute) > time.Minute {
		if more := a.refused - maxRefusals; more > 0 {
			a.append(context.Background(), audit.Entry{Action: "refusals", Outcome: "refused", Detail: fmt.Sprintf("%d more in one minute", more)})
		}
		a.minute, a.refused = now, 0
	}
	a.refused++
	return a.refused <= maxRefusals
}

// Admitted notes changes, tools and deliveries before they are stored.
func (a *auditor) Admitted(ctx context.Context, method string, req any) error {
	name := path.Base(method)
	if changes[name] {
		if n, ok := req.(*registryv1.NoteIdentityChangeRequest); ok {
			name = audit.IdentityAction(n.GetChange().String())
		}
		e := entry(ctx, audit.Entry{Action: name, Agent: agentOf(req), Outcome: "allowed", Detail: detail(req)})
		if err := a.log.Append(e, true); err != nil {
			if name == "StopAgent" {
				a.warn.ErrorContext(ctx, "not in the audit log", "action", name, "error", err)
				return nil
			}
			return unrecorded(err)
		}
		return nil
	}
	switch r := req.(type) {
	case *registryv1.RecordStepRequest:
		a.tools(ctx, r.GetAgentId(), r.GetSteps())
	case *registryv1.FinishTurnRequest:
		a.tools(ctx, r.GetAgentId(), r.GetSteps())
	case *registryv1.FinishDeliveryRequest:
		a.append(ctx, audit.Entry{
			Action: "delivery", Agent: r.GetAgentId(), Outcome: lower(r.GetOutcome().String(), "DELIVERY_OUTCOME_"),
			Detail: fmt.Sprintf("%s event %d by %s %s", r.GetThreadId(), r.GetEventId(), r.GetChannel(), r.GetProviderId()),
		})
	}
	return nil
}

// tools notes what is about to run, and what became of it.
func (a *auditor) tools(ctx context.Context, agentID string, steps []*registryv1.Step) {
	for _, s := range steps {
		if s.GetKind() != registryv1.StepKind_STEP_KIND_TOOL {
			continue
		}
		a.append(ctx, audit.Entry{
			Action: "tool", Agent: agentID, Outcome: lower(s.GetState().String(), "STEP_STATE_"),
			Detail: s.GetName() + " " + s.GetArguments(),
		})
	}
}

// Failed notes that a change which was let through did not happen, and that a caller which
// may make a call may not make this one.
func (a *auditor) Failed(ctx context.Context, method string, req any, err error) {
	name, f := path.Base(method), fault.From(err)
	switch {
	case changes[name]:
		a.append(ctx, audit.Entry{Action: name, Agent: agentOf(req), Outcome: "failed", Detail: f.Reason + ": " + f.What})
	case f.Code == codes.PermissionDenied && a.countRefusal():
		a.append(ctx, audit.Entry{Action: name, Agent: agentOf(req), Outcome: "refused", Detail: f.Reason + ": " + f.What})
	}
}

func (a *auditor) append(ctx context.Context, e audit.Entry) {
	if err := a.log.Append(entry(ctx, e), false); err != nil {
		a.warn.ErrorContext(ctx, "not in the audit log", "action", e.Action, "error", err)
	}
}

// entry adds the caller to an entry.
func entry(ctx context.Context, e audit.Entry) audit.Entry {
	if id, ok := rpc.IdentityFrom(ctx); ok {
		if e.Actor = id.Name; e.Actor == "" {
			e.Actor = string(id.Kind)
		}
	}
	e.Request = rpc.RequestID(ctx)
	return e
}

func agentOf(req any) string {
	if r, ok := req.(interface{ GetAgentId() string }); ok {
		return r.GetAgentId()
	}
	if r, ok := req.(interface{ GetThread() *registryv1.ThreadRef }); ok {
		return r.GetThread().GetAgentId()
	}
	if r, ok := req.(interface{ GetResource() string }); ok {
		return lease.AgentOf(r.GetResource())
	}
	return ""
}

// detail describes a change; of a file, only the hash of its bytes.
func detail(req any) string {
	switch r := req.(type) {
	case *registryv1.SetAgentConfigRequest:
		return r.GetKey() + ": " + r.GetValue()
	case *registryv1.WriteAgentFileRequest:
		sum := sha256.Sum256(r.GetContent())
		return r.GetName() + " sha256 " + hex.EncodeToString(sum[:])
	case *registryv1.ErasePeerRequest:
		return fmt.Sprintf("peer %s applied: %t", r.GetPeer(), r.GetApply())
	case *registryv1.ExportPeerRequest:
		return "peer " + r.GetPeer()
	case *registryv1.DeleteAgentRequest:
		return fmt.Sprintf("force: %t", r.GetForce())
	case *registryv1.SubscribeRequest:
		return r.GetThread().GetThreadId() + " consumer " + r.GetConsumer() + ": " + r.GetHandler()
	case *registryv1.UnsubscribeRequest:
		return r.GetThread().GetThreadId() + " consumer " + r.GetConsumer()
	case *registryv1.NoteIdentityChangeRequest:
		return strings.Join(r.GetNames(), " ")
	case *registryv1.ResolveApprovalRequest:
		out := fmt.Sprintf("%s approved: %t", r.GetApprovalId(), r.GetApprove())
		if d := r.GetDecision(); d != registryv1.ApprovalDecision_APPROVAL_DECISION_UNSPECIFIED {
			out = r.GetApprovalId() + " " + strings.ToLower(strings.TrimPrefix(d.String(), "APPROVAL_DECISION_"))
		}
		if r.GetBy() != "" {
			out += ", by " + r.GetBy()
		}
		return out
	case *registryv1.SetExecPolicyRequest:
		sum := sha256.Sum256([]byte(r.GetJson()))
		return fmt.Sprintf("after version %d, sha256 %x", r.GetVersion(), sum)
	case *registryv1.AnswerQuestionRequest:
		return strings.TrimSpace(r.GetQuestionId() + " " + r.GetEventKey())
	case *registryv1.SetBindingsRequest:
		return fmt.Sprintf("%d bindings after version %s", len(r.GetBindings()), r.GetVersion())
	case *registryv1.SetHomeConfigRequest:
		sum := sha256.Sum256([]byte(r.GetText()))
		return "sha256 " + hex.EncodeToString(sum[:])
	case *registryv1.SetHomeValueRequest:
		if r.GetValue() == "" {
			return strings.Join(r.GetPath(), ".") + " removed"
		}
		sum := sha256.Sum256([]byte(r.GetValue())) // it may hold a secret
		return strings.Join(r.GetPath(), ".") + " sha256 " + hex.EncodeToString(sum[:])
	case *registryv1.ResolvePinsRequest:
		return pinsDetail(r)
	case *registryv1.ResolvePairingRequest:
		return pairingDetail(r)
	case interface{ GetKey() string }:
		return r.GetKey()
	case interface{ GetInboxId() int64 }:
		return fmt.Sprintf("inbox event %d", r.GetInboxId())
	}
	return ""
}

// pinsDetail names the tools that are approved or denied, the first of many, and what was shown.
func pinsDetail(r *registryv1.ResolvePinsRequest) string {
	const named = 20
	names, more := r.GetTools(), ""
	if len(names) > named {
		names, more = names[:named], fmt.Sprintf(" and %d more", len(names)-named)
	}
	which := strings.Join(names, ", ") + more
	if which == "" {
		which = "all that are new or changed"
	}
	return fmt.Sprintf("%s approved: %t, tools: %s, as shown with digest %.16s", r.GetServer(), r.GetApprove(), which, r.GetDigest())
}

// pairingDetail says what is decided about whom. A code is not written down: it may still wait.
func pairingDetail(r *registryv1.ResolvePairingRequest) string {
	out := lower(r.GetDecision().String(), "PAIRING_DECISION_")
	if r.GetCode() == "" {
		out += fmt.Sprintf(" %.200q at account %s", r.GetPeerId(), r.GetAccount())
	} else {
		out += " the person of a code"
	}
	if r.GetOwner() {
		out += ", as owner"
	}
	if r.GetShareMain() {
		out += ", who shares a conversation"
	}
	if r.GetBy() != "" {
		out += fmt.Sprintf(", by %.200q", r.GetBy())
	}
	return out
}

func lower(enum, prefix string) string {
	return strings.ToLower(strings.TrimPrefix(enum, prefix))
}
