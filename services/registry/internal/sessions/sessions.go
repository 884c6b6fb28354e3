// Package sessions implements SessionService: people list the conversations of an agent, see and
// change what belongs to one besides its events, and let the next message begin a new epoch.
//
// A change is in force from the next message on: the epoch, the model and everything else are
// read when a turn is claimed, and a turn under way keeps what it has. It promises that a
// repeated call changes nothing more, and that a key finds its conversation in the case
// that its platform wrote, or in another one where only one conversation has it.
//
// It begins no epoch itself: package machine does, when the next message is claimed.
package sessions

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/sessionkey"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thinking"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/state"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

const (
	// maxAlias bounds the keys that an error lists.
	maxAlias = 10
	// maxTitle is the most characters of a title.
	maxTitle = 64
	// waitingPage is how many messages of an agent are read at a time to count those of a conversation, and
	// waitingPages how often: 1,000 in all.
	waitingPage, waitingPages = 100, 10
)

// Agents gives access to the agents of the registry.
type Agents interface {
	Get(id string) (*state.Agent, error)
	// Missing reports whether an agent does not exist.
	Missing(id string) bool
}

// Store stores sessions.
type Store interface {
	store.Sessions
	Ensure(ctx context.Context, r store.Ref, tuple string) (created bool, err error)
	Read(ctx context.Context, r store.Ref, q store.Query) (store.Page, error)
	State(ctx context.Context, agent string) (store.InboxState, error)
	ListTurns(ctx context.Context, agent string, q store.ListTurns) ([]store.Turn, error)
	Turn(ctx context.Context, agent string, q store.TurnQuery) (store.Turn, error)
	SumUsage(ctx context.Context, r store.Ref, q store.SumUsage) ([]store.UsageSum, error)
	LastAnswer(ctx context.Context, r store.Ref, since time.Time) (store.UsageSum, error)
}

// Deps are the dependencies of a Service.
type Deps struct {
	wire.Faults
	Store  Store
	Agents Agents
}

// Service serves the RPCs. The zero value is not usable; see New.
type Service struct {
	registryv1.UnimplementedSessionServiceServer
	Deps
}

// New returns the service.
func New(d Deps) *Service { return &Service{Deps: d} }

// ListSessions answers a page of the sessions of an agent.
func (s *Service) ListSessions(ctx context.Context, req *registryv1.ListSessionsRequest) (*registryv1.ListSessionsResponse, error) {
	id := req.GetAgentId()
	if err := s.exists(id); err != nil {
		return nil, err
	}
	q := store.ListSessions{Limit: wire.Limit(req.GetPageSize(), 100), Archived: req.GetArchived()}
	if at := req.GetActiveSince(); at != nil {
		q.Since = at.AsTime()
	}
	var err error
	if q.Before, q.BeforeThread, err = readToken(req.GetPageToken()); err != nil {
		return nil, err
	}
	out := &registryv1.ListSessionsResponse{}
	for {
		page, err := s.Store.ListSessions(ctx, id, q)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, s.Fault(id, thread.Inbox, err)
		}
		for _, e := range page {
			q.Before, q.BeforeThread = e.LastAt, e.Thread
			if kindOf(e.Key, req.GetKind()) {
				entry := wire.SessionEntry(id, e)
				if req.GetOverrides() { // none where the conversation was removed since, or cannot be read
					if got, err := s.Store.Session(ctx, store.Ref{Agent: id, Thread: e.Thread}); err == nil {
						entry.Overrides = wire.Session(id, e.Thread, got).GetOverrides()
					}
				}
				out.Sessions = append(out.Sessions, entry)
			}
			if len(out.GetSessions()) == q.Limit {
				out.NextPageToken = token(e)
				return out, nil
			}
		}
		if len(page) < q.Limit {
			return out, nil
		}
	}
}

// kindOf reports whether a key is of a kind; empty: of any.
func kindOf(key, kind string) bool {
	if kind == "" {
		return true
	}
	k, err := sessionkey.Parse(key)
	if err != nil {
		return false
	}
	switch k.Scope {
	case sessionkey.Main:
		return kind == "main"
	case sessionkey.Conversation:
		return kind == k.Kind
	case sessionkey.Named:
		return kind == "named"
	case sessionkey.Channel:
		return kind == sessionkey.ChannelGroup
	}
	return kind == sessionkey.DM
}

