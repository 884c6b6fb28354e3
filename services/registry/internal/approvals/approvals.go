// Package approvals implements ApprovalService and QuestionService: a runner asks whether a
// command may leave the sandbox, or asks the person that its agent talks to ([Questions]),
// and a person answers; and it keeps the policy for such commands. The states of an approval:
//
//	         once, always           begun, once
//	PENDING ---------> APPROVED ----------------> USED
//	   |  \                |                       ^
//	   |   `-- deny --> DENIED                      | the caller has a fallback
//	   +------ expiry -----+--> EXPIRED ------------+ and there was no answer
//
// It promises that a question and its answer are on disk before anybody is notified of
// them, that an approval is valid for the one command it names, once, under one lease,
// and that a question without an answer in time is denied, unless the policy of the agent
// says otherwise (fallback). What the answer always adds to the policy is stored with the
// answer, in one transaction. A policy that denies all commands when an approval is used
// denies that one, too. Only the owner may answer (the access table). It runs no command.
//
// A question may be about a new agent instead of a command. Then this package writes what
// the owner reads, from the very fields that the agent is created with, and creates the
// agent when the approval is used: the runner, which has the shell, has no right to create
// agents. When the registry is killed between the use and the creation, a repeat of the
// call under the same lease creates the agent; after that lease has ended the approval is
// used up and the agent does not exist.
package approvals

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/state"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

const (
	// maxWait is how long one call waits: so long that a question which waits for days costs few
	// calls.
	maxWait = 10 * time.Minute
	// usable is how long after the answer an approval can be used: a runner that was killed
	// meanwhile must start again, and claim the turn.
	usable = 10 * time.Minute
	// turnKeyParts are the parts of a turn's key, as thread.Event.Key makes it.
	turnKeyParts = 3
)

// The states as they are stored.
const (
	pending  = "pending"
	approved = "approved"
	denied   = "denied"
	expired  = "expired"
	used     = "used"
)

var states = map[string]registryv1.ApprovalState{
	pending: registryv1.ApprovalState_APPROVAL_STATE_PENDING, approved: registryv1.ApprovalState_APPROVAL_STATE_APPROVED,
	denied: registryv1.ApprovalState_APPROVAL_STATE_DENIED, expired: registryv1.ApprovalState_APPROVAL_STATE_EXPIRED,
	used: registryv1.ApprovalState_APPROVAL_STATE_USED,
}

// Agents gives access to the agents of the registry.
type Agents interface {
	Get(id string) (*state.Agent, error)
	// Settings returns the settings that are in force.
	Settings(ctx context.Context, a *state.Agent) (*agentdir.Agent, error)
	// Missing reports whether there is no such agent.
	Missing(id string) bool
	// Place returns the directory of an agent; "" where it has none.
	Place(id string) string
}

// Turns reads turns.
type Turns interface {
	Turn(ctx context.Context, agent string, q store.TurnQuery) (store.Turn, error)
}

// Leases grants and checks leases.
type Leases interface {
	Check(ctx context.Context, resource string, token uint64) error
}

// Wakes notifies the calls that wait for a change of an approval.
type Wakes interface {
	// AwaitApproval waits for a change of one approval or question, or of any when id is empty.
	AwaitApproval(id string) (woken <-chan struct{}, done func())
	ApprovalChanged(id string)
	Again() <-chan time.Time
}

// Meter counts; [obs.RegistryMetrics] does.
type Meter interface {
	// AddApproval counts one that waits no more; decision: once, always, deny, expired.
	AddApproval(kind, decision string)
	// AddQuestion counts one that waits no more; end: answered, expired, canceled.
	AddQuestion(end string)
}

// Deps are the dependencies of a Service.
type Deps struct {
	wire.Faults
	Home      *agentdir.Home
	Agents    Agents
	Inboxes   Inboxes
	Leases    Leases
	Approvals store.Approvals
	Questions store.Questions // which count as answers that an agent waits for
	Meter     Meter
	Wakes     Wakes
	Life      time.Duration // how long a question waits for an answer; 0: as the settings of its agent say
	Make      Make
	Owners    Owners
	Log       *slog.Logger
}

