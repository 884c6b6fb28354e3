// Package peer finds, exports and erases the data of one peer of an agent: in the inbox,
// the conversations and the memory.
//
//	address or id --find--> one peer --> conversations, complete or in part
//	                                     inbox events
//	                                     memory/user-..., memory/thread-...,
//	                                     memory/past/thread-..., sessions/
//	                                     questions asked of people, lines of the log
//	                                     what the peer wrote in groups without addressing the agent
//	                                     what was decided about the peer as a person of an account
//	                                     media that nothing else refers to
//
// It promises that it erases nothing of other peers except what is in the same turn or the
// same digest; that it erases conversations before the inbox, by which they are found, so
// that an interrupted erasure can be repeated; and that it refuses while anybody works on
// the agent or something of the peer is not finished. Among several registries each of its
// steps is a transaction that holds the row of the agent's lease and makes that check
// again.
//
// It does not reach what has left the agent: other agents' inboxes, the audit log, which
// records what programs were run, workdir/, backups, and memory/agent.md, which belongs to
// the agent; and what an owner had the agent write to the peer, which is a part of the
// owner's turn (docs/security.md).
package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/filter"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	"github.com/theclaw/agents/services/registry/internal/media"
	"github.com/theclaw/agents/services/registry/internal/state"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// page is how many conversations are listed at once.
const page = 500

// Data is the data of a peer.
type Data struct {
	Peer    route.Tuple // session fields empty
	Threads []Part      // conversations first, the inbox last
	Files   []string    // below the agent's directory, those that are there
	Open    int64       // see store.PeerShare
	agent   *state.Agent
}

// Part is the part of one thread that belongs to the peer.
type Part struct {
	ID    string
	Whole bool
	store.PeerShare
}

// who reports whether a tuple is the peer that was asked for.
func matchPeer(ask string) (func(route.Tuple) bool, error) {
	if !strings.HasPrefix(ask, "external:") && !strings.HasPrefix(ask, "internal:") {
		return func(t route.Tuple) bool { return t.PeerID == ask }, nil
	}
	want, _, err := route.Of(ask, "")
	if err != nil {
		return nil, err
	}
	return func(t route.Tuple) bool { return same(t, want) }, nil
}

func same(a, b route.Tuple) bool {
	return a.Internal == b.Internal && a.ChannelType == b.ChannelType && a.ChannelID == b.ChannelID && a.PeerID == b.PeerID
}

// Agents gives access to the agents of the registry and their data.
type Agents interface {
	Agent(ctx context.Context, id string) (*state.Agent, error)
	Threads(ctx context.Context, id, after string, limit int) ([]string, error)
	// Visit is called before a thread is read once, leave after it.
	Visit(r store.Ref) (leave func())
	Files
}

// Files are the files that an agent and its runner write.
type Files interface {
	// OwnFile returns one; the cause of one that is missing is fs.ErrNotExist.
	OwnFile(ctx context.Context, id, name string) ([]byte, error)
	// PastFiles lists those of threads that are digests of epochs that have ended.
	PastFiles(ctx context.Context, id string, threads []string) ([]string, error)
	// ErasePeer erases the data of a peer outside of threads: files by their names, and
	// what the records list.
	ErasePeer(ctx context.Context, id string, s store.PeerRecords, files []string) error
}

// Leases grants and checks leases.
type Leases interface {
	Get(ctx context.Context, resource string) (lease.Record, bool, error)
}

// Approvals lists what people were asked to approve, and has the policy for commands, which names the last
// command of each entry.
type Approvals interface {
	Approvals(ctx context.Context, after, agent, state string, limit int) ([]store.Approval, error)
	ExecPolicy(ctx context.Context) (store.ExecPolicy, error)
	PutExecPolicy(ctx context.Context, p store.ExecPolicy) error
}

// Wakes notifies the calls that wait for a question or an answer.
type Wakes interface{ ApprovalChanged(id string) }

// Store reads threads and erases the parts that belong to a peer.
type Store interface {
	store.Eraser
	Tuple(ctx context.Context, r store.Ref) (string, error)
	Read(ctx context.Context, r store.Ref, q store.Query) (store.Page, error)
	Turn(ctx context.Context, agent string, q store.TurnQuery) (store.Turn, error)
	ListDeliveries(ctx context.Context, r store.Ref, state string, after int64, limit int) ([]store.Delivery, error)
}

