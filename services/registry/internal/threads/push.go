package threads

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/binding"
	"github.com/theclaw/agents/internal/chatcommand"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/sessionkey"
	"github.com/theclaw/agents/internal/source"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/admission"
	"github.com/theclaw/agents/services/registry/internal/state"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// PushEvents appends events durably (T0).
func (s *Service) PushEvents(ctx context.Context, req *registryv1.PushEventsRequest) (*registryv1.PushEventsResponse, error) {
	r := ref(req.GetThread())
	a, err := s.Agents.Get(r.Agent)
	if err != nil {
		return nil, err
	}
	o := store.AppendOptions{Key: req.GetIdempotencyKey()}
	if o.Fence, err = s.mayPush(ctx, r, req.GetEvents()); err != nil {
		return nil, err
	}
	set, broken := s.Agents.Settings(ctx, a)
	if broken == nil && r.IsInbox() { // settings that cannot be read are reported when the agent works
		for _, e := range req.GetEvents() {
			if err := admission.CheckSource(&set.Config, e.GetSource()); err != nil {
				return nil, err
			}
		}
	}
	events, err := newEvents(req.GetEvents())
	if err != nil {
		return nil, err
	}
	if broken != nil {
		set = nil
	}
	if err := s.origins(r, set, req.GetEvents(), events); err != nil {
		return nil, err
	}
	if err := commands(r, set, broken, req.GetEvents(), events); err != nil {
		return nil, err
	}
	out, err := s.put(ctx, r, a, set, events, o)
	if err != nil {
		return nil, err
	}
	return answer(r, events, out, set), nil
}

// Put stores messages in the inbox of an agent, within its limits and quotas; set is nil
// while its settings cannot be read. o.MaxPerPeer bounds what may wait of their source as
// well: QUEUE_FULL.
func (s *Service) Put(ctx context.Context, a *state.Agent, set *agentdir.Agent, events []store.NewEvent, o store.AppendOptions) (store.Appended, error) {
	if set != nil {
		for _, e := range events {
			if err := admission.CheckSource(&set.Config, e.Source); err != nil {
				return store.Appended{}, err
			}
		}
	}
	return s.put(ctx, store.Inbox(a.ID), a, set, events, o)
}

// Note stores a record in a conversation, which is made when it is absent. It is no message: no
// quota counts it and no turn follows from it.
func (s *Service) Note(ctx context.Context, a *state.Agent, set *agentdir.Agent, threadID, tuple string, e store.NewEvent, o store.AppendOptions) (store.Appended, error) {
	if err := admission.CheckSource(&set.Config, e.Source); err != nil {
		return store.Appended{}, err
	}
	r := store.Ref{Agent: a.ID, Thread: threadID}
	if _, err := s.Store.Ensure(ctx, r, tuple); err != nil {
		return store.Appended{}, s.Fault(r.Agent, r.Thread, err)
	}
	return s.put(ctx, r, a, nil, []store.NewEvent{e}, o)
}

func (s *Service) put(ctx context.Context, r store.Ref, a *state.Agent, set *agentdir.Agent, events []store.NewEvent, o store.AppendOptions) (out store.Appended, err error) {
	capped := false // by the caller
	if r.IsInbox() {
		o.MaxPending = s.Limits.Pending
		if capped = o.MaxPerPeer > 0 && (s.Limits.PerPeer == 0 || o.MaxPerPeer < s.Limits.PerPeer); !capped {
			o.MaxPerPeer = s.Limits.PerPeer
		}
	}
	if err := s.Agents.Space(); err != nil {
		return out, err
	}
	back := func() {}
	if set != nil && r.IsInbox() && o.Fence == nil {
		if back, err = s.takeQuota(ctx, set, a.ID, events); err != nil {
			return out, err
		}
	}
	begun := time.Now()
	fault.Point("T0.before")
	out, err = s.Store.Append(ctx, r, events, o)
	if err != nil || out.Duplicate {
		back()
	}
	// After the commit: an acknowledged message must have a directory to be in.
	if gone := s.Agents.Present(r.Agent); gone != nil {
		return out, gone
	}
	if capped && errors.Is(err, store.ErrPeerFull) {
		return out, fault.New(codes.ResourceExhausted, fault.QueueFull, fmt.Sprintf("%d of your messages wait for their answers already", o.MaxPerPeer), "this one was not stored: send it again later")
	}
	if err != nil {
		return out, s.Fault(r.Agent, r.Thread, err)
	}
	fault.Point("T0.after")
	if out.Duplicate {
		s.Metrics.DedupHits.Inc()
	} else {
		s.Metrics.Pushes.Inc()
		s.trace(ctx, r, out.IDs, events, begun)
	}
	if r.IsInbox() {
		s.Agents.Pushed(ctx, a)
	}
	return out, nil
}