// Owners are those of the home who were made owners with their pairing, each as type:peer.
type Owners interface {
	PairedOwners(ctx context.Context) ([]string, error)
}

// Service serves the RPCs. The zero value is not usable; see New.
type Service struct {
	registryv1.UnimplementedApprovalServiceServer
	Deps
	uses uses
}

// New returns the service.
func New(d Deps) *Service { return &Service{Deps: d, uses: uses{noted: map[string]time.Time{}}} }

// RequestApproval stores a question and waits for its answer.
func (s *Service) RequestApproval(ctx context.Context, req *registryv1.RequestApprovalRequest) (*registryv1.RequestApprovalResponse, error) {
	if _, err := s.Agents.Get(req.GetAgentId()); err != nil {
		return nil, err
	}
	fence, err := wire.RequireFence(ctx, lease.AgentResource(req.GetAgentId()))
	if err == nil {
		err = s.Leases.Check(ctx, fence.Resource, fence.Token)
	}
	if err != nil {
		return nil, s.Fault(req.GetAgentId(), "", err)
	}
	if err := s.checkCreate(ctx, req); err != nil {
		return nil, err
	}
	asked, err := s.ask(ctx, req)
	if err != nil {
		return nil, err
	}
	left := time.NewTimer(min(max(req.GetWait().AsDuration(), 0), maxWait, max(time.Until(asked.Expires), 0)))
	defer left.Stop()
	for over := false; ; {
		woken, done := s.Wakes.AwaitApproval(asked.ID)
		a, first, err := s.take(ctx, asked.ID, fence.Token, req.GetFallback())
		if err != nil || a.State != pending || over {
			done()
			out := &registryv1.RequestApprovalResponse{Approval: message(a)}
			if err == nil && a.State == used && req.GetCreateAgent() != nil {
				out.CreatedDir, err = s.create(ctx, a, req.GetCreateAgent(), first)
			}
			return out, err
		}
		select {
		case <-woken:
		case <-s.Wakes.Again():
		case <-left.C:
			over = true
		case <-rpc.Draining(ctx):
			over = true
		case <-ctx.Done():
			done()
			return nil, ctx.Err()
		}
		done()
	}
}

// ask stores a question, or finds the one that was asked with this key.
func (s *Service) ask(ctx context.Context, req *registryv1.RequestApprovalRequest) (store.Approval, error) {
	for {
		a, there, err := s.Approvals.Approval(ctx, "", req.GetAgentId(), req.GetKey())
		switch {
		case err != nil:
			return a, s.Fault(req.GetAgentId(), "", err)
		case there && (a.Digest != req.GetDigest() || a.Command != req.GetCommand() && req.GetCreateAgent() != nil):
			return a, wire.Bad("the key was used to ask for another command", "an approval is for one command")
		case there && a.Kind == kindNetwork && kindOf(req) != kindNetwork: // the settings have moved it to the host
			return a, wire.Bad("the key was used to ask for the command in the sandbox", "an approval is for one place")
		case there:
			return a, nil
		}
		if err := s.checkAbsent(req.GetCreateAgent()); err != nil { // a person need not be asked
			return a, err
		}
		if err := checkWaits(ctx, s.Approvals, s.Questions, req.GetAgentId()); err != nil {
			return a, s.Fault(req.GetAgentId(), "", err)
		}
		life, err := s.life(ctx, req.GetAgentId())
		if err != nil {
			return a, err
		}
		now := time.Now()
		a = store.Approval{
			ID: newID(now), Agent: req.GetAgentId(), Thread: req.GetThreadId(), Key: req.GetKey(), Command: req.GetCommand(), Cwd: req.GetCwd(),
			Reason: req.GetReason(), Digest: req.GetDigest(), State: pending, Requested: now, Expires: now.Add(life),
			Kind: kindOf(req), Tool: req.GetTool(), Summary: req.GetSummary(), Patterns: patternsText(req.GetPatterns()), External: req.GetExternal(),
		}
		if err := s.put(ctx, a, "", nil); !errors.Is(err, store.ErrMoved) { // else it was asked meanwhile
			return a, err
		}
	}
}