// Deps are the dependencies of Find, Export and Erase.
type Deps struct {
	wire.Faults
	Store     Store
	Approvals Approvals
	Agents    Agents
	Leases    Leases
	Wakes     Wakes
	// Questions are those that agents ask their peers.
	Questions store.Questions
	// Pairings are those of accounts.
	Pairings store.Pairings
	Log      wire.Log
	Media    media.Sweeper
}

// Find finds a peer of an agent. Errors: THREAD_NOT_FOUND, INVALID_ARGUMENT.
func (c Deps) Find(ctx context.Context, agentID, ask string) (*Data, error) {
	a, err := c.Agents.Agent(ctx, agentID)
	if err != nil {
		return nil, err
	}
	match, err := matchPeer(ask)
	if err != nil {
		return nil, err
	}
	f := &Data{agent: a}
	var peers []route.Tuple
	meet := func(t route.Tuple) bool {
		if !match(t) {
			return false
		}
		t.SessionType, t.SessionID = "", ""
		if !slices.ContainsFunc(peers, func(o route.Tuple) bool { return same(o, t) }) {
			peers = append(peers, t)
		}
		return true
	}
	inbox, err := c.Store.Share(ctx, store.Inbox(a.ID), store.PeerQuery{Match: func(e thread.Event) bool {
		t, _, err := route.Of(e.Source, e.Content)
		return err == nil && meet(t)
	}})
	if err != nil {
		return nil, c.Fault(a.ID, thread.Inbox, err)
	}
	f.Open = inbox.Open
	if err := f.conversations(ctx, c, inbox, meet); err != nil {
		return nil, err
	}
	if len(peers) == 0 {
		return nil, fault.New(codes.NotFound, fault.ThreadNotFound, fmt.Sprintf("agent '%s' has no data of a peer %.80q", agentID, ask),
			"look for the source of its messages: agentctl events "+agentID)
	}
	if len(peers) > 1 {
		return nil, fault.New(codes.InvalidArgument, fault.InvalidArgument, fmt.Sprintf("%.80q is a peer in %d channels: %s", ask, len(peers), list(peers)),
			"give the complete source address of one of its messages")
	}
	f.Peer = peers[0]
	if len(inbox.Events) > 0 {
		f.Threads = append(f.Threads, Part{ID: thread.Inbox, PeerShare: inbox})
	}
	return f, f.files(ctx, c)
}

func list(peers []route.Tuple) string {
	var out []string
	for _, p := range peers {
		out = append(out, p.ChannelType+":"+p.ChannelID)
	}
	return strings.Join(out, ", ")
}

// conversations reads all conversations of the agent: one that was made for the peer
// belongs to the peer completely, whatever the inbox holds; of the others, its turns.
func (f *Data) conversations(ctx context.Context, c Deps, inbox store.PeerShare, meet func(route.Tuple) bool) error {
	for after := ""; ; {
		ids, err := c.Agents.Threads(ctx, f.agent.ID, after, page)
		if err != nil {
			return err
		}
		for _, id := range ids {
			after = id
			if err := f.conversation(ctx, c, id, inbox, meet); err != nil {
				return c.Fault(f.agent.ID, id, err)
			}
		}
		if len(ids) < page {
			return nil
		}
	}
}

func (f *Data) conversation(ctx context.Context, c Deps, id string, inbox store.PeerShare, meet func(route.Tuple) bool) error {
	r := store.Ref{Agent: f.agent.ID, Thread: id}
	defer c.Agents.Visit(r)()
	text, err := c.Store.Tuple(ctx, r)
	if errors.Is(err, store.ErrNotFound) { // removed since it was listed
		return nil
	}
	if err != nil {
		return err
	}
	var t route.Tuple
	alone := strings.HasPrefix(id, "threads/peers/") && json.Unmarshal([]byte(text), &t) == nil && meet(t)
	var said []int64
	turns := slices.Contains(inbox.Threads, id)
	if !alone && (turns || strings.HasPrefix(id, "threads/sessions/") || strings.HasPrefix(id, "threads/topics/")) {
		if said, err = contextOf(ctx, c, r, meet); err != nil {
			return err
		}
	}
	if !alone && !turns && len(said) == 0 {
		return nil
	}
	s, err := c.Store.Share(ctx, r, store.PeerQuery{Whole: alone, Turns: inbox.Turns})
	if err != nil {
		return err
	}
	s.Events = append(s.Events, said...)
	slices.Sort(s.Events)
	if !alone {
		transcripts, err := transcriptsOf(ctx, c, r, s.Events)
		if err != nil {
			return err
		}
		s.Events = append(s.Events, transcripts...)
	}
	slices.Sort(s.Events)
	s.Events = slices.Compact(s.Events)
	if len(s.Events)+len(s.Turns) == 0 && !alone {
		return nil
	}
	f.Open += s.Open
	f.Threads = append(f.Threads, Part{ID: id, Whole: alone, PeerShare: s})
	return nil
}

