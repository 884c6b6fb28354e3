// Package store defines the storage contract: what an engine must keep, and in which
// transaction, so that the promises about messages hold with every engine.
//
// An engine holds, for every agent, an inbox and conversation threads. The journal of
// turns and deliveries is in the same database as the events, so that an event and the
// fact that it was written commit together. Each write under a lease carries a Fence: the
// engine compares it with the live lease and with the greatest token seen in that
// database, inside the transaction, and returns ErrLeaseLost without a change when it is
// stale. Pushes carry no lease; they are deduplicated by key.
//
//	inbox                      conversation thread
//	  Append ............ T0
//	  OpenBatch  (seal)          Begin  ......... T1 + T2
//	                             Record ......... T3, T4, T6
//	                             Steer .......... members of a turn
//	                             Finish ......... T7 or T9
//	  Settle ............ T8     NextDelivery ... D1
//	                             FinishDelivery . D3, D4
//
// Two databases never commit together: the order above makes a crash between them
// harmless, because every step is idempotent by the event's key.
//
// Append, Finish and an intent of class effect are on disk before they return; the rest
// may be lost to a power cut and is then done again.
//
// The package does no I/O. Package storetest is the suite that every engine passes.
package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/theclaw/agents/internal/filter"
	"github.com/theclaw/agents/internal/thread"
)

// Errors an engine answers; compare with errors.Is.
var (
	ErrNotFound       = errors.New("thread not found")
	ErrNoConsumer     = errors.New("consumer not found")
	ErrConsumerExists = errors.New("consumer exists")
	ErrLeaseLost      = errors.New("lease lost")
	ErrKeyMismatch    = errors.New("another event stands under this id")
	ErrMemoryMoved    = errors.New("memory was digested by another meanwhile")
	ErrNoTurn         = errors.New("turn not found")
	ErrNoDelivery     = errors.New("delivery not found")
	ErrNotDead        = errors.New("not a dead letter")
	ErrStopped        = errors.New("agent is stopped")
	ErrInboxFull      = errors.New("inbox is full")
	ErrPeerFull       = errors.New("too many messages of this sender wait") // others may still push
	ErrCorrupt        = errors.New("database is corrupt")
	ErrFormat         = errors.New("database has another format")
	ErrKeyReused      = errors.New("idempotency key was used for another push")
	ErrIO             = errors.New("input/output error")
	ErrDiskFull       = errors.New("disk is full")
	ErrReadOnly       = errors.New("read-only")
	ErrBusy           = errors.New("locked by another program")
	ErrNoMemory       = errors.New("out of memory") // of this call; the next one may have some
	ErrClosed         = errors.New("store is closed")
)

// LostCommits reports that an inbox has lost its newest commits, with its -wal file or in a
// power failure: the text file next to it has a line for an event that the database never
// knew. It is an [ErrCorrupt]: under the ids that would be given out again, threads may
// hold what was answered before.
type LostCommits struct {
	Line int64 // the newest event of events.jsonl
	Last int64 // the newest event id that the database has ever given
}

func (e *LostCommits) Error() string {
	return fmt.Sprintf("events.jsonl has event %d, and the database never had one after %d: its last commits are lost", e.Line, e.Last)
}

// Unwrap returns [ErrCorrupt].
func (e *LostCommits) Unwrap() error { return ErrCorrupt }

// Ref names a thread.
type Ref struct {
	Agent  string
	Thread string // "inbox" or a path below the agent directory
}

// Inbox is the inbox of agent.
func Inbox(agent string) Ref { return Ref{agent, thread.Inbox} }

// IsInbox reports whether r is an inbox.
func (r Ref) IsInbox() bool { return r.Thread == thread.Inbox }

// String is agent/thread.
func (r Ref) String() string { return r.Agent + "/" + r.Thread }

// Fence is the proof of a lease.
type Fence struct {
	Resource string
	Token    uint64
}

// NewEvent is an event to append; the engine gives id and time.
type NewEvent struct {
	Source, Type string
	Subtype      *string
	Content      string
	Origin       *Origin // inbox only; nil: it is routed by its source
}

// AppendOptions of one push.
type AppendOptions struct {
	Key        string   // idempotency; empty: none
	PartKeys   []string // further keys of the same event: a push under one of them is a repeat. One that is in use stays as it is
	Fence      *Fence   // set for the agent's own events
	MaxPending int64    // inbox only: ErrInboxFull when so many events have no fate; 0: no bound
	MaxPerPeer int64    // the same over the source of the first event: ErrPeerFull
	// Reader is the lease of the channel account through which the events came: they are stored while it is
	// current, else ErrLeaseLost. It seals nothing, because what its next holder receives again has the same key.
	// nil: none is needed.
	Reader *Fence
	// Revision is the state of the bindings by which the events were resolved: an engine that several
	// registries use returns ErrRevision when there is a newer one. 0: by none.
	Revision int64
}

// Appended is what a push did. A repeat answers what the first one did.
type Appended struct {
	IDs       []int64
	Keys      []string  // of the events of an inbox
	Origins   []*Origin // of the events of an inbox, as they were stored; nil for one without
	At        time.Time // when the first event was stored
	Duplicate bool
}

// Query selects events.
type Query struct {
	After    int64
	Limit    int
	Filter   *filter.Filter
	Tail     bool  // the newest instead of the next
	Upto     int64 // ids up to it; 0: no bound
	MaxBytes int   // 0: thread.MaxAnswer
}

// Page is what a query found, in rising id.
type Page struct {
	Events []thread.Event
	More   bool
	Head   int64
}