// newID rises with time, so that a list is in order.
func newID(now time.Time) string {
	b := make([]byte, 4)
	_, _ = rand.Read(b) // documented never to fail
	return fmt.Sprintf("%011x%x", now.UnixMilli(), b)
}

// life is how long a question of an agent waits.
func (s *Service) life(ctx context.Context, agent string) (time.Duration, error) {
	if s.Life > 0 {
		return s.Life, nil
	}
	set, err := s.settings(ctx, agent)
	if err != nil {
		return 0, err
	}
	return set.Config.Tools.ApprovalTimeout, nil
}

func (s *Service) settings(ctx context.Context, agent string) (*agentdir.Agent, error) {
	a, err := s.Agents.Get(agent)
	if err != nil {
		return nil, err
	}
	return s.Agents.Settings(ctx, a)
}

// put stores a, whose stored state must be was, with the policy that it changes, and wakes the
// waiters; store.ErrMoved when one of them has been changed.
func (s *Service) put(ctx context.Context, a store.Approval, was string, policy *store.ExecPolicy) error {
	err := s.Approvals.PutApproval(ctx, a, was, policy)
	if err == nil {
		if was == pending && a.State != pending {
			decision := a.Decision
			if a.State == expired { // also one that was closed
				decision = expired
			}
			s.Meter.AddApproval(cmp.Or(a.Kind, kindExec), decision)
		}
		s.Wakes.ApprovalChanged(a.ID)
		return nil
	}
	if errors.Is(err, store.ErrMoved) {
		return err
	}
	return s.Fault(a.Agent, "", err)
}

// change reads a question, applies next and stores the result with the policy that next
// returns, unless the state stays the same. Of two concurrent changes one is repeated. A
// question whose time is over is closed first.
func (s *Service) change(ctx context.Context, id string, next func(*store.Approval) (*store.ExecPolicy, error)) (store.Approval, error) {
	for {
		a, there, err := s.Approvals.Approval(ctx, id, "", "")
		switch {
		case err != nil:
			return a, s.Fault("", "", err)
		case !there:
			return a, fault.New(codes.NotFound, fault.ApprovalClosed, "there is no such approval", "see 'agentctl approvals list'")
		}
		was := a.State
		var policy *store.ExecPolicy
		if (was == pending || was == approved) && time.Now().After(a.Expires) {
			a.State = expired
		} else if policy, err = next(&a); err != nil || a.State == was {
			return a, err
		}
		if err := s.put(ctx, a, was, policy); err != nil && !errors.Is(err, store.ErrMoved) {
			return a, err
		} else if err == nil && a.State != expired {
			return a, nil
		}
	}
}

// take returns the state of a question. It uses an approval, once; the repeat of a call
// whose response was lost gets the same result under the same lease. With fallback a question
// that got no answer in its time counts as an approval.
func (s *Service) take(ctx context.Context, id string, token uint64, fallback bool) (a store.Approval, first bool, err error) {
	a, err = s.change(ctx, id, func(a *store.Approval) (*store.ExecPolicy, error) {
		first = a.State == approved || fallback && a.State == expired && a.Decision == ""
		if a.State == used && a.Token != token {
			return nil, fault.New(codes.FailedPrecondition, fault.ApprovalClosed, "the approval was already used", "ask again for a new run of the command")
		}
		if !first {
			return nil, nil
		}
		if err := s.Leases.Check(ctx, lease.AgentResource(a.Agent), token); err != nil { // it may have ended while the call waited
			return nil, s.Fault(a.Agent, "", err)
		}
		denies, err := s.denies(ctx, *a)
		if a.State, a.Token = used, token; denies {
			first, a.State, a.Decision, a.By, a.Expires = false, denied, decisionDeny, "tools.exec.security deny", time.Now()
		}
		return nil, err
	})
	return a, first, err
}