// origins gives the events of a push their origin, whose conversation the caller names, or the
// settings do by a scope that routing.default does not have. set is nil while they cannot be
// read.
func (s *Service) origins(r store.Ref, set *agentdir.Agent, in []*registryv1.NewEvent, out []store.NewEvent) error {
	for i, e := range in {
		if e.GetSessionKey() == "" {
			if set != nil && r.IsInbox() && e.GetType() == thread.TypeMessage {
				out[i].Origin = scoped(set, e)
			}
			continue
		}
		k, err := sessionkey.Parse(e.GetSessionKey())
		switch {
		case err != nil:
			return err
		case !r.IsInbox() || e.GetType() != thread.TypeMessage:
			return wire.Bad("only a message in the inbox has a session key", "leave session_key out")
		case k.Agent != r.Agent:
			return fault.New(codes.InvalidArgument, fault.SessionKeyInvalid, fmt.Sprintf("%.200q is a conversation of agent '%s', not of '%s'", e.GetSessionKey(), k.Agent, r.Agent),
				"name that agent, or a key that 'agentctl sessions list "+r.Agent+"' shows")
		}
		out[i].Origin = &store.Origin{Thread: k.Thread(), Key: k.String()}
	}
	return nil
}

// commands adds the chat commands of a push to the origins of its events. set is nil while the settings cannot be
// read, and broken says why: without them, nothing says to which conversation a command belongs.
func commands(r store.Ref, set *agentdir.Agent, broken error, in []*registryv1.NewEvent, out []store.NewEvent) error {
	for i, e := range in {
		c := e.GetCommand()
		if c == nil {
			continue
		}
		switch {
		case !r.IsInbox() || e.GetType() != thread.TypeMessage:
			return wire.Bad("only a message in the inbox is a command", "leave command out")
		case !chatcommand.Queued(c.GetName()):
			return wire.Bad(fmt.Sprintf("%.40q is no command that an agent carries out", c.GetName()), "leave command out: then the text is a message")
		case !utf8.ValidString(c.GetArgs()):
			return wire.ErrNotText
		case set == nil:
			return broken
		}
		if out[i].Origin == nil {
			t, _, err := route.Of(e.GetSource(), e.GetContent())
			if err != nil {
				return err
			}
			mode, err := route.ParseMode(set.Config.Routing.Default)
			if err != nil {
				return err
			}
			k, ok := sessionkey.OfThread(set.ID, route.Thread(mode, t), set.Config.Session.MainKey, t)
			if !ok {
				return wire.Bad("the conversation has no session that a command could be about", "leave command out")
			}
			out[i].Origin = &store.Origin{Thread: k.Thread(), Key: k.String()}
		}
		out[i].Origin.Command = wire.StoredCommand(c)
	}
	return nil
}

// scoped is the origin of a message that came from no account, by session.dm_scope and
// routing.groups; nil where these are not set, or no key can name its conversation: then it is
// routed by its source.
func scoped(set *agentdir.Agent, e *registryv1.NewEvent) *store.Origin {
	c := &set.Config
	if c.Session.DMScope == "" && c.SharesGroups(false) {
		return nil
	}
	t, _, err := route.Of(e.GetSource(), e.GetContent())
	if err != nil || t.Internal {
		return nil
	}
	k := binding.KeyOfSource(binding.Agent{ID: set.ID, MainKey: c.Session.MainKey, DM: c.DMScope(), Shared: c.SharesGroups(false)}, t)
	if k.Validate() != nil {
		return nil
	}
	return &store.Origin{Thread: k.Thread(), Key: k.String()}
}

// answer describes a push; set is nil when the settings of the agent cannot be read.
func answer(r store.Ref, events []store.NewEvent, out store.Appended, set *agentdir.Agent) *registryv1.PushEventsResponse {
	resp := &registryv1.PushEventsResponse{EventIds: out.IDs, Duplicate: out.Duplicate, AcceptedAt: timestamppb.New(out.At)}
	for i, e := range events {
		conversation, run := "", ""
		switch {
		case !r.IsInbox():
			conversation = r.Thread
		case e.Type == thread.TypeMessage:
			run = out.Keys[i]
			if o := out.Origins[i]; o != nil {
				conversation = o.Thread
			} else if set != nil { // what has no route gets a fate that says why
				conversation, _ = wire.ThreadOf(thread.Event{Source: e.Source, Type: e.Type, Subtype: e.Subtype, Content: e.Content}, set.Config.Routing.Default)
			}
		}
		resp.ThreadIds, resp.RunIds = append(resp.ThreadIds, conversation), append(resp.RunIds, run)
	}
	return resp
}