func token(e store.SessionEntry) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(store.Millis(e.LastAt), 10) + " " + e.Thread))
}

func readToken(text string) (at time.Time, threadID string, err error) {
	if text == "" {
		return at, "", nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	ms, threadID, ok := strings.Cut(string(raw), " ")
	n, bad := strconv.ParseInt(ms, 10, 64)
	if err != nil || bad != nil || !ok {
		return at, "", wire.Bad("the page token was not issued by this service", "pass next_page_token as it was answered")
	}
	return store.FromMillis(n), threadID, nil
}

// exists returns AGENT_NOT_FOUND for an agent that does not.
func (s *Service) exists(id string) error {
	if _, err := s.Agents.Get(id); err != nil {
		return err
	}
	if s.Agents.Missing(id) {
		return s.Fault(id, thread.Inbox, store.ErrNotFound)
	}
	return nil
}

// GetSession answers one session.
func (s *Service) GetSession(ctx context.Context, req *registryv1.GetSessionRequest) (*registryv1.GetSessionResponse, error) {
	k, err := s.find(ctx, req.GetAgentId(), req.GetKey())
	if err != nil {
		return nil, err
	}
	got, err := s.session(ctx, k)
	if err != nil {
		return nil, err
	}
	out := wire.Session(k.Agent, k.Thread(), got)
	newest, err := s.Store.Read(ctx, ref(k), store.Query{Tail: true, Limit: 1})
	if err != nil {
		return nil, s.SessionFault(k, err)
	}
	for _, e := range newest.Events {
		if at := thread.ParseStamp(e.CreatedAt); !at.IsZero() {
			out.LastAt = timestamppb.New(at)
		}
	}
	if list, err := s.Store.ListSessions(ctx, k.Agent, store.ListSessions{Folded: k.Folded(), Limit: maxAlias, Archived: true}); err == nil {
		if i := slices.IndexFunc(list, func(e store.SessionEntry) bool { return e.Thread == k.Thread() }); i >= 0 {
			out.Messages = list[i].Messages
		}
	}
	answer := &registryv1.GetSessionResponse{Session: out}
	if req.GetWithUsage() {
		if err := s.addUsage(ctx, k, got, answer); err != nil {
			return nil, s.SessionFault(k, err)
		}
	}
	if req.GetWithWaiting() {
		if answer.Waiting, answer.WaitingTurn, err = s.waiting(ctx, k); err != nil {
			return nil, s.SessionFault(k, err)
		}
	}
	return answer, nil
}

// addUsage adds what the epoch of a session has used.
func (s *Service) addUsage(ctx context.Context, k sessionkey.Key, se store.Session, out *registryv1.GetSessionResponse) error {
	var since time.Time // an epoch without a beginning is the complete conversation
	if se.EpochFrom > 0 {
		since = se.StartedAt
	}
	sums, err := s.Store.SumUsage(ctx, ref(k), store.SumUsage{Since: since})
	if err != nil {
		return err
	}
	for _, sum := range sums {
		out.Usage = append(out.Usage, wire.UsageSum(k.Thread(), sum))
	}
	last, err := s.Store.LastAnswer(ctx, ref(k), since)
	if err != nil {
		return err
	}
	if last.Answers > 0 {
		out.Last = wire.UsageSum(k.Thread(), last)
	}
	return nil
}

// waiting counts the messages of a conversation that no turn has begun, among the newest of the agent, and those whose
// turn waits for its next try, of which first is the turn; nil: it does not wait. A turn that was begun through another
// registry counts as one that waits.
func (s *Service) waiting(ctx context.Context, k sessionkey.Key) (n int64, first *registryv1.Turn, err error) {
	open, begun, err := s.unsettled(ctx, k)
	if err != nil || len(open) == 0 {
		return 0, nil, err
	}
	n = int64(len(open) - begun)
	// The turns of a conversation are one after another: what has begun waits with the first message.
	t, err := s.Store.Turn(ctx, k.Agent, store.TurnQuery{InboxID: open[len(open)-1]})
	if err != nil || t.State != store.TurnWaiting {
		return n, nil, err
	}
	return n + int64(begun), wire.Turn(t), nil
}

// unsettled lists the messages of a conversation that have no fate, newest first, and counts those that a turn has begun.
func (s *Service) unsettled(ctx context.Context, k sessionkey.Key) (open []int64, begun int, err error) {
	a, err := s.Agents.Get(k.Agent)
	if err != nil {
		return nil, 0, err
	}
	inbox, err := s.Store.State(ctx, k.Agent)
	if err != nil {
		return nil, 0, err
	}
	q := store.ListTurns{Limit: waitingPage}
	for range waitingPages {
		page, err := s.Store.ListTurns(ctx, k.Agent, q)
		if err != nil {
			return nil, 0, err
		}
		for _, t := range page {
			if t.InboxID <= inbox.Acked {
				return open, begun, nil
			}
			if t.Fate != store.FateNone || t.Thread != k.Thread() {
				continue
			}
			open = append(open, t.InboxID)
			if _, claimed := a.Claimed(t.Thread, t.Key); claimed {
				begun++
			}
		}
		if len(page) < q.Limit {
			break
		}
		q.Before = page[len(page)-1].InboxID
	}
	return open, begun, nil
}

// session is the session of a conversation, or an empty one where it has none yet.
func (s *Service) session(ctx context.Context, k sessionkey.Key) (store.Session, error) {
	got, err := s.Store.Session(ctx, ref(k))
	if errors.Is(err, store.ErrNoSession) { // of an earlier version; the next message makes one
		return store.Session{Key: k.String()}, nil
	}
	return got, s.SessionFault(k, err)
}

func ref(k sessionkey.Key) store.Ref { return store.Ref{Agent: k.Agent, Thread: k.Thread()} }

// find returns the key of a conversation by a text that may differ from it in case. Errors:
// SESSION_KEY_INVALID, AGENT_NOT_FOUND.
func (s *Service) find(ctx context.Context, agentID, text string) (sessionkey.Key, error) {
	k, err := sessionkey.Parse(text)
	if err != nil {
		k, err = sessionkey.Parse(strings.ToLower(text))
	}
	if err != nil {
		return k, err
	}
	if agentID != "" && agentID != k.Agent {
		return k, fault.New(codes.InvalidArgument, fault.SessionKeyInvalid, fmt.Sprintf("%.200q is a conversation of agent '%s', not of '%s'", text, k.Agent, agentID),
			"name that agent, or a key that 'agentctl sessions list "+agentID+"' shows")
	}
	if err := s.exists(k.Agent); err != nil {
		return k, err
	}
	if _, err := s.session(ctx, k); !fault.Is(err, fault.SessionNotFound) {
		return k, err
	}
	list, err := s.Store.ListSessions(ctx, k.Agent, store.ListSessions{Folded: k.Folded(), Limit: maxAlias, Archived: true})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return k, s.SessionFault(k, err)
	}
	switch len(list) {
	case 0:
		return k, nil // the caller's next read finds that it is not there
	case 1:
		return sessionkey.Parse(list[0].Key)
	}
	keys := make([]string, len(list))
	for i, e := range list {
		keys[i] = e.Key
	}
	return k, fault.New(codes.InvalidArgument, fault.SessionKeyInvalid, fmt.Sprintf("%d conversations differ from %.200q in case alone: %s", len(list), text, strings.Join(keys, ", ")),
		"write the key exactly")
}