// ResolveApproval answers a question. One whose turn has ended is closed instead: the
// answer would not be read.
func (s *Service) ResolveApproval(ctx context.Context, req *registryv1.ResolveApprovalRequest) (*registryv1.ResolveApprovalResponse, error) {
	id, err := named(req.GetApprovalId(), shortApproval, func(after string, limit int) ([]store.Approval, error) {
		return s.Approvals.Approvals(ctx, after, "", "", limit)
	}, func(a store.Approval) string { return a.ID })
	if err != nil {
		return nil, s.Fault("", "", err)
	}
	asked, there, err := s.Approvals.Approval(ctx, id, "", "")
	if err != nil {
		return nil, s.Fault("", "", err)
	}
	if err := s.mayResolve(ctx, asked.Agent, req.GetBy()); err != nil {
		return nil, err
	}
	over := false
	if there && (asked.State == pending || asked.State == expired) {
		if over, err = turnOver(ctx, s.Inboxes, asked.Agent, asked.Key); err != nil {
			return nil, s.Fault(asked.Agent, "", err)
		}
	}
	decision, by := decisionOf(ctx, req)
	a, err := s.change(ctx, id, func(a *store.Approval) (*store.ExecPolicy, error) {
		switch {
		case over && a.State == pending:
			closeOf(a, endOfTurn)
			return nil, nil
		case a.State == expired && a.By == endOfTurn:
			return nil, fault.New(codes.FailedPrecondition, fault.ApprovalClosed, "agent '"+a.Agent+"' no longer waits for an answer: the turn that asked has ended",
				"nothing was run; the agent asks again if it still needs approval")
		case a.State != pending:
			return nil, fault.New(codes.FailedPrecondition, fault.ApprovalClosed, "the question is "+a.State+" already"+answered(*a), "the agent will ask again if it still wants to")
		case decision == decisionAlways && a.Patterns == "":
			return nil, wire.Bad("this question cannot be answered with always: what it is about cannot be allowed in advance", "approve it once")
		}
		now := time.Now()
		a.Decision, a.By = decision, by
		if decision == decisionDeny {
			a.State, a.Expires = denied, now
			return nil, nil
		}
		a.State, a.Expires = approved, now.Add(usable)
		if decision == decisionAlways {
			return s.withPatterns(ctx, *a)
		}
		return nil, nil
	})
	if err != nil {
		return nil, err
	}
	return &registryv1.ResolveApprovalResponse{Approval: message(a)}, nil
}

// mayResolve returns an error unless the caller may answer: a gateway does for an owner alone, who
// wrote it in a chat.
func (s *Service) mayResolve(ctx context.Context, agent, by string) error {
	if id, _ := rpc.IdentityFrom(ctx); id.Kind == rpc.Owner {
		return nil
	}
	owner, err := isOwner(ctx, s.Owners, s.Agents, agent, by)
	if err != nil {
		return s.Fault(agent, "", err)
	}
	if !owner {
		return fault.New(codes.PermissionDenied, fault.PermissionDenied, "only an owner may decide", "an owner decides, or the person is made one: 'agentctl pair approve CODE --owner'")
	}
	return nil
}

// isOwner reports whether a person, as type:peer, is an owner of the home, as the settings of an agent have them.
func isOwner(ctx context.Context, owners Owners, agents Agents, agent, person string) (bool, error) {
	list, err := owners.PairedOwners(ctx)
	if err != nil {
		return false, err
	}
	if a, err := agents.Get(agent); err == nil {
		set, err := agents.Settings(ctx, a)
		if err != nil {
			return false, err
		}
		list = append(list, set.Owners...)
	}
	return person != "" && slices.Contains(list, person), nil
}

// What has ended a question without an answer.
const (
	endOfTurn   = "the end of the turn"
	stopOfAgent = "the stop of the agent"
)

// closeOf ends a question without an answer.
func closeOf(a *store.Approval, by string) {
	a.State, a.Decision, a.By, a.Expires = expired, decisionDeny, by, time.Now()
}