// contextOf are the events of a conversation that a peer wrote without starting a turn.
func contextOf(ctx context.Context, c Deps, r store.Ref, meet func(route.Tuple) bool) ([]int64, error) {
	return eventsOf(ctx, c, r, thread.ContextFilter, func(e thread.Event) bool {
		t, _, err := route.Of(e.Source, e.Content)
		return err == nil && meet(t)
	})
}

// transcriptsOf are the records of what was said in the files of messages, whose ids rise. The turn of another peer may
// have made them.
func transcriptsOf(ctx context.Context, c Deps, r store.Ref, messages []int64) ([]int64, error) {
	return eventsOf(ctx, c, r, thread.TranscriptFilter, func(e thread.Event) bool {
		t, ok := thread.ParseTranscript(e.Content)
		_, mine := slices.BinarySearch(messages, t.Event)
		return ok && mine
	})
}

// eventsOf are the events of a conversation that a filter selects and that are a peer's.
func eventsOf(ctx context.Context, c Deps, r store.Ref, selected string, mine func(thread.Event) bool) (ids []int64, err error) {
	only, err := filter.Parse(selected)
	if err != nil {
		return nil, err
	}
	for after, more := int64(0), true; more; {
		p, err := c.Store.Read(ctx, r, store.Query{After: after, Limit: page, Filter: only})
		if err != nil {
			return nil, err
		}
		for _, e := range p.Events {
			after = e.ID
			if e.Content != store.Erased && mine(e) {
				ids = append(ids, e.ID)
			}
		}
		more = p.More && len(p.Events) > 0
	}
	return ids, nil
}

// Erase erases the data. Errors: LEASE_HELD, TURN_BEGUN.
func (f *Data) Erase(ctx context.Context, c Deps) error {
	if err := f.checkIdle(ctx, c); err != nil {
		return err
	}
	if err := f.eraseUses(ctx, c); err != nil {
		return err
	}
	if err := f.eraseFiles(ctx, c); err != nil {
		return err
	}
	refs := map[string]bool{}
	for _, p := range f.Threads {
		r := store.Ref{Agent: f.agent.ID, Thread: p.ID}
		err := c.Media.Store.MediaRefs(ctx, r, time.Time{}, func(sum string) { refs[sum] = true })
		if err == nil {
			err = c.Store.Erase(ctx, r, p.PeerShare)
		}
		if err != nil {
			return c.Fault(f.agent.ID, p.ID, err)
		}
	}
	// What nothing refers to now and was referred to there were the peer's media. Others may be those of a message that
	// comes next, of any person, until they are old: a repeat of an erasure that was interrupted finds its own then.
	swept, err := c.Media.Sweep(ctx, f.agent.ID, media.Sweep{Before: time.Now().Add(time.Second), New: refs, Apply: true})
	if err == nil && swept.Gone > 0 { // the names of files are not to stay in free pages of the inbox
		err = c.Store.Erase(ctx, store.Inbox(f.agent.ID), store.PeerShare{})
	}
	if err != nil {
		return c.Fault(f.agent.ID, thread.Inbox, err)
	}
	wire.LogAgent(c.Log, f.agent.ID, fmt.Sprintf("erased a peer: %d threads, %d files", len(f.Threads), len(f.Files)))
	return nil
}

// checkIdle refuses while somebody could read or write what is to be erased.
func (f *Data) checkIdle(ctx context.Context, c Deps) error {
	if f.agent.Started() {
		return fault.New(codes.FailedPrecondition, fault.LeaseHeld, "agent '"+f.agent.ID+"' is started", "stop it first: agentctl stop "+f.agent.ID)
	}
	for _, res := range []string{lease.AgentResource(f.agent.ID), lease.DeliverResource(f.agent.ID)} {
		rec, live, err := c.Leases.Get(ctx, res)
		if err != nil {
			return err
		}
		if live {
			return fault.New(codes.FailedPrecondition, fault.LeaseHeld, "agent '"+f.agent.ID+"' is being worked on by "+rec.Holder, "wait a moment and repeat it")
		}
	}
	if f.Open > 0 {
		return fault.New(codes.FailedPrecondition, fault.TurnBegun, fmt.Sprintf("%d messages, replies or dead letters of the peer are not done", f.Open),
			"let the agent finish, and drop its dead letters: agentctl dlq list")
	}
	return nil
}