// takeQuota counts messages from outside against the quotas of the agent, or
// refuses them; back undoes it. An agent whose settings cannot be read takes messages
// without a quota: they wait.
func (s *Service) takeQuota(ctx context.Context, set *agentdir.Agent, id string, events []store.NewEvent) (back func(), err error) {
	var taken []string
	back = func() {
		for _, from := range taken {
			s.Quota.Back(ctx, &set.Config, id, from, 1)
		}
	}
	for _, e := range events {
		if err := s.Quota.Take(ctx, &set.Config, id, e.Source, 1); err != nil {
			back()
			return nil, s.Fault(id, thread.Inbox, err)
		}
		taken = append(taken, e.Source)
	}
	return back, nil
}

// mayPush checks that the caller may write the events there. The inbox takes events from anybody
// the caller may speak for; every other thread, and the name self, belong to the
// holder of the agent's lease.
func (s *Service) mayPush(ctx context.Context, r store.Ref, events []*registryv1.NewEvent) (*store.Fence, error) {
	fence, hasFence := wire.Fence(ctx)
	own := hasFence && (fence.Resource == lease.AgentResource(r.Agent) || fence.Resource == lease.DeliverResource(r.Agent))
	if !r.IsInbox() && !own {
		return nil, fault.New(codes.PermissionDenied, fault.PermissionDenied, fmt.Sprintf("only the agent itself writes to thread %q", r.Thread), "push to its inbox instead")
	}
	id, _ := rpc.IdentityFrom(ctx)
	for _, e := range events {
		if r.IsInbox() {
			if err := route.CheckStated(e.GetSource(), e.GetContent()); err != nil {
				return nil, err
			}
		}
		a, _, err := source.ParseLenient(e.GetSource())
		if err != nil {
			return nil, err
		}
		switch {
		case a.Kind == source.Self && !own:
			return nil, fault.New(codes.PermissionDenied, fault.SourceForbidden, "source self needs the agent's lease", "name the sender, such as external:console:cli:dm:cli:cli")
		case a.Kind == source.Internal && id.Kind != rpc.Owner && !s.speaksFor(ctx, hasFence, fence, a.AgentID):
			return nil, fault.New(codes.PermissionDenied, fault.SourceForbidden, "source "+e.GetSource()+" is not the caller's own", "push with the lease of the agent that speaks")
		case a.AboutProcess():
			return nil, fault.New(codes.PermissionDenied, fault.SourceForbidden, "only the registry writes about processes", "choose another source")
		case e.GetCommand() != nil && a.Kind != source.External:
			return nil, fault.New(codes.PermissionDenied, fault.SourceForbidden, "only a person writes commands", "leave command out")
		case e.GetSessionKey() != "" && a.Kind != source.External:
			return nil, fault.New(codes.PermissionDenied, fault.SourceForbidden, "only a person's message names its conversation", "leave session_key out")
		case a.Kind == source.External && id.Kind != rpc.Owner && id.Role() != "runner": // its StartRun forwards what the owner wrote
			return nil, fault.New(codes.PermissionDenied, fault.SourceForbidden, "the caller may not use the source "+e.GetSource(), "only the owner, or a runner on the owner's behalf, may write in the name of a person")
		}
	}
	if own {
		return &fence, nil
	}
	return nil, nil
}

// speaksFor reports whether the call has a live lease of agentID.
func (s *Service) speaksFor(ctx context.Context, has bool, f store.Fence, agentID string) bool {
	return has && strings.HasSuffix(f.Resource, "/"+agentID) && s.Leases.Check(ctx, f.Resource, f.Token) == nil
}

func newEvents(in []*registryv1.NewEvent) ([]store.NewEvent, error) {
	out, sum := make([]store.NewEvent, len(in)), 0
	for i, e := range in {
		if e.GetType() != thread.TypeMessage && e.GetType() != thread.TypeRecord {
			return nil, wire.Bad(fmt.Sprintf("event type %q is unknown", e.GetType()), "use message or record")
		}
		if !utf8.ValidString(e.GetContent()) {
			return nil, wire.ErrNotText
		}
		if len(e.GetContent()) > thread.MaxEvent {
			return nil, wire.TooLarge(e.GetContent())
		}
		out[i] = store.NewEvent{Source: e.GetSource(), Type: e.GetType(), Subtype: e.Subtype, Content: e.GetContent()}
		sum += len(e.GetContent()) + len(e.GetSource()) + 64
	}
	if sum > thread.MaxAnswer {
		return nil, fault.New(codes.InvalidArgument, fault.EventTooLarge, fmt.Sprintf("the push has %d bytes; the limit is %d", sum, thread.MaxAnswer), "push in smaller batches")
	}
	return out, nil
}