// Subscription is a consumer with its mirror progress.
type Subscription struct {
	Consumer, Handler string
	Filter            *string
	Acked             int64
	UpdatedAt         string
}

// Info describes a thread.
type Info struct {
	UUID          string
	Count, Head   int64
	LastAt        string
	Subscriptions []Subscription
}

// Threads keeps events and consumers.
type Threads interface {
	Ensure(ctx context.Context, r Ref, tuple string) (created bool, err error)
	Append(ctx context.Context, r Ref, events []NewEvent, o AppendOptions) (Appended, error)
	// Pushed answers what the push under an idempotency key did, as a repeat of it would;
	// false when there was none, or no such thread.
	Pushed(ctx context.Context, r Ref, key string) (Appended, bool, error)
	Read(ctx context.Context, r Ref, q Query) (Page, error)
	Info(ctx context.Context, r Ref) (Info, error)
	// Subscriptions answers what Info does of them, at a cost that does not grow with
	// the thread.
	Subscriptions(ctx context.Context, r Ref) ([]Subscription, error)
	Subscribe(ctx context.Context, r Ref, s Subscription) error
	Unsubscribe(ctx context.Context, r Ref, consumer string) error
	// Ack moves a consumer; back too, as the external pop does, unless forward.
	Ack(ctx context.Context, r Ref, consumer string, id int64, forward bool) (int64, error)
}

// InboxState is what dispatch must know of an inbox.
type InboxState struct {
	UUID        string
	Started     bool // the desired state
	Subscribed  bool // the inbox subscription stands
	Undecided   bool // no desired state was ever stored: Started follows the subscription, which another agent may have made
	Head, Acked int64
	Pending     int64 // events after Acked
	Dead        int64 // unresolved dead turns and deliveries
	Outbox      []string
	LastAt      string
	Fences      map[string]uint64 // x_fence by resource
}

// Inboxes keeps what is particular to inboxes.
type Inboxes interface {
	State(ctx context.Context, agent string) (InboxState, error)
	// InboxEvent answers one inbox event and its key; ErrNoTurn when there is none.
	InboxEvent(ctx context.Context, agent string, id int64) (thread.Event, string, error)
	// Origin answers that of an inbox event; nil: it has none.
	Origin(ctx context.Context, agent string, id int64) (*Origin, error)
	SetStarted(ctx context.Context, agent string, started bool, handler string) (changed bool, err error)
	OpenBatch(ctx context.Context, agent string, f Fence, o OpenBatch) (Batch, error)
	Settle(ctx context.Context, agent string, f Fence, s Settlement) (acked int64, err error)
	// Seal refuses every lower token of the fence's resource in the inbox from
	// now on, so that a token is never given twice even if the ledger is lost.
	Seal(ctx context.Context, agent string, f Fence) error
	// MarkOutbox keeps what a thread has left to deliver in the inbox database.
	MarkOutbox(ctx context.Context, agent string, m OutboxMark) error
}

// OpenBatch reads pending events. Route is called for each that has no origin, inside the
// seal's transaction; mode is the routing mode that holds for the event.
type OpenBatch struct {
	After int64 // 0: after the ack
	Limit int
	Mode  string // configured now
	// IfStarted: an empty batch unless the agent shall work. An engine that only one
	// registry uses leaves it to that.
	IfStarted bool
	// Claimed reports whether a turn of e exists under an earlier mode.
	Claimed func(ctx context.Context, e thread.Event, key, mode string) (bool, error)
	// Route answers the thread, or a problem that is the event's end.
	Route func(e thread.Event, mode string) (threadID string, problem error)
}

// Pending is an event that waits for its fate.
type Pending struct {
	Event  thread.Event
	Key    string
	Thread string
	Origin *Origin // nil: it has none
}

// Batch is what OpenBatch found.
type Batch struct {
	Events []Pending
	Head   int64
	// Scanned: every event up to it is among Events, or needs no work. After, when nothing
	// was read.
	Scanned int64
	More    bool
	Settled int // events that got their fate here
	Acked   int64
}

// Settlement is the end of one event in its inbox (T8).
type Settlement struct {
	InboxID    int64
	Key        string
	Thread     string
	Fate       Fate
	Error      string // one line, when dead
	OutboxHead int64  // newest event to deliver; 0: none
	Merged     []MergedMember
	// Session of the conversation, for the list of the agent's sessions; nil: it is
	// not known now, and what the list has of it stays.
	Session *Session
}

// OutboxMark is a thread's delivery progress. Reopen marks it as having work
// again, after a dead letter was retried.
type OutboxMark struct {
	Thread string
	Acked  int64
	Dead   int64
	Reopen bool
}

// Fate of an inbox event; the text is stored.
type Fate string

// Fates.
const (
	FateNone        Fate = ""
	FateReplied     Fate = "replied"
	FateSilent      Fate = "silent"
	FateMerged      Fate = "merged"
	FateAborted     Fate = "aborted"
	FateDead        Fate = "dead"
	FateNotAMessage Fate = "not-a-message"
)

// Limits of attempts per event.
const (
	MaxCrashAttempts = 5
	AloneAfter       = 1 // crash attempts from which the next claim is alone
)

// Engine is a whole store.
type Engine interface {
	Threads
	Inboxes
	Turns
	Memories
	Sessions
	Processes
	Media
	Deliveries
	Pruner
	Eraser
	Close() error
}

// Commit reports that events of a thread became visible.
type Commit struct {
	Ref    Ref
	Events []thread.Event
	// Holder has the lease of the agent whose inbox this is, as far as the engine has
	// seen on its way; empty: nobody, or not known.
	Holder string
}

// Millis is t as stored.
func Millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// FromMillis is a stored time.
func FromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