// PatchSession changes a session.
func (s *Service) PatchSession(ctx context.Context, req *registryv1.PatchSessionRequest) (*registryv1.PatchSessionResponse, error) {
	k, err := s.find(ctx, req.GetAgentId(), req.GetKey())
	if err != nil {
		return nil, err
	}
	p := store.SessionPatch{
		Model: req.Model, Thinking: req.Thinking, Verbose: req.Verbose, Reasoning: req.Reasoning, QueueMode: req.QueueMode,
		UsageFooter: req.UsageFooter, Elevated: req.Elevated, Title: req.Title,
	}
	if err := Check(p); err != nil {
		return nil, err
	}
	if req.GetCreate() {
		if _, err := s.Store.Ensure(ctx, ref(k), ""); err != nil {
			return nil, s.SessionFault(k, err)
		}
	}
	out, err := s.patch(ctx, k, p)
	return &registryv1.PatchSessionResponse{Session: out}, err
}

// Check refuses a change with values that a session cannot have.
func Check(p store.SessionPatch) error {
	for _, f := range []struct {
		name  string
		value *string
		words []string
	}{
		{"verbose", p.Verbose, []string{"", config.VerboseOff, config.VerboseOn, config.VerboseFull}},
		{"reasoning", p.Reasoning, []string{"", config.ReasoningOff, config.ReasoningStream, config.ReasoningBlock}},
		{"queue_mode", p.QueueMode, []string{"", "followup", "collect", "steer", "interrupt"}},
		{"usage_footer", p.UsageFooter, []string{"", config.FooterOff, config.FooterTokens, config.FooterFull}},
		{"elevated", p.Elevated, []string{"", "off", "on", "ask", "full"}},
	} {
		if f.value != nil && !slices.Contains(f.words, *f.value) {
			return wire.Bad(fmt.Sprintf("%s is %.40q", f.name, *f.value), "write one of "+strings.Join(f.words[1:], ", ")+", or nothing for what the settings say")
		}
	}
	if p.Thinking != nil {
		if _, ok := thinking.Parse(*p.Thinking); !ok {
			return wire.Bad(fmt.Sprintf("thinking is %.40q", *p.Thinking), "write "+thinking.Form+", or nothing for what the settings say")
		}
	}
	for _, v := range []*string{p.Model, p.Title} {
		if v != nil && *v != "" && boundary.Name(*v) != *v {
			return wire.Bad("a model or a title has characters that cannot be printed", "write it in one line")
		}
	}
	if p.Title != nil && utf8.RuneCountInString(*p.Title) > maxTitle {
		return wire.Bad(fmt.Sprintf("the title has %d characters", utf8.RuneCountInString(*p.Title)), fmt.Sprintf("write %d at most", maxTitle))
	}
	return nil
}