// ListApprovals returns questions, oldest first.
func (s *Service) ListApprovals(ctx context.Context, req *registryv1.ListApprovalsRequest) (*registryv1.ListApprovalsResponse, error) {
	size := wire.Limit(req.GetPageSize(), 100)
	state := ""
	for name, st := range states {
		if st == req.GetState() && name != expired { // that one may not be written yet
			state = name
		}
	}
	list, err := s.Approvals.Approvals(ctx, req.GetPageToken(), req.GetAgentId(), state, size)
	if err != nil {
		return nil, s.Fault(req.GetAgentId(), "", err)
	}
	out := &registryv1.ListApprovalsResponse{}
	for _, a := range list {
		if m := message(a); req.GetState() == 0 || m.GetState() == req.GetState() {
			out.Approvals = append(out.Approvals, m)
		}
	}
	if len(list) == size {
		out.NextPageToken = list[size-1].ID
	}
	return out, nil
}

// notify are the words of tools.approval_notify.
var notify = map[string]registryv1.ApprovalNotify{
	config.NotifyOwners: registryv1.ApprovalNotify_APPROVAL_NOTIFY_OWNERS, config.NotifyOrigin: registryv1.ApprovalNotify_APPROVAL_NOTIFY_ORIGIN,
	config.NotifyNone: registryv1.ApprovalNotify_APPROVAL_NOTIFY_NONE,
}

// shown is a question with the place where people are asked, as the settings have it now. What cannot be known is
// left out: then the owners are asked.
func (s *Service) shown(ctx context.Context, m *registryv1.Approval) *registryv1.WatchApprovalsResponse {
	out := &registryv1.WatchApprovalsResponse{Approval: m}
	if m.GetState() != registryv1.ApprovalState_APPROVAL_STATE_PENDING {
		return out
	}
	a, err := s.Agents.Get(m.GetAgentId())
	if err != nil {
		return out
	}
	set, err := s.Agents.Settings(ctx, a)
	if err != nil {
		return out
	}
	out.Notify = notify[set.Config.Tools.ApprovalNotify]
	if out.GetNotify() == registryv1.ApprovalNotify_APPROVAL_NOTIFY_ORIGIN {
		out.Source, out.PlatformThread = origin(ctx, s.Inboxes, a.ID, m.GetKey())
	}
	return out
}

// origin is the address of who wrote the message of the turn that asks, and the thread of the platform in which it
// was written. Both are empty when the message cannot be read.
func origin(ctx context.Context, inboxes Inboxes, agent, key string) (address, platformThread string) {
	_, id, ok := turnOf(key)
	if !ok {
		return "", ""
	}
	e, _, err := inboxes.InboxEvent(ctx, agent, id)
	if err != nil {
		return "", ""
	}
	if c, err := channel.ParseContent(json.RawMessage(e.Content)); err == nil {
		platformThread = c.ReplyContext.PlatformThread()
	}
	return e.Source, platformThread
}

// message converts a question; one whose time is over is expired.
func message(a store.Approval) *registryv1.Approval {
	st := states[a.State]
	if (a.State == pending || a.State == approved) && time.Now().After(a.Expires) {
		st = registryv1.ApprovalState_APPROVAL_STATE_EXPIRED
	}
	out := &registryv1.Approval{
		ApprovalId: a.ID, ShortId: shortOf(shortApproval, a.ID), AgentId: a.Agent, ThreadId: a.Thread, Key: a.Key, Command: a.Command, Cwd: a.Cwd, Reason: a.Reason, Digest: a.Digest,
		State: st, RequestedAt: timestamppb.New(a.Requested), ExpiresAt: timestamppb.New(a.Expires),
		Kind: kinds[a.Kind], Tool: a.Tool, Summary: a.Summary, Patterns: patterns(a.Patterns), External: a.External, Decision: decisions[a.Decision], By: a.By,
	}
	if at := ended(a); !at.IsZero() {
		out.EndedAt = timestamppb.New(at)
	}
	return out
}