// patch changes a session, and the list of the agent's sessions with it. A process that is killed
// between the two leaves the list as it was until the next message, or until fsck.
func (s *Service) patch(ctx context.Context, k sessionkey.Key, p store.SessionPatch) (*registryv1.Session, error) {
	p.Key = k.String()
	got, err := s.Store.PatchSession(ctx, ref(k), p)
	if err != nil {
		return nil, s.SessionFault(k, err)
	}
	fault.Point("session:patched")
	if a, err := s.Agents.Get(k.Agent); err == nil { // a turn that ends now lists the session as it is
		a.NoteSession(k.Thread(), got)
	}
	if err := s.Store.NoteSession(ctx, ref(k), got); err != nil {
		return nil, s.SessionFault(k, err)
	}
	return wire.Session(k.Agent, k.Thread(), got), nil
}

// ResetSession makes the next message begin a new epoch.
func (s *Service) ResetSession(ctx context.Context, req *registryv1.ResetSessionRequest) (*registryv1.ResetSessionResponse, error) {
	reason := req.GetReason()
	if reason == "" {
		reason = store.EpochReset
	}
	out, err := s.end(ctx, req.GetAgentId(), req.GetKey(), store.SessionPatch{Pending: &reason})
	return &registryv1.ResetSessionResponse{Session: out}, err
}

// ArchiveSession leaves a session out of the list, and makes the next message begin a new
// epoch.
func (s *Service) ArchiveSession(ctx context.Context, req *registryv1.ArchiveSessionRequest) (*registryv1.ArchiveSessionResponse, error) {
	out, err := s.end(ctx, req.GetAgentId(), req.GetKey(), store.SessionPatch{Pending: new(store.EpochArchive), Archived: new(true)})
	return &registryv1.ArchiveSessionResponse{Session: out}, err
}

func (s *Service) end(ctx context.Context, agentID, key string, p store.SessionPatch) (*registryv1.Session, error) {
	k, err := s.find(ctx, agentID, key)
	if err != nil {
		return nil, err
	}
	id, _ := rpc.IdentityFrom(ctx)
	p.By = cmp.Or(id.Role(), "owner")
	return s.patch(ctx, k, p)
}
